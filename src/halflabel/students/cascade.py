"""A cascade: a student answers the texts of which it is sure, and its teacher the others."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halflabel.data.labels import Classes
from halflabel.errors import ModelError
from halflabel.evaluation.decisions import Decision, evidence
from halflabel.integrity import verify, write_checksums
from halflabel.output_folders import MODEL
from halflabel.persistence.model_folder import read_config
from halflabel.students.student import COPY_OR_DISTILL, DESCRIPTION, Student, load_student, write_new
from halflabel.types import Progress, Task

TEACHER = "teacher"  # the folder of the trained model within that of the cascade

Array = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Cascade:
    """A student with a threshold, and the folder of its teacher, which is loaded when a text first needs it."""

    student: Student
    threshold: float
    folder: Path

    @property
    def classes(self) -> Classes:
        return self.student.classes

    @property
    def task(self) -> Task:
        return self.student.task

    @property
    def rules(self) -> Decision:
        return self.student.rules

    @cached_property
    def teacher(self) -> Any:
        from halflabel.persistence.model import load

        return load(self.folder)

    def answers(self, texts: Sequence[str], progress: Progress | None = None) -> tuple[Array, NDArray[np.bool_]]:
        """Probabilities (N, K), and which texts the student answered, (N,)."""
        scores = self.student.scores(texts)
        p, sure = np.exp(evidence(scores, logits=False)), confidence(scores) >= self.threshold
        if unsure := np.flatnonzero(~sure).tolist():
            p[unsure] = self.teacher.probabilities([texts[i] for i in unsure], progress)
        return p, sure

    def probabilities(self, texts: Sequence[str], progress: Progress | None = None) -> Array:
        """p(k | x), (N, K)."""
        return self.answers(texts, progress)[0]

    def scores(self, texts: Sequence[str], progress: Progress | None = None) -> Array:
        """The same: logits of a student and scores of a teacher could not be compared."""
        return self.probabilities(texts, progress)


def confidence(scores: Array) -> Array:
    """The probability of the most probable label, (N,), from logits (N, K)."""
    return np.asarray(np.exp(evidence(scores, logits=False)).max(axis=1))


def open_student(folder: Path) -> Student | Cascade:
    """What `halflabel distill` wrote: a student, or with --cascade a student and its teacher."""
    student = load_student(folder)
    if student.threshold is None:
        return student
    teacher = folder / TEACHER
    if not teacher.is_dir():
        raise ModelError(f"{teacher}, the teacher of this cascade, is missing; {COPY_OR_DISTILL}")
    if read_config(teacher)["classes"] != student.classes.to_json():
        raise ModelError(f"{teacher} has other classes than {folder / DESCRIPTION}; {COPY_OR_DISTILL}")
    verify(teacher)
    return Cascade(student, student.threshold, teacher)


def save_cascade(student: Student, model: Path, folder: Path) -> None:
    """Writes a new folder with the student, and a copy of the model that taught it."""
    def fill(place: Path) -> None:
        student.fill(place)
        (place / TEACHER).mkdir()
        for path in MODEL.ours(model):
            copy = shutil.copytree if path.is_dir() else shutil.copyfile
            copy(path, place / TEACHER / path.name)
        write_checksums(place / TEACHER)

    write_new(folder, fill)
