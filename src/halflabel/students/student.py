"""A student: a linear model on TF-IDF n-grams that predicts by numpy alone. No torch, scipy or scikit-learn."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from halflabel import __version__
from halflabel.atomic import write_folder, write_text
from halflabel.data.labels import Classes
from halflabel.errors import ModelError, OutputError, SettingError
from halflabel.evaluation.decisions import Decision, evidence, finite
from halflabel.integrity import read_json, refuse_code, require, verify, write_checksums
from halflabel.persistence.model_folder import decision_from_json
from halflabel.students.ngrams import BITS, BUCKETS, KINDS, Kind, occurrences
from halflabel.types import Progress, Task

FORMAT = 1
DESCRIPTION, WEIGHTS = "student.json", "student.safetensors"
ENTRIES = {"student": str, "task": str, "classes": list, "bits": int, "decision": object, "threshold": object,
           "report": dict}
COPY_OR_DISTILL = "copy or distill the model again."
CHUNK = 512  # texts whose n-grams are in memory at a time
GATHERED = 1 << 21  # weights that are gathered at a time, at most

Array = NDArray[np.floating]


def is_student(folder: Path) -> bool:
    """Whether `halflabel distill` wrote the folder."""
    return (folder / DESCRIPTION).is_file()


def most_probable(scores: Array) -> NDArray[np.bool_]:
    """1 for the highest score of each text and 0 for the others, (N, K)."""
    return np.asarray(np.arange(scores.shape[1]) == scores.argmax(axis=1)[:, None])


def names_of(classes: Classes, task: Task, labels: NDArray[np.bool_]) -> list[Any]:
    """The label of each text, for several labels a tuple of them, from 0 and 1, (N, K)."""
    return list(classes.names_of(labels.argmax(axis=1) if task == "multi-class" else labels))


class SparseRows(NamedTuple):
    """Rows of TF-IDF values of length one: row i has the entries bounds[i] to bounds[i + 1]."""

    values: NDArray[np.float32]
    features: NDArray[np.integer]
    bounds: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TfIdf:
    """N-grams to TF-IDF vectors, of the features that were kept: (F,) buckets in rising order and their idf."""

    kind: Kind
    buckets: NDArray[np.uint32]
    idf: NDArray[np.float32]

    def __call__(self, texts: Sequence[str]) -> SparseRows:
        """Sublinear term frequency times idf, scaled to length one."""
        rows, found = occurrences(texts, self.kind)
        features = self.feature_of[found]
        known = features >= 0
        keys = np.sort(rows[known] * BUCKETS + features[known])
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.diff(first, append=len(keys))
        rows, features = keys[first] >> BITS, keys[first] & (BUCKETS - 1)
        values = (1.0 + np.log(counts, dtype=np.float32)) * self.idf[features]
        norms = np.sqrt(np.bincount(rows, values * values, len(texts))).astype(np.float32)
        bounds = np.searchsorted(rows, np.arange(len(texts) + 1))
        return SparseRows((values / norms[rows]).astype(np.float32), features, bounds)

    @cached_property
    def feature_of(self) -> NDArray[np.int32]:
        """The feature of each bucket, -1 for none."""
        table = np.full(BUCKETS, -1, np.int32)
        table[self.buckets] = np.arange(len(self.buckets))
        return table


@dataclass(frozen=True, eq=False)
class Student:
    """A linear model on TF-IDF n-grams; its scores are calibrated logits.

    `threshold` is the confidence from which it answers in a cascade, and None outside one.
    """

    classes: Classes
    task: Task
    features: TfIdf
    weights: NDArray[np.float32]  # (F, K)
    bias: NDArray[np.float32]  # (K,)
    decision: Decision | None = None  # of multi-label models
    threshold: float | None = None
    report: dict[str, Any] = field(default_factory=dict)

    def scores(self, texts: Sequence[str], progress: Progress | None = None) -> Array:
        """Logits of each label, (N, K)."""
        scores = np.empty((len(texts), len(self.classes)), np.float32)
        for start in range(0, len(texts), CHUNK):
            scores[start : start + CHUNK] = self._product(self.features(texts[start : start + CHUNK])) + self.bias
            if progress is not None:
                progress(min(start + CHUNK, len(texts)), len(texts))
        return finite(scores)

    def _product(self, x: SparseRows) -> Array:
        """x @ weights, (N, K), with as many texts at a time as `GATHERED` allows."""
        number, labels = len(x.bounds) - 1, len(self.classes)
        product = np.zeros((number, labels), np.float32)
        entries = max(1, GATHERED // labels)
        start = 0
        while start < number:
            end = max(start + 1, int(np.searchsorted(x.bounds, x.bounds[start] + entries, "right")) - 1)
            part = slice(x.bounds[start], x.bounds[end])
            filled = start + np.flatnonzero(np.diff(x.bounds[start : end + 1]))  # reduceat has no empty sums
            if len(filled):
                gathered = self.weights[x.features[part]]
                gathered *= x.values[part, None]
                product[filled] = np.add.reduceat(gathered, x.bounds[filled] - x.bounds[start], axis=0)
            start = end
        return product

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

        tensors = {"buckets": self.features.buckets, "idf": self.features.idf, "bias": self.bias,
                   "weights": self.weights.astype(np.float16)}
        (folder / WEIGHTS).write_bytes(save(tensors))
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
    tensors = _tensors(folder / WEIGHTS, len(classes))
    return Student(classes, facts["task"], TfIdf(facts["student"], tensors["buckets"], tensors["idf"]),
                   tensors["weights"].astype(np.float32), tensors["bias"], decision_of(facts, folder),
                   facts["threshold"], facts["report"])


def _tensors(file: Path, labels: int) -> dict[str, Any]:
    """The arrays of a student, if their types and shapes fit and all weights are finite."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not file.is_file():
        raise ModelError(f"{file} is missing; {COPY_OR_DISTILL}")
    try:
        tensors: dict[str, Any] = load_file(file)
    except SafetensorError as error:
        raise ModelError(f"{file} is damaged ({error}); {COPY_OR_DISTILL}") from None
    number = len(tensors["buckets"]) if "buckets" in tensors and tensors["buckets"].ndim else 0
    shapes = {"buckets": ("uint32", (number,)), "idf": ("float32", (number,)),
              "weights": ("float16", (number, labels)), "bias": ("float32", (labels,))}
    if {name: (str(array.dtype), array.shape) for name, array in tensors.items()} != shapes:
        raise ModelError(f"{file} does not fit {DESCRIPTION}; {COPY_OR_DISTILL}")
    buckets = tensors["buckets"].astype(np.int64)
    if (not number or buckets[-1] >= BUCKETS or (np.diff(buckets) <= 0).any()
            or not all(np.isfinite(array).all() for array in tensors.values())):
        raise ModelError(f"{file} has weights or n-grams that are impossible; {COPY_OR_DISTILL}")
    return tensors
