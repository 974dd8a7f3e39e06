"""File formats: the registry of readers and writers, format detection, and writing rows and corpora.

Each module of this package registers its formats when it is imported, and all are imported when a format is first
needed: a new format, with its writer if it has one, is one new module. Written files appear under their names only when
they are complete.
"""

from __future__ import annotations

import codecs
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from halflabel.atomic import replace_file
from halflabel.data import readers
from halflabel.data.corpus import Corpus
from halflabel.data.readers.files import File, compression_of, decode
from halflabel.errors import DataError, OutputError

WRITTEN_ROWS = 10_000  # at a time
UNSUPPORTED = {
    b"\xd0\xcf\x11\xe0": ("an encrypted or old Excel", "save it as .xlsx without a password, or as CSV"),
    b"\xff\xfe": ("UTF-16 text, not a UTF-8", "save it as UTF-8, or name its encoding with --encoding utf-16"),
    b"\xfe\xff": ("UTF-16 text, not a UTF-8", "save it as UTF-8, or name its encoding with --encoding utf-16"),
    b"%PDF": ("a PDF", "save its texts as plain text or CSV"),
    b"SQLite format 3": ("an SQLite", "export its table as CSV"),
    b"\x80\x04\x95": ("a pickle", "pickles are never read; write it as Parquet or CSV"),
    b"\x80\x05\x95": ("a pickle", "pickles are never read; write it as Parquet or CSV"),
}


@dataclass(frozen=True)
class SourceTable:
    """The columns of a source, and the positions of its rows for messages.

    `position(i)` is "line 7" (text formats), "record 7" (a JSON array) or "row 7" (Parquet), counted from 1.
    `typed` is False where all cells are strings because the format has no other types (csv, tsv, txt).
    `roles` names the text or label column where the format itself defines it.
    """

    names: list[str]
    rows: int
    column: Callable[[str], list[Any]]
    position: Callable[[int], str]
    typed: bool
    roles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReadOptions:
    """How files are read."""

    header_names: frozenset[str]  # column names, in lower case, by which a header is recognised


Read = Callable[[File, ReadOptions], SourceTable]
# Batches of the given columns, each a list of Arrow string arrays.
Stream = Callable[[File, ReadOptions, list[str]], Iterator[list[Any]]]
Row = dict[str, Any]
# Batches of rows with all columns, each with the positions of its rows for messages.
Rows = Callable[[File, ReadOptions], Iterator[tuple[list[Row], Callable[[int], str]]]]
# The same for the rows from start to stop, without reading those before.
Part = Callable[[File, int, int], Iterator[tuple[list[Row], Callable[[int], str]]]]
Write = Callable[[Sequence[Row]], None]


