"""Typed columns: Parquet, Arrow, Hugging Face datasets, and frames in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from halflabel.data.columns import arrow_strings
from halflabel.data.labels import text_cells
from halflabel.data.readers.files import File, first_line
from halflabel.data.readers.formats import Format, ReadOptions, Row, SourceTable, Write, flat_row, register_format
from halflabel.errors import DataError, OutputError

BATCH = 16_384  # rows in memory at a time
HEAD_ROWS = 1024


def read_parquet(file: File, options: ReadOptions) -> SourceTable:
    """A Parquet file; a column is read on access."""
    import pyarrow as pa

    parquet = _open_parquet(file)

    def column(name: str) -> list[Any]:
        try:
            return list(parquet.read(columns=[name]).column(name).to_pylist())
        except pa.ArrowMemoryError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{file.name}, column {name!r}: damaged ({first_line(error)}); write the file again"
                            ) from None

    return SourceTable(parquet.schema_arrow.names, parquet.metadata.num_rows, column, _position, typed=True)


def parquet_head(file: File, options: ReadOptions) -> SourceTable:
    """The first rows."""
    import pyarrow as pa

    parquet = _open_parquet(file)
    try:
        batch = next(parquet.iter_batches(HEAD_ROWS), None)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file.name}, row 1 or later: damaged ({first_line(error)}); write the file again") from None
    table = parquet.schema_arrow.empty_table() if batch is None else pa.Table.from_batches([batch])
    return from_arrow(table, file.name)


def stream_parquet(file: File, options: ReadOptions, columns: list[str]) -> Iterator[list[Any]]:
    """Columns of a Parquet file, a batch at a time."""
    return _string_batches(file, _open_parquet(file).iter_batches(BATCH, columns=columns), columns)


def parquet_rows(file: File, options: ReadOptions) -> Iterator[tuple[list[Row], Callable[[int], str]]]:
    """All columns of a Parquet file, a batch at a time."""
    return _row_batches(file, _open_parquet(file).iter_batches(BATCH))


def parquet_part(file: File, start: int, stop: int) -> Iterator[tuple[list[Row], Callable[[int], str]]]:
    """The rows from start to stop of a Parquet file; row groups without any of them are not read."""
    parquet = _open_parquet(file)
    sizes = [parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)]
    ends = list(accumulate(sizes))
    groups = [i for i, end in enumerate(ends) if end > start and end - sizes[i] < stop]

    def batches() -> Iterator[Any]:
        first = ends[groups[0]] - sizes[groups[0]]
        for batch in parquet.iter_batches(BATCH, row_groups=groups):
            low, high = max(start - first, 0), min(stop - first, batch.num_rows)
            if low < high:
                yield batch.slice(low, high - low)
            first += batch.num_rows

    return _row_batches(file, batches(), start)


def arrow_rows(file: File, options: ReadOptions) -> Iterator[tuple[list[Row], Callable[[int], str]]]:
    """All columns of an Arrow file or stream, a batch at a time."""
    return _row_batches(file, _arrow_batches(file))


def _row_batches(file: File, batches: Iterable[Any],
                 first: int = 0) -> Iterator[tuple[list[Row], Callable[[int], str]]]:
    """Rows of record batches; NaN, which JSON does not have, becomes null."""
    import pyarrow as pa

    try:
        for batch in batches:
            names = list(dict.fromkeys(batch.schema.names))
            columns = [batch.column(batch.schema.names.index(name)).to_pylist() for name in names]
            yield ([{name: None if value != value else value for name, value in zip(names, row, strict=True)}
                    for row in zip(*columns, strict=True)], partial(_position, first=first))
            first += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file.name}, row {first + 1} or later: damaged ({first_line(error)}); write the file again"
                        ) from None


def _open_parquet(file: File) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = (pa.BufferReader(file.content) if file.compression else file.stored() if file.is_remote
              else file.local_path)
    try:
        parquet = pq.ParquetFile(source, pre_buffer=False)  # pre-buffering would read ahead without limit
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file.name} is not a complete Parquet file ({first_line(error)}); copy or write it again"
                        ) from None
    groups = (parquet.metadata.row_group(i) for i in range(parquet.metadata.num_row_groups))
    file.check_size(max(parquet.metadata.num_rows, sum(group.total_byte_size for group in groups)),
                    os.stat(file.local_path).st_size)
    return parquet


def read_arrow(file: File, options: ReadOptions) -> SourceTable:
    """An Arrow file or stream."""
    return _from_batches(list(_arrow_batches(file)), file.name)


def stream_arrow(file: File, options: ReadOptions, columns: list[str]) -> Iterator[list[Any]]:
    """Columns of an Arrow file or stream, a batch at a time."""
    return _string_batches(file, _arrow_batches(file), columns)


def _arrow_batches(file: File) -> Iterator[Any]:
    import pyarrow as pa

    source = pa.BufferReader(file.content) if file.compression else pa.memory_map(file.local_path)
    try:
        if file.head.startswith(b"ARROW1"):
            reader = pa.ipc.open_file(source)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            batches = iter(pa.ipc.open_stream(source))
        for batch in batches:
            batch.validate(full=True)  # Arrow trusts offsets otherwise, and reads whatever memory they point to
            yield batch
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file.name} is not a complete Arrow file ({first_line(error)}); copy or write it again"
                        ) from None


def _string_batches(file: File, batches: Iterable[Any], columns: list[str]) -> Iterator[list[Any]]:
    """Columns of record batches as Arrow strings."""
    import pyarrow as pa

    rows = 0
    try:
        for batch in batches:
            yield [_strings(batch.column(name), name, file, rows) for name in columns]
            rows += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file.name}, row {rows + 1} or later: damaged ({first_line(error)}); write the file again"
                        ) from None


def _strings(array: Any, name: str, file: File, first: int) -> Any:
    """A column as Arrow strings; other types are converted or refused by `text_cells`, as in all formats."""
    import pyarrow as pa

    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        if pa.types.is_string_view(array.type):
            return array.cast(pa.large_string())
        cells = text_cells(array.to_pylist(), column=name, where=lambda i: f"{file.name}, row {first + i + 1}")
        return arrow_strings(cells)
    array.validate(full=True)  # a file may contain bytes that are not UTF-8
    return array.cast(pa.large_string())


def _from_batches(batches: list[Any], source: str) -> SourceTable:
    import pyarrow as pa

    if not batches:
        raise DataError(f"{source} has no rows; give at least one text")
    return from_arrow(pa.Table.from_batches(batches), source)


def from_arrow(table: Any, source: str, classes: dict[str, list[str]] | None = None) -> SourceTable:
    """An Arrow table; the class numbers of a Hugging Face dataset become class names."""
    import pyarrow as pa

    names = class_names(table.schema.metadata or {}) if classes is None else classes

    def column(name: str) -> list[Any]:
        try:
            values = list(table.column(name).to_pylist())
        except (pa.ArrowException, ValueError) as error:
            raise DataError(f"{source}, column {name!r}: damaged ({first_line(error)}); write it again") from None
        known = names.get(name)
        return values if known is None else [None if v is None or v < 0 else known[v] for v in values]

    return SourceTable(table.column_names, table.num_rows, column, _position, typed=True)


def _position(i: int, first: int = 0) -> str:
    return f"row {first + i + 1}"


def class_names(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    """The class names of each `ClassLabel` column of a Hugging Face dataset."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        return {name: feature["names"] for name, feature in features.items() if feature.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


