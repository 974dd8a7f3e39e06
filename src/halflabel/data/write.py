"""Rows become files: jsonl, csv, tsv or parquet, written as they come; a file gets its name only when it is whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from halflabel.disk import replaced
from halflabel.types import Corpus

Row = dict[str, Any]
Write = Callable[[Sequence[Row]], None]
FORMATS = ("jsonl", "csv", "tsv", "parquet")


@contextmanager
def written(file: Path, kind: str) -> Iterator[Write]:
    """A function that writes rows to a file, which is there as a whole in the end, or as it was before."""
    with replaced(file) as temporary:
        if kind == "parquet":
            with _parquet(temporary) as write:
                yield write
        else:
            with open(temporary, "w", encoding="utf-8", newline="") as stream:
                yield text_writer(stream, kind)


def text_writer(stream: TextIO, kind: str) -> Write:
    """A function that writes rows to a stream and sees that they get there at once."""
    put = _jsonl(stream) if kind == "jsonl" else _table(stream, "," if kind == "csv" else "\t")

    def write(rows: Sequence[Row]) -> None:
        put(rows)
        stream.flush()
    return write


def _jsonl(stream: TextIO) -> Write:
    plain = (stream.encoding or "").lower().replace("-", "") != "utf8"

    def write(rows: Sequence[Row]) -> None:
        stream.writelines(json.dumps(row, ensure_ascii=plain) + "\n" for row in rows)
    return write


def _table(stream: TextIO, delimiter: str) -> Write:
    names: list[str] = []

    def line(cells: Iterable[Any]) -> str:
        return delimiter.join(_cell(cell, delimiter, alone=len(names) == 1) for cell in cells) + "\n"

    def write(rows: Sequence[Row]) -> None:
        for row in map(flat, rows):
            if not names:
                names.extend(row)
                stream.write(line(names))
            stream.write(line(row.get(name) for name in names))
    return write


def _cell(value: Any, delimiter: str, *, alone: bool) -> str:
    """A cell with quotes where they are needed; the standard library would leave a lone carriage return without."""
    if isinstance(value, list):
        value = json.dumps(value, ensure_ascii=False)
    text = "" if value is None else str(value)
    if (alone and not text) or any(mark in text for mark in (delimiter, '"', "\n", "\r")):
        return '"' + text.replace('"', '""') + '"'
    return text


@contextmanager
def _parquet(file: Path) -> Iterator[Write]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    opened: list[Any] = []

    def write(rows: Sequence[Row]) -> None:
        if not rows:
            return
        if not opened:
            found = pa.Table.from_pylist([flat(row) for row in rows]).schema
            kinds = [(one.name, pa.string() if pa.types.is_null(one.type) else one.type) for one in found]
            opened.append(ParquetWriter(file, pa.schema(kinds)))
        opened[0].write_table(pa.Table.from_pylist([flat(row) for row in rows], opened[0].schema))
    try:
        yield write
    finally:
        for writer in opened:
            writer.close()
        if not opened:
            file.touch()


def flat(row: Row) -> Row:
    """A row without tables inside: the probability of a label becomes a column `p_label`."""
    shares = {f"p_{name}": p for name, p in row.get("probabilities", {}).items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()
            if name != "probabilities"} | shares


def write(corpus: Corpus, file: str | Path, kind: str | None = None) -> None:
    """A corpus as a file that `read` gives back: texts, labels if there are any, and views."""
    form = kind or Path(file).suffix.lower().lstrip(".")
    assert form in FORMATS, f"the format is one of {FORMATS}"
    known = any(label is not None for label in corpus.labels)
    names = [f"aug_{i}" for i in range(len(corpus.views[0]))] if corpus.views else []
    with written(Path(file), form) as put:
        for start in range(0, len(corpus), 10_000):
            rows = range(start, min(start + 10_000, len(corpus)))
            put([{"text": corpus.texts[i]} | ({"label": corpus.labels[i]} if known else {})
                 | dict(zip(names, corpus.views[i] if names else (), strict=True)) for i in rows])
        if not len(corpus):
            put([])
