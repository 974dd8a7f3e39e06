"""A closed-form start on frozen vectors: two views of the labels, pooled as far as held-out labels support them.

One view trusts the pool: Gaussian classes that share one covariance, fitted by EM, which is the paper's idea of equal
spreads in closed form. The other looks at labelled texts alone: logistic regression. Their log-probabilities are
added with weights found on labelled texts that were held out in turn, so that a pool which misleads loses its say.
Both are linear in the vector, and so is the sum: logits = x W + b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
Columns = NDArray[np.integer]

MASS = 25.0  # texts per class that the pool counts as, at most, in means and priors
STAGES = ((1.0, 10), (0.9, 8))  # share of the sphere in the covariance, and rounds of EM with it
STILL = 5e-3  # mean change of the soft labels at which a stage ends
POOL = 20_000  # pool texts that EM looks at; more would not move means that count as MASS
PRIOR = np.array([0.1, 0.5])  # weights of the two views before any label is held out
SPREAD = np.array([1.2, 0.7])  # standard deviation of the logarithm of those weights


class Rule(NamedTuple):
    """A linear classifier, logits = x W + b."""

    weight: Array  # (H, K)
    bias: Array  # (K,)

    def log_probabilities(self, x: Array) -> Array:
        """(N, H) -> (N, K)."""
        from scipy.special import log_softmax

        return np.asarray(log_softmax(x @ self.weight + self.bias, axis=1))


View = Callable[[Array, Columns, Array, int], Rule]


class Start(NamedTuple):
    """The pooled rule and the weights of its views: Gaussian EM, logistic regression."""

    rule: Rule
    weights: Array


def closed_form(x: Array, y: Columns, pool: Array, labels: int, *, seed: int) -> Start:
    """The start for unit vectors x (N_l, H) with columns y (N_l,) and an unlabelled pool (N_u, H)."""
    rng = np.random.default_rng([seed, 5])
    pool = pool[rng.permutation(len(pool))[:POOL]]
    views: list[View] = [gaussian, logistic] if len(pool) else [logistic]
    prior, spread = PRIOR[-len(views) :], SPREAD[-len(views) :]
    held, truth, folds = hold_out(views, x, y, pool, labels, rng)
    weights = pooling(held, truth, prior, spread, (folds - 1) / folds)
    rules = [view(x, y, pool, labels) for view in views]
    weight = np.sum([w * rule.weight for w, rule in zip(weights, rules, strict=True)], axis=0)
    bias = np.sum([w * rule.bias for w, rule in zip(weights, rules, strict=True)], axis=0)
    return Start(Rule(weight, bias), weights)


def gaussian(x: Array, y: Columns, pool: Array, labels: int) -> Rule:
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
    return Rule(weight, bias - centre @ weight)


def logistic(x: Array, y: Columns, pool: Array, labels: int) -> Rule:
    """Logistic regression on the labelled texts; a class without any gets no weight."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=10.0, max_iter=300).fit(x, y)
    coefficients, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:
        coefficients = np.stack([-coefficients[0] / 2, coefficients[0] / 2])
        intercept = np.array([-intercept[0] / 2, intercept[0] / 2])
    weight, bias = np.zeros((x.shape[1], labels)), np.full(labels, intercept.min() - 10.0)
    weight[:, model.classes_], bias[model.classes_] = coefficients.T, intercept
    return Rule(weight, bias)


def hold_out(views: list[View], x: Array, y: Columns, pool: Array, labels: int,
             rng: np.random.Generator) -> tuple[Array, Columns, int]:
    """Log-probabilities of each view for labelled texts that it did not see, (V, M, K), and their columns (M,)."""
    few = int(np.median(np.bincount(y, minlength=labels)))
    folds = int(np.clip(few, 2, 10 if labels < 50 else 3))
    fold = np.full(len(y), -1)
    for k in range(labels):
        rows = rng.permutation(np.flatnonzero(y == k))
        if len(rows) > 1:  # the only text of a class is never held out
            fold[rows] = np.arange(len(rows)) % folds
    part = pool[rng.permutation(len(pool))[: max(2000, 10 * labels)]]
    seen: list[Array] = [np.empty((len(views), 0, labels))]
    for j in range(folds):
        if (out := fold == j).any():
            rules = [view(x[~out], y[~out], part, labels) for view in views]
            seen.append(np.stack([rule.log_probabilities(x[out]) for rule in rules]))
    order = np.concatenate([np.flatnonzero(fold == j) for j in range(folds)])
    return np.concatenate(seen, axis=1), y[order], folds


def pooling(held: Array, truth: Columns, prior: Array, spread: Array, discount: float) -> Array:
    """Weights of the views (V,) that make held-out labels likely, under a log-normal prior that keeps them positive."""
    from scipy.optimize import minimize
    from scipy.special import logsumexp, softmax

    right = held[:, np.arange(len(truth)), truth]

    def cost(u: Array) -> tuple[float, Array]:
        weights = prior * np.exp(u)
        logits = np.tensordot(weights, held, 1)
        loss = logsumexp(logits, axis=1).sum() - (weights @ right).sum()
        slope = (softmax(logits, axis=1) * held).sum(axis=(1, 2)) - right.sum(axis=1)
        return discount * loss + (u**2 / (2 * spread**2)).sum(), discount * slope * weights + u / spread**2

    starts = [np.zeros(len(prior)), np.where(np.arange(len(prior)) < len(prior) - 1, -2.0, 0.0)]
    found = [minimize(cost, u, jac=True, bounds=[(-6.0, 4.0)] * len(prior), method="L-BFGS-B") for u in starts]
    return np.asarray(prior * np.exp(min(found, key=lambda one: float(one.fun)).x))