def dataset_folder(folder: Path) -> SourceTable | None:
    """A dataset that `Dataset.save_to_disk` wrote; None if the folder is something else."""
    if (folder / "dataset_dict.json").is_file():
        raise DataError(f"{folder} contains several datasets; give one of the folders inside it")
    if not (folder / "state.json").is_file():
        return None
    try:
        files = [entry["filename"] for entry in json.loads((folder / "state.json").read_bytes())["_data_files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / 'state.json'} does not describe a dataset ({error}); save it again") from None
    return _from_batches([batch for name in files for batch in _arrow_batches(File(str(folder / name)))], str(folder))


def frame_table(frame: Any, source: str) -> SourceTable:
    """A pandas or polars frame, an Arrow table or a Hugging Face dataset in memory."""
    import pyarrow as pa

    classes: dict[str, list[str]] | None = None
    if hasattr(frame, "with_format") and hasattr(frame, "features"):  # a Dataset, perhaps with selected rows
        classes = {name: feature.names for name, feature in frame.features.items() if hasattr(feature, "names")}
        frame = frame.with_format("arrow")[:]
    elif not hasattr(frame, "__arrow_c_stream__"):
        raise DataError(f"{source} cannot be read; give a path, a pandas or polars frame, an Arrow table or a Hugging "
                        "Face dataset")
    try:
        return from_arrow(pa.table(frame), source, classes)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{source} cannot be read as a table ({first_line(error)}); use columns of one type") from None


@contextmanager
def parquet_writer(file: Path) -> Iterator[Write]:
    """Writes rows in the schema of the first ones, where columns without values are strings."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    writers: list[Any] = []

    def mixed(error: Exception) -> OutputError:
        return OutputError(f"a column has values of several types, unlike any of Parquet ({first_line(error)}); write "
                           "jsonl or csv")

    def write(rows: Sequence[Row]) -> None:
        if not rows:
            return
        records = [flat_row(row) for row in rows]
        if not writers:
            try:
                schema = pa.Table.from_pylist(records).schema
            except pa.ArrowException as error:
                raise mixed(error) from None
            writers.append(ParquetWriter(file, pa.schema([
                (field.name, pa.string() if pa.types.is_null(field.type) else field.type) for field in schema])))
        try:
            writers[0].write_table(pa.Table.from_pylist(records, writers[0].schema))
        except pa.ArrowException as error:
            raise mixed(error) from None
    try:
        yield write
    finally:
        for writer in writers:
            writer.close()
        if not writers:
            file.touch()


register_format(Format("parquet", (".parquet", ".pq"), read_parquet, stream=stream_parquet, rows=parquet_rows,
                       part=parquet_part, head=parquet_head, magic=(b"PAR1",), file_writer=parquet_writer))
register_format(Format("arrow", (".arrow", ".feather", ".ipc"), read_arrow, stream=stream_arrow, rows=arrow_rows,
                       magic=(b"ARROW1", b"\xff\xff\xff\xff"),  # the second: an Arrow stream
                       written_as="parquet"))
