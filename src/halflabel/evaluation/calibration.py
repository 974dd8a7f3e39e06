"""Whether probabilities mean what they say: a temperature, calibration error, and accuracy by confidence. No torch.

Shapes: N texts, K labels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halflabel.evaluation.decisions import evidence

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]

BINS = 15  # of equal width, as in Guo et al. (2017)
BISECTIONS = 60
LOG_TEMPERATURES = (-5.0, 5.0)
NORMAL_95 = 1.959964  # quantile of the normal distribution for intervals of 95 %


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
