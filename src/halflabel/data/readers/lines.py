"""Plain text: one text per line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from halflabel.data.columns import strings
from halflabel.data.readers.files import File, decode, line_blocks, whole_lines
from halflabel.data.readers.formats import SourceTable, empty, register_format
from halflabel.errors import BadInput

END = re.compile(r"\r\n|\n|\r")


def stream(file: File, wanted: set[str], columns: list[str]) -> Iterator[list[Any]]:
    """The lines, a block at a time."""
    first = 1
    for block in line_blocks(file):
        lines = split_lines(decode(block, file.name, first=first))
        first += block.count(b"\n")
        yield [strings(lines)]


def follow_lines(file: File, patience: float) -> Iterator[str | None]:
    """The lines of a stream as they come; None where those before it have waited so many seconds for more to come."""
    count = 0
    for block in whole_lines(file.as_it_comes(patience)):
        if block is None:
            yield None
            continue
        lines = split_lines(decode(block, file.name, first=count + 1))
        count += len(lines)
        yield from lines
    if not count:
        raise BadInput(empty(file))


def head(file: File, wanted: set[str]) -> SourceTable:
    """A table that knows its only column."""
    return SourceTable(["text"], 1, lambda name: [""], lambda i: f"line {i + 1}", typed=False)


@register_format("txt", ".txt", ".text", stream=stream, head=head)
def read(file: File, wanted: set[str]) -> SourceTable:
    """Each line is a text; nothing is a header."""
    lines = split_lines(file.text())
    return SourceTable(["text"], len(lines), lambda name: lines, lambda i: f"line {i + 1}", typed=False)


def split_lines(text: str) -> list[str]:
    """Lines that end as on any system; what follows the last end is a line only if there is something."""
    lines = END.split(text)
    return lines[:-1] if not lines[-1] else lines
