"""Named random streams: under one seed, no two purposes share their random numbers."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """A purpose that random numbers are drawn for."""

    LABELLED_BATCHES = 1
    UNLABELLED_BATCHES = 2
    EPOCH_SAMPLE = 3
    STEP = 4
    CLOSED_FORM = 5
    HELD_OUT_HALVES = 6
    POOL_SUBSAMPLE = 7
    DECISION_SAMPLE = 8
    DISTILLATION = 10
    SUGGESTIONS = 11
    LABEL_ERRORS = 12
    ENCODER_CHOICE = 13
    LABELLING = 14
    WRONG_LABELS = 15
    UNKNOWN_CLASSES = 16
    CONTRAST = 17
    EPOCH_BATCHES = 100  # plus the number of the epoch


def generator(seed: int, stream: int, *position: int) -> np.random.Generator:
    """The generator of a stream at a position, such as a step or an epoch: it depends on nothing drawn before."""
    return np.random.default_rng([seed, int(stream), *position])


def shuffled(rng: np.random.Generator, number: int) -> np.ndarray:
    """0..N-1 in random order, (N,), as int32, since there may be many."""
    rows = np.arange(number, dtype=np.int32)
    rng.shuffle(rows)
    return rows
