"""Refining soft labels: smoothing over a graph of nearest neighbours, and correction by the words of the texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from halflabel.arrays import Array
from halflabel.encoders.neighbours import NEIGHBOURS, largest

BLOCK = 1024  # rows whose similarities to all others are in memory at a time
ITERATIONS = 40  # of the smoothing: the rest of the series is at most 0.9^40, or 1.5 %
VOCABULARY = 30_000  # words and pairs of words
SMOOTHING = 0.1  # added to the count of every word in every class
EVIDENCE_SCALE = 1.5  # of word log-likelihoods: a tf-idf vector of length one understates the evidence of a text
LABELLED_WEIGHT = 5.0  # of a labelled text, in pool texts
WEIGHTINGS = 15  # of the classes, until they are as frequent as they should be
RAREST = 1e-6  # share of a class
EQUAL, UNEQUAL = 0.05, 0.15  # divergence of class frequencies from equal ones, in nats; between them they are partly so
MANY_CLASSES = 20  # from which on words have too few texts of each class to tell how frequent it is


def neighbour_graph(x: Array, neighbours: int = NEIGHBOURS) -> Any:
    """A sparse symmetric graph (N, N) of nearest neighbours, weighted by the cube of their cosine; rows sum to one."""
    from scipy import sparse

    x = (x - x.mean(axis=0)).astype(np.float32)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    number, k = len(x), min(neighbours, len(x) - 1)
    nearest, weight = np.empty((number, k), dtype=np.int64), np.empty((number, k), dtype=np.float32)
    for start in range(0, number, BLOCK):
        cosines = x[start : start + BLOCK] @ x.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -np.inf  # a text is no neighbour of itself
        columns = largest(cosines, k)
        nearest[start : start + BLOCK] = columns
        weight[start : start + BLOCK] = np.maximum(np.take_along_axis(cosines, columns, axis=1), 0.0) ** 3
    graph = sparse.csr_matrix((weight.ravel(), (np.repeat(np.arange(number), k), nearest.ravel())), (number, number))
    graph = graph.maximum(graph.T)
    degree = np.asarray(graph.sum(axis=1)).ravel()
    return sparse.diags_array(1.0 / np.maximum(degree, 1e-9)).astype(np.float32) @ graph


def smoothed(graph: Any, y: Array, alpha: float) -> Array:
    """Label propagation: (1 - alpha) sum_t alpha^t S^t y for the graph S, with rows normalised, (N, K)."""
    y = y.astype(np.float32)
    labels = y
    for _ in range(ITERATIONS if alpha else 0):
        labels = alpha * (graph @ labels) + (1.0 - alpha) * y
    return np.asarray(labels / np.maximum(labels.sum(axis=1, keepdims=True), 1e-12))


def word_features(texts: Sequence[str]) -> Any:
    """tf-idf of words and pairs of words, a sparse (N, V) with rows of length one; V is 0 if no word occurs twice."""
    from scipy import sparse
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(min_df=2, ngram_range=(1, 2), sublinear_tf=True, max_features=VOCABULARY,
                                 dtype=np.float32)
    try:
        return vectorizer.fit_transform(texts)
    except ValueError:  # no word occurs twice
        return sparse.csr_matrix((len(texts), 0), dtype=np.float32)


def corrected_by_words(words: Any, y: Array, soft: Array, *, rounds: int = 1, keep_frequencies: bool = False) -> Array:
    """Soft labels (M, K) times the likelihood of the words under naive Bayes, at the same mean confidence.

    `words` (N_l + M, V) are features of the labelled texts, whose labels are y (N_l, K), and of the M texts. Naive
    Bayes is fitted to all of them in each round. With `keep_frequencies` those of the classes stay as they are, as far
    as `kept_frequencies` says.
    """
    from scipy.special import log_softmax, softmax

    if not words.shape[1]:
        return soft
    before = soft
    for _ in range(rounds):
        labels = np.concatenate([LABELLED_WEIGHT * y, soft])
        mass = words.T @ labels + SMOOTHING
        log_likelihood = np.log(mass / mass.sum(axis=0))
        prior = np.log(labels.sum(axis=0) / labels.sum())
        log_posterior = log_softmax(EVIDENCE_SCALE * (words[len(y) :] @ log_likelihood) + prior, axis=1)
        soft = match_confidence(softmax(np.log(soft + 1e-4) + log_posterior, axis=1), soft)
    return match_frequencies(soft, kept_frequencies(before, soft)) if keep_frequencies else soft


def kept_frequencies(before: Array, after: Array) -> Array:
    """Frequencies of the classes (K,) between those of soft labels (M, K) before and after a correction by words.

    Words make a class rarer that is hard to tell, the more the rarer it is: unequal frequencies are kept. About equal
    ones may well be errors of few labels, which words correct, unless there are many classes.
    """
    p, q = before.mean(axis=0), after.mean(axis=0)
    if len(p) >= MANY_CLASSES:
        return np.asarray(p)
    divergence = float((p * np.log(np.maximum(p, RAREST) * len(p))).sum())
    share = np.clip((divergence - EQUAL) / (UNEQUAL - EQUAL), 0.0, 1.0)
    return np.asarray(q ** (1.0 - share) * p**share)


def match_frequencies(p: Array, frequencies: Array) -> Array:
    """p (M, K) with each class weighted so that it has that share of the frequencies (K,)."""
    wanted, weights = np.maximum(frequencies / frequencies.sum(), RAREST), np.ones(p.shape[1])
    for _ in range(WEIGHTINGS):
        weighted = weighted_classes(p, weights)
        weights *= wanted / np.maximum(weighted.mean(axis=0), RAREST)
    return weighted_classes(p, weights)


def weighted_classes(p: Array, weights: Array) -> Array:
    """p (M, K) times the weights (K,) of its classes, with rows normalised."""
    q = (p + RAREST) * weights
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def match_confidence(p: Array, reference: Array) -> Array:
    """p (M, K), sharpened or flattened to the mean confidence of the reference (M, K)."""
    return with_mean_confidence(p, float(reference.max(axis=1).mean()))


def with_mean_confidence(p: Array, confidence: float) -> Array:
    """p (M, K), sharpened or flattened to a mean confidence."""
    low, high = 0.0, 4.0
    for _ in range(30):
        power = (low + high) / 2
        low, high = (power, high) if sharpened(p, power).max(axis=1).mean() < confidence else (low, power)
    return sharpened(p, high)


def sharpened(p: Array, power: float) -> Array:
    """p^power with rows normalised, (N, K)."""
    q = p**power
    return np.asarray(q / np.maximum(q.sum(axis=1, keepdims=True), 1e-12))
