"""How a student learns a teacher's probabilities: a linear model on n-grams, with what the teacher knows of words.

Shapes: N texts, F features, K labels, H encoder width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from halflabel.arrays import Array, Floats
from halflabel.encoders.neighbours import unit
from halflabel.encoders.ngrams import (
    MAX_FEATURES,
    MAX_WEIGHTS,
    Kind,
    NgramModel,
    TfIdf,
    distinct_words,
    fit_linear,
    most_frequent,
    occurrences,
    tf_idf_matrix,
)
from halflabel.errors import DataError
from halflabel.persistence.model import TrainedModel
from halflabel.students.student import Student
from halflabel.types import Progress

STATIC_WEIGHTS, STATIC_FEATURES = 8 << 20, 1 << 18  # with weights of words that are in no text of the pool: 16 MB
SHORT = 20  # words of a text, on average, up to which phrases are features: in longer texts they tell nothing more
VOCABULARY = 30_000  # words of the encoder's vocabulary that a static student knows, at most
STRENGTH = 0.03  # of the penalty on weights; scikit-learn's C is its inverse
EPSILON = 1e-9
SCALES = (2.0, 0.3)  # of vectors of n-grams beside the n-grams themselves, of which one is kept
RIDGE = 1.0  # penalty on how far vectors of n-grams are from those of words
RIDGE_TEXTS = 4_000  # whose vectors they are fitted to, at most
PRIOR = 0.5  # share of naive Bayes in the weights that a penalty draws those of n-grams to, with many texts per class
PRIOR_TEXTS = 300  # per class with which the share is half as large: with few, naive Bayes knows few n-grams of a class
LOG_FACTORS = (-4.0, 4.0)  # of naive Bayes


class Examples(NamedTuple):
    """The labelled texts that the teacher was trained on, and its probabilities of them, (N, K)."""

    texts: Sequence[str]
    p: Array

    @classmethod
    def of(cls, teacher: TrainedModel, labelled: Sequence[str], pool: Sequence[str]) -> Examples:
        """Those of the texts that are not in the pool, of which some texts are held out."""
        others = set(pool)
        texts = [text for text in labelled if text not in others]
        return cls(texts, teacher.probabilities(texts) if texts else np.empty((0, len(teacher.classes))))


class WordVectors(NamedTuple):
    """The teacher's vectors of words and of the texts that a student learns."""

    buckets: NDArray[np.int64]  # (W,) hashes of the words
    vectors: Floats  # (W, H), centred
    texts: Floats  # (N, H) of unit length, then centred
    scale: float = SCALES[0]  # how long the vectors of texts by their n-grams are made

    @classmethod
    def of(cls, teacher: TrainedModel, texts: Sequence[str], h: Array, progress: Progress | None = None) -> WordVectors:
        """For texts with vectors h (N, H): their words, and those of the teacher's vocabulary.

        The vocabulary has words that new texts may have although the pool does not.
        """
        words = distinct_words([*texts, *teacher.encoder.vocabulary()[:VOCABULARY]])
        rows, buckets = occurrences(words, "words")
        vectors = teacher.vectors(words, progress)[rows].astype(np.float32)
        f = unit(h)
        return cls(buckets, vectors - vectors.mean(axis=0), f - f.mean(axis=0))

    def without(self, number: int) -> WordVectors:
        """The same without the first texts."""
        return self._replace(texts=self.texts[number:])


def fit_student(kind: Kind, teacher: TrainedModel, texts: Sequence[str], p: Array, words: WordVectors | None,
                examples: Examples, strength: float = STRENGTH) -> Student:
    """A linear model of the teacher's probabilities, so that a text counts as much as the teacher is sure of it.

    With vectors of words, a text also has the sum of its n-grams' vectors as features. Since that is linear in its
    TF-IDF values, the weights of these features become part of those of the n-grams: similar ones get similar weights.
    For one label per text, the penalty draws weights of n-grams to those of naive Bayes instead of 0, as in NBSVM.
    """
    texts, y = [*texts, *examples.texts], np.concatenate([p, examples.p]).astype(np.float32)
    features = fit_features(kind, texts, len(teacher.classes), words)
    x = tf_idf_matrix(features, texts)
    vectors, sums = vectors_of(features, words, x)
    present = np.flatnonzero(np.bincount(x.indices, minlength=x.shape[1]))  # the others have no weights but by vectors
    x = x[:, present]
    prior = naive_bayes(x, y) if teacher.task == "multi-class" else np.zeros((len(present), y.shape[1]), np.float32)
    fitted, bias = fit_linear(x, sums, y, teacher.task, strength, offset=x @ prior)
    weights = vectors @ fitted[len(present) :]
    weights[present] += fitted[: len(present)] + prior
    return Student(teacher.classes, teacher.task, NgramModel(features, weights, bias))


