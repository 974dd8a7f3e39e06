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

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from halflabel.evaluation.confidence import held_out_distances, unit
from halflabel.evaluation.decisions import sigmoid
from halflabel.methods.label_smoothing import (
    corrected_by_words,
    match_confidence,
    neighbour_graph,
    sharpened,
    smoothed,
)
from halflabel.methods.unknown_classes import LOG_ODDS, UnknownClasses, find_unknown_classes
from halflabel.randomness import Stream, generator

Array = NDArray[np.floating]
Columns = NDArray[np.integer]
Mask = NDArray[np.bool_]

MAX_POOL = 20_000  # pool texts that are used for fitting; more would not move means whose weight is limited
PRIOR_TRUST = 0.3  # in the cluster model, before held-out labels are seen
NAMED_TRUST = 0.5  # the same with class names, which make it unlikely that clusters are not the labels
CERTAIN = 0.95  # trust from which on the cluster model is used alone
NO_EVIDENCE = 0.01  # log-likelihood, by which rounding may differ from 0 where nothing could be held out
WEIGHT_PRIOR = np.array([0.1, 0.5])  # median weights of cluster model and logistic regression, before cross-validation
WEIGHT_SPREAD = np.array([1.2, 0.7])  # standard deviations of the logarithms of those weights
ALPHAS = {0.0: 0.0, 0.5: 1.5, 0.8: 2.0, 0.9: 1.5}  # strengths of smoothing, each with its log prior
POWERS = (1.0, 1.5, 2.0, 3.0)  # by which smoothed labels may be sharpened
ALL_POWERS = np.geomspace(1.0, 3.0, 7)  # over which the confidence of the sharpened labels is expected
SHARPNESS = 0.16  # median of the power times the weight of the cluster model, before held-out labels are seen
SHARPNESS_SPREAD = 0.2  # standard deviation of its logarithm
WORD_ROUNDS = 2  # of correction by words
UNLABELLED_ALPHA, UNLABELLED_POWER = 0.8, 1.5  # strength of smoothing and sharpening without labels to choose them by
SPLITS, SPLIT_TEXTS = (2, 6), 300  # random splits into halves: as many texts, but no fewer and no more splits
CV_POOL = 2000  # pool texts that cross-validation uses, or 10 per label if that is more


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
    sample, one_hot = pool[rows], np.eye(labels)[y]
    if not len(sample):
        model, weights, held_out = fit_mixture([logistic_regression], x, y, sample, labels, rng)
        return ClosedForm(np.empty((0, labels)), model, weights, held_out=correct_of(held_out, weights))
    words = words[np.concatenate([np.arange(len(x)), len(x) + rows])]
    if not len(x):
        return fit_unlabelled(partial(gaussian_em, names=names), words, pool, rows, labels)
    clusters, kept, unknown = known_texts(names, x, y, sample, labels, seed)
    fit, uses_names, halves, evidence = clusters
    rows, sample, words = rows[kept], sample[kept], words[np.concatenate([np.ones(len(x), dtype=bool), kept])]
    trust = cluster_trust(evidence, NAMED_TRUST if uses_names else PRIOR_TRUST)
    models, correct, soft = list[LinearModel](), list[tuple[int, int]](), np.zeros((len(sample), labels))
    alpha, power, excess, uses_words = 0.0, 1.0, 0.0, trust > 0.0
    if trust > 0.0:
        model, weights, held_out = fit_mixture([fit, logistic_regression], x, y, sample, labels, rng)
        alpha, power, posterior = choose_smoothing(held_out, weights, x, y, labels)
        graph = neighbour_graph(np.concatenate([x, sample]))
        clustered = np.exp(model.log_probabilities(sample))
        clustered = smoothed(graph, np.concatenate([one_hot, clustered]), alpha)[len(x) :]
        excess = trust * excess_confidence(clustered, power, posterior)
        clustered = corrected_by_words(words, one_hot, sharpened(clustered, power), rounds=WORD_ROUNDS,
                                       keep_frequencies=True)
        if alpha:
            again = smoothed(graph, np.concatenate([one_hot, clustered]), alpha)[len(x) :]
            clustered = corrected_by_words(words, one_hot, match_confidence(again, clustered), keep_frequencies=True)
        soft += trust * clustered
        models.append(model)
        correct.append(correct_of(held_out, weights))
    if trust < 1.0:
        model, weights, held_out = fit_mixture([logistic_regression], x, y, sample, labels, rng)
        correct.append(correct_of(held_out, weights))
        alone, words_help = np.exp(model.log_probabilities(sample)), words_improve(halves, weights, words, one_hot)
        if not trust and not words_help:
            return ClosedForm(np.exp(model.log_probabilities(pool)), model, weights, held_out=correct[0],
                              unknown=unknown)
        uses_words = uses_words or words_help
        soft += (1.0 - trust) * (corrected_by_words(words, one_hot, alone, rounds=WORD_ROUNDS) if words_help else alone)
        models.append(model)
    shares = np.array([share for share in (trust, 1.0 - trust) if share])
    model = distil(weighted_sum(models, shares), np.concatenate([x, sample]), np.concatenate([one_hot, soft]))
    return ClosedForm(all_soft_labels(model, pool, rows, soft), model, weights, trust * alpha, power, excess, trust,
                      uses_words, uses_names and trust > 0.0, correct[int(shares.argmax())], unknown)


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


