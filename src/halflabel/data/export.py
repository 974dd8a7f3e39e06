"""Suggestions for annotation tools: each row is a text, its label or labels, and how sure the model is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from halflabel.data.write import Row, Write, written
from halflabel.disk import replaced

FROM, TO = "label", "text"  # names of the control and of the text in a Label Studio project


@contextmanager
def exported(file: Path, tool: str, names: Sequence[object]) -> Iterator[Write]:
    """A function that writes rows of text, label and score as the tool imports them; `names` are all labels."""
    if tool == "label-studio":
        with _tasks(file) as write:
            yield write
        return
    shape: Callable[[Row], Row] = {"doccano": doccano, "prodigy": lambda row: prodigy(row, names), "csv": dict}[tool]
    with written(file, "csv" if tool == "csv" else "jsonl") as put:
        yield lambda rows: put([shape(row) for row in rows])


@contextmanager
def _tasks(file: Path) -> Iterator[Write]:
    """A JSON array, written as it grows."""
    with replaced(file) as temporary, open(temporary, "w", encoding="utf-8") as stream:
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
