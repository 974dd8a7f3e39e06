"""Views of few labels and many vectors: linear rules, from the labelled texts alone or with the pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
Columns = NDArray[np.integer]

MASS = 25.0  # texts per class that the pool counts as, at most, in means and priors
STAGES = ((1.0, 10), (0.9, 8))  # share of the sphere in the covariance, and rounds of EM with it
STILL = 5e-3  # mean change of the soft labels at which a stage ends


class Rule(NamedTuple):
    """A linear classifier, logits = x W + b."""

    weight: Array  # (H, K)
    bias: Array  # (K,)

    def log_probabilities(self, x: Array) -> Array:
        """(N, H) -> (N, K)."""
        from scipy.special import log_softmax

        return np.asarray(log_softmax(x @ self.weight + self.bias, axis=1))


View = Callable[[Array, Columns, Array, int], Rule]


def combined(rules: list[Rule], weights: Array) -> Rule:
    """The linear rule whose logits are the weighted sum of the views' logits."""
    pairs = list(zip(weights, rules, strict=True))
    return Rule(np.sum([w * rule.weight for w, rule in pairs], axis=0),
                np.sum([w * rule.bias for w, rule in pairs], axis=0))


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

    return as_rule(LogisticRegression(C=10.0, max_iter=300).fit(x, y), labels)


def as_rule(model: Any, labels: int) -> Rule:
    """A linear model of scikit-learn, fitted to columns, as a rule for all labels."""
    coefficients, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:
        coefficients = np.stack([-coefficients[0] / 2, coefficients[0] / 2])
        intercept = np.array([-intercept[0] / 2, intercept[0] / 2])
    weight, bias = np.zeros((coefficients.shape[1], labels)), np.full(labels, intercept.min() - 10.0)
    weight[:, model.classes_], bias[model.classes_] = coefficients.T, intercept
    return Rule(weight, bias)


def distilled(rule: Rule, x: Array, soft: Array) -> Rule:
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
    return Rule(rule.weight + change[:-1], rule.bias + change[-1])
