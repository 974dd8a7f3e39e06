"""A closed-form classifier on frozen vectors, which uses the pool as far as held-out labels support it.

Two linear models are combined. The *cluster model* uses the pool: Gaussian classes with one shared covariance, fitted
by EM (the paper's equal variances in closed form). The other is logistic regression on the labelled texts alone.

0. Clusters of the pool that no labelled text belongs to are left out of the cluster model, and what is in them for
   certain is left out of all steps (`unknown_classes.py`).
1. Trust: each half of the labels evaluates the cluster model fitted with the other half. Where the pool clusters
   by something else than the labels (by topic, when the labels are sentiments), EM follows those clusters. The soft
   labels are those with and without the cluster model, in shares that follow from the likelihood of held-out labels.
2. Mixture: the log-probabilities of the models are added with weights fitted by cross-validation.
3. Smoothing: the soft labels of the pool are smoothed over a graph of nearest neighbours, as much as cross-validation
   supports, and corrected by the words of the texts; then once more.
4. Distillation: a linear model, logits = x W + b, is fitted to the soft labels.

Class names, if there are any, are vectors too: each counts as a few labelled texts of the cluster model, if clusters
that start from the names alone explain the labels; as how many, held-out labels decide. With names the cluster model
can be fitted without any label.

Shapes: vectors x (N_l, H) and pool (N_u, H) of unit length, y (N_l,) columns of labels, M models.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from halflabel.arrays import Array, Columns, Mask
from halflabel.evaluation.decisions import sigmoid
from halflabel.methods.gaussian_em import NAME_MASSES, gaussian_em
from halflabel.methods.held_out import (
    WEIGHT_PRIOR,
    WEIGHT_SPREAD,
    HeldOut,
    correct_of,
    fit_mixture,
    fit_weights,
    validate_halves,
)
from halflabel.methods.label_smoothing import (
    corrected_by_words,
    match_confidence,
    neighbour_graph,
    sharpened,
    smoothed,
)
from halflabel.methods.linear_models import Fit, LinearModel, distil, logistic_regression, weighted_sum
from halflabel.methods.unknown_classes import LOG_ODDS, UnknownClasses, find_unknown_classes
from halflabel.randomness import Stream, generator

MAX_POOL = 20_000  # pool texts that are used for fitting; more would not move means whose weight is limited
PRIOR_TRUST = 0.3  # in the cluster model, before held-out labels are seen
NAMED_TRUST = 0.5  # the same with class names, which make it unlikely that clusters are not the labels
EXPLAINED_BY_NAMES = 0.4  # share of the labels' entropy that clusters around the names have to explain
CERTAIN = 0.95  # trust from which on the cluster model is used alone
NO_EVIDENCE = 0.01  # log-likelihood, by which rounding may differ from 0 where nothing could be held out
ALPHAS = {0.0: 0.0, 0.5: 1.5, 0.8: 2.0, 0.9: 1.5}  # strengths of smoothing, each with its log prior
POWERS = (1.0, 1.5, 2.0, 3.0)  # by which smoothed labels may be sharpened
ALL_POWERS = np.geomspace(1.0, 3.0, 7)  # over which the confidence of the sharpened labels is expected
SHARPNESS = 0.16  # median of the power times the weight of the cluster model, before held-out labels are seen
SHARPNESS_SPREAD = 0.2  # standard deviation of its logarithm
WORD_ROUNDS = 2  # of correction by words
UNLABELLED_ALPHA, UNLABELLED_POWER = 0.8, 1.5  # strength of smoothing and sharpening without labels to choose them by


class ClosedForm(NamedTuple):
    """A linear model for any text, soft labels of the pool, and how the pool was used."""

    soft: Array  # (N_u, K)
    model: LinearModel
    weights: Array  # of cluster model, if it is used, and logistic regression
    alpha: float = 0.0  # strength of smoothing
    power: float = 1.0  # of sharpening after it
    excess: float = 0.0  # of the soft labels' mean confidence over the expected one, since the power is uncertain
    trust: float = 0.0  # share of the cluster model in the soft labels
    uses_words: bool = False
    uses_names: bool = False
    held_out: tuple[int, int] = (0, 0)  # labelled texts that were held out: predicted right, and all
    unknown: float = 0.0  # share of the pool that is of unknown classes, which the cluster model leaves out


def fit_closed_form(x: Array, y: Columns, pool: Array, words: Any, labels: int, *, seed: int,
                    names: Array | None = None) -> ClosedForm:
    """The classifier for vectors x (N_l, H) with labels y (N_l,) and a pool (N_u, H).

    `words` (N_l + N_u, V) are the `word_features` of the same texts, `names` (K, H) the vectors of the class names.
    """
    rng = generator(seed, Stream.CLOSED_FORM)
    rows = np.sort(rng.permutation(len(pool))[:MAX_POOL])
    sample = pool[rows]
    if not len(sample):
        model, weights, held_out = fit_mixture([logistic_regression], x, y, sample, labels, rng)
        return ClosedForm(np.empty((0, labels)), model, weights, held_out=correct_of(held_out, weights))
    words = words[np.concatenate([np.arange(len(x)), len(x) + rows])]
    if not len(x):
        return fit_unlabelled(partial(gaussian_em, names=names), words, pool, rows, labels)
    clusters, kept, unknown = known_texts(names, x, y, sample, labels, seed)
    rows, sample, words = rows[kept], sample[kept], words[np.concatenate([np.ones(len(x), dtype=bool), kept])]
    trust = cluster_trust(clusters.evidence, NAMED_TRUST if clusters.uses_names else PRIOR_TRUST)
    ways = list[Way]()
    if trust > 0.0:
        ways.append(with_clusters(trust, clusters.fit, x, y, sample, words, labels, rng))
    if trust < 1.0:
        ways.append(without_clusters(1.0 - trust, clusters.halves, x, y, sample, words, labels, rng))
    if not any(way.uses_words for way in ways):
        model = ways[0].model
        return ClosedForm(np.exp(model.log_probabilities(pool)), model, ways[0].weights, held_out=ways[0].correct,
                          unknown=unknown)
    soft = np.sum([way.share * way.soft for way in ways], axis=0)
    model = weighted_sum([way.model for way in ways], np.array([way.share for way in ways]))
    model = distil(model, np.concatenate([x, sample]), np.concatenate([np.eye(labels)[y], soft]))
    return ClosedForm(all_soft_labels(model, pool, rows, soft), model, ways[-1].weights, trust * ways[0].alpha,
                      ways[0].power, trust * ways[0].excess, trust, True, clusters.uses_names and trust > 0.0,
                      max(ways, key=lambda way: way.share).correct, unknown)


class Way(NamedTuple):
    """One of two ways to label the pool, with or without the cluster model."""

    share: float  # of its soft labels
    soft: Array  # (N_u, K)
    model: LinearModel  # before distillation
    weights: Array  # of its models
    correct: tuple[int, int]  # of the held-out texts, and all
    uses_words: bool
    alpha: float = 0.0
    power: float = 1.0
    excess: float = 0.0


def with_clusters(share: float, fit: Fit, x: Array, y: Columns, pool: Array, words: Any, labels: int,
                  rng: np.random.Generator) -> Way:
    """Cluster model and logistic regression; their soft labels are smoothed and corrected by words, twice."""
    model, weights, held_out = fit_mixture([fit, logistic_regression], x, y, pool, labels, rng)
    alpha, power, posterior = choose_smoothing(held_out, weights, x, y, labels)
    graph, one_hot = neighbour_graph(np.concatenate([x, pool])), np.eye(labels)[y]

    def over_graph(soft: Array) -> Array:
        return smoothed(graph, np.concatenate([one_hot, soft]), alpha)[len(x) :]

    soft = over_graph(np.exp(model.log_probabilities(pool)))
    excess = excess_confidence(soft, power, posterior)
    soft = corrected_by_words(words, one_hot, sharpened(soft, power), rounds=WORD_ROUNDS, keep_frequencies=True)
    if alpha:
        soft = corrected_by_words(words, one_hot, match_confidence(over_graph(soft), soft), keep_frequencies=True)
    return Way(share, soft, model, weights, correct_of(held_out, weights), True, alpha, power, excess)


def without_clusters(share: float, halves: HeldOut, x: Array, y: Columns, pool: Array, words: Any, labels: int,
                     rng: np.random.Generator) -> Way:
    """Logistic regression on the labelled texts, corrected by words of the pool if held-out labels support that."""
    model, weights, held_out = fit_mixture([logistic_regression], x, y, pool, labels, rng)
    soft, one_hot = np.exp(model.log_probabilities(pool)), np.eye(labels)[y]
    uses_words = words_improve(halves, weights, words, one_hot)
    if uses_words:
        soft = corrected_by_words(words, one_hot, soft, rounds=WORD_ROUNDS)
    return Way(share, soft, model, weights, correct_of(held_out, weights), uses_words)


def fit_unlabelled(clusters: Fit, words: Any, pool: Array, rows: Columns, labels: int) -> ClosedForm:
    """The classifier from class names and a pool alone: nothing is held out, so constants replace what it decides."""
    sample, weights = pool[rows], WEIGHT_PRIOR[:1]
    none, no_labels = np.empty((0, pool.shape[1])), np.empty((0, labels))
    model = weighted_sum([clusters(none, np.empty(0, dtype=np.int64), sample, labels)], weights)
    soft = smoothed(neighbour_graph(sample), np.exp(model.log_probabilities(sample)), UNLABELLED_ALPHA)
    soft = corrected_by_words(words, no_labels, sharpened(soft, UNLABELLED_POWER), rounds=WORD_ROUNDS,
                              keep_frequencies=True)
    model = distil(model, sample, soft)
    return ClosedForm(all_soft_labels(model, pool, rows, soft), model, weights, UNLABELLED_ALPHA, UNLABELLED_POWER,
                      trust=1.0, uses_words=True, uses_names=True)


def all_soft_labels(model: LinearModel, pool: Array, rows: Columns, soft: Array) -> Array:
    """Soft labels of the whole pool: those of the fitted rows, and the model's predictions for the others, (N_u, K)."""
    labels = np.exp(model.log_probabilities(pool))
    labels[rows] = soft
    return labels


