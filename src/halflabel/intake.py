"""What people hand to the estimator, as corpora, and the way back from the pool to their texts."""

from __future__ import annotations

from collections.abc import Sequence
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


def traced(everything: Sequence[str], labelled: Corpus, pool: Corpus, taken: np.ndarray, found: np.ndarray,
           steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Label and step of each text of all, (N,): of labelled texts, and of those rows of the pool (rising) that were
    taken to have a label (found) at a step; None and -1 of the others."""
    known: dict[str, tuple[Any, int]] = {text: (label, 0) for text, label in zip(labelled.texts, labelled.labels,
                                                                                strict=True)}
    which: dict[int, np.ndarray] = {}  # of each stored sequence: which of the taken rows each text is, or -1
    start = 0
    for part in parts_of(pool.texts):
        base, rows = origin_of(part)
        mine = np.arange(*np.searchsorted(taken, [start, start + len(part)]))
        places = taken[mine] - start
        start += len(part)
        if isinstance(base, Lying):
            places = places if isinstance(rows, slice) else rows[places]
            which.setdefault(id(base), np.full(len(base), -1, np.int32))[places] = mine
        else:
            known.update({part[i]: (found[k], int(steps[k])) for i, k in zip(places, mine, strict=True)})
    labels, when = np.full(len(everything), None, object), np.full(len(everything), -1)
    start = 0
    for part in parts_of(everything):
        label, step = labels[start : start + len(part)], when[start : start + len(part)]
        start += len(part)
        base, rows = origin_of(part)
        if id(base) in which:
            place = which[id(base)][rows]
            there = np.flatnonzero(place >= 0)
            label[there], step[there] = found[place[there]], steps[place[there]]
        for i in rows_holding(part, known).tolist():
            label[i], step[i] = known[part[i]]
    return labels, when


def aligned(truth: Any, unlabelled: Sequence[str] | None, pool: Corpus) -> list[Any] | None:
    """True labels in the order of the pool, for measuring alone."""
    if truth is None:
        return None
    by_text = dict(zip(unlabelled if unlabelled is not None else [], as_labels(truth, "truth"), strict=True))
    if any(text not in by_text for text in pool.texts):
        raise BadInput("truth: it has to hold the label of every unlabelled text; leave it out otherwise.")
    return [by_text[text] for text in pool.texts]
