"""A student: a linear model on n-grams that imitates a trained model and needs no torch to predict."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from halflabel import __version__
from halflabel.arrays import Array
from halflabel.atomic import write_folder, write_text
from halflabel.data.labels import Classes
from halflabel.encoders.ngrams import BITS, KINDS, NgramModel, TfIdf, read_ngram_model
from halflabel.errors import ModelError, OutputError, SettingError
from halflabel.evaluation.decisions import Decision, evidence, finite
from halflabel.integrity import read_json, refuse_code, require, verify, write_checksums
from halflabel.persistence.model_folder import decision_from_json
from halflabel.types import Progress, Task

FORMAT = 2  # 1: static students had no n-grams of characters; they are read as ever
DESCRIPTION, WEIGHTS = "student.json", "student.safetensors"
ENTRIES = {"student": str, "task": str, "classes": list, "bits": int, "decision": object, "threshold": object,
           "report": dict}
COPY_OR_DISTILL = "copy or distill the model again."



def is_student(folder: Path) -> bool:
    """Whether `halflabel distill` wrote the folder."""
    return (folder / DESCRIPTION).is_file()


def most_probable(scores: Array) -> NDArray[np.bool_]:
    """1 for the highest score of each text and 0 for the others, (N, K)."""
    return np.asarray(np.arange(scores.shape[1]) == scores.argmax(axis=1)[:, None])


def names_of(classes: Classes, task: Task, labels: NDArray[np.bool_]) -> list[Any]:
    """The label of each text, for several labels a tuple of them, from 0 and 1, (N, K)."""
    return list(classes.names_of(labels.argmax(axis=1) if task == "multi-class" else labels))


@dataclass(frozen=True, eq=False)
class Student:
    """A linear model on TF-IDF n-grams; its scores are calibrated logits.

    `threshold` is the confidence from which it answers in a cascade, and None outside one.
    """

    classes: Classes
    task: Task
    linear: NgramModel
    decision: Decision | None = None  # of multi-label models
    threshold: float | None = None
    report: dict[str, Any] = field(default_factory=dict)

    def scores(self, texts: Sequence[str], progress: Progress | None = None) -> Array:
        """Logits of each label, (N, K)."""
        return finite(self.linear.logits(texts, progress))

    @property
    def features(self) -> TfIdf:
        return self.linear.features

    def probabilities(self, texts: Sequence[str], progress: Progress | None = None) -> Array:
        """p(k | x), (N, K); rows sum to one for multi-class models, labels are independent for multi-label ones."""
        return self.probabilities_of(self.scores(texts, progress))

    def probabilities_of(self, scores: Array) -> Array:
        """p(k | x), (N, K), from scores (N, K)."""
        return np.exp(evidence(scores, logits=False)) if self.decision is None else self.decision.probabilities(scores)

    def labels_of(self, scores: Array) -> NDArray[np.bool_]:
        """The labels as 0 and 1, (N, K), from scores (N, K)."""
        return most_probable(scores) if self.decision is None else self.decision(scores)

    def predict(self, texts: Sequence[str]) -> list[Any]:
        """The label of each text; for multi-label models a tuple of labels."""
        return names_of(self.classes, self.task, self.labels_of(self.scores(texts)))

    @property
    def rules(self) -> Decision:
        """The decision, or an error if the model has none: only multi-label models do."""
        if self.decision is None:
            raise SettingError("this student predicts one label per text, so there is nothing to decide; leave out the "
                               "decision.")
        return self.decision

    def save(self, folder: Path | str) -> None:
        """Writes a new folder."""
        write_new(Path(folder), self.fill)

    def fill(self, folder: Path) -> None:
        """Writes student.json, student.safetensors and checksums.json."""
        from safetensors.numpy import save

        (folder / WEIGHTS).write_bytes(save(self.linear.tensors()))
        facts = {"format": FORMAT, "halflabel": __version__, "student": self.features.kind, "task": self.task,
                 "classes": self.classes.to_json(), "bits": BITS, "threshold": self.threshold,
                 "decision": "argmax" if self.decision is None else self.decision.to_json(), "report": self.report}
        write_text(folder / DESCRIPTION, json.dumps(facts, indent=1, ensure_ascii=False))
        write_checksums(folder)


def write_new(folder: Path, fill: Callable[[Path], None]) -> None:
    """Writes a folder that does not exist yet."""
    if folder.exists():
        raise OutputError(f"{folder} exists already; choose another folder or remove it first.")
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    write_folder(folder, fill)


def description(folder: Path) -> dict[str, Any]:
    """student.json of a folder that `halflabel distill` wrote, validated."""
    file = folder / DESCRIPTION
    facts = read_json(file, COPY_OR_DISTILL)
    require(facts, {"format": int}, file, COPY_OR_DISTILL)
    if facts["format"] > FORMAT:
        raise ModelError(f"{file} was written by a newer version of halflabel (format {facts['format']}); upgrade "
                         "halflabel.")
    require(facts, ENTRIES, file, COPY_OR_DISTILL)
    threshold = facts["threshold"]
    if (facts["student"] not in KINDS or facts["task"] not in get_args(Task) or facts["bits"] != BITS
            or not (threshold is None or type(threshold) in (int, float))):
        raise ModelError(f"{file} has an impossible student, task, bits or threshold; {COPY_OR_DISTILL}")
    return facts


def decision_of(facts: dict[str, Any], folder: Path) -> Decision | None:
    """The decision of a multi-label student; None for multi-class."""
    if facts["task"] == "multi-class":
        return None
    return decision_from_json(facts["decision"], len(facts["classes"]), folder / DESCRIPTION, COPY_OR_DISTILL)


def load_student(folder: str | Path) -> Student:
    """Reads a student; a damaged one is refused."""
    folder = Path(folder)
    facts = description(folder)
    verify(folder)
    refuse_code(folder)
    classes = Classes.from_json(facts["classes"], folder / DESCRIPTION)
    linear = read_ngram_model(folder / WEIGHTS, facts["student"], len(classes), COPY_OR_DISTILL)
    return Student(classes, facts["task"], linear, decision_of(facts, folder), facts["threshold"], facts["report"])
