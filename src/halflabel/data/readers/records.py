"""Records: plain text with one text per line, JSON Lines with one object per line, and JSON arrays of objects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from halflabel.data.columns import arrow_strings
from halflabel.data.labels import text_cells
from halflabel.data.readers.annotation_tools import annotation_table
from halflabel.data.readers.files import HEAD, File, decode, line_blocks, split_lines, whole_lines
from halflabel.data.readers.formats import (
    Format,
    ReadOptions,
    Row,
    SourceTable,
    Write,
    empty,
    from_records,
    register_format,
)
from halflabel.errors import DataError

Position = Callable[[int], str]
BLOCK = 1 << 20  # bytes in memory at a time; lines may be so short that each takes 50 times as much there


def read_lines(file: File, options: ReadOptions) -> SourceTable:
    """Each line is a text; there is no header."""
    return _lines_table(split_lines(file.text()))


def lines_head(file: File, options: ReadOptions) -> SourceTable:
    """The only column; its rows are not read."""
    return _lines_table([""])


def _lines_table(lines: list[str]) -> SourceTable:
    return SourceTable(["text"], len(lines), lambda name: lines, lambda i: f"line {i + 1}", typed=False)


def stream_lines(file: File, options: ReadOptions, columns: list[str]) -> Iterator[list[Any]]:
    """The lines, a block at a time."""
    first = 1
    for block in line_blocks(file, BLOCK):
        lines = split_lines(decode(block, file.name, first=first))
        first += block.count(b"\n")
        yield [arrow_strings(lines)]


def follow_lines(file: File, patience: float) -> Iterator[str | None]:
    """The lines of a stream as they arrive, and None whenever no more arrive within `patience` seconds."""
    count = 0
    for block in whole_lines(file.follow(patience)):
        if block is None:
            yield None
            continue
        lines = split_lines(decode(block, file.name, first=count + 1))
        count += len(lines)
        yield from lines
    if not count:
        raise empty(file)


register_format(Format("txt", (".txt", ".text"), read_lines, stream=stream_lines, head=lines_head,
                       confidence=lambda text, options: 0.1))  # if no other format recognises the text


def read_json(file: File, options: ReadOptions) -> SourceTable:
    """All objects of the file."""
    parse = _parse_array if _is_array(file) else _parse_lines
    return _table(*parse(file.text(), file.name), file.name)


def json_head(file: File, options: ReadOptions) -> SourceTable:
    """The first block of lines; an array is read whole."""
    if _is_array(file):
        return read_json(file, options)
    block = next(line_blocks(file, HEAD), b"")
    return _table(*_parse_lines(decode(block, file.name), file.name), file.name)


def stream_json(file: File, options: ReadOptions, columns: list[str]) -> Iterator[list[Any]]:
    """Columns of one object per line, a block at a time; arrays and exports of annotation tools are read whole."""
    import pyarrow as pa

    if _is_array(file) or json_head(file, options).roles:
        table = read_json(file, options)
        yield [_texts(table.column(name), name, file, table.position) for name in columns]
        return
    first = 1
    for block in line_blocks(file):
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        batch = _parse_with_arrow(block, columns, lines)
        if batch is None:
            records, position = _parse_lines(decode(block, file.name, first=first), file.name, first)
            table = from_records(records, position)
            batch = [_texts(table.column(name), name, file, position) for name in columns]
        first += lines
        yield [column.cast(pa.large_string()) for column in batch]


def json_rows(file: File, options: ReadOptions) -> Iterator[tuple[list[Row], Position]]:
    """The objects with all keys of the first block, a block at a time; arrays are read whole."""
    first_rows = json_head(file, options)
    if _is_array(file) or first_rows.roles:
        table = read_json(file, options)
        columns = [table.column(name) for name in table.names]
        yield [dict(zip(table.names, row, strict=True)) for row in zip(*columns, strict=True)], table.position
        return
    nothing, first = dict.fromkeys(first_rows.names), 1
    for block in line_blocks(file):
        records, position = _parse_lines(decode(block, file.name, first=first), file.name, first)
        _table(records, position, file.name)
        yield [nothing | record for record in records], position
        first += block.count(b"\n")


def _parse_with_arrow(block: bytes, columns: list[str], lines: int) -> list[Any] | None:
    """The columns by Arrow, which is fast; None where only the standard library can tell the values or the error."""
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


def _texts(values: list[Any], name: str, file: File, position: Position) -> Any:
    return arrow_strings(text_cells(values, column=name, where=lambda i: f"{file.name}, {position(i)}"))


def _is_array(file: File) -> bool:
    return file.head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _table(records: list[Any], position: Position, source: str) -> SourceTable:
    for i, record in enumerate(records):
        if not isinstance(record, dict):
            raise DataError(f"{source}, {position(i)}: a {type(record).__name__}, not an object; write it as "
                            '{"text": "..."}')
    return annotation_table(records, position, source) or from_records(records, position)


def _parse_array(text: str, source: str) -> tuple[list[Any], Position]:
    try:
        return json.loads(text), lambda i: f"record {i + 1}"
    except json.JSONDecodeError as error:
        raise DataError(f"{source}, line {error.lineno}, column {error.colno}: not valid JSON ({error.msg}); fix it or "
                        "export it again") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source}, line 1: cannot be parsed as JSON ({error}); export it again") from None


def _parse_lines(text: str, source: str, first: int = 1) -> tuple[list[Any], Position]:
    """One JSON value per line, by the standard library: Arrow would guess dates and merge different types."""
    records, numbers = [], []
    for number, line in enumerate(text.split("\n"), first):
        if not line.strip():
            continue
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise DataError(f"{source}, line {number}: not valid JSON ({reason}); write one whole object per line, or "
                            "an array") from None
        numbers.append(number)
    return records, lambda i: f"line {numbers[i]}"


def looks_like_json(text: str, options: ReadOptions) -> float:
    """1 if a text starts like an object or an array of objects."""
    start = text.lstrip()
    return float(start.startswith("{") or bool(re.match(r"\[\s*(\{|\])", start)))


def jsonl_writer(stream: TextIO) -> Write:
    """Writes one object per line."""
    ascii_only = (stream.encoding or "").lower().replace("-", "") != "utf8"
    encode = json.JSONEncoder(ensure_ascii=ascii_only, default=str).encode  # json.dumps would make one for each row

    def write(rows: Sequence[Row]) -> None:
        stream.writelines(encode(row) + "\n" for row in rows)
    return write


register_format(Format("jsonl", (".jsonl", ".ndjson"), read_json, stream=stream_json, rows=json_rows, head=json_head,
                       confidence=looks_like_json, text_writer=jsonl_writer))
register_format(Format("json", (".json",), read_json, stream=stream_json, rows=json_rows, head=json_head))
