"""csv and tsv: cells separated by a delimiter, with quotes around those that contain it."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from halflabel.data.columns import arrow_strings
from halflabel.data.readers.annotation_tools import label_studio_csv
from halflabel.data.readers.files import HEAD, File, decode, first_line
from halflabel.data.readers.formats import (
    Format,
    ReadOptions,
    Row,
    SourceTable,
    Write,
    flat_row,
    numbered,
    register_format,
)
from halflabel.errors import DataError

DELIMITERS = ",;\t|"
TSV_SUFFIXES = (".tsv", ".tab")
MAX_BLOCK = 1 << 30
RECORDS = 20  # by which the delimiter of a file without a header is detected
WHOLE = 1 << 26  # bytes up to which a file is read in one block, so that a cell may be as long as the file


def read(file: File, options: ReadOptions) -> SourceTable:
    """All cells as strings."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    text = file.text()
    data = text.encode("utf-8")
    delimiter = _file_delimiter(file, text, options)
    names = column_names(file, text, delimiter)
    try:
        # one block: a cell may be longer than Arrow's default block of 1 MB
        table = arrow.read_csv(pa.BufferReader(data), _read_options(file, names, min(len(data) + 1, MAX_BLOCK)),
                               _parse_options(delimiter), _convert_options(names))
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _explained(text, file, delimiter, error) from None
    if table.num_rows and _ends_in_open_quote(text, table.column(table.num_columns - 1)[-1].as_py()):
        raise _explained(text, file, delimiter, ValueError("damaged"))

    def position(i: int) -> str:
        records = enumerate(_records(text, delimiter), -1 if file.header else 0)
        return next((f"line {line}" for n, (line, _) in records if n == i), _position(i, file))

    def column(name: str) -> list[str]:
        return list(table.column(table.column_names.index(name)).to_pylist())

    source = SourceTable(table.column_names, table.num_rows, column, position, typed=False)
    return label_studio_csv(source) or source


def head(file: File, options: ReadOptions) -> SourceTable:
    """The first records; malformed ones are skipped here, since reading the rest will report them."""
    text, delimiter = _start(file, options)
    records = [cells for _, cells in _records(text, delimiter)]
    names = column_names(file, text, delimiter)
    rows = [cells for cells in records[1 if file.header else 0 :] if len(cells) == len(names)]
    more = len(records) > 1 or len(file.head) >= HEAD
    return SourceTable(names, max(len(rows), more), lambda name: [cells[names.index(name)] for cells in rows],
                       partial(_position, file=file), typed=False)


