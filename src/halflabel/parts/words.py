"""A second opinion from words: naive Bayes learns the soft labels and says what it would have called each text.

It errs in other places than a sentence vector does, so the two together are right more often than either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

VOCABULARY = 30_000  # words and pairs of words
SMOOTH = 0.1  # added to the count of every word in every class
SHARP = 1.5  # a text of tf-idf length one is short evidence; this is how long it counts
LABELLED = 5.0  # texts that a labelled one counts as


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