# The models

POOL_MASS = 25.0  # texts per class that the pool counts as, at most, in means and priors of EM
# Shares of an isotropic covariance, iterations of EM with it, and the quantile of the labelled texts' distances from
# their classes within which pool texts count. The first covariance is isotropic, since whitening before the means are
# good misleads EM when labels are few.
STAGES = ((1.0, 10, 0.9), (0.9, 8, 0.95))
MORE_FAR = 2.0  # times as many pool texts as labelled ones are far from all classes if some are of unknown classes
SMALLEST_VARIANCE = 1e-9  # if all texts of the pool are the same
TOLERANCE = 5e-3  # mean change of the soft labels at which a stage ends
NAME_MASSES = (5.0, 10.0, 20.0)  # texts that a class name may count as; the first, if there are no labels to choose by
EXPLAINED_BY_NAMES = 0.4  # share of the labels' entropy that clusters around the names have to explain
NAME_RADIUS = 0.3  # distance of a class name from the centre of the pool, about that of a class mean


class LinearModel(NamedTuple):
    """A linear classifier, logits = x W + b."""

    weight: Array  # (H, K)
    bias: Array  # (K,)

    def logits(self, x: Any) -> Array:
        """(N, H), dense or sparse, -> (N, K)."""
        return np.asarray(x @ self.weight + self.bias)

    def log_probabilities(self, x: Array) -> Array:
        """(N, H) -> (N, K)."""
        from scipy.special import log_softmax

        return np.asarray(log_softmax(self.logits(x), axis=1))


Fit = Callable[[Array, Columns, Array, int], LinearModel]  # x, y, pool, labels -> model


def gaussian_em(x: Array, y: Columns, pool: Array, labels: int, *, names: Array | None = None,
                name_mass: float = NAME_MASSES[0]) -> LinearModel:
    """The cluster model: EM for Gaussian classes with one shared covariance; labelled texts keep their labels.

    Texts of the pool that are far from all classes do not count: EM would take a cluster of unknown texts for a part
    of some class. That is measured from halfway between the pool's centre and that of the labelled classes, since the
    pool's centre lies in its largest class, whose texts would look far from everything. The vectors of class names
    (K, H) count as `name_mass` labelled texts each.
    """
    from scipy.special import softmax

    centre = pool.mean(axis=0)
    x, pool, width = x - centre, pool - centre, x.shape[1]
    one_hot = np.eye(labels)[y]
    sums, counts = one_hot.T @ x, one_hot.sum(axis=0)
    if names is not None:
        sums, counts = sums + name_mass * NAME_RADIUS * name_directions(names), counts + name_mass
    means, log_prior = sums / np.maximum(counts, 1.0)[:, None], np.full(labels, -np.log(labels))
    within = ((x - means[y]) ** 2).sum() / (len(x) - labels) if len(x) > labels else np.inf
    variance = ((x**2).sum() + (pool**2).sum()) / (len(x) + len(pool))
    covariance = np.eye(width) * max(min(within, variance), SMALLEST_VARIANCE) / width
    middle = 0.5 * (one_hot.T @ x / np.maximum(one_hot.sum(axis=0), 1.0)[:, None]).mean(axis=0)
    soft, share, f, f_pool = np.zeros((len(pool), labels)), 1.0, unit(x - middle), unit(pool - middle)
    for isotropic, iterations, quantile in STAGES:
        near = near_classes(f, y, f_pool, one_hot.T @ f + share * (soft.T @ f_pool), quantile)
        total, share = len(x) + near.sum(), min(1.0, POOL_MASS * labels / near.sum())
        scatter = pool[near].T @ pool[near] + x.T @ x
        smoothing = 0.2 * (counts.sum() / labels + share * near.sum() / labels)
        soft[~near] = 0.0
        for _ in range(iterations):
            if soft.any():
                mass = counts + soft.sum(axis=0)
                centres = (sums + soft.T @ pool) / mass[:, None]
                pooled = (scatter - (centres * mass[:, None]).T @ centres) / total
                spread = max(np.trace(pooled), SMALLEST_VARIANCE)  # none if all texts are the same to the encoder
                covariance = (1 - isotropic) * pooled + isotropic * spread / width * np.eye(width)
            weight = np.linalg.solve(covariance, means.T)
            bias = log_prior - 0.5 * (means.T * weight).sum(axis=0)
            previous, soft = soft, softmax(pool @ weight + bias, axis=1) * near[:, None]
            mass = counts + share * soft.sum(axis=0)
            means = (sums + share * (soft.T @ pool)) / mass[:, None]
            log_prior = np.log((mass + smoothing) / (mass.sum() + labels * smoothing))
            if 0.5 * np.abs(soft - previous).sum(axis=1).mean() < TOLERANCE:
                break
    return LinearModel(weight, bias - centre @ weight)


