"""Predictions as jsonl, csv, tsv or parquet; a file gets its name only when it is whole."""

from __future__ import annotations

import csv
import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from halflabel.types import BadInput

Rows = list[dict[str, Any]]
Write = Callable[[Rows], None]
Fields = tuple[str, str, str]
FORMATS = ("jsonl", "csv", "tsv", "parquet")


def check_output(file: Path | None, named: str | None, *, force: bool) -> str:
    """The format to write, once it is sure that it can be written."""
    suffix = file.suffix.lower().lstrip(".") if file else "jsonl"
    kind = named or suffix
    if kind not in FORMATS:
        what = f"the format '{kind}' is not known" if named else f"the ending of {file} names no format"
        raise BadInput(f"{what}; use one of {', '.join(FORMATS)} (--format)")
    if file is None:
        if kind == "parquet":
            raise BadInput("parquet cannot go to standard output; name a file with --out")
        return kind
    if not file.absolute().parent.is_dir():
        raise BadInput(f"there is no folder {file.parent}; make it first, or choose another --out")
    if file.is_dir() or (file.exists() and not force):
        raise BadInput(f"{file} exists already; choose another --out{'' if file.is_dir() else ', or give --force'}")
    return kind


@contextmanager
def output(file: Path | None, kind: str, classes: Sequence[object], *, several: bool = False) -> Iterator[Write]:
    """A function that writes rows; `classes` are named if each row has a probability of each.

    Rows have a label and its score, or with `several` lists of both.
    """
    fields = ("text", "labels", "scores") if several else ("text", "label", "score")
    if file is None:
        yield _text(sys.stdout, kind, classes, fields)
        sys.stdout.flush()
        return
    temporary = file.with_name(f".{file.name}-{uuid.uuid4().hex}")
    try:
        with (_parquet(temporary, classes, fields) if kind == "parquet"
              else _opened(temporary, kind, classes, fields)) as write:
            yield write
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _opened(file: Path, kind: str, classes: Sequence[object], fields: Fields) -> Iterator[Write]:
    with open(file, "w", encoding="utf-8", newline="") as stream:
        yield _text(stream, kind, classes, fields)


def _text(stream: TextIO, kind: str, classes: Sequence[object], fields: Fields) -> Write:
    if kind == "jsonl":
        return _jsonl(stream, classes)
    return _table(stream, "," if kind == "csv" else "\t", classes, fields)


def _jsonl(stream: TextIO, classes: Sequence[object]) -> Write:
    names = [str(name) for name in classes]
    plain = (stream.encoding or "").lower().replace("-", "") != "utf8"

    def write(rows: Rows) -> None:
        for row in rows:
            if names:
                row = row | {"probabilities": dict(zip(names, row["probabilities"], strict=True))}
            stream.write(json.dumps(row, ensure_ascii=plain) + "\n")
        stream.flush()
    return write


def _table(stream: TextIO, delimiter: str, classes: Sequence[object], fields: Fields) -> Write:
    lines = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    lines.writerow([*fields, *(f"p_{name}" for name in classes)])

    def write(rows: Rows) -> None:
        lines.writerows([_cell(value) for value in _flat(row, classes, fields).values()] for row in rows)
        stream.flush()
    return write


@contextmanager
def _parquet(file: Path, classes: Sequence[object], fields: Fields) -> Iterator[Write]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    opened: list[Any] = []

    def write(rows: Rows) -> None:
        table = pa.Table.from_pylist([_flat(row, classes, fields) for row in rows])
        if not opened:
            opened.append(ParquetWriter(file, table.schema))
        opened[0].write_table(table)
    try:
        yield write
    finally:
        for writer in opened:
            writer.close()


def _cell(value: Any) -> Any:
    """Lists as JSON, which `read` takes back: names may hold any mark that could part them."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def _flat(row: dict[str, Any], classes: Sequence[object], fields: Fields) -> dict[str, Any]:
    shares = {f"p_{name}": p for name, p in zip(classes, row.get("probabilities", ()), strict=True)}
    return {name: row[name] for name in fields} | shares
