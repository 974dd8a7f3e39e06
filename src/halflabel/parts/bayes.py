"""Multinomial naive Bayes with expectation maximisation over an unlabelled pool (Nigam et al., 2000)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


class NaiveBayes(NamedTuple):
    """log P(w | k), (V, K), and log P(k), (K,)."""

    words: Array
    prior: Array

    def joint(self, x: Any) -> Array:
        """log P(k) + sum_w x_w log P(w | k), (N, K), of sparse x (N, V)."""
        return np.asarray(x @ self.words + self.prior)

    def posterior(self, x: Any) -> Array:
        """P(k | x), (N, K)."""
        from scipy.special import softmax

        return np.asarray(softmax(self.joint(x), axis=1))


class Fit(NamedTuple):
    """The model, and the objective after each round of EM, the first being that of the labelled texts alone."""

    model: NaiveBayes
    trace: list[float]
    settled: bool


def maximised(x: Any, z: Array, smooth: float) -> NaiveBayes:
    """M-step: the model that makes x (N, V) likeliest under soft labels z (N, K), with added counts."""
    mass = np.asarray(x.T @ z) + smooth
    prior = z.sum(axis=0) + 1.0
    return NaiveBayes(np.log(mass / mass.sum(axis=0)), np.log(prior / prior.sum()))


def objective(model: NaiveBayes, x: Any, y: Array, pool: Any, lambda1: float, smooth: float) -> float:
    """What EM climbs: labelled joint + lambda1 * unlabelled marginal + the Dirichlet priors behind added counts."""
    from scipy.special import logsumexp

    priors = smooth * model.words.sum() + model.prior.sum()
    marginal = logsumexp(model.joint(pool), axis=1).sum() if pool.shape[0] else 0.0
    return float((y * model.joint(x)).sum() + lambda1 * marginal + priors)


def fit(x: Any, y: Array, pool: Any, *, smooth: float, lambda1: float, rounds: int, still: float) -> Fit:
    """EM from naive Bayes on labelled x (N_l, V), y (N_l, K); pool texts (N_u, V) weigh lambda1 each."""
    from scipy import sparse

    model = maximised(x, y, smooth)
    trace = [objective(model, x, y, pool, lambda1, smooth)]
    everything = sparse.vstack([x, pool]).tocsr()
    for _ in range(rounds if pool.shape[0] and lambda1 else 0):
        model = maximised(everything, np.concatenate([y, lambda1 * model.posterior(pool)]), smooth)
        trace.append(objective(model, x, y, pool, lambda1, smooth))
        if trace[-1] - trace[-2] < still * abs(trace[-2]):
            return Fit(model, trace, True)
    return Fit(model, trace, len(trace) == 1)
