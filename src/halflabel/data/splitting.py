"""Splits a corpus into labelled, unlabelled, dev and test parts, reproducibly under a seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halflabel.data.corpus import Corpus, Label, TextLabel
from halflabel.data.labels import Classes, names_in, parse_label
from halflabel.errors import DataError, SettingError


@dataclass(frozen=True)
class Split:
    """The parts of a split; `truth` holds the removed labels of `unlabelled`, for evaluation only."""

    labelled: Corpus
    unlabelled: Corpus
    truth: Sequence[TextLabel]
    dev: Corpus
    test: Corpus
    seed: int
    fingerprint: str


def split_corpus(corpus: Corpus, *, per_class: int | None, labelled: int | None = None, unlabelled: int | None,
                 dev: float | int = 0, test: float | int = 0, seed: int) -> Split:
    """Disjoint parts: test and dev are drawn first, then the labelled texts, then the unlabelled ones.

    Give `per_class` (texts of each class) or `labelled` (texts in total, in proportion to the classes, at least one of
    each). `test` and `dev` are numbers of texts, or fractions of the labelled rows if they are floats below 1.
    `unlabelled=None` takes all remaining texts, including rows without a label. Multi-class splits are stratified, and
    under the same seed 10 per class contain the 5 per class; multi-label splits are iteratively stratified and take
    `labelled`.
    """
    if (per_class is None) == (labelled is None):
        raise SettingError("give either per_class (labelled texts of each class) or labelled (labelled texts in total)")
    if corpus.task == "multi-label" and per_class is not None:
        raise SettingError("per_class is undefined where texts have several labels; give labelled, the texts in total")
    rng = np.random.default_rng(seed)
    known = [i for i, label in enumerate(corpus.labels) if label is not None]
    order = [known[i] for i in rng.permutation(len(known))]
    sizes = {"test": _size("test", test, len(known)), "dev": _size("dev", dev, len(known))}
    if corpus.task == "multi-label":
        test_rows, dev_rows, labelled_rows = _split_multilabel(corpus, order, sizes | {"labelled": labelled or 0})
    else:
        by_class = _rows_by_class(corpus, order)
        test_rows, dev_rows = (_take_proportional(by_class, size, part, corpus.source) for part, size in sizes.items())
        labelled_rows = (_take_per_class(by_class, per_class, corpus.source) if per_class is not None else
                         _take_proportional(by_class, labelled or 0, "labelled", corpus.source, minimum=1))
    rest = sorted(set(range(len(corpus))) - {*test_rows, *dev_rows, *labelled_rows})
    if unlabelled is not None and not 0 <= unlabelled <= len(rest):
        raise SettingError(f"{corpus.source} has {len(rest)} texts left for unlabelled={unlabelled}; give 0 to "
                           f"{len(rest)}")
    pool_rows = [rest[i] for i in rng.permutation(len(rest))[:unlabelled]]
    parts = [corpus.take(sorted(rows)) for rows in (labelled_rows, pool_rows, dev_rows, test_rows)]
    pool = parts[1]
    return Split(parts[0], pool.without_labels(), pool.labels, parts[2], parts[3], seed, _fingerprint(parts))


def _size(part: str, size: float | int, total: int) -> int:
    if isinstance(size, float) and not 0 <= size < 1:
        raise SettingError(f"{part}={size} is not a fraction; give a float from 0 to below 1, or a number of texts")
    return round(size * total) if isinstance(size, float) else size


def _rows_by_class(corpus: Corpus, order: list[int]) -> dict[Label, list[int]]:
    """The rows of each class, in the order in which they will be drawn."""
    by_class: dict[Label, list[int]] = {name: [] for name in Classes.of(corpus.labels).names}
    for i in order:
        by_class[corpus.labels[i]].append(i)  # type: ignore[index]
    return by_class


def _split_multilabel(corpus: Corpus, order: list[int], sizes: dict[str, int]) -> list[list[int]]:
    Classes.of(corpus.labels)
    left = len(order)
    for part, size in sizes.items():
        if not 0 <= size <= left:
            raise SettingError(f"{corpus.source} has {left} labelled texts left for {part}={size}; give 0 to {left}")
        left -= size
    if not sizes["labelled"]:
        raise SettingError("labelled=0 leaves no labelled texts to train on; give 1 or more")
    return iterative_stratification([corpus.labels[i] for i in order], [*sizes.values(), left], order)[:-1]


def iterative_stratification(labels: Sequence[Any], sizes: Sequence[int], rows: Sequence[int]) -> list[list[int]]:
    """Rows divided into parts of exact sizes in which each label has nearly its share (Sechidis et al., 2011).

    The rarest remaining label is distributed first, each of its texts to the part that needs it most.
    """
    texts_with: dict[Any, list[int]] = {}
    for i, label in enumerate(labels):
        for name in names_in(label):
            texts_with.setdefault(name, []).append(i)
    total = max(1, sum(sizes))
    room = list(sizes)
    needed = {name: [len(texts) * size / total for size in sizes] for name, texts in texts_with.items()}
    parts: list[list[int]] = [[] for _ in sizes]
    remaining = dict.fromkeys(range(len(labels)))

    def assign(i: int, need: Sequence[float]) -> None:
        part = max((k for k in range(len(sizes)) if room[k]), key=lambda k: (need[k], room[k] / max(1, sizes[k])))
        parts[part].append(rows[i])
        room[part] -= 1
        del remaining[i]
        for name in names_in(labels[i]):
            needed[name][part] -= 1

    while texts_with := {name: left for name, texts in texts_with.items()
                         if (left := [i for i in texts if i in remaining])}:
        rarest = min(texts_with, key=lambda name: len(texts_with[name]))
        for i in texts_with[rarest]:
            assign(i, needed[rarest])
    for i in list(remaining):
        assign(i, [0.0] * len(sizes))
    return parts


def _take_per_class(by_class: dict[Label, list[int]], number: int, source: str) -> list[int]:
    if number < 1:
        raise SettingError(f"per_class={number} leaves no labelled texts to train on; give 1 or more")
    return _take(by_class, dict.fromkeys(by_class, number), "labelled", source)


def _take_proportional(by_class: dict[Label, list[int]], number: int, part: str, source: str,
                       minimum: int = 0) -> list[int]:
    """`number` rows in proportion to the classes, by largest remainders, at least `minimum` of each class."""
    total = sum(map(len, by_class.values()))
    if number < minimum * len(by_class):
        raise SettingError(f"{part}={number} is fewer than one for each of {len(by_class)} classes; give more")
    if not 0 <= number <= total:
        raise SettingError(f"{source} has {total} labelled texts left for {part}={number}; give 0 to {total}")
    if not number:
        return []
    quotients = {name: divmod(number * len(rows), total) for name, rows in by_class.items()}
    counts = {name: quotient for name, (quotient, _) in quotients.items()}
    by_remainder = sorted(by_class, key=lambda name: quotients[name][1], reverse=True)
    for name in by_remainder[: number - sum(counts.values())]:
        counts[name] += 1
    counts = {name: max(minimum, count) for name, count in counts.items()}
    while sum(counts.values()) > number:
        counts[max(counts, key=lambda name: counts[name])] -= 1
    return _take(by_class, counts, part, source)


def _take(by_class: dict[Label, list[int]], counts: dict[Label, int], part: str, source: str) -> list[int]:
    """Removes the first rows of each class and returns them."""
    taken: list[int] = []
    for name, rows in by_class.items():
        if counts[name] > len(rows):
            raise SettingError(f"{source} has {len(rows)} texts of {name!r} left for {part}, not {counts[name]}; give "
                               "a smaller number")
        taken += rows[: counts[name]]
        del rows[: counts[name]]
    return taken


def _fingerprint(parts: list[Corpus]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, part in zip(("labelled", "unlabelled", "dev", "test"), parts, strict=True):
        content = [list(part.texts), part.labels] if name != "unlabelled" else list(part.texts)
        digest.update(json.dumps([name, content], ensure_ascii=True).encode("ascii"))
    return digest.hexdigest()


class LabelledFolds:
    """A scikit-learn splitter that holds out labelled rows only; rows without a label are always in train.

    Folds are stratified by class, and iteratively stratified where texts have several labels. For `cross_val_score`,
    `GridSearchCV` and the like: `cross_val_score(clf, texts, labels, cv=LabelledFolds(5))`.
    """

    def __init__(self, n_splits: int = 5, *, random_state: int = 0) -> None:
        if n_splits < 2:
            raise SettingError(f"n_splits={n_splits} holds nothing out; give 2 or more")
        self.n_splits, self.random_state = n_splits, random_state

    def split(self, X: Sequence[str], y: Sequence[Any], groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Train rows and held-out rows of each fold."""
        labels = [parse_label(value) for value in y]
        known = [i for i, label in enumerate(labels) if label is not None]
        if len(known) < self.n_splits:
            raise DataError(f"{len(known)} labelled texts cannot be held out in {self.n_splits} folds; label more "
                            "texts, or use fewer folds")
        order = [known[i] for i in np.random.default_rng(self.random_state).permutation(len(known))]
        sizes = [len(part) for part in np.array_split(order, self.n_splits)]
        for fold in iterative_stratification([labels[i] for i in order], sizes, order):
            held_out = np.sort(fold)
            yield np.setdiff1d(np.arange(len(labels)), held_out), held_out

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds."""
        return self.n_splits
