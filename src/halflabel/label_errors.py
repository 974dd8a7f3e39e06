"""Labels that are likely wrong: confident learning on cross-fitted probabilities, and near-duplicates that disagree.

Confident learning (Northcutt et al., 2021): each text is predicted by a classifier that was fitted without it. Texts
that are at least as probable in a class as its own texts are on average say how many of the texts labelled with one
class belong to another. So many labels are likely wrong: those where the other class exceeds the given one by most.

Shapes: N labelled texts, K classes, H encoder width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from halflabel.active_learning import NEAR_DUPLICATE, Candidates
from halflabel.arrays import Array, Columns, Mask
from halflabel.data.corpus import TextLabel
from halflabel.data.labels import Classes, names_in
from halflabel.methods.linear_models import logistic_regression
from halflabel.randomness import Stream, generator

FOLDS = 5
STRENGTH = 1.0  # of the labels against the penalty; a classifier that fits wrong labels well does not find them
MIN_ESTIMATE = 10  # labelled texts from which accuracy is estimated
CHUNK = 1024  # texts whose similarities are in memory at a time


class LabelError(NamedTuple):
    """A text whose label is likely wrong; the score is the probability that it is none of the given class."""

    row: int
    given: int
    suggested: int
    score: float


def find_label_errors(vectors: Array, y: Columns, labels: int, *, seed: int = 0) -> list[LabelError]:
    """Likely errors among labels y (N,) of texts with vectors (N, H), the most likely first."""
    return confident_learning(cross_fitted(vectors, y, labels, seed=seed, strength=STRENGTH), y)


def cross_fitted(vectors: Array, y: Columns, labels: int, *, seed: int = 0, fit_on: Mask | None = None,
                 strength: float = 10.0) -> Array:
    """Probabilities (N, K) by logistic regression that was fitted without the text, by stratified folds.

    The only text of a class is never predicted: its row is NaN. `fit_on` (N,) are the texts that may be fitted to.
    """
    x = Candidates.of(vectors, vectors[:0]).vectors
    rng, fold = generator(seed, Stream.LABEL_ERRORS), np.full(len(y), -1)
    for k in range(labels):
        rows = rng.permutation(np.flatnonzero(y == k))
        if len(rows) > 1:
            fold[rows] = np.arange(len(rows)) % FOLDS
    p = np.full((len(y), labels), np.nan)
    for j in range(FOLDS):
        if not (held_out := fold == j).any():
            continue
        rows = ~held_out if fit_on is None else ~held_out & fit_on
        if len(known := np.unique(y[rows])) < 2:  # nothing to tell apart
            p[held_out] = np.eye(labels)[known].sum(axis=0)
            continue
        model = logistic_regression(x[rows], y[rows], x[:0], labels, strength=strength)
        p[held_out] = np.exp(model.log_probabilities(x[held_out]))
    return p


def estimate_accuracy(vectors: Array, labels: Sequence[TextLabel], *, seed: int = 0,
                      fit_on: Mask | None = None) -> float | None:
    """The share of labelled texts (N,) that others predict, or micro F1 for several labels; None if too few are known.

    `fit_on` (N,) are the texts that may predict others.
    """
    names = {name for label in labels for name in names_in(label)}
    if len(labels) < MIN_ESTIMATE or len(names) < 2:
        return None
    y = Classes(tuple(sorted(names))).matrix(labels) > 0
    predicted, counted = held_out_labels(vectors, y, several=isinstance(labels[0], tuple), seed=seed, fit_on=fit_on)
    return micro_f1(y[counted], predicted[counted]) if counted.any() else None


def held_out_labels(vectors: Array, y: Mask, *, several: bool, seed: int = 0,
                    fit_on: Mask | None = None) -> tuple[Mask, Mask]:
    """Labels (N, K) by classifiers that were fitted without the text, and which texts were predicted, (N,)."""
    if not several:
        p = cross_fitted(vectors, y.argmax(axis=1), y.shape[1], seed=seed, fit_on=fit_on)
        return np.eye(y.shape[1], dtype=bool)[p.argmax(axis=1)], ~np.isnan(p[:, 0])
    predicted = [cross_fitted(vectors, column.astype(np.int64), 2, seed=seed, fit_on=fit_on)[:, 1] > 0.5
                 if not column.all() else column for column in y.T]
    return np.stack(predicted, axis=1), np.ones(len(y), dtype=bool)


def micro_f1(y: Mask, predicted: Mask) -> float:
    """Micro F1 of labels (N, K), which is accuracy if each text has one; 1 if there is nothing to predict."""
    total = predicted.sum() + y.sum()
    return float(2 * (predicted & y).sum() / total) if total else 1.0


def confident_learning(p: Array, y: Columns) -> list[LabelError]:
    """Likely errors among labels y (N,), by probabilities (N, K) of texts that the classifier did not see."""
    rows, k = np.flatnonzero(~np.isnan(p[:, 0])), p.shape[1]
    p_known, given = p[rows], y[rows]
    thresholds = np.array([p_known[given == j, j].mean() if (given == j).any() else np.inf for j in range(k)])
    confident = np.where(p_known >= thresholds, p_known, -1.0)
    is_confident = confident.max(axis=1, initial=-1.0) >= 0
    joint = np.zeros((k, k))
    np.add.at(joint, (given[is_confident], confident[is_confident].argmax(axis=1)), 1.0)
    errors_of = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1.0) * np.bincount(given, minlength=k)[:, None]
    np.fill_diagonal(errors_of, 0.0)
    likely = np.zeros(len(rows), dtype=bool)
    for i, j in np.argwhere(errors_of.round() > 0).tolist():
        labelled = np.flatnonzero(given == i)
        margin = p_known[labelled, j] - p_known[labelled, i]
        likely[labelled[np.argsort(-margin, kind="stable")[: round(errors_of[i, j])]]] = True
    suggested = p_known.argmax(axis=1)
    errors = [LabelError(int(rows[i]), int(given[i]), int(suggested[i]), 1.0 - float(p_known[i, given[i]]))
              for i in np.flatnonzero(likely & (suggested != given))]
    return sorted(errors, key=lambda error: -error.score)


def disagreeing_near_duplicates(vectors: Array, y: Columns) -> list[tuple[int, int, float]]:
    """Pairs of rows with nearly the same vector and different labels, and their cosines; the most similar first."""
    x = Candidates.of(vectors, vectors[:0]).vectors
    pairs: list[tuple[int, int, float]] = []
    for start in range(0, len(x), CHUNK):
        cosines = x[start : start + CHUNK] @ x.T
        first, second = np.nonzero((cosines > NEAR_DUPLICATE) & (y[start : start + CHUNK, None] != y))
        pairs += [(start + i, j, float(cosines[i, j])) for i, j in zip(first.tolist(), second.tolist(), strict=True)
                  if start + i < j]
    return sorted(pairs, key=lambda pair: -pair[2])