@dataclass(frozen=True)
class Format:
    """A file format: how it is recognised, read and written.

    `read` reads a whole file. `stream` reads columns in batches; without it a file is read whole. `rows` reads all
    columns in batches, with their values as they are, and `part` some of the rows, in formats that store how many there
    are. `head` reads the first rows, where reading all takes long.
    `confidence` is how likely a text without a known suffix is in this format, from 0 to 1. A format is written by a
    `text_writer`, which works on any text stream, or a `file_writer`; predictions for a file whose format has neither
    are written as `written_as`.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Read
    stream: Stream | None = None
    rows: Rows | None = None
    part: Part | None = None
    head: Read | None = None
    magic: tuple[bytes, ...] = ()
    confidence: Callable[[str, ReadOptions], float] = lambda text, options: 0.0
    text_writer: Callable[[TextIO], Write] | None = None
    file_writer: Callable[[Path], AbstractContextManager[Write]] | None = None
    written_as: str = "jsonl"

    @property
    def writable(self) -> bool:
        return self.text_writer is not None or self.file_writer is not None


_registered: dict[str, Format] = {}


def register_format(form: Format) -> None:
    """Adds a format, or replaces the one of the same name."""
    _registered[form.name] = form


def formats() -> Mapping[str, Format]:
    """All formats by name."""
    _import_readers()
    return _registered


@cache
def _import_readers() -> None:
    for module in pkgutil.iter_modules(readers.__path__):
        import_module(f"{readers.__name__}.{module.name}")


def output_formats() -> list[str]:
    """The names of the formats that can be written."""
    return sorted(form.name for form in formats().values() if form.writable)


def output_format(file: File, options: ReadOptions) -> str:
    """The format in which predictions for a file are written: its own, if that can be written."""
    form = detect_format(file, options)
    return form.name if form.writable else form.written_as


def detect_format(file: File, options: ReadOptions) -> Format:
    """The format of a file, by its first bytes, its suffix or its content; an empty or unsupported file is refused."""
    if is_blank(file.head) and is_blank(file.content):
        raise empty(file)
    return _detect(file, file.head, lambda: file.content, options)


def is_plain_text(file: File, options: ReadOptions) -> bool:
    """Whether a stream has one text per line, as far as its first lines tell; no more of it is waited for."""
    if not file.is_utf8:
        return False
    if is_blank(file.first_lines):
        raise empty(file)
    return (not compression_of(file.first_lines)
            and _detect(file, file.first_lines, lambda: file.first_lines, options).name == "txt")


def is_blank(data: bytes) -> bool:
    """Whether there is nothing but whitespace, after a byte-order mark if there is one."""
    return not data.removeprefix(codecs.BOM_UTF8).strip()


def empty(file: File) -> DataError:
    """The error about a file or stream without any text."""
    what = "at least one text" if file.is_stream else "a file with at least one text"
    return DataError(f"{file.name} is empty; give {what}")


def _detect(file: File, start: bytes, content: Callable[[], bytes], options: ReadOptions) -> Format:
    for magic, (what, remedy) in UNSUPPORTED.items():
        if start.startswith(magic):
            raise DataError(f"{file.name} is {what} file; {remedy}")
    known = formats().values()
    by_magic = (form for form in known if start.startswith(form.magic))
    by_suffix = (form for form in known if file.suffix in form.suffixes)
    if form := next(by_magic, None) or next(by_suffix, None):
        return form
    text = decode(start[: start.rfind(b"\n") + 1] or content(), file.name)
    if not file.header:
        return formats()["csv"]
    return max(known, key=lambda form: form.confidence(text, options))


def read_table(file: File, options: ReadOptions) -> SourceTable:
    """A whole file as a table."""
    return detect_format(file, options).read(file, options)


def from_records(records: list[dict[str, Any]], position: Callable[[int], str]) -> SourceTable:
    """Records as a table; a missing key is null."""
    names = list(dict.fromkeys(key for record in records for key in record))
    return SourceTable(names, len(records), lambda name: [record.get(name) for record in records], position, typed=True)


def numbered(columns: int) -> list[str]:
    """The names of the columns of a table without a header: their numbers, from 1."""
    return [str(number) for number in range(1, columns + 1)]


def flat_row(row: Row) -> Row:
    """A row for formats without nested values: the probability of each label becomes a column `p_<label>`."""
    probabilities = {f"p_{name}": p for name, p in row.get("probabilities", {}).items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()
            if name != "probabilities"} | probabilities


@contextmanager
def open_writer(file: Path, kind: str) -> Iterator[Write]:
    """A function that writes rows; the file is replaced when all are written, and unchanged if that fails."""
    form = formats()[kind]
    with replace_file(file) as temporary:
        if form.file_writer is not None:
            with form.file_writer(temporary) as write:
                yield write
        else:
            with open(temporary, "w", encoding="utf-8", newline="") as stream:
                yield text_writer(stream, kind)


def text_writer(stream: TextIO, kind: str) -> Write:
    """A function that writes rows to a text stream and flushes it."""
    make = formats()[kind].text_writer
    assert make is not None, f"{kind} is not a text format"
    put = make(stream)

    def write(rows: Sequence[Row]) -> None:
        put(rows)
        stream.flush()
    return write


def write(corpus: Corpus, file: str | Path, kind: str | None = None) -> None:
    """Writes a corpus as a file that `read` can read: texts, labels if there are any, and views."""
    chosen = kind or next((name for name, form in formats().items()
                           if form.writable and Path(file).suffix.lower() in form.suffixes), None)
    if chosen is None:
        raise OutputError(f"the suffix of {file} names no format; use one of {', '.join(output_formats())}")
    labelled = any(label is not None for label in corpus.labels)
    names = [f"aug_{i}" for i in range(len(corpus.views[0]))] if corpus.views else []
    with open_writer(Path(file), chosen) as put:
        for start in range(0, max(1, len(corpus)), WRITTEN_ROWS):
            rows = range(start, min(start + WRITTEN_ROWS, len(corpus)))
            put([{"text": corpus.texts[i]} | ({"label": corpus.labels[i]} if labelled else {})
                 | dict(zip(names, corpus.views[i] if names else (), strict=True)) for i in rows])