def naive_bayes(x: Any, y: Floats) -> Floats:
    """A share of the weights (F, K) that naive Bayes gives the columns of x (N, F) by soft labels y (N, K).

    These are log-ratios of a column's frequency with the class and without, times the factor at which y is most likely:
    naive Bayes counts n-grams that occur together as if each were evidence by itself.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    share = y.mean(axis=0) + np.float32(EPSILON)
    with_class = x.T @ y + share
    without = np.maximum(np.asarray(x.sum(axis=0)).reshape(-1, 1) + 1.0 - with_class, EPSILON)
    weights = (np.log(with_class / with_class.sum(axis=0)) - np.log(without / without.sum(axis=0))).astype(np.float32)
    scores, bias = x @ weights, np.log(share)
    found = minimize_scalar(lambda log_factor: -(y * log_softmax(np.exp(log_factor) * scores + bias, axis=1)).sum(),
                            bounds=LOG_FACTORS, method="bounded")
    prior = PRIOR * len(y) / (len(y) + PRIOR_TEXTS * y.shape[1])
    return np.asarray(prior * np.exp(found.x) * weights, np.float32)


def vectors_of(features: TfIdf, words: WordVectors | None, x: Any) -> tuple[Floats, Floats]:
    """Vectors of the features, (F, H), whose sums by rows of x (N, F) are near the teacher's vectors of the texts.

    They are fitted to some of the texts by ridge regression, V = a V_0 + X' (X X' + lambda)^-1 (H - a X V_0), whose
    penalty draws them to the teacher's vectors of single words V_0, since most n-grams are in few texts. Also the sums,
    (N, H), each by vectors that were fitted without the text, as for a new one: those with it would be too near.
    """
    if words is None:
        return np.zeros((len(features.buckets), 0), np.float32), np.zeros((x.shape[0], 0), np.float32)
    vectors = vectors_of_words(features, words)
    x_some, h = x[:RIDGE_TEXTS], words.texts[:RIDGE_TEXTS]
    x_some = x_some[: len(h)]  # texts after them are labelled ones
    sums = x_some @ vectors
    sums -= sums.mean(axis=0)
    a = float((sums * h).sum() / ((sums**2).sum() + EPSILON))
    gram = (x_some @ x_some.T).toarray()
    gram[np.diag_indices_from(gram)] += np.float32(RIDGE)
    inverse = np.linalg.inv(gram)
    residuals = inverse @ (h - a * sums)
    vectors = a * vectors + x_some.T @ residuals
    sums = x @ vectors
    sums[: len(h)] -= residuals * (1.0 / np.diag(inverse) - RIDGE)[:, None]  # to leave one out, in closed form
    scale = words.scale / (np.sqrt((sums**2).sum() / len(sums)) + EPSILON)
    return np.asarray(scale * vectors, np.float32), np.asarray(scale * sums, np.float32)


def vectors_of_words(features: TfIdf, words: WordVectors) -> Floats:
    """The teacher's vectors of the features that are words, (F, H), 0 for others."""
    vectors = np.zeros((len(features.buckets), words.vectors.shape[1]), np.float32)
    found = features.feature_of[words.buckets]
    vectors[found[found >= 0]] = words.vectors[found >= 0]
    return vectors


def fit_features(kind: Kind, texts: Sequence[str], labels: int, words: WordVectors | None = None) -> TfIdf:
    """The most frequent n-grams of the texts, and words with vectors, as many as a student has room for."""
    number = min(MAX_FEATURES, MAX_WEIGHTS // labels)
    if words is not None:
        number = min(STATIC_FEATURES, STATIC_WEIGHTS // labels)
    short = sum(len(text.split()) for text in texts) <= SHORT * len(texts)
    features = most_frequent(kind, texts, number, None if words is None else words.buckets, phrases=short)
    if features is None:
        raise DataError("no word occurs in two texts of the pool, so a student has nothing to learn from; give a "
                        "larger pool.")
    return features