def stream(file: File, options: ReadOptions, columns: list[str]) -> Iterator[list[Any]]:
    """Columns, a block at a time; a small, compressed or malformed file is read whole, which reports errors."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    if file.compression or not file.is_utf8 or Path(file.local_path).stat().st_size <= WHOLE:
        table = read(file, options)
        yield [arrow_strings([cell or "" for cell in table.column(name)]) for name in columns]
        return
    text, delimiter = _start(file, options)
    names = column_names(file, text, delimiter)
    try:
        batches = arrow.open_csv(pa.OSFile(file.local_path), _read_options(file, names, WHOLE // 2),
                                 _parse_options(delimiter), _convert_options(names, columns))
        for batch in batches:
            yield [batch.column(name).cast(pa.large_string()) for name in columns]
    except (pa.ArrowException, OSError, ValueError) as error:
        read(file, options)  # raises if the file is malformed; otherwise a cell exceeded the block
        raise DataError(f"{file.name} has cells that are too long to be read in blocks ({first_line(error)}); write it "
                        "as jsonl") from None


def rows(file: File, options: ReadOptions) -> Iterator[tuple[list[Row], Callable[[int], str]]]:
    """All columns, a block at a time; of several with the same name, the first."""
    names = list(dict.fromkeys(column_names(file, *_start(file, options))))
    first = 0
    for columns in stream(file, options, names):
        cells = zip(*(column.to_pylist() for column in columns), strict=True)
        yield [dict(zip(names, row, strict=True)) for row in cells], partial(_position, file=file, first=first)
        first += len(columns[0])


def _position(i: int, file: File, first: int = 0) -> str:
    return f"record {first + i + 1 + file.header}"


def _start(file: File, options: ReadOptions) -> tuple[str, str]:
    """The first lines and the delimiter."""
    end = file.head.rfind(b"\n") + 1
    text = decode(file.head[:end] or file.content, file.name)
    return text, _file_delimiter(file, text, options)


def _read_options(file: File, names: list[str], block_size: int) -> Any:
    from pyarrow import csv as arrow

    return arrow.ReadOptions(block_size=block_size, column_names=None if file.header else names)


def _parse_options(delimiter: str) -> Any:
    from pyarrow import csv as arrow

    return arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True)


def _convert_options(names: list[str], columns: list[str] | None = None) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow

    return arrow.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), include_columns=columns)


def _file_delimiter(file: File, text: str, options: ReadOptions) -> str:
    default = "\t" if file.suffix in TSV_SUFFIXES else ","
    return detect_delimiter(text, options, default) if file.header else _regular_delimiter(text, default)


def detect_delimiter(text: str, options: ReadOptions, default: str) -> str:
    """The delimiter with which the first record looks most like a header."""
    def score(delimiter: str) -> tuple[bool, bool, bool]:
        names = header(text, delimiter)
        known = _has_known_name(names, options)
        return known, known and len(names) > 1, delimiter == default

    return max(DELIMITERS, key=score)


def _regular_delimiter(text: str, default: str) -> str:
    """The delimiter that splits the first records into the same number of cells, for files without a header."""
    def score(delimiter: str) -> tuple[bool, bool]:
        widths = {len(cells) for _, cells in islice(_records(text[: 1 << 16], delimiter), RECORDS)}
        return widths != {1} and len(widths) == 1, delimiter == default

    return max(DELIMITERS, key=score)


def _has_known_name(names: list[str], options: ReadOptions) -> bool:
    return any(name.strip().lower() in options.header_names for name in names)


def looks_like_csv(text: str, options: ReadOptions) -> float:
    """0.5 if the first record has a known column name."""
    return 0.5 * _has_known_name(header(text, detect_delimiter(text, options, ",")), options)


def column_names(file: File, text: str, delimiter: str) -> list[str]:
    """The names in the header, or without one the numbers of the columns from 1."""
    first = header(text, delimiter)
    return first if file.header else numbered(len(first))


def header(text: str, delimiter: str) -> list[str]:
    """The cells of the first record."""
    return next(_records(text[: 1 << 16], delimiter), (1, [""]))[1]


def _records(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Records with the line on which each starts; blank lines are skipped, as in Arrow."""
    previous_limit = csv.field_size_limit(sys.maxsize)
    try:
        reader, start = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), 1
        for record in reader:
            if record:
                yield start, record
            start = reader.line_num + 1
    finally:
        csv.field_size_limit(previous_limit)


def _ends_in_open_quote(text: str, last: str | None) -> bool:
    """Whether the last cell extends to the end of the file because its opening quote is never closed."""
    # cells of nothing but quotes or line ends look the same closed and open; they are harmless
    return last is not None and last.strip('"\r\n') != "" and text.endswith('"' + last.replace('"', '""'))


def _explained(text: str, file: File, delimiter: str, error: Exception) -> DataError:
    """The error about a malformed file, with the first line that is wrong."""
    source, width = file.name, 0
    for line, record in _records(text, delimiter):
        width = width or len(record)
        if _ends_in_open_quote(text, record[-1]):
            return DataError(f"{source}, line {line}: a quote is opened and never closed; close it, or double it "
                             "inside a cell")
        if len(record) != width:
            first = "header" if file.header else "first line"
            return DataError(f"{source}, line {line}: {len(record)} cells where the {first} has {width}; put quotes "
                             f"around cells that contain {delimiter!r}, or complete the row")
    return DataError(f"{source}, line 1: cannot be parsed as csv ({first_line(error)}); export it again")


def delimited_writer(stream: TextIO, delimiter: str) -> Write:
    """Writes a header, from the keys of the first row, and a line for each row."""
    names: list[str] = []

    def line(cells: Iterable[Any]) -> str:
        return delimiter.join(_quoted(cell, delimiter, alone=len(names) == 1) for cell in cells) + "\n"

    def write(rows: Sequence[Row]) -> None:
        for row in map(flat_row, rows):
            if not names:
                names.extend(row)
                stream.write(line(names))
            stream.write(line(row.get(name) for name in names))
    return write


def _quoted(value: Any, delimiter: str, *, alone: bool) -> str:
    """A cell with quotes where needed; written by hand since `csv.writer` does not quote a lone carriage return."""
    if isinstance(value, list):
        value = json.dumps(value, ensure_ascii=False)
    text = "" if value is None else str(value)
    if (alone and not text) or any(mark in text for mark in (delimiter, '"', "\n", "\r")):
        return '"' + text.replace('"', '""') + '"'
    return text


register_format(Format("csv", (".csv",), read, stream=stream, rows=rows, head=head, confidence=looks_like_csv,
                       text_writer=partial(delimited_writer, delimiter=",")))
register_format(Format("tsv", TSV_SUFFIXES, read, stream=stream, rows=rows, head=head,
                       text_writer=partial(delimited_writer, delimiter="\t")))
