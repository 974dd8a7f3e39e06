"""The closed form without labels that are likely wrong, for `lift` with `wrong_labels=drop`.

Held-out predictions p of the closed form's two models explain the labels y, of which a share r is wrong:
P(y) = (1 - r) p_y + r (1 - p_y) / (K - 1). The weights of the models and r are those of highest posterior, so that the
label of an ambiguous text does not count as wrong. A label is dropped if it is wrong with a probability of WRONG or
more, and its text joins the pool.

Shapes: as in `closed_form`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from halflabel.arrays import Array, Columns, Mask
from halflabel.methods.closed_form import ClosedForm, fit_closed_form
from halflabel.methods.gaussian_em import gaussian_em
from halflabel.methods.held_out import WEIGHT_PRIOR, WEIGHT_SPREAD, HeldOut, cross_validate
from halflabel.methods.linear_models import logistic_regression
from halflabel.randomness import Stream, generator

WRONG = 0.8  # probability from which on a label is dropped
MEAN_RATE = 0.1  # of wrong labels, before any is seen
HIGHEST_RATE = 0.45


def fit_without_wrong_labels(x: Array, y: Columns, pool: Array, words: Any, labels: int, *, seed: int,
                             names: Array | None = None) -> tuple[ClosedForm, int]:
    """What `fit_closed_form` gives without labels that are likely wrong, and the number of these."""
    kept = ~likely_wrong(x, y, pool, labels, seed=seed)
    rows = np.concatenate([np.flatnonzero(kept), np.flatnonzero(~kept), len(y) + np.arange(len(pool))])
    fitted = fit_closed_form(x[kept], y[kept], np.concatenate([x[~kept], pool]), words[rows], labels, seed=seed,
                             names=names)
    dropped = int((~kept).sum())
    return fitted._replace(soft=fitted.soft[dropped:]), dropped


def likely_wrong(x: Array, y: Columns, pool: Array, labels: int, *, seed: int) -> Mask:
    """Which labels are likely wrong, (N_l,); a class keeps its likeliest label, and without a pool none is known."""
    probability = np.zeros(len(y))
    if not len(pool) or len(np.unique(y)) == len(y):
        return probability > 0.0
    held_out = cross_validate([gaussian_em, logistic_regression], x, y, pool, labels,
                              generator(seed, Stream.WRONG_LABELS))
    probability[np.concatenate([np.flatnonzero(fold) for fold in held_out.folds])] = wrong_probability(held_out)
    wrong = probability >= WRONG
    for k in np.unique(y):
        rows = np.flatnonzero(y == k)
        wrong[rows[probability[rows].argmin()]] = False
    return wrong


def wrong_probability(held_out: HeldOut) -> Array:
    """The probability that each held-out label is wrong, (N,), at the rate of wrong labels that explains them best."""
    from scipy.optimize import minimize
    from scipy.special import softmax

    number, others = np.arange(len(held_out.y)), held_out.log_p.shape[2] - 1

    def right_and_wrong(v: Array) -> tuple[Array, Array]:
        p = softmax(np.tensordot(WEIGHT_PRIOR * np.exp(v[:-1]), held_out.log_p, 1), axis=1)[number, held_out.y]
        return (1.0 - v[-1]) * p, v[-1] * (1.0 - p) / others

    def negative_log_posterior(v: Array) -> float:
        log_likelihood = np.log(np.add(*right_and_wrong(v)) + 1e-12).sum()
        return float(v[-1] / MEAN_RATE + (v[:-1] ** 2 / (2 * WEIGHT_SPREAD**2)).sum()
                     - held_out.discount * log_likelihood)

    results = [minimize(negative_log_posterior, np.array([clusters, 0.0, rate]), method="L-BFGS-B",
                        bounds=[(-6.0, 4.0), (-6.0, 4.0), (0.0, HIGHEST_RATE)])
               for clusters in (0.0, -2.0) for rate in (0.01, 0.1, 0.3)]  # not convex
    right, wrong = right_and_wrong(min(results, key=lambda result: float(result.fun)).x)
    return np.asarray(wrong / np.maximum(right + wrong, 1e-12))
