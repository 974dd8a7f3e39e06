"""Trials: what views make of labelled texts that they did not see, and how far that lets them be trusted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from halflabel.parts.views import Array, Columns, Rule, View, gaussian, logistic
from halflabel.parts.words import with_words

PRIOR = np.array([0.1, 0.5])  # weights of the two views before any label is held out
SPREAD = np.array([1.2, 0.7])  # standard deviation of the logarithm of those weights


class Trial(NamedTuple):
    """What the views say of labelled texts that they did not see."""

    folds: list[NDArray[np.bool_]]  # each a mask (N_l,) of the texts held out together
    rules: list[list[Rule]]  # for each fold, the rule of each view
    held: Array  # (V, M, K) log-probabilities, fold after fold
    truth: Columns  # (M,)
    rows: Columns  # of the pool, that were looked at
    pool: Array  # their vectors
    discount: float  # how much a held-out text counts


def hold_out(views: list[View], x: Array, y: Columns, pool: Array, labels: int, rng: np.random.Generator) -> Trial:
    """Holds out each labelled text once, but never the only one of its class."""
    few = int(np.median(np.bincount(y, minlength=labels)))
    number = int(np.clip(few, 2, 10 if labels < 50 else 3))
    fold = np.full(len(y), -1)
    for rows in by_class(y, labels, rng):
        fold[rows] = np.arange(len(rows)) % number
    folds = [fold == j for j in range(number) if (fold == j).any()]
    fewer = 1.0 - 1.0 / max(2, len(folds))  # a fold's views saw fewer labels than the views of all
    return tried(views, x, y, pool, labels, folds, fewer, rng)


def in_halves(x: Array, y: Columns, pool: Array, labels: int, rng: np.random.Generator) -> Trial:
    """EM and logistic regression from either half of the labels, judged by the other half, for two ways to halve."""
    folds = []
    for _ in range(2):
        first, second = np.zeros((2, len(y)), dtype=bool)
        for rows in by_class(y, labels, rng):
            first[rows[: len(rows) // 2]] = second[rows[len(rows) // 2 :]] = True
        folds += [out for out in (first, second) if out.any()]
    return tried([gaussian, logistic], x, y, pool, labels, folds, 0.5, rng)


def by_class(y: Columns, labels: int, rng: np.random.Generator) -> list[Columns]:
    """The rows of each class that has more than one text, in a random order."""
    rows = (rng.permutation(np.flatnonzero(y == k)) for k in range(labels))
    return [some for some in rows if len(some) > 1]


def tried(views: list[View], x: Array, y: Columns, pool: Array, labels: int, folds: list[NDArray[np.bool_]],
          discount: float, rng: np.random.Generator) -> Trial:
    """Fits the views without each fold in turn and asks them about it."""
    looked = rng.permutation(len(pool))[: max(2000, 10 * labels)]
    part = pool[looked]
    rules = [[view(x[~out], y[~out], part, labels) for view in views] for out in folds]
    seen = [np.stack([rule.log_probabilities(x[out]) for rule in some]) for some, out in zip(rules, folds, strict=True)]
    held = np.concatenate([np.empty((len(views), 0, labels)), *seen], axis=1)
    truth = np.concatenate([np.empty(0, dtype=np.int64), *(y[out] for out in folds)])
    return Trial(folds, rules, held, truth, looked, part, discount)


def pooling(trial: Trial, prior: Array, spread: Array) -> tuple[Array, float]:
    """Weights (V,) of the views that make held-out labels likely, under a log-normal prior, and what that comes to."""
    from scipy.optimize import minimize
    from scipy.special import logsumexp, softmax

    held, truth = trial.held, trial.truth
    right = held[:, np.arange(len(truth)), truth]

    def cost(u: Array) -> tuple[float, Array]:
        weights = prior * np.exp(u)
        logits = np.tensordot(weights, held, 1)
        loss = logsumexp(logits, axis=1).sum() - (weights @ right).sum()
        slope = (softmax(logits, axis=1) * held).sum(axis=(1, 2)) - right.sum(axis=1)
        return (trial.discount * loss + (u**2 / (2 * spread**2)).sum(),
                trial.discount * slope * weights + u / spread**2)

    starts = [np.zeros(len(prior)), np.where(np.arange(len(prior)) < len(prior) - 1, -2.0, 0.0)]
    found = [minimize(cost, u, jac=True, bounds=[(-6.0, 4.0)] * len(prior), method="L-BFGS-B") for u in starts]
    best = min(found, key=lambda one: float(one.fun))
    return np.asarray(prior * np.exp(best.x)), float(best.fun)


def evidence(halves: Trial) -> float:
    """The logarithm of how much likelier held-out labels are when EM is heard beside logistic regression."""
    _, both = pooling(halves, PRIOR, SPREAD)
    _, labels_alone = pooling(halves._replace(held=halves.held[1:]), PRIOR[1:], SPREAD[1:])
    return labels_alone - both


def words_help(halves: Trial, weights: Array, counts: Any, known: Array) -> bool:
    """Whether words make held-out labels likelier than logistic regression with that weight does."""
    from scipy.special import softmax

    gain, at = 0.0, 0
    for out, (_, rule) in zip(halves.folds, halves.rules, strict=True):
        held, at = halves.held[1, at : at + out.sum()], at + out.sum()
        before = softmax(weights[-1] * np.concatenate([held, rule.log_probabilities(halves.pool)]), axis=1)
        rows = np.concatenate([np.flatnonzero(~out), np.flatnonzero(out), len(known) + halves.rows])
        after = corrected(counts[rows], known[~out], before)
        gain += float((known[out] * np.log((after[: len(held)] + 1e-4) / (before[: len(held)] + 1e-4))).sum())
    return gain > 0.0


def corrected(counts: Any, known: Array, soft: Array) -> Array:
    """Soft labels (M, K) after words were asked twice, the second time about what they said the first."""
    return with_words(counts, known, with_words(counts, known, soft))
