"""How far to trust a prediction: whether probabilities mean what they say (temperature, calibration error, accuracy by
confidence), and whether a text belongs to any class at all. No torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from halflabel.arrays import Array, Columns, Mask
from halflabel.errors import SettingError
from halflabel.evaluation.decisions import evidence

BINS = 15  # of equal width, as in Guo et al. (2017)
BISECTIONS = 60
LOG_TEMPERATURES = (-5.0, 5.0)
NORMAL_95 = 1.959964  # quantile of the normal distribution for intervals of 95 %
COVERAGE = 0.95  # of texts of known classes, by default
CLOSEST = 0.25  # quantile of the labelled texts' distances within which a pool text joins the mean of its class


def softmax(scores: Array, temperature: float = 1.0) -> Array:
    """Probabilities (N, K) of scores (N, K) divided by a temperature, which never changes their order."""
    return np.asarray(np.exp(evidence(scores / temperature, logits=False)))


def fit_temperature(scores: Array, confidence: float) -> float:
    """The temperature at which the mean confidence in texts with scores (N, K) is the given one."""
    low, high = LOG_TEMPERATURES
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        too_sure = softmax(scores, math.exp(middle)).max(axis=1).mean() > confidence
        low, high = (middle, high) if too_sure else (low, middle)
    return math.exp((low + high) / 2)


class ReliabilityBin(NamedTuple):
    """Texts of similar confidence."""

    texts: int
    confidence: float
    accuracy: float


def reliability(confidence: Array, correct: Mask, bins: int = BINS) -> list[ReliabilityBin]:
    """Mean confidence and accuracy of the texts in each bin of confidence that is not empty."""
    number = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    return [ReliabilityBin(int(inside.sum()), float(confidence[inside].mean()), float(correct[inside].mean()))
            for inside in (number == b for b in range(bins)) if inside.any()]


def calibration_error(confidence: Array, correct: Mask) -> float:
    """Expected calibration error: the mean over texts of their bin's difference between confidence and accuracy."""
    return sum(row.texts * abs(row.confidence - row.accuracy)
               for row in reliability(confidence, correct)) / max(1, len(confidence))


def accuracy_by_coverage(confidence: Array, correct: Mask) -> tuple[Array, Array]:
    """Shares of texts, the most confident first, and the accuracy on them, (N,) each."""
    order = np.argsort(-confidence, kind="stable")
    number = np.arange(1, len(order) + 1)
    return number / max(1, len(order)), np.cumsum(correct[order]) / number


def wilson_interval(correct: int, texts: int) -> tuple[float, float]:
    """Wilson's interval of 95 % for an accuracy."""
    if not texts:
        return 0.0, 1.0
    p, z2 = correct / texts, NORMAL_95**2
    centre, width = p + z2 / (2 * texts), NORMAL_95 * math.sqrt(p * (1 - p) / texts + z2 / (4 * texts**2))
    return (centre - width) / (1 + z2 / texts), (centre + width) / (1 + z2 / texts)


@dataclass(frozen=True, eq=False)
class UnknownDetector:
    """Directions of the class means (K, D), and the distances of held-out labelled texts, the smallest first (M,).

    If the pool has unknown classes, their directions (U, D) are those seen from its centre (D,).
    """

    means: Array
    held_out: Array
    unknown: Array | None = None
    centre: Array | None = None

    @classmethod
    def fit(cls, f: Array, y: Columns, pool: Array, labels: int, unknown: Columns | None = None) -> UnknownDetector:
        """From features f (N, D) of texts with labels y (N,), and of a pool (M, D).

        `unknown` (M,) numbers the pool's unknown classes from 1 on; 0 is none.
        """
        f, pool = unit(f), unit(pool)
        sums, directions, centre = np.eye(labels)[y].T @ f, None, None
        if unknown is not None and unknown.any():
            centre = pool.mean(axis=0)
            means = np.stack([pool[unknown == u].mean(axis=0) for u in np.unique(unknown[unknown > 0])])
            directions, pool = unit(means - centre).astype(np.float32), pool[unknown == 0]
            centre = centre.astype(np.float32)
        if len(pool):
            cosines = pool @ unit(sums).T
            close = 1.0 - cosines.max(axis=1) <= np.quantile(held_out_distances(f, y, sums), CLOSEST)
            sums = sums + np.eye(labels)[cosines[close].argmax(axis=1)].T @ pool[close]
        detector = cls(unit(sums).astype(np.float32), np.empty(0, np.float32), directions, centre)
        held_out = held_out_distances(f, y, sums) + detector.nearness(f)
        return replace(detector, held_out=np.sort(held_out).astype(np.float32))

    def distances(self, f: Array) -> Array:
        """The distance of each text from the nearest class, (N,) from features (N, D).

        A text near an unknown class of the pool is that much farther away.
        """
        return np.asarray(1.0 - (unit(f) @ self.means.T).max(axis=1)) + self.nearness(unit(f))

    def nearness(self, f: Array) -> Array:
        """The cosine of each text with the nearest unknown class of the pool, seen from its centre, or 0, (N,)."""
        if self.unknown is None or self.centre is None:
            return np.zeros(len(f), f.dtype)
        return np.asarray(np.maximum((unit(f - self.centre) @ self.unknown.T).max(axis=1), 0.0))

    def threshold(self, coverage: float) -> float:
        """The distance above which a text gets no label, so that a text of a known class gets one at that rate."""
        if not 0.0 < coverage < 1.0:
            raise SettingError(f"a coverage of {coverage:g} is not a share of texts; give a number between 0 and 1, "
                               "such as 0.95.")
        rank = math.ceil(coverage * (len(self.held_out) + 1) - 1e-9)
        if rank > len(self.held_out):
            needed = math.ceil(coverage / (1.0 - coverage) - 1e-9)
            raise SettingError(f"a coverage of {coverage:g} needs at least {needed} labelled texts, and this model was "
                               f"trained on {len(self.held_out)}; lower the coverage, or train with more labels.")
        return float(self.held_out[rank - 1])


def held_out_distances(f: Array, y: Columns, sums: Array) -> Array:
    """The distance of each labelled text (N, D) from the nearest class (K, D), of which it is no part itself, (N,)."""
    cosines = f @ unit(sums).T
    cosines[np.arange(len(y)), y] = (f * unit(sums[y] - f)).sum(axis=1)
    return np.asarray(1.0 - cosines.max(axis=1))


def unit(x: Array) -> Array:
    """Rows of length one; rows of zeros stay zeros."""
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))
