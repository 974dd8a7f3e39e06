"""A closed-form start on frozen vectors, trusted as far as held-out labels support it.

Two views of the labels are pooled. One trusts the pool: Gaussian classes that share one covariance, fitted by EM, which
is the paper's idea of equal spreads in closed form. The other looks at labelled texts alone: logistic regression.
Each half of the labels first judges what the other half makes of the pool: where the pool falls into other groups than
the labels do (sentiments among topics), EM follows those groups, and is left out. Else the log-probabilities of both
are added with weights found on labelled texts that were held out in turn. The soft labels that this gives the pool are
then smoothed over a graph of nearest neighbours, as much as held-out labels support that, corrected by the words of the
texts, and a linear rule, logits = x W + b, learns them by heart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from halflabel.methods.label_smoothing import neighbour_graph, sharpened, smoothed, with_words
from halflabel.randomness import Stream, generator

POOL = 20_000  # pool texts that EM looks at; more would not move means that count as MASS
ALPHAS = {0.0: 0.0, 0.5: 1.5, 0.8: 2.0, 0.9: 1.5}  # how far neighbours may be heard, with its log prior
POWERS = (1.0, 1.5, 2.0, 3.0)  # by which smoothed labels may be sharpened
EVIDENCE = 3.0  # the logarithm of how much likelier EM must make held-out labels before it is heard
PRIOR = np.array([0.1, 0.5])  # weights of the two views before any label is held out
SPREAD = np.array([1.2, 0.7])  # standard deviation of the logarithm of those weights
Array = NDArray[np.floating]
Columns = NDArray[np.integer]

MASS = 25.0  # texts per class that the pool counts as, at most, in means and priors
STAGES = ((1.0, 10), (0.9, 8))  # share of the sphere in the covariance, and rounds of EM with it
STILL = 5e-3  # mean change of the soft labels at which a stage ends


class Start(NamedTuple):
    """Soft labels of the pool, a rule for any text, and how much each part of the start was trusted."""

    soft: Array  # (N_u, K)
    rule: LinearModel
    weights: Array  # of the views: Gaussian EM where it is heard, logistic regression
    alpha: float = 0.0  # of the smoothing
    power: float = 1.0  # of the sharpening after it
    heard: bool = False  # whether EM is
    words: bool = False  # whether words correct the soft labels


def closed_form(x: Array, y: Columns, pool: Array, words: Any, labels: int, *, seed: int) -> Start:
    """The start for unit vectors x (N_l, H) with columns y (N_l,) and an unlabelled pool (N_u, H).

    `words` is the sparse (N_l + N_u, V) that `word_counts` makes of the same texts.
    """
    rng = generator(seed, Stream.CLOSED_FORM)
    rows = np.sort(rng.permutation(len(pool))[:POOL])
    part, known = pool[rows], np.eye(labels)[y]
    if not len(part):
        rule, weights, _ = by_views([logistic], x, y, part, labels, rng)
        return Start(np.empty((0, labels)), rule, weights)
    counts = words[np.concatenate([np.arange(len(x)), len(x) + rows])]
    halves = in_halves(x, y, part, labels, generator(seed, Stream.HELD_OUT_HALVES))
    heard = evidence(halves) >= EVIDENCE
    rule, weights, trial = by_views([gaussian, logistic] if heard else [logistic], x, y, part, labels, rng)
    if not heard and not words_help(halves, weights, counts, known):
        return Start(np.exp(rule.log_probabilities(pool)), rule, weights)
    soft, alpha, power = np.exp(rule.log_probabilities(part)), 0.0, 1.0
    if heard:
        alpha, power = smoothing(trial, weights, x, y, labels)
        graph = neighbour_graph(np.concatenate([x, part]))
        soft = sharpened(smoothed(graph, np.concatenate([known, soft]), alpha)[len(x) :], power)
    soft = corrected(counts, known, soft)
    rule = distil(rule, np.concatenate([x, part]), np.concatenate([known, soft]))
    everywhere = np.exp(rule.log_probabilities(pool))
    everywhere[rows] = soft
    return Start(everywhere, rule, weights, alpha, power, heard, words=True)


def by_views(views: list[View], x: Array, y: Columns, pool: Array, labels: int,
             rng: np.random.Generator) -> tuple[LinearModel, Array, HeldOut]:
    """The rule of all views together, the weight of each, and the trial in which the weights were found."""
    trial = hold_out(views, x, y, pool, labels, rng)
    weights, _ = pooling(trial, PRIOR[-len(views) :], SPREAD[-len(views) :])
    return combined([view(x, y, pool, labels) for view in views], weights), weights, trial


def smoothing(trial: HeldOut, weights: Array, x: Array, y: Columns, labels: int) -> tuple[float, float]:
    """How far neighbours are to be heard, and how much to sharpen: what makes held-out labels likeliest."""
    graph = neighbour_graph(np.concatenate([x, trial.pool]))
    likely = {(alpha, power): prior for alpha, prior in ALPHAS.items() for power in POWERS}
    for out, rules in zip(trial.folds, trial.rules, strict=True):
        rule = combined(rules, weights)
        given = np.exp(rule.log_probabilities(np.concatenate([x, trial.pool])))
        given[: len(y)][~out] = np.eye(labels)[y[~out]]
        for alpha in ALPHAS:
            p = smoothed(graph, given, alpha)[: len(y)][out]
            for power in POWERS:
                q = sharpened(p, power)
                likely[alpha, power] += float(np.log(q[np.arange(len(q)), y[out]] + 1e-3).sum())
    return max(likely, key=lambda pair: likely[pair])


class HeldOut(NamedTuple):
    """What the views say of labelled texts that they did not see."""

    folds: list[NDArray[np.bool_]]  # each a mask (N_l,) of the texts held out together
    rules: list[list[LinearModel]]  # for each fold, the rule of each view
    held: Array  # (V, M, K) log-probabilities, fold after fold
    truth: Columns  # (M,)
    rows: Columns  # of the pool, that were looked at
    pool: Array  # their vectors
    discount: float  # how much a held-out text counts


def hold_out(views: list[View], x: Array, y: Columns, pool: Array, labels: int, rng: np.random.Generator) -> HeldOut:
    """Holds out each labelled text once, but never the only one of its class."""
    few = int(np.median(np.bincount(y, minlength=labels)))
    number = int(np.clip(few, 2, 10 if labels < 50 else 3))
    fold = np.full(len(y), -1)
    for rows in by_class(y, labels, rng):
        fold[rows] = np.arange(len(rows)) % number
    folds = [fold == j for j in range(number) if (fold == j).any()]
    fewer = 1.0 - 1.0 / max(2, len(folds))  # a fold's views saw fewer labels than the views of all
    return tried(views, x, y, pool, labels, folds, fewer, rng)


def in_halves(x: Array, y: Columns, pool: Array, labels: int, rng: np.random.Generator) -> HeldOut:
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
          discount: float, rng: np.random.Generator) -> HeldOut:
    """Fits the views without each fold in turn and asks them about it."""
    looked = rng.permutation(len(pool))[: max(2000, 10 * labels)]
    part = pool[looked]
    rules = [[view(x[~out], y[~out], part, labels) for view in views] for out in folds]
    seen = [np.stack([rule.log_probabilities(x[out]) for rule in some]) for some, out in zip(rules, folds, strict=True)]
    held = np.concatenate([np.empty((len(views), 0, labels)), *seen], axis=1)
    truth = np.concatenate([np.empty(0, dtype=np.int64), *(y[out] for out in folds)])
    return HeldOut(folds, rules, held, truth, looked, part, discount)


def pooling(trial: HeldOut, prior: Array, spread: Array) -> tuple[Array, float]:
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


def evidence(halves: HeldOut) -> float:
    """The logarithm of how much likelier held-out labels are when EM is heard beside logistic regression."""
    _, both = pooling(halves, PRIOR, SPREAD)
    _, labels_alone = pooling(halves._replace(held=halves.held[1:]), PRIOR[1:], SPREAD[1:])
    return labels_alone - both


def words_help(halves: HeldOut, weights: Array, counts: Any, known: Array) -> bool:
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


class LinearModel(NamedTuple):
    """A linear classifier, logits = x W + b."""

    weight: Array  # (H, K)
    bias: Array  # (K,)

    def log_probabilities(self, x: Array) -> Array:
        """(N, H) -> (N, K)."""
        from scipy.special import log_softmax

        return np.asarray(log_softmax(x @ self.weight + self.bias, axis=1))


View = Callable[[Array, Columns, Array, int], LinearModel]


def combined(rules: list[LinearModel], weights: Array) -> LinearModel:
    """The linear rule whose logits are the weighted sum of the views' logits."""
    pairs = list(zip(weights, rules, strict=True))
    return LinearModel(np.sum([w * rule.weight for w, rule in pairs], axis=0),
                np.sum([w * rule.bias for w, rule in pairs], axis=0))


