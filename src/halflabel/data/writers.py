"""Rows become files: jsonl, csv, tsv or parquet, written as they come; a file gets its name only when it is whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from halflabel.atomic import replace_file
from halflabel.data.corpus import Corpus

Row = dict[str, Any]
Write = Callable[[Sequence[Row]], None]
FORMATS = ("jsonl", "csv", "tsv", "parquet")
FROM, TO = "label", "text"  # names of the control and of the text in a Label Studio project


@contextmanager
def open_writer(file: Path, kind: str) -> Iterator[Write]:
    """A function that writes rows to a file, which is there as a whole in the end, or as it was before."""
    with replace_file(file) as temporary:
        if kind == "parquet":
            with _parquet(temporary) as write:
                yield write
        else:
            with open(temporary, "w", encoding="utf-8", newline="") as stream:
                yield text_writer(stream, kind)


def text_writer(stream: TextIO, kind: str) -> Write:
    """A function that writes rows to a stream and sees that they get there at once."""
    put = _jsonl(stream) if kind == "jsonl" else _delimited(stream, "," if kind == "csv" else "\t")

    def write(rows: Sequence[Row]) -> None:
        put(rows)
        stream.flush()
    return write


def _jsonl(stream: TextIO) -> Write:
    plain = (stream.encoding or "").lower().replace("-", "") != "utf8"

    def write(rows: Sequence[Row]) -> None:
        stream.writelines(json.dumps(row, ensure_ascii=plain) + "\n" for row in rows)
    return write


def _delimited(stream: TextIO, delimiter: str) -> Write:
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
    with open_writer(Path(file), form) as put:
        for start in range(0, len(corpus), 10_000):
            rows = range(start, min(start + 10_000, len(corpus)))
            put([{"text": corpus.texts[i]} | ({"label": corpus.labels[i]} if known else {})
                 | dict(zip(names, corpus.views[i] if names else (), strict=True)) for i in rows])
        if not len(corpus):
            put([])


@contextmanager
def annotation_writer(file: Path, tool: str, names: Sequence[object]) -> Iterator[Write]:
    """A function that writes rows of text, label and score as the tool imports them; `names` are all labels."""
    if tool == "label-studio":
        with _tasks(file) as write:
            yield write
        return
    shape: Callable[[Row], Row] = {"doccano": doccano, "prodigy": lambda row: prodigy(row, names), "csv": dict}[tool]
    with open_writer(file, "csv" if tool == "csv" else "jsonl") as put:
        yield lambda rows: put([shape(row) for row in rows])


@contextmanager
def _tasks(file: Path) -> Iterator[Write]:
    """A JSON array, written as it grows."""
    with replace_file(file) as temporary, open(temporary, "w", encoding="utf-8") as stream:
        stream.write("[")
        between = "\n"

        def write(rows: Sequence[Row]) -> None:
            nonlocal between
            for row in rows:
                stream.write(between + json.dumps(label_studio(row), ensure_ascii=False))
                between = ",\n"

        yield write
        stream.write("\n]\n")


def labels_of(row: Row) -> list[str]:
    """The labels of a row, one or several, as the tools know them: text."""
    return [str(name) for name in (row["labels"] if "labels" in row else [row["label"]])]


def score_of(row: Row) -> float:
    """How sure the model is of a row: of its least sure label, and not at all of none."""
    return float(min(row["scores"], default=0.0) if "scores" in row else row["score"])


def label_studio(row: Row) -> dict[str, Any]:
    """A task with a prediction; the project has <Choices name="label" toName="text">."""
    result = {"from_name": FROM, "to_name": TO, "type": "choices", "value": {"choices": labels_of(row)}}
    return {"data": {"text": row["text"]},
            "predictions": [{"model_version": "halflabel", "score": score_of(row), "result": [result]}]}


def doccano(row: Row) -> dict[str, Any]:
    """A text with its labels; other keys become its metadata."""
    return {"text": row["text"], "label": labels_of(row), "score": score_of(row)}


def prodigy(row: Row, names: Sequence[object]) -> dict[str, Any]:
    """A choice among all labels, in which the suggested ones are chosen already."""
    return {"text": row["text"], "options": [{"id": str(name), "text": str(name)} for name in names],
            "accept": labels_of(row), "meta": {"score": score_of(row)}}
