"""Draws: which training texts are labelled, which are the pool; a function of corpus, numbers and seed alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from halflabel.data.corpus import Corpus
from halflabel.errors import BadInput


@dataclass(frozen=True)
class Sample:
    """A labelled part and a pool; `truth` is for measuring alone."""

    labelled: Corpus
    pool: Corpus
    truth: list[Any]
    rest: Corpus  # training texts in neither: for choosing, never the test set


def draw(train: Corpus, per_class: int, unlabelled: int, seed: int) -> Sample:
    """`per_class` labelled texts of each class, then `unlabelled` others; nothing else depends on the seed."""
    taken: dict[Any, int] = {}
    labelled, others = [], []
    for row in shuffled(train, seed):
        label = train.labels[row]
        if taken.get(label, 0) < per_class:
            taken[label] = taken.get(label, 0) + 1
            labelled.append(row)
        else:
            others.append(row)
    return parted(train, labelled, others, unlabelled)


def draw_any(train: Corpus, labelled: int, unlabelled: int, seed: int) -> Sample:
    """`labelled` texts at random, whatever their labels, then `unlabelled` others, or all that are left."""
    order = shuffled(train, seed)
    return parted(train, order[:labelled], order[labelled:], unlabelled)


def shuffled(train: Corpus, seed: int) -> list[int]:
    """Rows in the order of the seed: with more labels, a draw holds those of the same seed with fewer."""
    return [int(row) for row in np.random.default_rng([17, seed]).permutation(len(train))]


def parted(train: Corpus, labelled: list[int], others: list[int], unlabelled: int) -> Sample:
    pool = train.take(others[:unlabelled])
    return Sample(train.take(labelled), pool.without_labels(), list(pool.labels), train.take(others[unlabelled:]))


def check_enough(found: Sample, train: Corpus, *, per_class: int, unlabelled: int, dev: int) -> None:
    """Refuses a draw that is smaller than asked for: figures of it would stand in the wrong column."""
    if per_class:
        counts = {label: found.labelled.labels.count(label) for label in dict.fromkeys(train.labels)}
        for label, count in counts.items():
            if count < per_class:
                raise BadInput(f"{train.source} has {count} texts of {label!r}, not {per_class}; ask for fewer")
    if len(found.pool) < unlabelled or len(found.rest) < dev:
        left = len(found.pool) + len(found.rest)
        asked = f"{unlabelled:,} unlabelled" + (f" and {dev:,} dev texts" if dev else " texts")
        raise BadInput(f"{train.source} has {left:,} training texts beside the labelled ones, too few for {asked}; "
                       "ask for fewer")