def name_directions(names: Array) -> Array:
    """Unit vectors from the centre of the class names, which is not that of the texts, to each of them, (K, H)."""
    directions = names - names.mean(axis=0)
    return np.asarray(directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-12))


def near_classes(f: Array, y: Columns, f_pool: Array, sums: Array, quantile: float) -> Mask:
    """Which texts of the pool are as near to a class as that share of the labelled texts, (N_u,).

    The distance is one minus the cosine with the nearest class mean; `sums` (K, H) are the means' sums of vectors, of
    which a labelled text is no part itself. All texts count as near if a class has no label, if none would be, and if
    not many more of them are far than of the labelled texts: then the pool has no other classes than these.
    """
    if not np.bincount(y, minlength=len(sums)).all():
        return np.ones(len(f_pool), dtype=bool)
    farthest = np.quantile(held_out_distances(f, y, sums), quantile)
    near = 1.0 - (f_pool @ unit(sums).T).max(axis=1) <= farthest
    if not near.any() or 1.0 - near.mean() <= MORE_FAR * (1.0 - quantile):
        return np.ones(len(f_pool), dtype=bool)
    return np.asarray(near)


def logistic_regression(x: Array, y: Columns, pool: Array, labels: int, *, strength: float = 10.0) -> LinearModel:
    """Logistic regression on the labelled texts; a class without texts is never predicted."""
    from sklearn.linear_model import LogisticRegression

    with few_texts_per_class():
        return from_sklearn(LogisticRegression(C=strength, max_iter=300).fit(x, y), labels)


@contextmanager
def few_texts_per_class() -> Iterator[None]:
    """Suppresses scikit-learn's remark that one or two texts per class look like regression; no setting of it does."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%", UserWarning)
        yield


def from_sklearn(model: Any, labels: int) -> LinearModel:
    """A fitted linear classifier of scikit-learn, extended to all labels."""
    coefficients, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:
        coefficients = np.stack([-coefficients[0] / 2, coefficients[0] / 2])
        intercept = np.array([-intercept[0] / 2, intercept[0] / 2])
    weight, bias = np.zeros((coefficients.shape[1], labels)), np.full(labels, intercept.min() - 10.0)
    weight[:, model.classes_], bias[model.classes_] = coefficients.T, intercept
    return LinearModel(weight, bias)


# Held-out predictions


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


# The evidence


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


# The mixture


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


def weighted_sum(models: list[LinearModel], weights: Array) -> LinearModel:
    """The linear model whose logits are the weighted sum of the models' logits."""
    return LinearModel(np.sum([w * model.weight for w, model in zip(weights, models, strict=True)], axis=0),
                       np.sum([w * model.bias for w, model in zip(weights, models, strict=True)], axis=0))


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


# Distillation


def distil(model: LinearModel, x: Array, soft: Array) -> LinearModel:
    """Softmax regression of x (N, H) on soft labels (N, K), with an L2 penalty on the distance from `model`."""
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    x32, soft32 = x.astype(np.float32), soft.astype(np.float32)
    shape = model.weight.shape

    def cost(flat: Array) -> tuple[float, Array]:
        change = flat.reshape(shape[0] + 1, shape[1])
        weight, bias = (model.weight + change[:-1]).astype(np.float32), (model.bias + change[-1]).astype(np.float32)
        log_p = log_softmax(x32 @ weight + bias, axis=1)
        residual = np.exp(log_p) - soft32
        gradient = np.concatenate([x32.T @ residual, residual.sum(axis=0, keepdims=True)]).astype(np.float64) + change
        return float(-(soft32 * log_p).sum() + 0.5 * (change**2).sum()), gradient.ravel()

    result = minimize(cost, np.zeros((shape[0] + 1) * shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 60})
    change = result.x.reshape(shape[0] + 1, shape[1])
    return LinearModel(model.weight + change[:-1], model.bias + change[-1])
