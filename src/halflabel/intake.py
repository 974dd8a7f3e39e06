"""What people hand to the estimator, as corpora, and the way back from the pool to their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from halflabel.columns import rows_holding
from halflabel.data.indicator import Labels, from_matrix, is_matrix
from halflabel.data.labels import label_of
from halflabel.sequences import Lying, Same, origin_of, parts_of
from halflabel.types import BadInput, Corpus


def as_texts(texts: Sequence[str], name: str) -> Sequence[str]:
    """A list of strings, whatever kind of sequence came in; stored texts stay where they lie."""
    if isinstance(texts, Lying):
        return texts
    if isinstance(texts, (str, bytes)):
        raise BadInput(f"{name}: one string was given where a list of texts is wanted; put it into a list.")
    found = list(texts)
    for i, text in enumerate(found):
        if not isinstance(text, str):
            raise BadInput(f"{name}: text {i + 1} is {type(text).__name__}, not a string; give a list of strings.")
    return [str(text) for text in found]


def as_corpus(texts: Sequence[str], labels: Any, name: str) -> Corpus:
    """Texts and labels of the same number."""
    found, given = as_texts(texts, name), as_labels(labels, name)
    if len(found) != len(given):
        raise BadInput(f"{name}: there are {len(found)} texts and {len(given)} labels; give one label for each text.")
    return Corpus(found, given, source=name)


def as_labels(labels: Any, name: str) -> Labels:
    """A label, a tuple of labels or None for each text, from a sequence of them or from a matrix."""
    return from_matrix(labels, name)[0] if is_matrix(labels) else [label_of(label) for label in labels]


def as_objects(values: Sequence[Any]) -> np.ndarray:
    """An array (N,) of labels as they are; tuples stay tuples."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def as_pool(texts: Sequence[str], views: Sequence[Sequence[str]] | None) -> Corpus:
    """Unlabelled texts with the views that came with them; stored texts stay where they lie."""
    found = as_texts(texts, "unlabelled")
    ready = views if isinstance(views, Lying) else [tuple(view) for view in views or []]
    none: Sequence[None] = Same(None, len(found)) if isinstance(found, Lying) else [None] * len(found)
    return Corpus(found, none, ready, "unlabelled")


@dataclass(frozen=True, eq=False)
class Audit:
    """Which of N texts were taken to have a label, which, and at which step; laid out for all texts when looked at."""

    number: int
    rows: np.ndarray
    found: np.ndarray
    since: np.ndarray

    @cached_property
    def labels(self) -> np.ndarray:
        """The label of each text, None without one, (N,)."""
        labels = np.full(self.number, None, object)
        labels[self.rows] = self.found
        return labels

    @cached_property
    def steps(self) -> np.ndarray:
        """The step of each text, -1 without a label, (N,)."""
        steps = np.full(self.number, -1)
        steps[self.rows] = self.since
        return steps


def traced(everything: Sequence[str], labelled: Corpus, pool: Corpus, taken: np.ndarray, found: np.ndarray,
           steps: np.ndarray) -> Audit:
    """The labels of all texts: of labelled ones, at step 0, and of those rows of the pool (rising) that were taken to
    have a label (found) at a step."""
    known: dict[str, tuple[Any, int]] = {text: (label, 0) for text, label in zip(labelled.texts, labelled.labels,
                                                                                strict=True)}
    stored: dict[int, list[np.ndarray]] = {}  # of each stored sequence: rows that were taken, and which those are
    start = 0
    for part in parts_of(pool.texts):
        base, rows = origin_of(part)
        mine = np.arange(*np.searchsorted(taken, [start, start + len(part)]))
        places = taken[mine] - start
        start += len(part)
        if isinstance(base, Lying):
            places = places if isinstance(rows, slice) else rows[places]
            stored.setdefault(id(base), []).append(np.stack([places, mine]))
        else:
            known.update({part[i]: (found[k], int(steps[k])) for i, k in zip(places, mine, strict=True)})
    notes = [(np.empty(0, np.int64), as_objects([]), np.empty(0, np.int64))]  # rows, labels, steps
    start = 0
    for part in parts_of(everything):
        base, rows = origin_of(part)
        if id(base) in stored:
            places, mine = np.concatenate(stored[id(base)], axis=1)
            if not isinstance(rows, slice):
                there, order = np.flatnonzero(np.isin(rows, places)), np.argsort(places)
                places, mine = there, mine[order[np.searchsorted(places, rows[there], sorter=order)]]
            notes.append((start + places, found[mine], steps[mine]))
        same = rows_holding(part, known)
        pairs = [known[part[i]] for i in same.tolist()]
        notes.append((start + same, as_objects([label for label, _ in pairs]),
                      np.array([step for _, step in pairs], np.int64)))
        start += len(part)
    return Audit(len(everything), *map(np.concatenate, zip(*notes, strict=True)))


def aligned(truth: Any, unlabelled: Sequence[str] | None, pool: Corpus) -> list[Any] | None:
    """True labels in the order of the pool, for measuring alone."""
    if truth is None:
        return None
    by_text = dict(zip(unlabelled if unlabelled is not None else [], as_labels(truth, "truth"), strict=True))
    if any(text not in by_text for text in pool.texts):
        raise BadInput("truth: it has to hold the label of every unlabelled text; leave it out otherwise.")
    return [by_text[text] for text in pool.texts]