def gaussian(x: Array, y: Columns, pool: Array, labels: int) -> LinearModel:
    """EM for Gaussian classes with one shared covariance; labelled texts keep their labels.

    The first covariance is a sphere: whitening before the means are good leads EM astray when labels are few.
    """
    from scipy.special import softmax

    centre = pool.mean(axis=0)
    x, pool, width = x - centre, pool - centre, x.shape[1]
    total = len(x) + len(pool)
    scatter = pool.T @ pool + x.T @ x
    given = np.eye(labels)[y]
    sums, counts = given.T @ x, given.sum(axis=0)
    share = min(1.0, MASS * labels / len(pool))
    smooth = 0.2 * (len(x) / labels + share * len(pool) / labels)
    means, log_prior = sums / np.maximum(counts, 1.0)[:, None], np.full(labels, -np.log(labels))
    within = ((x - means[y]) ** 2).sum() / (len(x) - labels) if len(x) > labels else np.inf
    covariance = np.eye(width) * min(within, np.trace(scatter) / total) / width
    soft = np.zeros((len(pool), labels))
    for sphere, rounds in STAGES:
        for _ in range(rounds):
            if soft.any():
                mass = counts + soft.sum(axis=0)
                middle = (sums + soft.T @ pool) / mass[:, None]
                spread = (scatter - (middle * mass[:, None]).T @ middle) / total
                covariance = (1 - sphere) * spread + sphere * np.trace(spread) / width * np.eye(width)
            weight = np.linalg.solve(covariance, means.T)
            bias = log_prior - 0.5 * (means.T * weight).sum(axis=0)
            before, soft = soft, softmax(pool @ weight + bias, axis=1)
            mass = counts + share * soft.sum(axis=0)
            means = (sums + share * (soft.T @ pool)) / mass[:, None]
            log_prior = np.log((mass + smooth) / (mass.sum() + labels * smooth))
            if 0.5 * np.abs(soft - before).sum(axis=1).mean() < STILL:
                break
    return LinearModel(weight, bias - centre @ weight)


