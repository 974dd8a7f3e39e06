"""JSON: an array of objects, or one object per line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from halflabel.data.columns import strings
from halflabel.data.readers.annotation_tools import understood
from halflabel.data.readers.cells import text_cells
from halflabel.data.readers.files import HEAD, File, decode, line_blocks
from halflabel.data.readers.formats import SourceTable, from_records, register_format
from halflabel.errors import BadInput

Place = Callable[[int], str]


def stream(file: File, wanted: set[str], columns: list[str]) -> Iterator[list[Any]]:
    """Some columns of one object per line, a block at a time; other shapes are read whole."""
    import pyarrow as pa

    if _is_array(file) or head(file, wanted).roles:
        table = read(file, wanted)
        yield [_texts(table.column(name), name, file, table.place) for name in columns]
        return
    first = 1
    for block in line_blocks(file):
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        found = _fast(block, columns, lines)
        if found is None:
            records, place = _lines(decode(block, file.name, first=first), file.name, first)
            table = from_records(records, place)
            found = [_texts(table.column(name), name, file, place) for name in columns]
        first += lines
        yield [column.cast(pa.large_string()) for column in found]


def _fast(block: bytes, columns: list[str], lines: int) -> list[Any] | None:
    """The columns by Arrow; None where only the standard library knows what is meant, or what is wrong."""
    import pyarrow as pa
    from pyarrow import json as arrow

    schema = pa.schema([(name, pa.large_string()) for name in columns])
    try:
        table = arrow.read_json(
            pa.BufferReader(block), read_options=arrow.ReadOptions(block_size=max(1 << 20, len(block) // 8)),
            parse_options=arrow.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"))
    except (pa.ArrowException, OSError):
        return None
    return [table.column(name).combine_chunks() for name in columns] if table.num_rows == lines else None


def _texts(values: list[Any], name: str, file: File, place: Place) -> Any:
    return strings(text_cells(values, column=name, where=lambda i: f"{file.name}, {place(i)}"))


def head(file: File, wanted: set[str]) -> SourceTable:
    """The first block of lines; an array is read whole."""
    if _is_array(file):
        return read(file, wanted)
    block = next(line_blocks(file, HEAD), b"")
    return _table(*_lines(decode(block, file.name), file.name), file.name)


@register_format("json", ".json", ".jsonl", ".ndjson", stream=stream, head=head)
def read(file: File, wanted: set[str]) -> SourceTable:
    """All objects of the file."""
    text = file.text()
    return _table(*(_array if _is_array(file) else _lines)(text, file.name), file.name)


def _is_array(file: File) -> bool:
    return file.head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _table(records: list[Any], place: Place, shown: str) -> SourceTable:
    for i, record in enumerate(records):
        if not isinstance(record, dict):
            kind = type(record).__name__
            raise BadInput(f'{shown}, {place(i)}: a {kind}, not an object; write it as {{"text": "..."}}')
    return understood(records, place, shown) or from_records(records, place)


def _array(text: str, shown: str) -> tuple[list[Any], Place]:
    try:
        return json.loads(text), lambda i: f"record {i + 1}"
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadInput(f"{shown}, {place}: not valid JSON ({error.msg}); mend or export it again") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{shown}, line 1: not readable as JSON ({error}); export it again") from None


def _lines(text: str, shown: str, first: int = 1) -> tuple[list[Any], Place]:
    """One JSON value per line, by the standard library: Arrow guesses dates and joins unlike types."""
    records, numbers = [], []
    for number, line in enumerate(text.split("\n"), first):
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
