"""Texts that belong to no class: how far a text is from every class, and from which distance on it gets no label.

The distance of a text is one minus the cosine between its features and the nearest class mean. Means are those of the
labelled texts, and of the pool's texts that are closest to them: a pool may contain unknown texts itself. The
threshold is conformal: it is the distance that the stated share of labelled texts stays within, each measured without
its own part in the means, so that a new text of a known class gets a label at that rate. No torch.

Shapes: N texts, K labels, D features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halflabel.errors import SettingError

Array = NDArray[np.floating]
Columns = NDArray[np.integer]

COVERAGE = 0.95  # of texts of known classes, by default
CLOSEST = 0.25  # quantile of the labelled texts' distances within which a pool text joins the mean of its class


@dataclass(frozen=True, eq=False)
class UnknownDetector:
    """Directions of the class means (K, D), and the distances of held-out labelled texts, the smallest first (M,)."""

    means: Array
    held_out: Array

    @classmethod
    def fit(cls, f: Array, y: Columns, pool: Array, labels: int) -> UnknownDetector:
        """From features f (N, D) of texts with labels y (N,), and of a pool (M, D)."""
        f, pool = unit(f), unit(pool)
        sums = np.eye(labels)[y].T @ f
        if len(pool):
            cosines = pool @ unit(sums).T
            close = 1.0 - cosines.max(axis=1) <= np.quantile(held_out_distances(f, y, sums), CLOSEST)
            sums = sums + np.eye(labels)[cosines[close].argmax(axis=1)].T @ pool[close]
        return cls(unit(sums).astype(np.float32), np.sort(held_out_distances(f, y, sums)).astype(np.float32))

    def distances(self, f: Array) -> Array:
        """The distance of each text from the nearest class, (N,) from features (N, D)."""
        return np.asarray(1.0 - (unit(f) @ self.means.T).max(axis=1))

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
