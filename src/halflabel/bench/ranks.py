"""Methods against each other: average ranks by the paper's rule, and differences over seeds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

EXACT = 16  # differences up to which every choice of signs is looked at; beyond, RESAMPLES of them
RESAMPLES = 9_999


def average_ranks(scores: Mapping[str, Mapping[str, float]], lower_is_better: bool | Collection[str] = False, *,
                  missing: Literal["last", "left out"] = "last") -> dict[str, float]:
    """The mean rank of each method over all columns, 1 for the best; `scores[method][column]`.

    In a column, a method's rank is one more than the number of methods that are better, so that equal scores share
    the better rank. A method without a score is behind all that have one, or its mean is over the columns it has.
    `lower_is_better` says so of all columns, or names those in which the lower score wins.
    """
    columns = list(dict.fromkeys(column for row in scores.values() for column in row))
    low = set(columns) if lower_is_better is True else set(lower_is_better or ())
    ranks: dict[str, list[int]] = {method: [] for method in scores}
    for column in columns:
        value = {method: (-1 if column in low else 1) * row[column] for method, row in scores.items() if column in row}
        for method in scores:
            if method in value:
                ranks[method].append(1 + sum(other > value[method] for other in value.values()))
            elif missing == "last":
                ranks[method].append(1 + len(value))
    return {method: float(np.mean(some)) if some else float("nan") for method, some in ranks.items()}


class Paired(NamedTuple):
    """How much higher `a` is than `b` where both have the same seeds."""

    difference: float  # mean of a - b
    deviation: float  # of a - b, as a sample; NaN for one seed
    n: int
    p: float  # two-sided, of the sign-flip test; never below 2 / 2**n
    low: float  # 95 % interval of the difference, by Student's t
    high: float


def paired(a: Sequence[float], b: Sequence[float]) -> Paired:
    """Compares scores of the same seeds, in the same order.

    If the methods were alike, each difference could as well have the other sign: p is the share of all choices of
    signs under which the mean is as far from zero. Five seeds cannot say less than 0.0625, three not less than 0.25.
    """
    assert len(a) == len(b) > 0, "a score of both for each seed"
    d = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    n, mean = len(d), float(d.mean())
    if n == 1:
        return Paired(mean, float("nan"), n, 1.0, -float("inf"), float("inf"))
    deviation = float(d.std(ddof=1))
    margin = float(stats.t.ppf(0.975, n - 1)) * deviation / n**0.5
    return Paired(mean, deviation, n, sign_flip(d), mean - margin, mean + margin)


def sign_flip(d: np.ndarray) -> float:
    """Two-sided p of the mean of differences (N,): exact for few, by fixed random signs for many."""
    found = stats.permutation_test(
        (d,), lambda x, axis: x.mean(axis=axis), permutation_type="samples", vectorized=True,
        n_resamples=np.inf if len(d) <= EXACT else RESAMPLES, rng=np.random.default_rng(0))
    return float(found.pvalue)
