"""Columns that know their types: Parquet, Arrow, Hugging Face datasets, and frames in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from halflabel.data.columns import strings
from halflabel.data.readers.cells import text_cells
from halflabel.data.readers.files import File
from halflabel.data.readers.formats import SourceTable, register_format
from halflabel.errors import BadInput

MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}  # the last: an Arrow stream
BATCH = 16_384  # rows in memory at a time


def _stream(file: File, wanted: set[str], columns: list[str]) -> Iterator[list[Any]]:
    import pyarrow as pa

    at = 0
    batches = _parquet_batches(file, columns) if _is_parquet(file) else _arrow_batches(file)
    try:
        for batch in batches:
            yield [_strings(batch.column(name), name, file, at) for name in columns]
            at += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file.name}, row {at + 1} or later: damaged ({first(error)}); write the file again") from None


def _strings(array: Any, name: str, file: File, at: int) -> Any:
    """A column as Arrow strings; numbers become text as everywhere else, and what is no text is refused."""
    import pyarrow as pa

    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        if pa.types.is_string_view(array.type):
            return array.cast(pa.large_string())
        cells = text_cells(array.to_pylist(), column=name, where=lambda i: f"{file.name}, row {at + i + 1}")
        return strings(cells)
    array.validate(full=True)  # a file may hold bytes that are not UTF-8
    return array.cast(pa.large_string())


def _is_parquet(file: File) -> bool:
    return file.head.startswith(b"PAR1") or file.suffix in (".parquet", ".pq")


def _parquet_batches(file: File, columns: list[str]) -> Iterator[Any]:
    return iter(_parquet(file).iter_batches(BATCH, columns=columns))


def _parquet(file: File) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(_bytes(file), pre_buffer=False)  # else it reads ahead without end
    except (pa.ArrowException, OSError) as error:
        damage = f"{file.name} is not a whole Parquet file ({first(error)})"
        raise BadInput(f"{damage}; copy or write it again") from None


def _bytes(file: File) -> Any:
    """What Arrow can seek in: the file itself, or its unpacked bytes."""
    import pyarrow as pa

    return pa.BufferReader(file.whole) if file.packing else file.place


def _arrow_batches(file: File) -> Iterator[Any]:
    import pyarrow as pa

    source = pa.BufferReader(file.whole) if file.packing else pa.memory_map(file.place)
    try:
        if file.head.startswith(b"ARROW1"):
            opened = pa.ipc.open_file(source)
            yield from (opened.get_batch(i) for i in range(opened.num_record_batches))
        else:
            yield from pa.ipc.open_stream(source)
    except (pa.ArrowException, OSError) as error:
        damage = f"{file.name} is not a whole Arrow file ({first(error)})"
        raise BadInput(f"{damage}; copy or write it again") from None


def _head(file: File, wanted: set[str]) -> SourceTable:
    """The first rows."""
    import pyarrow as pa

    opened = _parquet(file)
    try:
        batch = next(opened.iter_batches(1024), None)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{file.name}, row 1 or later: damaged ({first(error)}); write the file again") from None
    table = opened.schema_arrow.empty_table() if batch is None else pa.Table.from_batches([batch])
    return from_arrow(table, file.name)


@register_format("parquet", ".parquet", ".pq", stream=_stream, head=_head)
def parquet(file: File, wanted: set[str]) -> SourceTable:
    """A Parquet file; columns are read when they are asked for."""
    import pyarrow as pa

    opened = _parquet(file)

    def column(name: str) -> list[Any]:
        try:
            return list(opened.read(columns=[name]).column(name).to_pylist())
        except (pa.ArrowException, OSError, ValueError) as error:
            damage = f"{file.name}, column {name!r}: damaged ({first(error)})"
            raise BadInput(f"{damage}; write the file again") from None

    return SourceTable(opened.schema_arrow.names, opened.metadata.num_rows, column, lambda i: f"row {i + 1}", typed=True)


@register_format("arrow", ".arrow", ".feather", ".ipc", stream=_stream)
def arrow(file: File, wanted: set[str]) -> SourceTable:
    """An Arrow file or stream."""
    import pyarrow as pa

    batches = list(_arrow_batches(file))
    if not batches:
        raise BadInput(f"{file.name} has no rows; give at least one text")
    return from_arrow(pa.Table.from_batches(batches), file.name)


def from_arrow(table: Any, shown: str, classes: dict[str, list[str]] | None = None) -> SourceTable:
    """An Arrow table; whole-number labels of a Hugging Face dataset get their names back."""
    import pyarrow as pa

    names = class_names(table.schema.metadata or {}) if classes is None else classes

    def column(name: str) -> list[Any]:
        try:
            values = list(table.column(name).to_pylist())
        except (pa.ArrowException, ValueError) as error:
            raise BadInput(f"{shown}, column {name!r}: damaged ({first(error)}); write it again") from None
        known = names.get(name)
        return values if known is None else [None if v is None or v < 0 else known[v] for v in values]

    return SourceTable(table.column_names, table.num_rows, column, lambda i: f"row {i + 1}", typed=True)


def class_names(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    """The names of the classes in each column of a Hugging Face dataset that has such."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        return {name: one["names"] for name, one in features.items() if one.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


def dataset_folder(folder: Path) -> SourceTable | None:
    """A folder that `Dataset.save_to_disk` wrote; None if it is something else."""
    import pyarrow as pa

    if (folder / "dataset_dict.json").is_file():
        raise BadInput(f"{folder} holds several datasets; name one of the folders inside it")
    if not (folder / "state.json").is_file():
        return None
    try:
        files = [entry["filename"] for entry in json.loads((folder / "state.json").read_bytes())["_data_files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{folder / 'state.json'} does not describe a dataset ({error}); save it again") from None
    batches = [batch for name in files for batch in _arrow_batches(File(str(folder / name)))]
    if not batches:
        raise BadInput(f"{folder} has no rows; give at least one text")
    return from_arrow(pa.Table.from_batches(batches), str(folder))


def frame(value: Any, shown: str) -> SourceTable:
    """A pandas or polars frame, an Arrow table or a Hugging Face dataset in memory."""
    import pyarrow as pa

    classes: dict[str, list[str]] | None = None
    if hasattr(value, "with_format") and hasattr(value, "features"):  # a Dataset, perhaps of chosen rows
        classes = {name: one.names for name, one in value.features.items() if hasattr(one, "names")}
        value = value.with_format("arrow")[:]
    elif not hasattr(value, "__arrow_c_stream__"):
        remedy = "give a path, a pandas or polars frame, an Arrow table or a Hugging Face dataset"
        raise BadInput(f"{shown} is a {type(value).__name__}, which cannot be read; {remedy}")
    try:
        return from_arrow(pa.table(value), shown, classes)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BadInput(f"{shown}: not readable as a table ({first(error)}); use columns of one kind") from None


def first(error: Exception) -> str:
    """The first line of an error of Arrow, as part of a sentence."""
    return str(error).partition("\n")[0][:100].rstrip(".")
