"""Writes rows and corpora as files, which appear under their names only when they are complete.

The formats are those of `data.readers` that have a writer; annotation tools get rows in their own shapes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from halflabel.atomic import replace_file
from halflabel.data.corpus import Corpus
from halflabel.data.readers.formats import Row, Write, formats, output_formats
from halflabel.errors import OutputError

CHUNK = 10_000  # rows written at a time
PREDICTED = ("text", "label", "score", "labels", "scores")
CONTROL, OBJECT = "label", "text"  # names of the choices and of the text in a Label Studio project


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
        for start in range(0, max(1, len(corpus)), CHUNK):
            rows = range(start, min(start + CHUNK, len(corpus)))
            put([{"text": corpus.texts[i]} | ({"label": corpus.labels[i]} if labelled else {})
                 | dict(zip(names, corpus.views[i] if names else (), strict=True)) for i in rows])


@contextmanager
def annotation_writer(file: Path, tool: str, names: Sequence[object]) -> Iterator[Write]:
    """A function that writes rows of text, label and score for import into a tool; `names` are all labels."""
    if tool == "label-studio":
        with _json_array_writer(file) as put:
            yield lambda rows: put([label_studio(row) for row in rows])
        return
    shapes: dict[str, Callable[[Row], Row]] = {"doccano": doccano, "prodigy": partial(prodigy, names=names),
                                               "csv": dict}
    with open_writer(file, "csv" if tool == "csv" else "jsonl") as put:
        yield lambda rows: put([shapes[tool](row) for row in rows])


@contextmanager
def _json_array_writer(file: Path) -> Iterator[Write]:
    """A function that appends objects to a JSON array."""
    with replace_file(file) as temporary, open(temporary, "w", encoding="utf-8") as stream:
        stream.write("[")
        separator = "\n"

        def write(rows: Sequence[Row]) -> None:
            nonlocal separator
            for row in rows:
                stream.write(separator + json.dumps(row, ensure_ascii=False))
                separator = ",\n"

        yield write
        stream.write("\n]\n")


def _labels(row: Row) -> list[str]:
    """The labels of a row, one or several, as text."""
    return [str(name) for name in (row["labels"] if "labels" in row else [row["label"]])]


def _score(row: Row) -> float:
    """The score of a row: that of its least probable label, 0 without labels."""
    return float(min(row["scores"], default=0.0) if "scores" in row else row["score"])


def _others(row: Row) -> Row:
    """The other columns of the input."""
    return {name: value for name, value in row.items() if name not in PREDICTED}


def label_studio(row: Row) -> dict[str, Any]:
    """A task with a prediction, for a project with <Choices name="label" toName="text">."""
    result = {"from_name": CONTROL, "to_name": OBJECT, "type": "choices", "value": {"choices": _labels(row)}}
    return {"data": {"text": row["text"]} | _others(row),
            "predictions": [{"model_version": "halflabel", "score": _score(row), "result": [result]}]}


def doccano(row: Row) -> dict[str, Any]:
    """A text with its labels; doccano keeps other keys as metadata."""
    return {"text": row["text"], "label": _labels(row), "score": _score(row)} | _others(row)


def prodigy(row: Row, names: Sequence[object]) -> dict[str, Any]:
    """A choice among all labels in which the suggested ones are preselected."""
    return {"text": row["text"], "options": [{"id": str(name), "text": str(name)} for name in names],
            "accept": _labels(row), "meta": {"score": _score(row)} | _others(row)}
