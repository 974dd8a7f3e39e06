"""Soft labels smoothed over a graph of nearest neighbours: texts that are close should have the same label."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

NEIGHBOURS = 15
BLOCK = 1024  # rows whose similarities to all others are in memory at a time
ROUNDS = 40  # 0.9^40 is 1.5 %: what is left of the error of the series


def neighbour_graph(x: Array, neighbours: int = NEIGHBOURS) -> Any:
    """A sparse (N, N) matrix whose rows sum to one; near texts weigh by the cube of their cosine."""
    from scipy import sparse

    x = (x - x.mean(axis=0)).astype(np.float32)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    number, k = len(x), min(neighbours, len(x) - 1)
    near, weight = np.empty((number, k), dtype=np.int64), np.empty((number, k), dtype=np.float32)
    for start in range(0, number, BLOCK):
        cosines = x[start : start + BLOCK] @ x.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -np.inf  # a text is no neighbour of itself
        near[start : start + BLOCK] = found = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        weight[start : start + BLOCK] = np.maximum(np.take_along_axis(cosines, found, axis=1), 0.0) ** 3
    graph = sparse.csr_matrix((weight.ravel(), (np.repeat(np.arange(number), k), near.ravel())), (number, number))
    graph = graph.maximum(graph.T)
    degree = np.asarray(graph.sum(axis=1)).ravel()
    return sparse.diags_array(1.0 / np.maximum(degree, 1e-9)).astype(np.float32) @ graph


def smoothed(graph: Any, y: Array, alpha: float) -> Array:
    """(1 - alpha) sum_t alpha^t S^t y with rows scaled to one, (N, K): each text hears its neighbours."""
    y = y.astype(np.float32)
    found = y
    for _ in range(ROUNDS if alpha else 0):
        found = alpha * (graph @ found) + (1.0 - alpha) * y
    return np.asarray(found / np.maximum(found.sum(axis=1, keepdims=True), 1e-12))