# Which clusters


class Clusters(NamedTuple):
    """A cluster model, what each half of the labels says of it, and the log-likelihood that it adds there."""

    fit: Fit
    uses_names: bool
    halves: HeldOut
    evidence: float


def known_texts(names: Array | None, x: Array, y: Columns, pool: Array, labels: int, seed: int
                ) -> tuple[Clusters, Mask, float]:
    """The cluster model, which texts of a pool are not unknown for certain (N_u,), and the share that may be unknown.

    What held-out labels say for clusters of known texts rather than of all adds to the log-odds of unknown classes. If
    labels show no benefit from clusters, clusters are not classes, and one without labels is no unknown class.
    """
    found = find_unknown_classes(x, y, pool, labels, generator(seed, Stream.UNKNOWN_CLASSES))
    if found is not None:
        kept, models = ~found.certain(pool), cluster_models(names, x, y, known_part(pool, found), labels)
        known = choose_clusters(models, x, y, pool[kept], labels, seed, found)
        of_all = choose_clusters([known.fit], x, y, pool, labels, seed)
        if known.evidence > 0.0 and found.log_odds + known.evidence - of_all.evidence >= LOG_ODDS:
            unknown = float((found.number(pool) > 0).mean())
            return known._replace(fit=without_unknown(known.fit, found)), kept, unknown
    models = cluster_models(names, x, y, pool, labels)
    return choose_clusters(models, x, y, pool, labels, seed), np.ones(len(pool), dtype=bool), 0.0


