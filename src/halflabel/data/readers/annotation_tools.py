"""What annotation tools export: Label Studio (JSON, JSON-MIN, CSV), doccano and Prodigy (JSONL).

A label counts only if a person gave it: predictions, skipped tasks and tasks that nobody looked at have none. Two
people who labelled one text make two rows, so that a disagreement is seen as such.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from halflabel.data.readers.formats import SourceTable, from_records
from halflabel.errors import BadInput

Record = dict[str, Any]
Place = Callable[[int], str]

LABEL_STUDIO_MARKS = {"annotator", "annotation_id", "lead_time"}  # all of these stand in JSON-MIN and CSV
LABEL_STUDIO_OWN = LABEL_STUDIO_MARKS | {"id", "created_at", "updated_at", "was_cancelled", "agreement"}
DOCCANO_MARKS = ("Comments", "annotation_approver")  # of version 1.6 and later, and of older ones
ANSWERS = ("accept", "reject", "ignore")


def understood(records: list[Record], place: Place, shown: str) -> SourceTable | None:
    """The records as a table if an annotation tool wrote them; None otherwise."""
    if not records:
        return None
    for looks, rows in ((_is_label_studio, _label_studio), (_is_minimal, _minimal), (_is_prodigy, _prodigy),
                        (_is_doccano, _doccano)):
        if all(map(looks, records)):
            return rows(records, place, shown)
    return None


def _settled(rows: list[tuple[int, Record, list[Any] | None]], column: str, place: Place, *,
             empty_is_none: bool) -> SourceTable:
    """Rows with lists of labels: single labels if no list is longer than one, otherwise lists."""
    several = any(labels is not None and len(labels) > 1 for _, _, labels in rows)

    def value(labels: list[Any] | None) -> Any:
        if not labels:
            return [] if several and labels is not None and not empty_is_none else None
        return labels if several else labels[0]

    table = from_records([{**record, column: value(labels)} for _, record, labels in rows],
                         lambda i: place(rows[i][0]))
    return replace(table, roles={"label": column})


def _is_label_studio(record: Record) -> bool:
    return isinstance(record.get("data"), dict) and any(
        isinstance(record.get(key), list) for key in ("annotations", "completions", "predictions"))


def _label_studio(tasks: list[Record], place: Place, shown: str) -> SourceTable:
    """Tasks with whole annotations; each annotation of a task is a row, and so is a task without any."""
    rows: list[tuple[int, Record, list[Any] | None]] = []
    controls: dict[str, None] = {}
    for i, task in enumerate(tasks):
        given = [one for one in task.get("annotations", task.get("completions")) or []
                 if isinstance(one, dict) and not one.get("was_cancelled")]
        for annotation in given or [{}]:
            labels: list[Any] | None = [] if annotation else None
            for result in annotation.get("result") or []:
                if result.get("type") in ("choices", "taxonomy") and labels is not None:
                    controls.setdefault(str(result.get("from_name")), None)
                    found = result.get("value", {}).get(result["type"], [])
                    labels += [" / ".join(one) if isinstance(one, list) else one for one in found]
            rows.append((i, task["data"], labels))
    if len(controls) > 1:
        names = ", ".join(map(repr, controls))
        raise BadInput(f"{shown} holds answers to several questions ({names}); export JSON-MIN instead and name one of "
                       "them with --label-column")
    return _settled(rows, next(iter(controls), "label"), place, empty_is_none=False)


def _is_minimal(record: Record) -> bool:
    return record.keys() >= LABEL_STUDIO_MARKS


def _minimal(records: list[Record], place: Place, shown: str) -> SourceTable:
    """Label Studio's JSON-MIN: a task's data and its answers side by side."""
    records = [{name: _choices(value) if isinstance(value, dict) else value for name, value in record.items()}
               for record in records]
    table = from_records(records, place)
    column = _answers(table.names)
    if column is None:
        return table
    rows = [(i, record, None if record.get("was_cancelled") is True else _choices(record.get(column)))
            for i, record in enumerate(records)]
    return _settled(rows, column, place, empty_is_none=True)


def label_studio_column(table: SourceTable, shown: str) -> SourceTable | None:
    """Label Studio's CSV: a table whose column of answers is found; None if another program wrote it."""
    if not set(table.names) >= LABEL_STUDIO_MARKS:
        return None
    column = _answers(table.names)
    if column is None:
        return None
    cancelled = table.column("was_cancelled") if "was_cancelled" in table.names else [""] * table.rows
    answers = [None if gone == "True" else _choices(_parsed(cell))
               for cell, gone in zip(table.column(column), cancelled, strict=True)]
    names = [name for name in table.names if name != column]
    columns = {name: table.column(name) for name in names}
    rows = [(i, {name: columns[name][i] for name in names}, labels) for i, labels in enumerate(answers)]
    return _settled(rows, column, table.place, empty_is_none=True)


def _answers(names: list[str]) -> str | None:
    """The column of answers: the only one that is neither Label Studio's own nor a text."""
    rest = [name for name in names if name not in LABEL_STUDIO_OWN and name != "text"]
    usual = [name for name in rest if name.lower() in ("label", "labels", "choice", "choices", "sentiment", "class")]
    found = usual if len(usual) == 1 else rest
    return found[0] if len(found) == 1 and "text" in names else None


def _parsed(cell: Any) -> Any:
    if isinstance(cell, str) and cell[:1] in "[{" and cell:
        try:
            return json.loads(cell)
        except ValueError:
            return cell
    return cell


def _choices(answer: Any) -> list[Any] | None:
    """A choice, {"choices": [...]}, or a list of these, as a list; None if nothing was answered."""
    if isinstance(answer, dict):
        return list(answer.get("choices", []))
    if isinstance(answer, list):
        return [name for one in answer for name in _choices(one) or []]
    return None if answer is None or answer == "" else [answer]


def _is_doccano(record: Record) -> bool:
    return "id" in record and isinstance(record.get("label"), list) and any(mark in record for mark in DOCCANO_MARKS)


def _doccano(records: list[Record], place: Place, shown: str) -> SourceTable:
    """doccano's JSONL; an empty list may mean that nobody looked, so it counts as not labelled."""
    for i, record in enumerate(records):
        if any(isinstance(one, (list, dict)) for one in record["label"]):
            raise BadInput(f"{shown}, {place(i)}: the label is a span, not a class; export a text classification "
                           "project")
    return _settled([(i, record, record["label"]) for i, record in enumerate(records)], "label", place,
                    empty_is_none=True)


def _is_prodigy(record: Record) -> bool:
    return record.get("answer") in ANSWERS and ("label" in record or "accept" in record or "options" in record)


def _prodigy(records: list[Record], place: Place, shown: str) -> SourceTable:
    """Prodigy's JSONL: choices among options, or one label that was accepted or rejected.

    A rejected label says what a text is not. That is a class of its own, `not X`, only where X is the only label.
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

    return _settled([(i, record, labels(record)) for i, record in enumerate(records)], "label", place,
                    empty_is_none=False)
