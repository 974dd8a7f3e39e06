"""A corpus is drawn into labelled, unlabelled, dev and test parts, the same for the same seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halflabel.data.corpus import Corpus, Label
from halflabel.data.labels import Classes, label_of
from halflabel.errors import BadInput


@dataclass(frozen=True)
class Split:
    """The parts of one draw; `truth` holds the hidden labels of `unlabelled`, for measuring only."""

    labelled: Corpus
    unlabelled: Corpus
    truth: Sequence[Label | tuple[Label, ...] | None]
    dev: Corpus
    test: Corpus
    seed: int
    fingerprint: str


def split_corpus(
    corpus: Corpus,
    *,
    per_class: int | None,
    labelled: int | None = None,
    unlabelled: int | None,
    dev: float | int = 0,
    test: float | int = 0,
    seed: int,
) -> Split:
    """Parts without overlap: test and dev first, then the labelled texts, then the pool from what is left.

    Give `per_class` (texts of each class) or `labelled` (texts in all, in the proportions of the classes, at
    least one of each). `test` and `dev` are numbers of texts, or shares of the labelled rows if floats below 1.
    `unlabelled=None` takes all that is left, rows without a label included. Multi-class draws are stratified, and
    under one seed 10 per class hold the 5 per class; multi-label draws are iterative-stratified and take `labelled`.
    """
    if (per_class is None) == (labelled is None):
        raise BadInput("give either per_class or labelled: texts of each class, or labelled texts in all")
    if corpus.task == "multi-label" and per_class is not None:
        raise BadInput("per_class means nothing where texts have several labels; give labelled, texts in all")
    rng = np.random.default_rng(seed)
    known = [i for i, label in enumerate(corpus.labels) if label is not None]
    order = [known[i] for i in rng.permutation(len(known))]
    sizes = {"test": _count("test", test, len(known)), "dev": _count("dev", dev, len(known))}
    if corpus.task == "multi-label":
        test_rows, dev_rows, labelled_rows = _iterative(corpus, order, sizes | {"labelled": labelled or 0})
    else:
        queues = _queues(corpus, order)
        test_rows, dev_rows = (_proportional(queues, size, part, corpus.source) for part, size in sizes.items())
        labelled_rows = (_each(queues, per_class, corpus.source) if per_class is not None else
                         _proportional(queues, labelled or 0, "labelled", corpus.source, least=1))
    rest = sorted(set(range(len(corpus))) - {*test_rows, *dev_rows, *labelled_rows})
    if unlabelled is not None and not 0 <= unlabelled <= len(rest):
        left = f"{corpus.source} has {len(rest)} texts left for unlabelled={unlabelled}"
        raise BadInput(f"{left}; ask for 0 to {len(rest)}")
    pool_rows = [rest[i] for i in rng.permutation(len(rest))[:unlabelled]]
    parts = [corpus.take(sorted(rows)) for rows in (labelled_rows, pool_rows, dev_rows, test_rows)]
    pool = parts[1]
    return Split(parts[0], pool.without_labels(), pool.labels, parts[2], parts[3], seed, _fingerprint(parts))


def _count(part: str, share: float | int, whole: int) -> int:
    if isinstance(share, float) and not 0 <= share < 1:
        raise BadInput(f"{part}={share} is not a share; give a float from 0 to below 1, or a number of texts")
    return round(share * whole) if isinstance(share, float) else share


def _queues(corpus: Corpus, order: list[int]) -> dict[Label, list[int]]:
    """Rows in the order in which they will be drawn, a queue for each class."""
    classes = Classes.of(corpus.labels)
    queues: dict[Label, list[int]] = {name: [] for name in classes.names}
    for i in order:
        queues[corpus.labels[i]].append(i)  # type: ignore[index]
    return queues


def _iterative(corpus: Corpus, order: list[int], sizes: dict[str, int]) -> list[list[int]]:
    Classes.of(corpus.labels)
    left = len(order)
    for part, size in sizes.items():
        if not 0 <= size <= left:
            raise BadInput(f"{corpus.source} has {left} labelled texts left for {part}={size}; ask for 0 to {left}")
        left -= size
    if not sizes["labelled"]:
        raise BadInput("labelled=0 leaves nothing to learn from; give 1 or more")
    return iterative_stratification([corpus.labels[i] for i in order], [*sizes.values(), left], order)[:-1]


def iterative_stratification(labels: Sequence[Any], sizes: Sequence[int], rows: Sequence[int]) -> list[list[int]]:
    """Rows dealt out into parts of exact sizes in which each label has nearly its share (Sechidis et al., 2011).

    The rarest label that is left is dealt first, each of its texts to the part that lacks it most.
    """
    holders: dict[Any, list[int]] = {}
    for i, label in enumerate(labels):
        for name in label if isinstance(label, tuple) else (label,):
            holders.setdefault(name, []).append(i)
    whole = max(1, sum(sizes))
    room = list(sizes)
    wish = {name: [len(some) * size / whole for size in sizes] for name, some in holders.items()}
    parts: list[list[int]] = [[] for _ in sizes]
    waiting = dict.fromkeys(range(len(labels)))

    def deal(i: int, wishes: Sequence[float]) -> None:
        part = max((k for k in range(len(sizes)) if room[k]), key=lambda k: (wishes[k], room[k] / max(1, sizes[k])))
        parts[part].append(rows[i])
        room[part] -= 1
        del waiting[i]
        for name in labels[i] if isinstance(labels[i], tuple) else (labels[i],):
            wish[name][part] -= 1

    while holders := {name: some for name, old in holders.items() if (some := [i for i in old if i in waiting])}:
        rarest = min(holders, key=lambda name: len(holders[name]))
        for i in holders[rarest]:
            deal(i, wish[rarest])
    for i in list(waiting):
        deal(i, [0.0] * len(sizes))
    return parts


def _each(queues: dict[Label, list[int]], number: int, source: str) -> list[int]:
    if number < 1:
        raise BadInput(f"per_class={number} leaves nothing to learn from; give 1 or more")
    return _take(queues, dict.fromkeys(queues, number), "labelled", source)


def _proportional(
    queues: dict[Label, list[int]], number: int, part: str, source: str, least: int = 0
) -> list[int]:
    """`number` rows in the proportions of the queues, by largest remainders, `least` of each at the least."""
    whole = sum(map(len, queues.values()))
    if number < least * len(queues):
        raise BadInput(f"{part}={number} is fewer than one for each of {len(queues)} classes; give more")
    if not 0 <= number <= whole:
        raise BadInput(f"{source} has {whole} labelled texts left for {part}={number}; ask for 0 to {whole}")
    if not number:
        return []
    floors = {name: divmod(number * len(queue), whole) for name, queue in queues.items()}
    shares = {name: floor for name, (floor, _) in floors.items()}
    by_remainder = sorted(queues, key=lambda name: floors[name][1], reverse=True)
    for name in by_remainder[: number - sum(shares.values())]:
        shares[name] += 1
    shares = {name: max(least, share) for name, share in shares.items()}
    while sum(shares.values()) > number:
        shares[max(shares, key=lambda name: shares[name])] -= 1
    return _take(queues, shares, part, source)


def _take(queues: dict[Label, list[int]], shares: dict[Label, int], part: str, source: str) -> list[int]:
    rows: list[int] = []
    for name, queue in queues.items():
        share = shares[name]
        if share > len(queue):
            left = f"{source} has {len(queue)} texts of {name!r} left for {part}, not {share}"
            raise BadInput(f"{left}; ask for fewer")
        rows += queue[:share]
        del queue[:share]
    return rows


def _fingerprint(parts: list[Corpus]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, part in zip(("labelled", "unlabelled", "dev", "test"), parts, strict=True):
        content = [list(part.texts), part.labels] if name != "unlabelled" else list(part.texts)
        digest.update(json.dumps([name, content], ensure_ascii=True).encode("ascii"))
    return digest.hexdigest()


class LabelledFolds:
    """A scikit-learn splitter: labelled rows are held out in turn, rows without a label are always in train.

    Folds are stratified by class, iterative-stratified where texts have several labels. For `cross_val_score`,
    `GridSearchCV` and their like: `cross_val_score(clf, texts, labels, cv=LabelledFolds(5))`.
    """

    def __init__(self, n_splits: int = 5, *, random_state: int = 0) -> None:
        if n_splits < 2:
            raise BadInput(f"n_splits={n_splits} holds nothing out; give 2 or more")
        self.n_splits, self.random_state = n_splits, random_state

    def split(self, X: Sequence[str], y: Sequence[Any], groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows to train on and rows to score, a pair for each fold."""
        labels = [label_of(value) for value in y]
        known = [i for i, label in enumerate(labels) if label is not None]
        if len(known) < self.n_splits:
            raise BadInput(f"{len(known)} labelled texts cannot be held out in {self.n_splits} folds; label more, or "
                           "ask for fewer folds")
        order = [known[i] for i in np.random.default_rng(self.random_state).permutation(len(known))]
        sizes = [len(part) for part in np.array_split(order, self.n_splits)]
        for held in iterative_stratification([labels[i] for i in order], sizes, order):
            out = np.sort(held)
            yield np.setdiff1d(np.arange(len(labels)), out), out

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """How many folds there are."""
        return self.n_splits
