"""Files of annotation tools: Label Studio (JSON, JSON-MIN, CSV), doccano and Prodigy (JSONL), `halflabel label`.

Only labels that a person gave count: predictions, skipped and unannotated tasks are unlabelled. A text that two people
annotated becomes two rows, so that disagreements are noticed. Predicted labels are written in the shapes that the tools
import.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from halflabel.atomic import replace_file
from halflabel.data.readers.formats import Row, SourceTable, Write, from_records, open_writer
from halflabel.errors import DataError

Record = dict[str, Any]
Position = Callable[[int], str]

LABEL_STUDIO_KEYS = {"annotator", "annotation_id", "lead_time"}  # JSON-MIN and CSV have all of them
LABEL_STUDIO_COLUMNS = LABEL_STUDIO_KEYS | {"id", "created_at", "updated_at", "was_cancelled", "agreement"}
DOCCANO_KEYS = ("Comments", "annotation_approver")  # of version 1.6 and later, and of older versions
PRODIGY_ANSWERS = ("accept", "reject", "ignore")
ACTIONS = ("label", "skip", "undo")  # with a text, in files of `halflabel label`
PREDICTED = ("text", "label", "score", "labels", "scores")
CONTROL, OBJECT = "label", "text"  # names of the choices and of the text in a Label Studio project


class Annotation(NamedTuple):
    """A row of the table: the number of its record, its other columns, and its labels (None: not annotated)."""

    number: int
    record: Record
    labels: list[Any] | None


def annotation_table(records: list[Record], position: Position, source: str) -> SourceTable | None:
    """The records as a table if an annotation tool exported them; None otherwise."""
    for matches, read in ((is_answer, _answers), (_is_label_studio, _label_studio), (_is_json_min, _json_min),
                          (_is_prodigy, _prodigy), (_is_doccano, _doccano)):
        if records and all(map(matches, records)):
            return read(records, position, source)
    return None


def _table(rows: list[Annotation], column: str, position: Position, *, empty_is_unlabelled: bool) -> SourceTable:
    """A table with the labels in `column`: single labels if no text has more than one, otherwise lists."""
    several = any(row.labels is not None and len(row.labels) > 1 for row in rows)

    def label(labels: list[Any] | None) -> Any:
        if not labels:
            return [] if several and labels is not None and not empty_is_unlabelled else None
        return labels if several else labels[0]

    records = [{**row.record, column: label(row.labels)} for row in rows]
    table = from_records(records, lambda i: position(rows[i].number))
    return replace(table, roles={"label": column})


def _is_label_studio(record: Record) -> bool:
    return isinstance(record.get("data"), dict) and any(
        isinstance(record.get(key), list) for key in ("annotations", "completions", "predictions"))


def _label_studio(tasks: list[Record], position: Position, source: str) -> SourceTable:
    """Label Studio's JSON: a row for each annotation of a task, or one for a task without annotations."""
    rows: list[Annotation] = []
    questions: dict[str, None] = {}
    for i, task in enumerate(tasks):
        annotations = [annotation for annotation in task.get("annotations", task.get("completions")) or []
                       if isinstance(annotation, dict) and not annotation.get("was_cancelled")]
        for annotation in annotations or [{}]:
            labels: list[Any] | None = [] if annotation else None
            for result in annotation.get("result") or []:
                if result.get("type") in ("choices", "taxonomy") and labels is not None:
                    questions.setdefault(str(result.get("from_name")), None)
                    labels += [" / ".join(choice) if isinstance(choice, list) else choice
                               for choice in result.get("value", {}).get(result["type"], [])]
            rows.append(Annotation(i, task["data"], labels))
    if len(questions) > 1:
        raise DataError(f"{source} contains answers to several questions ({', '.join(map(repr, questions))}); export "
                        "JSON-MIN instead and name one of them with --label-column")
    return _table(rows, next(iter(questions), "label"), position, empty_is_unlabelled=False)


def _is_json_min(record: Record) -> bool:
    return record.keys() >= LABEL_STUDIO_KEYS


def _json_min(records: list[Record], position: Position, source: str) -> SourceTable:
    """Label Studio's JSON-MIN: the data and the answers of a task side by side."""
    records = [{name: _choices(value) if isinstance(value, dict) else value for name, value in record.items()}
               for record in records]
    table = from_records(records, position)
    column = _answer_column(table.names)
    if column is None:
        return table
    rows = [Annotation(i, record, None if record.get("was_cancelled") is True else _choices(record.get(column)))
            for i, record in enumerate(records)]
    return _table(rows, column, position, empty_is_unlabelled=True)


