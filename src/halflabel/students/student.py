"""A student: a linear model on TF-IDF n-grams that predicts by numpy alone. No torch, scipy or scikit-learn.

Its features are hashed n-grams of words or of characters. Texts are lower-cased and joined into one array of code
points, on which n-grams are found and hashed without a loop over texts or words. An import of scikit-learn would take
longer than predicting ten thousand texts.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from halflabel import __version__
from halflabel.atomic import write_folder, write_text
from halflabel.data.labels import Classes
from halflabel.errors import ModelError, OutputError, SettingError
from halflabel.evaluation.decisions import Decision, evidence, finite
from halflabel.integrity import read_json, refuse_code, require, verify, write_checksums
from halflabel.persistence.model_folder import decision_from_json
from halflabel.types import Progress, Task

FORMAT = 1
DESCRIPTION, WEIGHTS = "student.json", "student.safetensors"
ENTRIES = {"student": str, "task": str, "classes": list, "bits": int, "decision": object, "threshold": object,
           "report": dict}
COPY_OR_DISTILL = "copy or distill the model again."
CHUNK = 512  # texts whose n-grams are in memory at a time
GATHERED = 1 << 21  # weights that are gathered at a time, at most

Array = NDArray[np.floating]

Kind = Literal["static", "words", "characters"]  # static: words, whose weights are fitted with vectors of words
KINDS: tuple[Kind, ...] = get_args(Kind)
BITS = 20
BUCKETS = 1 << BITS
LENGTHS = (3, 4, 5)  # of n-grams of characters
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


def is_student(folder: Path) -> bool:
    """Whether `halflabel distill` wrote the folder."""
    return (folder / DESCRIPTION).is_file()


def most_probable(scores: Array) -> NDArray[np.bool_]:
    """1 for the highest score of each text and 0 for the others, (N, K)."""
    return np.asarray(np.arange(scores.shape[1]) == scores.argmax(axis=1)[:, None])


def names_of(classes: Classes, task: Task, labels: NDArray[np.bool_]) -> list[Any]:
    """The label of each text, for several labels a tuple of them, from 0 and 1, (N, K)."""
    return list(classes.names_of(labels.argmax(axis=1) if task == "multi-class" else labels))


class SparseRows(NamedTuple):
    """Rows of TF-IDF values of length one: row i has the entries bounds[i] to bounds[i + 1]."""

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
        """Sublinear term frequency times idf, scaled to length one."""
        rows, found = occurrences(texts, self.kind)
        features = self.feature_of[found]
        known = features >= 0
        keys = np.sort(rows[known] * BUCKETS + features[known])
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.diff(first, append=len(keys))
        rows, features = keys[first] >> BITS, keys[first] & (BUCKETS - 1)
        values = (1.0 + np.log(counts, dtype=np.float32)) * self.idf[features]
        norms = np.sqrt(np.bincount(rows, values * values, len(texts))).astype(np.float32)
        bounds = np.searchsorted(rows, np.arange(len(texts) + 1))
        return SparseRows((values / norms[rows]).astype(np.float32), features, bounds)

    @cached_property
    def feature_of(self) -> NDArray[np.int32]:
        """The feature of each bucket, -1 for none."""
        table = np.full(BUCKETS, -1, np.int32)
        table[self.buckets] = np.arange(len(self.buckets))
        return table


@dataclass(frozen=True, eq=False)
class Student:
    """A linear model on TF-IDF n-grams; its scores are calibrated logits.

    `threshold` is the confidence from which it answers in a cascade, and None outside one.
    """

    classes: Classes
    task: Task
    features: TfIdf
    weights: NDArray[np.float32]  # (F, K)
    bias: NDArray[np.float32]  # (K,)
    decision: Decision | None = None  # of multi-label models
    threshold: float | None = None
    report: dict[str, Any] = field(default_factory=dict)

    def scores(self, texts: Sequence[str], progress: Progress | None = None) -> Array:
        """Logits of each label, (N, K)."""
        scores = np.empty((len(texts), len(self.classes)), np.float32)
        for start in range(0, len(texts), CHUNK):
            scores[start : start + CHUNK] = self._product(self.features(texts[start : start + CHUNK])) + self.bias
            if progress is not None:
                progress(min(start + CHUNK, len(texts)), len(texts))
        return finite(scores)

    def _product(self, x: SparseRows) -> Array:
        """x @ weights, (N, K), with as many texts at a time as `GATHERED` allows."""
        number, labels = len(x.bounds) - 1, len(self.classes)
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

    def probabilities(self, texts: Sequence[str], progress: Progress | None = None) -> Array:
        """p(k | x), (N, K); rows sum to one for multi-class models, labels are independent for multi-label ones."""
        return self.probabilities_of(self.scores(texts, progress))

    def probabilities_of(self, scores: Array) -> Array:
        """p(k | x), (N, K), from scores (N, K)."""
        return np.exp(evidence(scores, logits=False)) if self.decision is None else self.decision.probabilities(scores)

    def labels_of(self, scores: Array) -> NDArray[np.bool_]:
        """The labels as 0 and 1, (N, K), from scores (N, K)."""
        return most_probable(scores) if self.decision is None else self.decision(scores)

    def predict(self, texts: Sequence[str]) -> list[Any]:
        """The label of each text; for multi-label models a tuple of labels."""
        return names_of(self.classes, self.task, self.labels_of(self.scores(texts)))

    @property
    def rules(self) -> Decision:
        """The decision, or an error if the model has none: only multi-label models do."""
        if self.decision is None:
            raise SettingError("this student predicts one label per text, so there is nothing to decide; leave out the "
                               "decision.")
        return self.decision

    def save(self, folder: Path | str) -> None:
        """Writes a new folder."""
        write_new(Path(folder), self.fill)

    def fill(self, folder: Path) -> None:
        """Writes student.json, student.safetensors and checksums.json."""
        from safetensors.numpy import save

        tensors = {"buckets": self.features.buckets, "idf": self.features.idf, "bias": self.bias,
                   "weights": self.weights.astype(np.float16)}
        (folder / WEIGHTS).write_bytes(save(tensors))
        facts = {"format": FORMAT, "halflabel": __version__, "student": self.features.kind, "task": self.task,
                 "classes": self.classes.to_json(), "bits": BITS, "threshold": self.threshold,
                 "decision": "argmax" if self.decision is None else self.decision.to_json(), "report": self.report}
        write_text(folder / DESCRIPTION, json.dumps(facts, indent=1, ensure_ascii=False))
        write_checksums(folder)


def write_new(folder: Path, fill: Callable[[Path], None]) -> None:
    """Writes a folder that does not exist yet."""
    if folder.exists():
        raise OutputError(f"{folder} exists already; choose another folder or remove it first.")
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    write_folder(folder, fill)


def description(folder: Path) -> dict[str, Any]:
    """student.json of a folder that `halflabel distill` wrote, validated."""
    file = folder / DESCRIPTION
    facts = read_json(file, COPY_OR_DISTILL)
    require(facts, {"format": int}, file, COPY_OR_DISTILL)
    if facts["format"] > FORMAT:
        raise ModelError(f"{file} was written by a newer version of halflabel (format {facts['format']}); upgrade "
                         "halflabel.")
    require(facts, ENTRIES, file, COPY_OR_DISTILL)
    threshold = facts["threshold"]
    if (facts["student"] not in KINDS or facts["task"] not in get_args(Task) or facts["bits"] != BITS
            or not (threshold is None or type(threshold) in (int, float))):
        raise ModelError(f"{file} has an impossible student, task, bits or threshold; {COPY_OR_DISTILL}")
    return facts


def decision_of(facts: dict[str, Any], folder: Path) -> Decision | None:
    """The decision of a multi-label student; None for multi-class."""
    if facts["task"] == "multi-class":
        return None
    return decision_from_json(facts["decision"], len(facts["classes"]), folder / DESCRIPTION, COPY_OR_DISTILL)


def load_student(folder: str | Path) -> Student:
    """Reads a student; a damaged one is refused."""
    folder = Path(folder)
    facts = description(folder)
    verify(folder)
    refuse_code(folder)
    classes = Classes.from_json(facts["classes"], folder / DESCRIPTION)
    tensors = _tensors(folder / WEIGHTS, len(classes))
    return Student(classes, facts["task"], TfIdf(facts["student"], tensors["buckets"], tensors["idf"]),
                   tensors["weights"].astype(np.float32), tensors["bias"], decision_of(facts, folder),
                   facts["threshold"], facts["report"])


def _tensors(file: Path, labels: int) -> dict[str, Any]:
    """The arrays of a student, if their types and shapes fit and all weights are finite."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not file.is_file():
        raise ModelError(f"{file} is missing; {COPY_OR_DISTILL}")
    try:
        tensors: dict[str, Any] = load_file(file)
    except SafetensorError as error:
        raise ModelError(f"{file} is damaged ({error}); {COPY_OR_DISTILL}") from None
    number = len(tensors["buckets"]) if "buckets" in tensors and tensors["buckets"].ndim else 0
    shapes = {"buckets": ("uint32", (number,)), "idf": ("float32", (number,)),
              "weights": ("float16", (number, labels)), "bias": ("float32", (labels,))}
    if {name: (str(array.dtype), array.shape) for name, array in tensors.items()} != shapes:
        raise ModelError(f"{file} does not fit {DESCRIPTION}; {COPY_OR_DISTILL}")
    buckets = tensors["buckets"].astype(np.int64)
    if (not number or buckets[-1] >= BUCKETS or (np.diff(buckets) <= 0).any()
            or not all(np.isfinite(array).all() for array in tensors.values())):
        raise ModelError(f"{file} has weights or n-grams that are impossible; {COPY_OR_DISTILL}")
    return tensors


