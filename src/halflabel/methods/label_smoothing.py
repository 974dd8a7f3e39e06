"""Soft labels refined by neighbouring texts and by words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

NEIGHBOURS = 15
BLOCK = 1024  # rows whose similarities to all others are in memory at a time
ROUNDS = 40  # 0.9^40 is 1.5 %: what is left of the error of the series
VOCABULARY = 30_000  # words and pairs of words
SMOOTH = 0.1  # added to the count of every word in every class
SHARP = 1.5  # a text of tf-idf length one is short evidence; this is how long it counts
LABELLED = 5.0  # texts that a labelled one counts as


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


def word_counts(texts: Sequence[str]) -> Any:
    """tf-idf of words and pairs of words, a sparse (N, V) with rows of length one; no words, no columns."""
    from scipy import sparse
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(min_df=2, ngram_range=(1, 2), sublinear_tf=True, max_features=VOCABULARY,
                                 dtype=np.float32)
    try:
        return vectorizer.fit_transform(texts)
    except ValueError:  # not a single word occurs twice
        return sparse.csr_matrix((len(texts), 0), dtype=np.float32)


def with_words(counts: Any, y: Array, soft: Array) -> Array:
    """Soft labels (M, K) of unlabelled texts times what naive Bayes makes of their words, as sure as before.

    `counts` are the words of the labelled texts, whose labels are y (N_l, K), and then of the M others.
    """
    from scipy.special import log_softmax, softmax

    if not counts.shape[1]:
        return soft
    labels = np.concatenate([LABELLED * y, soft])
    mass = counts.T @ labels + SMOOTH
    per_word = np.log(mass / mass.sum(axis=0))
    prior = np.log(labels.sum(axis=0) / labels.sum())
    said = log_softmax(SHARP * (counts[len(y) :] @ per_word) + prior, axis=1)
    return as_sure_as(soft, softmax(np.log(soft + 1e-4) + said, axis=1))


def as_sure_as(before: Array, after: Array) -> Array:
    """The labels of `after`, raised to the power that gives them the mean confidence of `before`, (M, K)."""
    wanted = before.max(axis=1).mean()
    low, high = 0.0, 4.0
    for _ in range(30):
        power = (low + high) / 2
        low, high = (power, high) if sharpened(after, power).max(axis=1).mean() < wanted else (low, power)
    return sharpened(after, high)


def sharpened(p: Array, power: float) -> Array:
    """p^power with rows scaled to one, (N, K)."""
    q = p**power
    return np.asarray(q / np.maximum(q.sum(axis=1, keepdims=True), 1e-12))
