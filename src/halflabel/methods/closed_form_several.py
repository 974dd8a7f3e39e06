"""A closed-form classifier for several labels per text, from few labelled texts and a pool.

1. Labels alone: logistic regression of each label on the vectors of the labelled texts, and another on their words.
   The sum of their log-odds labels the pool softly; an offset makes each label as frequent there as in labelled texts.
2. The pool: each label is a Gaussian with the covariance of all texts, fitted to labelled and softly labelled texts.
   These are a linear model of the vectors, log-odds = x W + b, for all other texts. To repeat this (EM) helps where
   the pool clusters by label, and does harm where it does not: one step is the best for all.
3. The sum of the log-odds of both steps are the soft labels of the pool on which an encoder is fine-tuned. Training
   starts from the means of the labels instead of the Gaussians, whose weights are so large that an encoder can hardly
   learn through them. Gaussians of the trained features, with the same soft labels, are the last step.

Class names, if there are any, are vectors too. A text's log-odds of a label rise with its similarity to the name, by a
slope for each label that is fitted to the labels, all of which are held out, since no label has a part in the
similarity. Logistic regression on vectors starts from these log-odds, to which its penalty draws it. Without any label
they are all that step 1 has.

Shapes: vectors x (N_l, H) and pool (N_u, H) of unit length, y (N_l, K) multi-hot with NaN where unknown.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from halflabel.arrays import Array
from halflabel.evaluation.decisions import offset_to, sigmoid
from halflabel.methods.closed_form import MAX_POOL
from halflabel.methods.gaussian_em import SMALLEST_VARIANCE, name_directions
from halflabel.methods.linear_models import LinearModel, weighted_sum
from halflabel.randomness import Stream, generator

VECTOR_PENALTY, WORD_PENALTY = 0.2, 0.1  # on the squared weights of logistic regression
WORD_WEIGHT = 0.7  # of the words' log-odds
ISOTROPIC = 0.5  # share of an isotropic covariance
PRIOR_TEXTS = 2.0  # without the label, by which its mean is shrunk towards the centre of the pool
SHARPNESS = 2.0  # factor on log-odds, whose terms are each too cautious
NAMED_SHARPNESS = 1.0  # the same with class names, by which they are not
ITERATIONS = 40  # of logistic regression
COSINE_SCALE = 20.0  # logits over cosines with the means of the labels
LABELS_PER_TEXT = 2.0  # on average, where no label tells; at most half of the labels
SLOPES = np.linspace(0.0, 3.0, 16)  # of log-odds over the similarity with a name, in standard deviations of the pool
NAME_SLOPE, SLOPE_SPREAD = 1.2, 0.6  # the slope before labels are seen, and its standard deviation
LABEL_SPREAD = 0.5  # standard deviation of the slope of a label from that of all
NAME_EVIDENCE = 4.0  # log-likelihood of the labels that names have to add
NAME_TEXTS = 10.0  # labelled texts that the frequencies of labels by their names count as


class Names(NamedTuple):
    """Log-odds by class names, as a linear model, and the frequencies of the labels."""

    model: LinearModel
    prior: Array  # (K,)
    slopes: Array  # (K,), 0 for names that do not tell which texts have the label


class SeveralLabels(NamedTuple):
    """A linear model for any text, soft labels of the pool, and what class names add; None if they add nothing."""

    model: LinearModel
    soft: Array  # (N_u, K)
    names: Names | None = None


def fit_several_labels(x: Array, y: Array, pool: Array, words: Any, *, seed: int, names: Array | None = None,
                       labels_per_text: float = LABELS_PER_TEXT) -> SeveralLabels:
    """The classifier for vectors x (N_l, H) with labels y (N_l, K) and a pool (N_u, H).

    `words` (N_l + N_u, V) are the `word_features` of the same texts, `names` (K, H) the vectors of the class names.
    """
    rows = np.sort(generator(seed, Stream.CLOSED_FORM).permutation(len(pool))[:MAX_POOL])
    sample, known = pool[rows], len(x)
    named = None if names is None else fit_names(names, x, y, sample if len(sample) else x, labels_per_text)
    prior, sharpness = prior_and_sharpness(y, named)
    by_vectors = logistic(x, y, VECTOR_PENALTY, None if named is None else named.model)
    if not len(pool):
        return SeveralLabels(matched(by_vectors, x, prior, sharpness), np.empty((0, len(prior))), named)
    seen = np.flatnonzero(np.asarray(words[:known].sum(axis=0)).ravel())
    by_words = logistic(words[:known, seen], y, WORD_PENALTY)
    labels_alone = by_vectors.logits(sample) + WORD_WEIGHT * by_words.logits(words[known + rows][:, seen])
    soft = sigmoid(with_frequencies(sharpness * labels_alone, prior))
    model = gaussians(np.concatenate([x, sample]), np.concatenate([y, soft]), sample.mean(axis=0))
    soft = sigmoid(with_frequencies(sharpness * (model.logits(sample) + labels_alone), prior))
    model = matched(model, sample, prior, sharpness)
    labels = sigmoid(model.logits(pool))
    labels[rows] = soft
    return SeveralLabels(model, labels, named)


def fit_names(names: Array, x: Array, y: Array, texts: Array, labels_per_text: float) -> Names | None:
    """Log-odds by class names (K, H); None if they do not make labels likelier.

    The similarity of a text with a name is z = (x - c) d / s, for the centre c of the `texts` (N, H), the direction d
    of the name, and the standard deviation s over texts and names. The slope of a label is that of highest posterior,
    around the slope of highest posterior for all labels.
    """
    centre, directions = texts.mean(axis=0), name_directions(names)
    weight = directions.T / max(float(((texts - centre) @ directions.T).std()), 1e-12)
    similarity = LinearModel(weight, -centre @ weight)
    likelihood = np.array([log_likelihood(slope * similarity.logits(x), y) for slope in SLOPES])  # (slopes, K)
    of_all = likelihood.sum(axis=1) - (SLOPES - NAME_SLOPE) ** 2 / (2 * SLOPE_SPREAD**2)
    if len(x) and of_all.max() - likelihood[0].sum() < NAME_EVIDENCE:
        return None
    distance = SLOPES - SLOPES[of_all.argmax()]
    slopes = SLOPES[(likelihood - distance[:, None] ** 2 / (2 * LABEL_SPREAD**2)).argmax(axis=0)]
    model = LinearModel(slopes * similarity.weight, slopes * similarity.bias)
    counts, known = np.nansum(y, axis=0), (~np.isnan(y)).sum(axis=0)
    share = (counts / np.maximum(known, 1)).mean() if len(x) else min(labels_per_text / len(slopes), 0.5)
    by_names = sigmoid(with_frequencies(model.logits(texts).reshape(-1, 1), np.array([share]))).reshape(len(texts), -1)
    return Names(model, (counts + NAME_TEXTS * by_names.mean(axis=0)) / (known + NAME_TEXTS), slopes)


def log_likelihood(logits: Array, y: Array) -> Array:
    """Of labels y (N_l, K) that are as frequent as they are, for log-odds (N_l, K) without an offset, (K,)."""
    if not len(y):
        return np.zeros(y.shape[1])
    logits = with_frequencies(logits, frequencies(y))
    return np.asarray(np.nansum(y * logits - np.logaddexp(0.0, logits), axis=0))


def label_means(x: Array, y: Array, soft: Array, named: Names | None) -> LinearModel:
    """Logits by the cosine of the means of labelled and softly labelled texts x (N_l + N_u, H), about their centre."""
    pool, labels = x[len(y) :] if len(soft) else x, np.concatenate([np.nan_to_num(y), soft])
    centre = pool.mean(axis=0)
    means = (labels.T @ (x - centre)) / (labels.sum(axis=0) + PRIOR_TEXTS)[:, None]
    weight = COSINE_SCALE * means.T / np.maximum(np.linalg.norm(means, axis=1), 1e-12)
    return matched(LinearModel(weight, -centre @ weight), pool, prior_and_sharpness(y, named)[0], 1.0)


def refit_gaussians(x: Array, y: Array, soft: Array, named: Names | None) -> LinearModel:
    """Step 2 on features x (N_l + N_u, H) of labelled texts and of pool texts with soft labels (N_u, K)."""
    pool = x[len(y) :] if len(soft) else x
    return matched(gaussians(x, np.concatenate([y, soft]), pool.mean(axis=0)), pool, *prior_and_sharpness(y, named))


def prior_and_sharpness(y: Array, named: Names | None) -> tuple[Array, float]:
    """The frequencies of the labels, (K,), and the factor on log-odds."""
    return (frequencies(y), SHARPNESS) if named is None else (named.prior, NAMED_SHARPNESS)


def gaussians(x: Array, y: Array, centre: Array) -> LinearModel:
    """A Gaussian for each label, with the covariance of all texts; x (N, H), y (N, K) soft or NaN where unknown."""
    x, y = x - centre, np.nan_to_num(y)
    covariance = x.T @ x / len(x)
    isotropic = max(np.trace(covariance), SMALLEST_VARIANCE) / len(covariance) * np.eye(len(covariance))
    means = (y.T @ x) / (y.sum(axis=0) + PRIOR_TEXTS)[:, None]
    weight = np.linalg.solve((1 - ISOTROPIC) * covariance + ISOTROPIC * isotropic, means.T)
    return LinearModel(weight, -centre @ weight)


def logistic(x: Any, y: Array, penalty: float, first: LinearModel | None = None) -> LinearModel:
    """Logistic regression of each label on x (N, H), dense or sparse, for y (N, K); NaN does not count.

    The penalty is on the squared distance of the weights from those of the first model, or from 0.
    """
    from scipy.optimize import minimize

    known, target, transposed = ~np.isnan(y), np.nan_to_num(y), x.T
    prior, shape = log_odds(frequencies(y)), (x.shape[1] + 1, y.shape[1])
    base = prior if first is None else prior + first.logits(x)

    def cost(flat: Array) -> tuple[float, Array]:
        change = flat.reshape(shape)
        logits = x @ change[:-1] + base + change[-1]
        residual = known * (sigmoid(logits) - target)
        gradient = np.concatenate([transposed @ residual + penalty * change[:-1], residual.sum(axis=0, keepdims=True)])
        loss = (known * (np.logaddexp(0.0, logits) - target * logits)).sum()
        return float(loss + 0.5 * penalty * (change[:-1] ** 2).sum()), gradient.ravel()

    result = minimize(cost, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})
    change = result.x.reshape(shape)
    model = LinearModel(change[:-1], prior + change[-1])
    return model if first is None else weighted_sum([first, model], np.ones(2))


def frequencies(y: Array) -> Array:
    """Frequencies of the labels (K,), kept from 0 and 1 by half a text with the label and half a text without it."""
    return np.asarray((np.nansum(y, axis=0) + 0.5) / ((~np.isnan(y)).sum(axis=0) + 1.0))


def log_odds(p: Array) -> Array:
    return np.asarray(np.log(p) - np.log1p(-p))


def matched(model: LinearModel, x: Array, prior: Array, sharpness: float) -> LinearModel:
    """The model at a sharpness, with offsets by which texts x (N, H) have each label as often as its prior (K,)."""
    logits = sharpness * model.logits(x)
    return LinearModel(sharpness * model.weight, sharpness * model.bias - offset_to(logits, prior))


def with_frequencies(logits: Array, prior: Array) -> Array:
    """Log-odds (N, K) with an offset for each label that makes its mean probability equal to its prior (K,)."""
    return np.asarray(logits - offset_to(logits, prior))