class Occurrences(NamedTuple):
    """N-grams as they occur: the row of the text and the bucket of the hash, (M,) each."""

    rows: Ints
    buckets: Ints


def occurrences(texts: Sequence[str], kind: Kind) -> Occurrences:
    """All n-grams of the texts: words and pairs of words, or 3 to 5 characters within a word and its borders."""
    lowered = [text.lower() for text in texts]
    codes = _codes("\n".join(["", *lowered, ""]))
    lengths = np.fromiter(map(len, lowered), np.int64, len(lowered))
    row_of = np.repeat(np.arange(len(lowered)), lengths + 1)  # of each character but the first, a newline
    positions, hashes = (_characters if kind == "characters" else _words)(codes, row_of)
    return Occurrences(row_of[positions], ((hashes * MIXER) >> np.uint64(64 - BITS)).astype(np.int64))


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


def _words(codes: Codes, row_of: Ints) -> tuple[Ints, Hashes]:
    """Positions and hashes of words and of pairs of neighbouring words of a text."""
    starts, ends = _word_bounds(codes)
    powers, inverses = _powers(len(codes))
    prefix = np.zeros(len(codes) + 1, np.uint64)
    np.cumsum(codes * powers, out=prefix[1:])
    words = (prefix[ends] - prefix[starts]) * inverses[starts]
    rows = row_of[starts - 1]
    together = np.flatnonzero(rows[1:] == rows[:-1])
    pairs = words[together] * MIXER + (words[together + 1] ^ BASE)
    return np.concatenate([starts, starts[together]]) - 1, np.concatenate([words, pairs])


def _characters(codes: Codes, row_of: Ints) -> tuple[Ints, Hashes]:
    """Positions and hashes of n-grams that have whitespace at most at their ends."""
    space = _whitespace()[np.minimum(codes, LAST)]
    values = np.where(space, np.uint32(32), codes).astype(np.uint64)
    before = np.concatenate([[0], np.cumsum(space)])  # whitespace before each position
    hashes = values[:-1] * BASE + values[1:]
    positions, found = [], []
    for n in LENGTHS:
        hashes = hashes[: len(values) - n + 1] * BASE + values[n - 1 :]
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
