"""How well the words of topics go together: normalised pointwise mutual information in a set of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

TOP = 10  # words that stand for a topic


def npmi(topics: NDArray[np.floating], holds: Any) -> float:
    """Mean NPMI over pairs of the first words of topics (S, V), by the texts (N, V), sparse, that hold them.

    A pair that never occurs together counts -1, one that always does 1.
    """
    top = np.argsort(-topics, axis=1, kind="stable")[:, :TOP]
    words, place = np.unique(top, return_inverse=True)
    here = (holds[:, words] > 0).astype(np.float64)
    both = np.asarray((here.T @ here).todense()) / here.shape[0]
    single = both.diagonal()
    place = place.reshape(top.shape)
    i, j = np.triu_indices(top.shape[1], k=1)
    a, b = place[:, i], place[:, j]
    joint, alone = both[a, b], single[a] * single[b]
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(joint / alone) / -np.log(joint)
    value = np.where(joint >= 1.0, 1.0, np.where(joint > 0, value, -1.0))
    return float(value.mean()) if value.size else 0.0