def cluster_models(names: Array | None, x: Array, y: Columns, pool: Array, labels: int) -> list[Fit]:
    """Candidates for the cluster model: one for each weight of class names, or one without names that do not help."""
    if names is None or not names_fit_labels(names, x, y, pool, labels):
        return [gaussian_em]
    return [partial(gaussian_em, names=names, name_mass=mass) for mass in NAME_MASSES]


def choose_clusters(models: list[Fit], x: Array, y: Columns, pool: Array, labels: int, seed: int,
                    found: UnknownClasses | None = None) -> Clusters:
    """The candidate that makes held-out labels likeliest if it is fitted to the texts of no unknown class."""
    fits = models if found is None else [without_unknown(fit, found) for fit in models]
    halves = validate_halves([*fits, logistic_regression], x, y, pool, labels, generator(seed, Stream.HELD_OUT_HALVES))
    each = [halves.of(i, len(fits)) for i in range(len(fits))]
    evidence = [cluster_evidence(some) for some in each]
    best = int(np.argmax(evidence))
    return Clusters(models[best], models[best] is not gaussian_em, each[best], evidence[best])


def without_unknown(fit: Fit, found: UnknownClasses) -> Fit:
    """The same cluster model, of the texts of a pool that are of no unknown class."""
    return lambda x, y, pool, labels: fit(x, y, known_part(pool, found), labels)


def known_part(pool: Array, found: UnknownClasses) -> Array:
    """The vectors of a pool that are of no unknown class; all of them if there are no others."""
    known = found.number(pool) == 0
    return pool[known] if known.any() else pool


# How far they are trusted


