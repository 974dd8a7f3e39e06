"""Predictions as rows: the label and score of each text, beside the other columns of its input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from halflabel.data.readers.formats import Row
from halflabel.evaluation.decisions import DecisionRule
from halflabel.persistence.model_folder import Model

if TYPE_CHECKING:
    from halflabel.persistence.model import TrainedModel


def decision_rule(model: Model, decision: str | None) -> DecisionRule | None:
    """The rule that assigns several labels to a text; None where the most probable label is taken."""
    return model.rules.rule(decision) if decision is not None or model.task == "multi-label" else None


def predicted_rows(model: Model, rows: list[Row], rule: DecisionRule | None, *, everything: bool,
                   farthest: float | None = None) -> list[Row]:
    """Text, label and score of each row, then its other columns; with `everything` the probabilities of all labels.

    A column of the input that has the name of one of these is left out. Rows of a cascade say who answered. A text that
    is farther from all classes than `farthest` gets no label.
    """
    from halflabel.students.cascade import Cascade

    texts, by_student, distances = [row["text"] for row in rows], None, None
    if farthest is not None:
        p, distances = cast("TrainedModel", model).with_distances(texts)
    elif isinstance(model, Cascade):
        p, by_student = model.answers(texts)
    else:
        p = model.probabilities(texts)
    names = model.classes.names
    predictions: list[Row]
    if rule is None:
        predictions = [{"text": text, "label": names[best], "score": round(float(p_text[best]), 6)}
                       for text, p_text, best in zip(texts, p, p.argmax(axis=1).tolist(), strict=True)]
    else:
        predictions = [multilabel_row(text, p_text, chosen, names)
                       for text, p_text, chosen in zip(texts, p, rule(p), strict=True)]
    if everything:
        for row, p_text in zip(predictions, p.round(6).tolist(), strict=True):
            row["probabilities"] = {str(name): share for name, share in zip(names, p_text, strict=True)}
    if distances is not None:
        for row, distance in zip(predictions, distances.tolist(), strict=True):
            row["distance"] = round(distance, 6)
            if distance > farthest:
                row["label"] = None
    if by_student is not None:
        for row, answered in zip(predictions, by_student.tolist(), strict=True):
            row["answered_by"] = "student" if answered else "teacher"
    return [prediction | {name: value for name, value in row.items() if name not in prediction}
            for prediction, row in zip(predictions, rows, strict=True)]


def multilabel_row(text: str, p: Any, chosen: Any, names: Sequence[object]) -> Row:
    """A text with its labels and their scores, the most probable first, from p (K,) and the chosen labels (K,)."""
    columns = sorted(chosen.nonzero()[0].tolist(), key=lambda k: -p[k])
    return {"text": text, "labels": [names[k] for k in columns], "scores": [round(float(p[k]), 6) for k in columns]}
