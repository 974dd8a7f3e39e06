"""Plain text: one text per line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from halflabel.data.columns import arrow_strings
from halflabel.data.readers.files import File, decode, line_blocks, whole_lines
from halflabel.data.readers.formats import Format, ReadOptions, SourceTable, empty, register_format

BLOCK = 1 << 20  # bytes in memory at a time; lines may be so short that each takes 50 times as much there
LINE_END = re.compile(r"\r\n|\n|\r")


def read(file: File, options: ReadOptions) -> SourceTable:
    """Each line is a text; there is no header."""
    return _table(split_lines(file.text()))


def head(file: File, options: ReadOptions) -> SourceTable:
    """The only column; its rows are not read."""
    return _table([""])


def _table(lines: list[str]) -> SourceTable:
    return SourceTable(["text"], len(lines), lambda name: lines, lambda i: f"line {i + 1}", typed=False)


def stream(file: File, options: ReadOptions, columns: list[str]) -> Iterator[list[Any]]:
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


def split_lines(text: str) -> list[str]:
    """Lines with the line ends of any system; unlike `str.splitlines` it does not split at other separators."""
    lines = LINE_END.split(text)
    return lines[:-1] if not lines[-1] else lines


register_format(Format("txt", (".txt", ".text"), read, stream=stream, head=head,
                       confidence=lambda text, options: 0.1))  # if no other format recognises the text
