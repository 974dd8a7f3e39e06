"""Linear models on TF-IDF n-grams that predict by numpy alone. No torch, scipy or scikit-learn to predict.

Features are hashed n-grams of words, of characters, or of both. Texts are lower-cased and joined into one array of code
points, on which n-grams are found and hashed without a loop over texts or words. An import of scikit-learn would take
longer than predicting ten thousand texts.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from halflabel.arrays import Array, Floats
from halflabel.errors import ModelError
from halflabel.integrity import read_arrays
from halflabel.types import Progress, Task

Kind = Literal["static", "words", "characters"]  # static: words, characters, phrases, fitted with vectors of words
KINDS: tuple[Kind, ...] = get_args(Kind)
BITS = 20
BUCKETS = 1 << BITS
ALL_BUCKETS = 4 * BUCKETS  # characters beside words have buckets of their own, from BUCKETS on, then phrases
CHUNK = 512  # texts whose n-grams are in memory at a time
GATHERED = 1 << 21  # weights that are gathered at a time, at most
FITTED_CHUNK = 4096  # texts whose n-grams are found at a time to fit a model
MIN_FREQUENCY = 2  # texts in which a kept n-gram occurs
MAX_WEIGHTS, MAX_FEATURES = 1 << 21, 1 << 17  # of a model: 4 MB in float16
STRENGTH = 0.1  # of the penalty on the weights of a model that votes; scikit-learn's C is its inverse
ITERATIONS, FEW_ITERATIONS = 60, 30  # of L-BFGS: for a model that predicts alone, and for one that votes
PART_LENGTHS = np.array([1.0, 1.0, 0.7], np.float32)  # of the TF-IDF vectors of words, characters and phrases
LENGTHS: dict[Kind, tuple[int, ...]] = {"static": (4,), "words": (), "characters": (3, 4, 5)}  # in characters
BASE = np.uint64(0x9E3779B97F4A7C15)  # of the polynomial hash; odd, so that it has an inverse modulo 2^64
INVERSE = np.uint64(pow(int(BASE), -1, 1 << 64))
MIXER = np.uint64(0xD6E8FEB86659FD93)
NEWLINE = 10
SEPARATOR, PART, ALONE = 0, 1, 2  # what a character is to a word: between words, part of one, or a word by itself
LAST = 0xFFFF  # characters beyond, such as emoji, are words by themselves
IDEOGRAPHS = ((0x3040, 0x3100), (0x3400, 0xA000), (0xF900, 0xFB00))  # of scripts that put no spaces between words

Codes = NDArray[np.uint32]
Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]


def buckets_of(kind: Kind) -> int:
    """How many buckets n-grams of that kind are hashed into."""
    return ALL_BUCKETS if kind == "static" else BUCKETS


class SparseRows(NamedTuple):
    """Rows of TF-IDF values: row i has the entries bounds[i] to bounds[i + 1]."""

    values: NDArray[np.float32]
    features: NDArray[np.integer]
    bounds: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TfIdf:
    """N-grams to TF-IDF vectors, of the features that were kept: (F,) buckets in rising order and their idf."""

    kind: Kind
    buckets: NDArray[np.uint32]
    idf: NDArray[np.float32]

    def __call__(self, texts: Sequence[str]) -> SparseRows:
        """Sublinear term frequency times idf, scaled to `PART_LENGTHS`: words, characters and phrases by themselves."""
        rows, found = occurrences(texts, self.kind, phrases=bool(self.buckets[-1] >= 2 * BUCKETS))
        features = self.feature_of[found]
        known = features >= 0
        keys = np.sort(rows[known] * ALL_BUCKETS + features[known])
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.diff(first, append=len(keys))
        rows, features = keys[first] >> (BITS + 2), keys[first] & (ALL_BUCKETS - 1)
        values = (1.0 + np.log(counts, dtype=np.float32)) * self.idf[features]
        part = sum(features >= border for border in np.searchsorted(self.buckets, (BUCKETS, 2 * BUCKETS)))
        parts = len(PART_LENGTHS) * rows + part
        norms = np.sqrt(np.bincount(parts, values * values, len(PART_LENGTHS) * len(texts))).astype(np.float32)
        bounds = np.searchsorted(rows, np.arange(len(texts) + 1))
        return SparseRows((values / norms[parts]).astype(np.float32) * PART_LENGTHS[part], features, bounds)

    @cached_property
    def feature_of(self) -> NDArray[np.int32]:
        """The feature of each bucket, -1 for none."""
        table = np.full(buckets_of(self.kind), -1, np.int32)
        table[self.buckets] = np.arange(len(self.buckets))
        return table


@dataclass(frozen=True, eq=False)
class NgramModel:
    """Logits of labels, linear in the TF-IDF values of a text."""

    features: TfIdf
    weights: Floats  # (F, K)
    bias: Floats  # (K,)

    def logits(self, texts: Sequence[str], progress: Progress | None = None) -> Floats:
        """(N, K)."""
        logits = np.empty((len(texts), len(self.bias)), np.float32)
        for start in range(0, len(texts), CHUNK):
            logits[start : start + CHUNK] = self._product(self.features(texts[start : start + CHUNK])) + self.bias
            if progress is not None:
                progress(min(start + CHUNK, len(texts)), len(texts))
        return logits

    def _product(self, x: SparseRows) -> Floats:
        """x @ weights, (N, K), with as many texts at a time as `GATHERED` allows."""
        number, labels = len(x.bounds) - 1, len(self.bias)
        product = np.zeros((number, labels), np.float32)
        entries = max(1, GATHERED // labels)
        start = 0
        while start < number:
            end = max(start + 1, int(np.searchsorted(x.bounds, x.bounds[start] + entries, "right")) - 1)
            part = slice(x.bounds[start], x.bounds[end])
            filled = start + np.flatnonzero(np.diff(x.bounds[start : end + 1]))  # reduceat has no empty sums
            if len(filled):
                gathered = self.weights[x.features[part]]
                gathered *= x.values[part, None]
                product[filled] = np.add.reduceat(gathered, x.bounds[filled] - x.bounds[start], axis=0)
            start = end
        return product

    def scaled(self, factor: float) -> NgramModel:
        """The model whose logits are `factor` times those of this one."""
        return replace(self, weights=np.float32(factor) * self.weights, bias=np.float32(factor) * self.bias)

    def as_stored(self) -> NgramModel:
        """The model as it is after a file has rounded its weights."""
        return replace(self, weights=self.weights.astype(np.float16).astype(np.float32))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """What a file keeps of it, besides the kind of its n-grams."""
        return {"buckets": self.features.buckets, "idf": self.features.idf, "bias": self.bias,
                "weights": self.weights.astype(np.float16)}


def read_ngram_model(file: Path, kind: Kind, labels: int, remedy: str) -> NgramModel:
    """A model from its tensors, if their types and shapes fit so many labels and all weights are finite."""
    tensors = read_arrays(file, remedy)
    number = len(tensors["buckets"]) if "buckets" in tensors and tensors["buckets"].ndim else 0
    shapes = {"buckets": ("uint32", (number,)), "idf": ("float32", (number,)),
              "weights": ("float16", (number, labels)), "bias": ("float32", (labels,))}
    if {name: (str(array.dtype), array.shape) for name, array in tensors.items()} != shapes:
        raise ModelError(f"{file} does not fit {labels} labels; {remedy}")
    buckets = tensors["buckets"].astype(np.int64)
    if (not number or buckets[-1] >= buckets_of(kind) or (np.diff(buckets) <= 0).any()
            or not all(np.isfinite(array).all() for array in tensors.values())):
        raise ModelError(f"{file} has weights or n-grams that are impossible; {remedy}")
    return NgramModel(TfIdf(kind, tensors["buckets"], tensors["idf"]), tensors["weights"].astype(np.float32),
                      tensors["bias"])


# Fitting


def fit_ngram_model(texts: Sequence[str], y: Array, folds: Sequence[Ints], task: Task
                    ) -> tuple[NgramModel, Array] | None:
    """Logistic regression of soft labels y (N, K) on words and pairs of words; None if no word is in two texts.

    Also the logits of the rows of each fold, one fold after the other, by models that did not learn these.
    """
    features = most_frequent("words", texts, min(MAX_FEATURES, MAX_WEIGHTS // y.shape[1]))
    if features is None:
        return None
    x, y, everything = tf_idf_matrix(features, texts), y.astype(np.float32), np.arange(len(texts))

    def fitted(rows: Ints) -> tuple[Floats, Floats]:
        bias = frequency_log_odds(y[rows]) if task == "multi-label" else 0.0
        return fit_linear(x[rows], np.zeros((len(rows), 0), np.float32), y[rows], task, STRENGTH, FEW_ITERATIONS, bias)

    held_out = [np.empty((0, y.shape[1]), np.float32)]
    for fold in folds:
        weights, bias = fitted(np.setdiff1d(everything, fold))
        held_out.append(x[fold] @ weights + bias)
    return NgramModel(features, *fitted(everything)), np.concatenate(held_out)


def frequency_log_odds(y: Array) -> Array:
    """Log-odds of the labels (K,) in soft labels (N, K), NaN where unknown.

    From a bias of 0, the first step would leave that of a rare label where the loss has no slope.
    """
    mean = (np.nansum(y, axis=0, dtype=np.float64) + 0.5) / ((~np.isnan(y)).sum(axis=0) + 1.0)
    return np.asarray(np.log(mean) - np.log1p(-mean))


def most_frequent(kind: Kind, texts: Sequence[str], number: int, also: NDArray[np.int64] | None = None, *,
                  phrases: bool = True) -> TfIdf | None:
    """So many n-grams that are in most texts, at least in two, or in the buckets `also`; None if there are none."""
    frequency = np.zeros(ALL_BUCKETS, np.int64)
    for start in range(0, len(texts), FITTED_CHUNK):
        rows, buckets = occurrences(texts[start : start + FITTED_CHUNK], kind, phrases=phrases)
        frequency += np.bincount(np.unique(rows * ALL_BUCKETS + buckets) % ALL_BUCKETS, minlength=ALL_BUCKETS)
    eligible = frequency >= MIN_FREQUENCY
    if not eligible.any():
        return None
    if also is not None:
        eligible[also] = True
    kept = np.sort(np.argsort(np.where(eligible, -frequency, 1), kind="stable")[: min(number, int(eligible.sum()))])
    idf = np.log((1 + len(texts)) / (1 + frequency[kept])) + 1.0
    return TfIdf(kind, kept.astype(np.uint32), idf.astype(np.float32))


def tf_idf_matrix(features: TfIdf, texts: Sequence[str]) -> Any:
    """The features of texts as a scipy matrix, (N, F)."""
    from scipy.sparse import csr_matrix, vstack

    parts = [features(texts[start : start + FITTED_CHUNK]) for start in range(0, len(texts), FITTED_CHUNK)]
    return vstack([csr_matrix((x.values, x.features, x.bounds), (len(x.bounds) - 1, len(features.buckets)))
                   for x in parts], format="csr")


def fit_linear(x: Any, z: Floats, y: Array, task: Task, strength: float, iterations: int = ITERATIONS,
               first_bias: Array | float = 0.0, offset: Array | float = 0.0) -> tuple[Floats, Floats]:
    """Logistic regression of soft labels y (N, K) on sparse x (N, F) and dense z (N, H): a softmax, or sigmoids.

    Returns weights (F + H, K) and bias (K,), which starts from the first one, of logits to which the offset (N, K) is
    added. For sigmoids, labels that are NaN do not count.
    """
    from scipy.optimize import minimize
    from scipy.special import expit, log_softmax

    number, shape = x.shape[1], (x.shape[1] + z.shape[1] + 1, y.shape[1])
    transposed, known, y = x.T.tocsr(), ~np.isnan(y), np.nan_to_num(y)

    def loss(flat: Array) -> tuple[float, Array]:
        w = flat.reshape(shape)
        narrow = w[:-1].astype(np.float32)
        scores = (x @ narrow[:number] + z @ narrow[number:] + w[-1] + offset).astype(np.float32)
        if task == "multi-class":
            log_p = log_softmax(scores, axis=1)
            value, error = -(y * log_p).sum(), np.exp(log_p) - y
        else:
            value = (known * (np.logaddexp(0.0, scores) - y * scores)).sum()
            error = known * (expit(scores) - y)
        gradient = np.empty(shape)
        gradient[:number], gradient[number:-1] = transposed @ error, z.T @ error
        gradient[:-1] += strength * w[:-1]
        gradient[-1] = error.sum(axis=0)
        return float(value + strength / 2 * (w[:-1] ** 2).sum()), gradient.ravel()

    start = np.zeros(shape)
    start[-1] = first_bias
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B",
                     options={"maxiter": iterations, "maxcor": 5}).x.reshape(shape).astype(np.float32)
    return found[:-1], found[-1]


# N-grams


class Occurrences(NamedTuple):
    """N-grams as they occur: the row of the text and the bucket of the hash, (M,) each."""

    rows: Ints
    buckets: Ints


def occurrences(texts: Sequence[str], kind: Kind, *, phrases: bool = True) -> Occurrences:
    """N-grams of the texts: words and pairs of words, characters within a word and its borders, or all and phrases."""
    lowered = [text.lower() for text in texts]
    codes = _codes("\n".join(["", *lowered, ""]))
    lengths = np.fromiter(map(len, lowered), np.int64, len(lowered))
    row_of = np.repeat(np.arange(len(lowered)), lengths + 1)  # of each character but the first, a newline
    found = [] if kind == "characters" else [_words(words := _hashed_words(codes, row_of))]
    found += [_characters(codes, LENGTHS[kind])] if LENGTHS[kind] else []
    found += [_phrases(words)] if kind == "static" and phrases else []
    buckets = [((hashes * MIXER) >> np.uint64(64 - BITS)).astype(np.int64) + part * BUCKETS
               for part, (_, hashes) in enumerate(found)]
    return Occurrences(row_of[np.concatenate([positions for positions, _ in found])], np.concatenate(buckets))


def distinct_words(texts: Sequence[str]) -> list[str]:
    """The words of the texts, lower-cased, in order."""
    joined = "\n".join(["", *(text.lower() for text in texts), ""])
    starts, ends = _word_bounds(_codes(joined))
    return sorted({joined[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)})


def _codes(text: str) -> Codes:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _word_bounds(codes: Codes) -> tuple[Ints, Ints]:
    """Where words start and end."""
    kinds = _word_characters()[np.minimum(codes, LAST)]
    inside, alone = kinds != SEPARATOR, kinds == ALONE
    joined = inside[1:] & inside[:-1] & ~alone[1:] & ~alone[:-1]  # a character continues the word of the one before
    return np.flatnonzero(inside[1:] & ~joined) + 1, np.flatnonzero(inside[:-1] & ~joined) + 1


class _Words(NamedTuple):
    """Words as they occur: where they start, their hashes, and the rows of their texts, (M,) each."""

    starts: Ints
    hashes: Hashes
    rows: Ints

    def together(self, number: int) -> Ints:
        """The words that are followed by others of the same text, so that these are `number` words."""
        return np.flatnonzero(self.rows[number - 1 :] == self.rows[: max(0, len(self.rows) - number + 1)])


def _hashed_words(codes: Codes, row_of: Ints) -> _Words:
    starts, ends = _word_bounds(codes)
    powers, inverses = _powers(len(codes))
    prefix = np.zeros(len(codes) + 1, np.uint64)
    np.cumsum(codes * powers, out=prefix[1:])
    return _Words(starts, (prefix[ends] - prefix[starts]) * inverses[starts], row_of[starts - 1])


def _words(words: _Words) -> tuple[Ints, Hashes]:
    """Positions and hashes of words and of pairs of neighbouring words of a text."""
    pairs = words.together(2)
    return (np.concatenate([words.starts, words.starts[pairs]]) - 1,
            np.concatenate([words.hashes, _joined(words.hashes[pairs], words.hashes[pairs + 1])]))


def _phrases(words: _Words) -> tuple[Ints, Hashes]:
    """Positions and hashes of triples of words, of the same with a gap in the middle, and of the first and last words.

    The first and the last, and the first two and the last two words of a text are n-grams of their own.
    """
    starts, hashes, rows = words
    triples, pairs = words.together(3), words.together(2)
    edges = np.diff(rows, prepend=-1, append=-1) != 0
    first, last = np.flatnonzero(edges[:-1]), np.flatnonzero(edges[1:])
    begin, end = pairs[edges[:-1][pairs]], pairs[edges[1:][pairs + 1]]
    gaps = _joined(hashes[triples], hashes[triples + 2])
    found = [(triples, _joined(_joined(hashes[triples], hashes[triples + 1]), hashes[triples + 2])), (triples, gaps)]
    found += [(place, hashes[place]) for place in (first, last)]
    found += [(place, _joined(hashes[place], hashes[place + 1])) for place in (begin, end)]
    return (np.concatenate([starts[place] for place, _ in found]) - 1,
            np.concatenate([(some ^ MIXER) * BASE + np.uint64(kind) for kind, (_, some) in enumerate(found)]))


def _joined(left: Hashes, right: Hashes) -> Hashes:
    """Hashes of two n-grams one after the other."""
    return left * MIXER + (right ^ BASE)


def _characters(codes: Codes, lengths: tuple[int, ...]) -> tuple[Ints, Hashes]:
    """Positions and hashes of n-grams of these lengths that have whitespace at most at their ends."""
    space = _whitespace()[np.minimum(codes, LAST)]
    values = np.where(space, np.uint32(32), codes).astype(np.uint64)
    before = np.concatenate([[0], np.cumsum(space)])  # whitespace before each position
    hashes = values[:-1] * BASE + values[1:]
    positions, found = [], []
    for n in range(3, max(lengths) + 1):
        hashes = hashes[: len(values) - n + 1] * BASE + values[n - 1 :]
        if n not in lengths:
            continue
        within = np.flatnonzero(before[n - 1 : len(values)] == before[1 : len(values) - n + 2])
        positions.append(within)
        found.append(hashes[within] + np.uint64(n))
    return np.concatenate(positions), np.concatenate(found)


@cache
def _word_characters() -> NDArray[np.uint8]:
    """What each character up to LAST is to a word: letters, marks and numbers are parts of it."""
    kinds = np.array([PART if unicodedata.category(chr(code))[0] in "LMN" else SEPARATOR for code in range(LAST + 1)],
                     np.uint8)
    for low, high in IDEOGRAPHS:
        kinds[low:high] *= ALONE
    kinds[LAST] = ALONE
    return kinds


@cache
def _whitespace() -> NDArray[np.bool_]:
    return np.array([chr(code).isspace() for code in range(LAST + 1)])


_known_powers = np.ones((2, 1), np.uint64)


def _powers(number: int) -> tuple[Hashes, Hashes]:
    """Powers of BASE and of its inverse; they are kept, since every chunk of texts needs them."""
    global _known_powers
    if _known_powers.shape[1] < number:
        factors = np.ones((2, 1 << number.bit_length()), np.uint64)
        factors[0, 1:], factors[1, 1:] = BASE, INVERSE
        _known_powers = np.cumprod(factors, axis=1, dtype=np.uint64)
    return _known_powers[0, :number], _known_powers[1]