def cluster_evidence(halves: HeldOut) -> float:
    """The log-likelihood that the cluster model adds to logistic regression on held-out labels."""
    _, with_clusters = fit_weights(halves, WEIGHT_PRIOR, WEIGHT_SPREAD)
    _, without = fit_weights(halves.of(1), WEIGHT_PRIOR[1:], WEIGHT_SPREAD[1:])
    return without - with_clusters


def cluster_trust(evidence: float, prior: float) -> float:
    """The probability that the cluster model is the right one, w = pi e^L / (pi e^L + 1 - pi).

    It is 1 if it is certain, and 0 if the evidence is against it: even a small share of its confident labels would
    outweigh the cautious ones of logistic regression.
    """
    if evidence < -NO_EVIDENCE:
        return 0.0
    trust = float(sigmoid(np.asarray(evidence + np.log(prior / (1.0 - prior)))))
    return trust if trust < CERTAIN else 1.0


def names_fit_labels(names: Array, x: Array, y: Columns, pool: Array, labels: int) -> bool:
    """Whether clusters of the pool that start from the class names alone explain the labels; true without labels.

    No label has a part in these clusters, so that all are held out. They explain nothing if the names mean nothing.
    """
    if not len(x):
        return True
    log_p = gaussian_em(x[:0], y[:0], pool, labels, names=names).log_probabilities(x)[None]
    held_out = HeldOut([], [], log_p, y, np.empty(0, dtype=np.int64), pool, discount=1.0)
    _, negative_log_posterior = fit_weights(held_out, WEIGHT_PRIOR[:1], WEIGHT_SPREAD[:1])
    return 1.0 - negative_log_posterior / (len(y) * np.log(labels)) >= EXPLAINED_BY_NAMES


def words_improve(halves: HeldOut, weights: Array, words: Any, one_hot: Array) -> bool:
    """Whether correction by words makes held-out labels likelier than logistic regression with its weight does."""
    from scipy.special import softmax

    gain, start = 0.0, 0
    for fold, (_, model) in zip(halves.folds, halves.models, strict=True):
        log_p, start = halves.log_p[1, start : start + fold.sum()], start + fold.sum()
        before = softmax(weights[-1] * np.concatenate([log_p, model.log_probabilities(halves.pool)]), axis=1)
        rows = np.concatenate([np.flatnonzero(~fold), np.flatnonzero(fold), len(one_hot) + halves.pool_rows])
        after = corrected_by_words(words[rows], one_hot[~fold], before, rounds=WORD_ROUNDS)
        ratio = np.log((after[: len(log_p)] + 1e-4) / (before[: len(log_p)] + 1e-4))
        gain += float((one_hot[fold] * ratio).sum())
    return gain > 0.0


# Smoothing


def choose_smoothing(held_out: HeldOut, weights: Array, x: Array, y: Columns, labels: int
                     ) -> tuple[float, float, Array]:
    """The alpha and the power under which held-out labels are likeliest, and the posterior of ALL_POWERS at this alpha.

    Few labels hardly tell how sharp the labels should be, so the posterior has a log-normal prior of that.
    """
    from scipy.special import softmax

    vectors = np.concatenate([x, held_out.pool])
    graph = neighbour_graph(vectors)
    p_held_out: dict[float, list[Array]] = {alpha: [np.empty((0, labels))] for alpha in ALPHAS}
    for fold, models in zip(held_out.folds, held_out.models, strict=True):
        soft = np.exp(weighted_sum(models, weights).log_probabilities(vectors))
        soft[: len(y)][~fold] = np.eye(labels)[y[~fold]]
        for alpha, parts in p_held_out.items():
            parts.append(smoothed(graph, soft, alpha)[: len(y)][fold])

    def log_likelihood(alpha: float, power: float) -> float:
        p = sharpened(np.concatenate(p_held_out[alpha]), power)
        return float(np.log(p[np.arange(len(p)), held_out.y] + 1e-3).sum())

    alpha, power = max(product(ALPHAS, POWERS), key=lambda pair: ALPHAS[pair[0]] + log_likelihood(*pair))
    log_prior = -0.5 * (np.log(ALL_POWERS * weights[0] / SHARPNESS) / SHARPNESS_SPREAD) ** 2
    return alpha, power, softmax(log_prior + [log_likelihood(alpha, other) for other in ALL_POWERS])


def excess_confidence(p: Array, power: float, posterior: Array) -> float:
    """How far the mean confidence of p (N, K) under a power exceeds that expected under a posterior of ALL_POWERS."""
    expected = posterior @ [sharpened(p, other).max(axis=1).mean() for other in ALL_POWERS]
    return float(sharpened(p, power).max(axis=1).mean() - expected)
