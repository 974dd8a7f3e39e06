"""What models predict for labelled texts that they were fitted without, and weights of models that follow from that.

Shapes: vectors x (N_l, H) and pool (N_u, H), y (N_l,) columns of labels, K labels, M models, N held-out texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from halflabel.arrays import Array, Columns, Mask
from halflabel.methods.linear_models import Fit, LinearModel, weighted_sum

CV_POOL = 2000  # pool texts that models are fitted with, or 10 per label if that is more
SPLITS, SPLIT_TEXTS = (2, 6), 300  # random splits into halves: as many texts, but no fewer and no more splits
WEIGHT_PRIOR = np.array([0.1, 0.5])  # median weights of cluster model and logistic regression, before cross-validation
WEIGHT_SPREAD = np.array([1.2, 0.7])  # standard deviations of the logarithms of those weights


class HeldOut(NamedTuple):
    """Predictions for labelled texts by models that were fitted without them."""

    folds: list[Mask]  # each a mask (N_l,) of the texts that are held out together
    models: list[list[LinearModel]]  # M models for each fold
    log_p: Array  # (M, N, K) log-probabilities of the held-out texts, fold after fold
    y: Columns  # (N,) their labels
    pool_rows: Columns  # of the pool that were used
    pool: Array  # their vectors
    discount: float  # weight of a held-out text, since its models saw fewer labels than the final ones

    def of(self, *models: int) -> HeldOut:
        """The predictions of some of the models."""
        return self._replace(models=[[fitted[i] for i in models] for fitted in self.models],
                             log_p=self.log_p[list(models)])


def cross_validate(fits: Sequence[Fit], x: Array, y: Columns, pool: Array, labels: int,
                   rng: np.random.Generator) -> HeldOut:
    """Holds out each labelled text once, but never the only one of its class."""
    per_class = int(np.median(np.bincount(y, minlength=labels)))
    number = int(np.clip(per_class, 2, 10 if labels < 50 else 3))
    fold = np.full(len(y), -1)
    for rows in rows_by_class(y, labels, rng):
        fold[rows] = np.arange(len(rows)) % number
    folds = [fold == j for j in range(number) if (fold == j).any()]
    return held_out_predictions(fits, x, y, pool, labels, folds, 1.0 - 1.0 / max(2, len(folds)), rng)


def validate_halves(fits: Sequence[Fit], x: Array, y: Columns, pool: Array, labels: int,
                    rng: np.random.Generator) -> HeldOut:
    """Models fitted with one half of the labels and evaluated on the other, for some random splits."""
    folds, splits = [], int(np.clip(SPLIT_TEXTS // max(1, len(y)), *SPLITS))
    for _ in range(splits):
        first, second = np.zeros((2, len(y)), dtype=bool)
        for rows in rows_by_class(y, labels, rng):
            first[rows[: len(rows) // 2]] = second[rows[len(rows) // 2 :]] = True
        folds += [fold for fold in (first, second) if fold.any()]
    return held_out_predictions(fits, x, y, pool, labels, folds, 1.0 / splits, rng)


def rows_by_class(y: Columns, labels: int, rng: np.random.Generator) -> list[Columns]:
    """The rows of each class that has more than one text, in random order."""
    classes = (rng.permutation(np.flatnonzero(y == k)) for k in range(labels))
    return [rows for rows in classes if len(rows) > 1]


def held_out_predictions(fits: Sequence[Fit], x: Array, y: Columns, pool: Array, labels: int, folds: list[Mask],
                         discount: float, rng: np.random.Generator) -> HeldOut:
    """Fits the models without each fold in turn and predicts it."""
    pool_rows = rng.permutation(len(pool))[: max(CV_POOL, 10 * labels)]
    sample = pool[pool_rows]
    models = [[fit(x[~fold], y[~fold], sample, labels) for fit in fits] for fold in folds]
    predictions = [np.stack([model.log_probabilities(x[fold]) for model in fold_models])
                   for fold_models, fold in zip(models, folds, strict=True)]
    log_p = np.concatenate([np.empty((len(fits), 0, labels)), *predictions], axis=1)
    held_out_y = np.concatenate([np.empty(0, dtype=np.int64), *(y[fold] for fold in folds)])
    return HeldOut(folds, models, log_p, held_out_y, pool_rows, sample, discount)


def fit_mixture(fits: Sequence[Fit], x: Array, y: Columns, pool: Array, labels: int,
                rng: np.random.Generator) -> tuple[LinearModel, Array, HeldOut]:
    """The weighted sum of the fitted models, their weights, and the predictions that the weights were fitted on."""
    held_out = cross_validate(fits, x, y, pool, labels, rng)
    weights, _ = fit_weights(held_out, WEIGHT_PRIOR[-len(fits) :], WEIGHT_SPREAD[-len(fits) :])
    return weighted_sum([fit(x, y, pool, labels) for fit in fits], weights), weights, held_out


def correct_of(held_out: HeldOut, weights: Array) -> tuple[int, int]:
    """How many held-out texts the mixture predicts right, and how many there are."""
    predicted = np.tensordot(weights, held_out.log_p, 1).argmax(axis=1)
    return int((predicted == held_out.y).sum()), len(held_out.y)


def fit_weights(held_out: HeldOut, prior: Array, spread: Array) -> tuple[Array, float]:
    """Weights (M,) of highest posterior, for held-out labels under a log-normal prior, and minus its logarithm."""
    from scipy.optimize import minimize
    from scipy.special import logsumexp, softmax

    log_p = held_out.log_p
    log_p_true = log_p[:, np.arange(len(held_out.y)), held_out.y]

    def negative_log_posterior(u: Array) -> tuple[float, Array]:
        weights = prior * np.exp(u)
        logits = np.tensordot(weights, log_p, 1)
        loss = logsumexp(logits, axis=1).sum() - (weights @ log_p_true).sum()
        gradient = (softmax(logits, axis=1) * log_p).sum(axis=(1, 2)) - log_p_true.sum(axis=1)
        return (held_out.discount * loss + (u**2 / (2 * spread**2)).sum(),
                held_out.discount * gradient * weights + u / spread**2)

    models = len(prior)
    starts = [np.zeros(models), np.where(np.arange(models) < models - 1, -2.0, 0.0)]  # not convex: two local optima
    results = [minimize(negative_log_posterior, u, jac=True, bounds=[(-6.0, 4.0)] * models, method="L-BFGS-B")
               for u in starts]
    best = min(results, key=lambda result: float(result.fun))
    return np.asarray(prior * np.exp(best.x)), float(best.fun)
