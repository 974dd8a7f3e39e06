"""How accurate teacher, student and cascade are on labelled texts, also on those that the teacher was trained on.

For these, teachers and students are made again without them: cross-fitting. Shapes: N texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from halflabel.arrays import Mask
from halflabel.data.corpus import Corpus, TextLabel
from halflabel.evaluation.confidence import wilson_interval
from halflabel.persistence.model import TrainedModel
from halflabel.randomness import Stream, generator, shuffled
from halflabel.students.cascade import confidence
from halflabel.students.learning import Examples
from halflabel.students.student import Student
from halflabel.students.trial import Answers, Trial, fit_and_try

FOLDS = 5

Refit = Callable[[Corpus], TrainedModel]  # the teacher's method, trained again on some of its labelled texts


def correct(student: Student, teacher: TrainedModel, labelled: Corpus) -> dict[str, Mask]:
    """Of which labelled texts each gets all labels right, (N,)."""
    truth = teacher.classes.matrix(labelled.labels, source=labelled.source) > 0
    scores, expected = student.scores(labelled.texts), Answers.of(teacher, teacher.probabilities(labelled.texts)).chosen
    labels = {"teacher": expected, "student": student.labels_of(scores)}
    if student.threshold is not None:
        sure = confidence(student, scores) >= student.threshold
        labels["cascade"] = np.where(sure[:, None], labels["student"], expected)
    return {name: np.asarray((given == truth).all(axis=1)) for name, given in labels.items()}


def cross_fitted(trial: Trial, texts: Sequence[str], labelled: Corpus, refit: Refit, report: dict[str, Any],
                 seed: int) -> dict[str, Mask]:
    """`correct` by teachers and students that were made without the text, in other respects as the report says.

    A cascade's student answers as often, and students learn from labelled texts if that of the report did.
    A text with a label that no other has is left out: no teacher would know the label without it.
    """
    vectors, parts = trial.teacher.vectors(texts), []
    for fold in folds(labelled.labels, seed):
        others = labelled.take(sorted({*range(len(labelled))} - {*fold}))
        teacher = refit(others).as_if_new()
        p = teacher.probabilities_of(teacher.classify(vectors, texts).scores.cpu().numpy())
        again = fit_and_try(trial.student.features.kind, teacher, texts, p, trial.words,
                            Examples.of(teacher, others.texts if report["labelled"] else [], texts), trial.strength)
        threshold = None
        if cascade := report.get("cascade"):
            threshold = float(np.quantile(again.confidence, 1 - cascade["answered_by_student"]))
        parts.append(correct(replace(again.student, threshold=threshold), teacher, labelled.take(fold)))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def folds(labels: Sequence[TextLabel], seed: int) -> list[list[int]]:
    """Rows in parts that have about equally many of each label; a row whose label no other has is in none."""
    parts: list[list[int]] = [[] for _ in range(FOLDS)]
    dealt, counts = Counter[TextLabel](), Counter(labels)
    for row in shuffled(generator(seed, Stream.DISTILLATION, 1), len(labels)).tolist():
        if counts[labels[row]] > 1:
            parts[dealt[labels[row]] % FOLDS].append(row)
            dealt[labels[row]] += 1
    return [part for part in parts if part]


def intervals(correct: dict[str, Mask]) -> dict[str, Any]:
    """The share of texts that each gets right, with an interval of 95 %."""
    n = len(correct["teacher"])
    return {"texts": n} | {name: [float(right.mean()), *wilson_interval(int(right.sum()), n)]
                           for name, right in correct.items()}
