"""A closed-form classifier for several labels per text, from few labelled texts and a pool.

1. Labels alone: logistic regression of each label on the vectors of the labelled texts, and another on their words.
   The sum of their log-odds labels the pool softly; an offset makes each label as frequent there as in labelled texts.
2. The pool: each label is a Gaussian with the covariance of all texts, fitted to labelled and softly labelled texts.
   These are a linear model of the vectors, log-odds = x W + b, for all other texts. To repeat this (EM) helps where
   the pool clusters by label, and does harm where it does not: one step is the best for all.
3. The sum of the log-odds of both steps are the soft labels of the pool on which an encoder is fine-tuned.

Shapes: vectors x (N_l, H) and pool (N_u, H) of unit length, y (N_l, K) multi-hot with NaN where unknown.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from halflabel.evaluation.decisions import sigmoid
from halflabel.methods.closed_form import MAX_POOL, Array, LinearModel
from halflabel.randomness import Stream, generator

VECTOR_PENALTY, WORD_PENALTY = 0.2, 0.1  # on the squared weights of logistic regression
WORD_WEIGHT = 0.7  # of the words' log-odds
ISOTROPIC = 0.5  # share of an isotropic covariance
PRIOR_TEXTS = 2.0  # without the label, by which its mean is shrunk towards the centre of the pool
SHARPNESS = 2.0  # factor on log-odds, whose terms are each too cautious
ITERATIONS = 40  # of logistic regression
BISECTIONS = 40  # of the interval in which an offset is searched


class SeveralLabels(NamedTuple):
    """A linear model for any text, and soft labels of the pool."""

    model: LinearModel
    soft: Array  # (N_u, K)


def fit_several_labels(x: Array, y: Array, pool: Array, words: Any, *, seed: int) -> SeveralLabels:
    """The classifier for vectors x (N_l, H) with labels y (N_l, K) and a pool (N_u, H).

    `words` (N_l + N_u, V) are the `word_features` of the same texts.
    """
    prior, known = frequencies(y), len(x)
    by_vectors = logistic(x, y, VECTOR_PENALTY)
    if not len(pool):
        return SeveralLabels(matched(by_vectors, x, prior), np.empty((0, len(prior))))
    rows = np.sort(generator(seed, Stream.CLOSED_FORM).permutation(len(pool))[:MAX_POOL])
    sample, seen = pool[rows], np.flatnonzero(np.asarray(words[:known].sum(axis=0)).ravel())
    by_words = logistic(words[:known, seen], y, WORD_PENALTY)
    labels_alone = by_vectors.logits(sample) + WORD_WEIGHT * by_words.logits(words[known + rows][:, seen])
    soft = sigmoid(offset_to(SHARPNESS * labels_alone, prior))
    model = gaussians(np.concatenate([x, sample]), np.concatenate([y, soft]), sample.mean(axis=0))
    soft = sigmoid(offset_to(SHARPNESS * (model.logits(sample) + labels_alone), prior))
    model = matched(model, sample, prior)
    labels = sigmoid(model.logits(pool))
    labels[rows] = soft
    return SeveralLabels(model, labels)


def gaussians(x: Array, y: Array, centre: Array) -> LinearModel:
    """A Gaussian for each label, with the covariance of all texts; x (N, H), y (N, K) soft or NaN where unknown."""
    x, y = x - centre, np.nan_to_num(y)
    covariance = x.T @ x / len(x)
    isotropic = np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    means = (y.T @ x) / (y.sum(axis=0) + PRIOR_TEXTS)[:, None]
    weight = np.linalg.solve((1 - ISOTROPIC) * covariance + ISOTROPIC * isotropic, means.T)
    return LinearModel(weight, -centre @ weight)


def logistic(x: Any, y: Array, penalty: float) -> LinearModel:
    """Logistic regression of each label on x (N, H), dense or sparse, for y (N, K); NaN does not count."""
    from scipy.optimize import minimize

    known, target, transposed = ~np.isnan(y), np.nan_to_num(y), x.T
    base, shape = log_odds(frequencies(y)), (x.shape[1] + 1, y.shape[1])

    def cost(flat: Array) -> tuple[float, Array]:
        change = flat.reshape(shape)
        logits = x @ change[:-1] + base + change[-1]
        residual = known * (sigmoid(logits) - target)
        gradient = np.concatenate([transposed @ residual + penalty * change[:-1], residual.sum(axis=0, keepdims=True)])
        loss = (known * (np.logaddexp(0.0, logits) - target * logits)).sum()
        return float(loss + 0.5 * penalty * (change[:-1] ** 2).sum()), gradient.ravel()

    result = minimize(cost, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})
    change = result.x.reshape(shape)
    return LinearModel(change[:-1], base + change[-1])


def frequencies(y: Array) -> Array:
    """Frequencies of the labels (K,), kept from 0 and 1 by half a text with the label and half a text without it."""
    return np.asarray((np.nansum(y, axis=0) + 0.5) / ((~np.isnan(y)).sum(axis=0) + 1.0))


def log_odds(p: Array) -> Array:
    return np.asarray(np.log(p) - np.log1p(-p))


def matched(model: LinearModel, x: Array, prior: Array) -> LinearModel:
    """The model at SHARPNESS, with offsets by which the texts x (N, H) have each label as often as its prior (K,)."""
    logits = SHARPNESS * model.logits(x)
    offset = (offset_to(logits, prior) - logits)[0]
    return LinearModel(SHARPNESS * model.weight, SHARPNESS * model.bias + offset)


def offset_to(logits: Array, prior: Array) -> Array:
    """Log-odds (N, K) with an offset for each label that makes its mean probability equal to its prior (K,)."""
    low, high = -logits.max(axis=0) - 20.0, -logits.min(axis=0) + 20.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        too_high = sigmoid(logits + middle).mean(axis=0) > prior
        low, high = np.where(too_high, low, middle), np.where(too_high, middle, high)
    return np.asarray(logits + (low + high) / 2)