def logistic(x: Array, y: Columns, pool: Array, labels: int) -> LinearModel:
    """Logistic regression on the labelled texts; a class without any gets no weight."""
    from sklearn.linear_model import LogisticRegression

    return from_sklearn(LogisticRegression(C=10.0, max_iter=300).fit(x, y), labels)


def from_sklearn(model: Any, labels: int) -> LinearModel:
    """A linear model of scikit-learn, fitted to columns, as a rule for all labels."""
    coefficients, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:
        coefficients = np.stack([-coefficients[0] / 2, coefficients[0] / 2])
        intercept = np.array([-intercept[0] / 2, intercept[0] / 2])
    weight, bias = np.zeros((coefficients.shape[1], labels)), np.full(labels, intercept.min() - 10.0)
    weight[:, model.classes_], bias[model.classes_] = coefficients.T, intercept
    return LinearModel(weight, bias)


def distil(rule: LinearModel, x: Array, soft: Array) -> LinearModel:
    """The linear rule nearest to `rule` that gives x (N, H) the soft labels (N, K): softmax regression."""
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    x32, soft32 = x.astype(np.float32), soft.astype(np.float32)
    shape = rule.weight.shape

    def cost(flat: Array) -> tuple[float, Array]:
        change = flat.reshape(shape[0] + 1, shape[1])
        weight, bias = (rule.weight + change[:-1]).astype(np.float32), (rule.bias + change[-1]).astype(np.float32)
        logp = log_softmax(x32 @ weight + bias, axis=1)
        slope = np.exp(logp) - soft32
        gradient = np.concatenate([x32.T @ slope, slope.sum(axis=0, keepdims=True)]).astype(np.float64) + change
        return float(-(soft32 * logp).sum() + 0.5 * (change**2).sum()), gradient.ravel()

    found = minimize(cost, np.zeros((shape[0] + 1) * shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 60})
    change = found.x.reshape(shape[0] + 1, shape[1])
    return LinearModel(rule.weight + change[:-1], rule.bias + change[-1])
