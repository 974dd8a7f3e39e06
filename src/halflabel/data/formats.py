"""Bytes of a csv, tsv, json, jsonl, parquet or txt file become named columns of Python values."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from halflabel.types import BadInput

SUFFIXES = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "json", ".ndjson": "json", ".json": "json",
    ".parquet": "parquet", ".pq": "parquet", ".txt": "txt",
}  # fmt: skip
DELIMITERS = ",;\t|"
FOREIGN = {
    b"\x1f\x8b": ("a gzip", "unpack it first (gunzip)"),
    b"\x28\xb5\x2f\xfd": ("a zstd", "unpack it first (unzstd)"),
    b"PK\x03\x04": ("a zip or Excel", "unpack it, or export it as CSV"),
    b"ARROW1": ("an Arrow", "write it as Parquet"),
    b"\xff\xfe": ("UTF-16 text, not a UTF-8", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text, not a UTF-8", "save it as UTF-8"),
}
BIGGEST_BLOCK = 1 << 30


@dataclass(frozen=True)
class Table:
    """The columns of a file, and how to name one of its rows to a person.

    `place(i)` gives "line 7" (text formats), "record 7" (a JSON array) or "row 7" (Parquet), counted from 1.
    `typed` is False where every cell is a string because the format knows nothing else (csv, tsv, txt).
    """

    names: list[str]
    rows: int
    column: Callable[[str], list[Any]]
    place: Callable[[int], str]
    typed: bool


def load(path: str | Path, *, shown: str, wanted: set[str]) -> Table:
    """The file at `path` ("-": standard input) as columns.

    `wanted` are the names, in lower case, by which a header and its delimiter are known.
    """
    data = _bytes(path, shown)
    if not data.strip():
        raise BadInput(f"{shown} is empty; give a file with at least one text")
    kind = SUFFIXES.get(Path(path).suffix.lower(), "unknown")
    if kind == "parquet" or data.startswith(b"PAR1"):
        return _parquet(data, shown)
    for magic, (what, remedy) in FOREIGN.items():
        if data.startswith(magic):
            raise BadInput(f"{shown} is {what} file; {remedy}")
    text = _decode(data, shown)
    if kind == "unknown":
        kind = _guess(text, wanted)
    if kind == "json":
        return _json(text, shown)
    return _txt(text) if kind == "txt" else _csv(text, shown, wanted, "\t" if kind == "tsv" else ",")


def _bytes(path: str | Path, shown: str) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise BadInput(f"{shown} does not exist; check the path") from None
    except IsADirectoryError:
        raise BadInput(f"{shown} is a folder; give one file inside it") from None
    except PermissionError:
        raise BadInput(f"{shown} may not be read; change its permissions (chmod +r)") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{shown} cannot be read ({error}); check the path") from None


def _decode(data: bytes, shown: str) -> str:
    body = data.removeprefix(codecs.BOM_UTF8)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        byte = error.start + len(data) - len(body) + 1
        found = f"byte {byte} (0x{body[error.start]:02x}) is not UTF-8"
        raise BadInput(f"{shown}, line {line}: {found}; save it as UTF-8") from None


def _guess(text: str, wanted: set[str]) -> str:
    head = text.lstrip()
    if head.startswith("{") or re.match(r"\[\s*(\{|\])", head):
        return "json"
    columns = _header(text, _delimiter(text, wanted, ","))
    return "csv" if any(name.strip().lower() in wanted for name in columns) else "txt"


def _txt(text: str) -> Table:
    lines = re.split(r"\r\n|\n|\r", text)
    if not lines[-1]:
        lines.pop()
    return Table(["text"], len(lines), lambda name: lines, lambda i: f"line {i + 1}", typed=False)


def _json(text: str, shown: str) -> Table:
    records, place = _array(text, shown) if text.lstrip().startswith("[") else _lines(text, shown)
    for i, record in enumerate(records):
        if not isinstance(record, dict):
            kind = type(record).__name__
            raise BadInput(f'{shown}, {place(i)}: a {kind}, not an object; write it as {{"text": "..."}}')
    names = list(dict.fromkeys(key for record in records for key in record))
    return Table(
        names, len(records), lambda name: [record.get(name) for record in records], place, typed=True
    )


def _array(text: str, shown: str) -> tuple[list[Any], Callable[[int], str]]:
    try:
        return json.loads(text), lambda i: f"record {i + 1}"
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadInput(f"{shown}, {place}: not valid JSON ({error.msg}); mend or export it again") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{shown}, line 1: not readable as JSON ({error}); export it again") from None


def _lines(text: str, shown: str) -> tuple[list[Any], Callable[[int], str]]:
    """One JSON value per line, by the standard library: Arrow guesses dates and joins unlike types."""
    records, numbers = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            remedy = "write one whole object per line, or an array"
            raise BadInput(f"{shown}, line {number}: not valid JSON ({reason}); {remedy}") from None
        numbers.append(number)
    return records, lambda i: f"line {numbers[i]}"


def _parquet(data: bytes, shown: str) -> Table:
    import pyarrow.parquet as pq

    def column(name: str) -> list[Any]:
        try:
            return list(file.read(columns=[name]).column(name).to_pylist())
        except (pa.ArrowException, OSError, ValueError) as error:
            damage = f"{shown}, column {name!r}: damaged ({_first(error)})"
            raise BadInput(f"{damage}; write the file again") from None

    try:
        file = pq.ParquetFile(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        damage = f"{shown} is not a whole Parquet file ({_first(error)})"
        raise BadInput(f"{damage}; copy or write it again") from None
    return Table(
        file.schema_arrow.names, file.metadata.num_rows, column, lambda i: f"row {i + 1}", typed=True
    )


def _first(error: Exception) -> str:
    return str(error).partition("\n")[0][:100].rstrip(".")


def _csv(text: str, shown: str, wanted: set[str], usual: str) -> Table:
    from pyarrow import csv as arrow

    data = text.encode("utf-8")
    delimiter = _delimiter(text, wanted, usual)
    names = _header(text, delimiter)
    try:
        table = arrow.read_csv(
            pa.BufferReader(data),
            # one block: a cell may be longer than Arrow's usual block of 1 MB
            read_options=arrow.ReadOptions(block_size=min(len(data) + 1, BIGGEST_BLOCK)),
            parse_options=arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=arrow.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(_ragged(text, shown, delimiter, error)) from None
    if table.num_rows and _never_closed(text, table.column(table.num_columns - 1)[-1].as_py()):
        raise BadInput(_ragged(text, shown, delimiter, ValueError("damaged")))

    def place(i: int) -> str:
        records = enumerate(_records(text, delimiter))  # record 0 is the header
        return next((f"line {line}" for n, (line, _) in records if n == i + 1), f"record {i + 2}")

    def column(name: str) -> list[str]:
        return list(table.column(table.column_names.index(name)).to_pylist())

    return Table(table.column_names, table.num_rows, column, place, typed=False)


def _delimiter(text: str, wanted: set[str], usual: str) -> str:
    def clarity(delimiter: str) -> tuple[bool, bool, int]:
        names = _header(text, delimiter)
        known = any(name.strip().lower() in wanted for name in names)
        return known, known and len(names) > 1, delimiter == usual

    return max(DELIMITERS, key=clarity)


def _header(text: str, delimiter: str) -> list[str]:
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
    return f"{shown}, line 1: not readable as csv ({_first(error)}); export it again"
