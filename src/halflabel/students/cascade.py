"""A cascade: a student answers the texts of which it is sure, and its teacher the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from halflabel.arrays import Array
from halflabel.data.labels import Classes
from halflabel.errors import ModelError
from halflabel.evaluation.decisions import Calibration, Decision, log_odds
from halflabel.integrity import verify
from halflabel.persistence.model_folder import read_config
from halflabel.students.student import (
    COPY_OR_DISTILL,
    DESCRIPTION,
    Student,
    load_student,
    most_probable,
    names_of,
    write_new,
)
from halflabel.types import Progress, Task

if TYPE_CHECKING:
    from halflabel.persistence.model import TrainedModel

TEACHER = "teacher"  # the folder of the trained model within that of the cascade



@dataclass(frozen=True, eq=False)
class Cascade:
    """A student, the confidence from which it answers, and its teacher, which is opened when a text first needs it."""

    student: Student
    threshold: float
    open_teacher: Callable[[], TrainedModel]

    @property
    def classes(self) -> Classes:
        return self.student.classes

    @property
    def task(self) -> Task:
        return self.student.task

    @property
    def report(self) -> dict[str, Any]:
        """How student, teacher and cascade compare."""
        return self.student.report

    @cached_property
    def rules(self) -> Decision:
        """The teacher's decision rules, for scores that are log-odds already."""
        return replace(self.student.rules, calibration=Calibration(True, 1.0, np.zeros(len(self.classes))))

    @cached_property
    def teacher(self) -> TrainedModel:
        return self.open_teacher()

    def answers(self, texts: Sequence[str], progress: Progress | None = None) -> tuple[Array, NDArray[np.bool_]]:
        """Probabilities (N, K), and which texts the student answered, (N,)."""
        scores = self.student.scores(texts)
        p, sure = self.student.probabilities_of(scores), confidence(self.student, scores) >= self.threshold
        if unsure := np.flatnonzero(~sure).tolist():
            p[unsure] = self.teacher.probabilities([texts[i] for i in unsure], progress)
        return p, sure

    def probabilities(self, texts: Sequence[str], progress: Progress | None = None) -> Array:
        """p(k | x), (N, K)."""
        return self.answers(texts, progress)[0]

    def scores(self, texts: Sequence[str], progress: Progress | None = None) -> Array:
        """Probabilities, or log-odds of each of several labels, (N, K): other scores of both could not be compared."""
        p = self.probabilities(texts, progress)
        return p if self.task == "multi-class" else log_odds(p)

    def predict(self, texts: Sequence[str]) -> list[Any]:
        """The label of each text; for multi-label models a tuple of labels."""
        p = self.probabilities(texts)
        return names_of(self.classes, self.task, most_probable(p) if self.task == "multi-class" else
                        self.rules.rule()(p))

    def save(self, folder: Path | str) -> None:
        """Writes a new folder with the student and the teacher."""
        def fill(place: Path) -> None:
            self.student.fill(place)
            self.teacher.save(place / TEACHER)

        write_new(Path(folder), fill)


def confidence(student: Student, scores: Array) -> Array:
    """How sure the student is of the labels that it gives, (N,), from its scores (N, K).

    That is the probability of the most probable label; or of all decisions about several labels together, each of which
    is the surer, the farther its log-odds are from where the decision changes.
    """
    if student.decision is None:
        return np.asarray(student.probabilities_of(scores).max(axis=1))
    odds, rule = student.decision.calibration.log_odds(scores), student.decision.rule()
    if rule.thresholds is None:  # the border lies between the last label that is given and the first that is not
        falling = -np.sort(-odds, axis=1)
        border = falling[:, rule.k - 1 : rule.k + 1].mean(axis=1, keepdims=True)
    else:
        border = log_odds(rule.thresholds)
    return np.asarray(np.exp(-np.logaddexp(0.0, -np.abs(odds - border)).sum(axis=1)))


def open_student(folder: str | Path) -> Student | Cascade:
    """What `halflabel distill` wrote: a student, or with --cascade a student and its teacher."""
    folder = Path(folder)
    student = load_student(folder)
    if student.threshold is None:
        return student
    teacher = folder / TEACHER
    if not teacher.is_dir():
        raise ModelError(f"{teacher}, the teacher of this cascade, is missing; {COPY_OR_DISTILL}")
    if read_config(teacher)["classes"] != student.classes.to_json():
        raise ModelError(f"{teacher} has other classes than {folder / DESCRIPTION}; {COPY_OR_DISTILL}")
    verify(teacher)
    return Cascade(student, student.threshold, lambda: _load(teacher))


def _load(folder: Path) -> TrainedModel:
    from halflabel.persistence.model import load

    return load(folder)
