"""Formats by name: a reader is a small function that turns a file into named columns of Python values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from halflabel.data.readers.files import File, decode, packing_of
from halflabel.errors import BadInput

FOREIGN = {
    b"PK\x03\x04": ("a zip or Excel", "unpack it, or export it as CSV"),
    b"\xff\xfe": ("UTF-16 text, not a UTF-8", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text, not a UTF-8", "save it as UTF-8"),
    b"%PDF": ("a PDF", "save its texts as plain text or CSV"),
    b"SQLite format 3": ("an SQLite", "export its table as CSV"),
    b"\x80\x04\x95": ("a pickle", "pickles are never read; write it as Parquet or CSV"),
    b"\x80\x05\x95": ("a pickle", "pickles are never read; write it as Parquet or CSV"),
}


@dataclass(frozen=True)
class SourceTable:
    """The columns of a file, and how to name one of its rows to a person.

    `place(i)` gives "line 7" (text formats), "record 7" (a JSON array) or "row 7" (Parquet), counted from 1.
    `typed` is False where every cell is a string because the format knows nothing else (csv, tsv, txt).
    `roles` says which column holds the texts or labels where the format itself knows.
    """

    names: list[str]
    rows: int
    column: Callable[[str], list[Any]]
    place: Callable[[int], str]
    typed: bool
    roles: Mapping[str, str] = field(default_factory=dict)


# Names, in lower case, by which a header is known; and a file as columns.
Read = Callable[[File, set[str]], SourceTable]
# The text columns of a file, a batch of Arrow strings for each at a time.
Stream = Callable[[File, set[str], list[str]], Iterator[list[Any]]]


@dataclass(frozen=True)
class Format:
    """A registered format; without a `stream` of its own it is read whole."""

    name: str
    read: Read
    stream: Stream | None
    head: Callable[[File, set[str]], SourceTable] | None  # the first rows, where reading all would take long


FORMATS: dict[str, Format] = {}
SUFFIXES: dict[str, str] = {}


def register_format(name: str, *suffixes: str, stream: Stream | None = None, head: Read | None = None) -> Callable[[Read], Read]:
    """Registers a function as the reader of a format."""
    def register(read: Read) -> Read:
        FORMATS[name] = Format(name, read, stream, head)
        SUFFIXES.update(dict.fromkeys(suffixes, name))
        return read
    return register


def detect_format(file: File, wanted: set[str]) -> Format:
    """The format of a file, by its first bytes and its ending; an empty or foreign file is refused."""
    if not file.head.strip() and not file.whole.strip():
        raise BadInput(empty(file))
    return FORMATS[_name(file, file.head, lambda: file.whole, wanted)]


def is_plain_text(file: File, wanted: set[str]) -> bool:
    """Whether a stream has one text per line, as far as its start tells; nothing more of it is waited for."""
    if not file.start.strip():
        raise BadInput(empty(file))
    return not packing_of(file.start) and _name(file, file.start, lambda: file.start, wanted) == "txt"


def empty(file: File) -> str:
    """What is wrong with a file that has no text at all."""
    return f"{file.name} is empty; give {'at least one text' if file.is_stream else 'a file with at least one text'}"


def _name(file: File, start: bytes, whole: Callable[[], bytes], wanted: set[str]) -> str:
    """The name of a format, by the first bytes of a file, its ending, or its first lines."""
    from halflabel.data.readers import columnar, delimited, lines, records  # noqa: F401  they register themselves

    for magic, (what, remedy) in FOREIGN.items():
        if start.startswith(magic):
            raise BadInput(f"{file.name} is {what} file; {remedy}")
    for magic, name in columnar.MAGIC.items():
        if start.startswith(magic):
            return name
    return SUFFIXES.get(file.suffix) or _guess(decode(start[: start.rfind(b"\n") + 1] or whole(), file.name), wanted)


def _guess(text: str, wanted: set[str]) -> str:
    head = text.lstrip()
    if head.startswith("{") or re.match(r"\[\s*(\{|\])", head):
        return "json"
    from halflabel.data.readers.delimited import delimiter_of, header

    columns = header(text, delimiter_of(text, wanted, ","))
    return "csv" if any(name.strip().lower() in wanted for name in columns) else "txt"


def read_table(file: File, wanted: set[str]) -> SourceTable:
    """The file as columns."""
    return detect_format(file, wanted).read(file, wanted)


def from_records(records: list[dict[str, Any]], place: Callable[[int], str]) -> SourceTable:
    """Records as columns; a key that one of them lacks is null there."""
    names = list(dict.fromkeys(key for record in records for key in record))
    return SourceTable(names, len(records), lambda name: [record.get(name) for record in records], place, typed=True)
