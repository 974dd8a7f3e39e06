"""csv and tsv: cells parted by a delimiter, with quotes around those that hold it."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from halflabel.data.columns import strings
from halflabel.data.readers.annotation_tools import label_studio_column
from halflabel.data.readers.columnar import first
from halflabel.data.readers.files import HEAD, File, decode
from halflabel.data.readers.formats import SourceTable, register_format
from halflabel.errors import BadInput

DELIMITERS = ",;\t|"
BIGGEST_BLOCK = 1 << 30
SMALL = 1 << 26  # bytes up to which a file is read in one piece, so that a cell may be as long as the file


def stream(file: File, wanted: set[str], columns: list[str]) -> Iterator[list[Any]]:
    """Some columns, a block at a time; a file that is wrong is read again as a whole, to say where."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    if file.packing or Path(file.place).stat().st_size <= SMALL:
        table = read(file, wanted)
        yield [strings(table.column(name)) for name in columns]
        return
    text, delimiter = _start(file, wanted)
    names = header(text, delimiter)
    try:
        source = pa.OSFile(file.place)
        batches = arrow.open_csv(source, arrow.ReadOptions(block_size=SMALL // 2), _quoting(delimiter),
                                 _strings(names, columns))
        for batch in batches:
            yield [batch.column(name).cast(pa.large_string()) for name in columns]
    except (pa.ArrowException, OSError, ValueError) as error:
        read(file, wanted)  # says what is wrong, unless only the size of a block was
        raise BadInput(f"{file.name} has cells that are too long to be read in pieces ({first(error)}); write it as "
                       "jsonl") from None


def head(file: File, wanted: set[str]) -> SourceTable:
    """The first records; if the file has only a few, whether they are well formed is seen later."""
    text, delimiter = _start(file, wanted)
    records = [cells for _, cells in _records(text, delimiter)]
    names, rows = records[0], [cells for cells in records[1:] if len(cells) == len(records[0])]
    more = len(records) > 1 or len(file.head) >= HEAD
    return SourceTable(names, max(len(rows), more), lambda name: [cells[names.index(name)] for cells in rows],
                 lambda i: f"record {i + 2}", typed=False)


def _start(file: File, wanted: set[str]) -> tuple[str, str]:
    end = file.head.rfind(b"\n") + 1
    text = decode(file.head[:end] or file.whole, file.name)
    return text, delimiter_of(text, wanted, "\t" if file.suffix in (".tsv", ".tab") else ",")


@register_format("csv", ".csv", ".tsv", ".tab", stream=stream, head=head)
def read(file: File, wanted: set[str]) -> SourceTable:
    """All cells as strings."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    text = file.text()
    data = text.encode("utf-8")
    delimiter = delimiter_of(text, wanted, "\t" if file.suffix in (".tsv", ".tab") else ",")
    names = header(text, delimiter)
    try:
        # one block: a cell may be longer than Arrow's usual block of 1 MB
        table = arrow.read_csv(pa.BufferReader(data), arrow.ReadOptions(block_size=min(len(data) + 1, BIGGEST_BLOCK)),
                               _quoting(delimiter), _strings(names))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(_ragged(text, file.name, delimiter, error)) from None
    if table.num_rows and _never_closed(text, table.column(table.num_columns - 1)[-1].as_py()):
        raise BadInput(_ragged(text, file.name, delimiter, ValueError("damaged")))

    def place(i: int) -> str:
        records = enumerate(_records(text, delimiter))  # record 0 is the header
        return next((f"line {line}" for n, (line, _) in records if n == i + 1), f"record {i + 2}")

    def column(name: str) -> list[str]:
        return list(table.column(table.column_names.index(name)).to_pylist())

    found = SourceTable(table.column_names, table.num_rows, column, place, typed=False)
    return label_studio_column(found, file.name) or found


def _quoting(delimiter: str) -> Any:
    from pyarrow import csv as arrow

    return arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True)


def _strings(names: list[str], wanted: list[str] | None = None) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow

    return arrow.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), include_columns=wanted)


def delimiter_of(text: str, wanted: set[str], usual: str) -> str:
    """The delimiter under which the first record looks most like a header."""
    def clarity(delimiter: str) -> tuple[bool, bool, int]:
        names = header(text, delimiter)
        known = any(name.strip().lower() in wanted for name in names)
        return known, known and len(names) > 1, delimiter == usual

    return max(DELIMITERS, key=clarity)


def header(text: str, delimiter: str) -> list[str]:
    """The cells of the first record."""
    return next(_records(text[: 1 << 16], delimiter), (1, [""]))[1]


def _records(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Records with the line on which each starts; blank lines are passed over, as Arrow does."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        reader, start = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), 1
        for record in reader:
            if record:
                yield start, record
            start = reader.line_num + 1
    finally:
        csv.field_size_limit(before)


def _never_closed(text: str, last: str | None) -> bool:
    """Whether the last cell runs to the end of the file because its opening quote has no partner."""
    # cells of nothing but quotes or line ends look the same closed and open; they are harmless
    return last is not None and last.strip('"\r\n') != "" and text.endswith('"' + last.replace('"', '""'))


def _ragged(text: str, shown: str, delimiter: str, error: Exception) -> str:
    width, last, line = 0, "", 1
    for line, record in _records(text, delimiter):
        width, last = width or len(record), record[-1]
        if _never_closed(text, last):
            break
        if len(record) != width:
            remedy = f"put quotes around cells that hold {delimiter!r}, or fill up the row"
            return f"{shown}, line {line}: {len(record)} cells where the header has {width}; {remedy}"
    if _never_closed(text, last):
        return (
            f"{shown}, line {line}: a quote is opened and never closed; close it, or double it inside a cell"
        )
    return f"{shown}, line 1: not readable as csv ({first(error)}); export it again"