def label_studio_csv(table: SourceTable) -> SourceTable | None:
    """Label Studio's CSV with its labels parsed; None if another program wrote the table."""
    column = _answer_column(table.names) if set(table.names) >= LABEL_STUDIO_KEYS else None
    if column is None:
        return None
    cancelled = table.column("was_cancelled") if "was_cancelled" in table.names else [""] * table.rows
    answers = [None if skipped == "True" else _choices(_parse_cell(cell))
               for cell, skipped in zip(table.column(column), cancelled, strict=True)]
    columns = {name: table.column(name) for name in table.names if name != column}
    rows = [Annotation(i, {name: cells[i] for name, cells in columns.items()}, labels)
            for i, labels in enumerate(answers)]
    return _table(rows, column, table.position, empty_is_unlabelled=True)


def _answer_column(names: list[str]) -> str | None:
    """The column of answers: the only one that is neither the text nor one of Label Studio's own."""
    rest = [name for name in names if name not in LABEL_STUDIO_COLUMNS and name != "text"]
    usual = [name for name in rest if name.lower() in ("label", "labels", "choice", "choices", "sentiment", "class")]
    candidates = usual if len(usual) == 1 else rest
    return candidates[0] if len(candidates) == 1 and "text" in names else None


def _parse_cell(cell: Any) -> Any:
    if isinstance(cell, str) and cell.startswith(("[", "{")):
        try:
            return json.loads(cell)
        except ValueError:
            return cell
    return cell


def _choices(answer: Any) -> list[Any] | None:
    """A choice, {"choices": [...]}, or a list of these, as a list; None without an answer."""
    if isinstance(answer, dict):
        return list(answer.get("choices", []))
    if isinstance(answer, list):
        return [name for item in answer for name in _choices(item) or []]
    return None if answer is None or answer == "" else [answer]


def _is_doccano(record: Record) -> bool:
    return "id" in record and isinstance(record.get("label"), list) and any(key in record for key in DOCCANO_KEYS)


def _doccano(records: list[Record], position: Position, source: str) -> SourceTable:
    """doccano's JSONL; an empty list may mean that nobody annotated the text, so it counts as unlabelled."""
    for i, record in enumerate(records):
        if any(isinstance(label, (list, dict)) for label in record["label"]):
            raise DataError(f"{source}, {position(i)}: the label is a span, not a class; export a text classification "
                            "project")
    return _table([Annotation(i, record, record["label"]) for i, record in enumerate(records)], "label", position,
                  empty_is_unlabelled=True)


def _is_prodigy(record: Record) -> bool:
    return record.get("answer") in PRODIGY_ANSWERS and ("label" in record or "accept" in record or "options" in record)


def _prodigy(records: list[Record], position: Position, source: str) -> SourceTable:
    """Prodigy's JSONL: choices among options, or one label that was accepted or rejected.

    A rejected label becomes a class of its own, `not X`, only if X is the only label of the file.
    """
    names = {record["label"] for record in records if "accept" not in record and isinstance(record.get("label"), str)}
    opposite = f"not {next(iter(names))}" if len(names) == 1 else None

    def labels(record: Record) -> list[Any] | None:
        if record["answer"] == "ignore":
            return None
        if "accept" in record or "options" in record:
            return list(record.get("accept") or []) if record["answer"] == "accept" else None
        if record["answer"] == "accept":
            return [record["label"]]
        return [opposite] if opposite else None

    return _table([Annotation(i, record, labels(record)) for i, record in enumerate(records)], "label", position,
                  empty_is_unlabelled=False)


def is_answer(record: Record) -> bool:
    """Whether `halflabel label` wrote a record: an answer about a text, or a label that was added."""
    action = record.get("action")
    return "time" in record and ((action == "add" and isinstance(record.get("label"), (str, int)))
                                 or (action in ACTIONS and isinstance(record.get("text"), str) and "label" in record))


def _answers(records: list[Record], position: Position, source: str) -> SourceTable:
    """The last answer about each text; one that was skipped or undone is unlabelled."""
    last = {record["text"]: i for i, record in enumerate(records) if record["action"] != "add"}
    numbers = sorted(last.values())
    table = from_records([{"text": records[i]["text"], "label": records[i]["label"]} for i in numbers],
                         lambda i: position(numbers[i]))
    return replace(table, roles={"text": "text", "label": "label"})


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
