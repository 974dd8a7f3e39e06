"""Little padding, all cores: texts in batches of similar length that several workers take from one list. No torch."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from halflabel.types import Progress

WINDOW = 4096  # texts that are tokenised and sorted together, while those before them are encoded
TOKENS = 1024  # in a batch, padding included: larger ones leave the processor's cache
STEP = 8  # widths in training are multiples of this, since kernels are made for each shape
WORKERS = 8  # at most: beyond that they wait for each other, and each gets several threads instead

Tokenise = Callable[[Sequence[str]], list[np.ndarray]]
Window = tuple[int, list[np.ndarray]]  # the first text's place, and the token ids of each text


class Batch(NamedTuple):
    """B texts of similar length as rectangles."""

    rows: np.ndarray  # (B,) places of the texts
    ids: np.ndarray  # (B, T) int64
    mask: np.ndarray  # (B, T) int64, 0 where there is padding


def windows(tokenise: Tokenise, texts: Sequence[str]) -> Iterator[Window]:
    """Token ids of WINDOW texts at a time; the next ones are tokenised while these are worked on."""
    with ThreadPoolExecutor(1, "tokens") as ahead:
        waiting = ahead.submit(tokenise, texts[:WINDOW])
        for start in range(0, len(texts), WINDOW):
            tokens = waiting.result()
            waiting = ahead.submit(tokenise, texts[start + WINDOW : start + 2 * WINDOW])
            yield start, tokens


def batches(found: Iterable[Window], *, padding: int, tokens: int = TOKENS) -> Iterator[Batch]:
    """Batches of at most `tokens` tokens (one text may have more), long texts first within a window."""
    for start, ids in found:
        lengths = np.array([len(one) for one in ids])
        order = np.argsort(-lengths, kind="stable")
        place = 0
        while place < len(order):
            width = max(1, int(lengths[order[place]]))
            rows = order[place : place + max(1, tokens // width)]
            yield Batch(start + rows, *pad([ids[row] for row in rows], width, padding))
            place += len(rows)


def padded_width(longest: int, limit: int) -> int:
    """The next multiple of STEP, but never beyond the encoder's limit."""
    return max(1, longest, min(-(-longest // STEP) * STEP, limit))


def pad(ids: Sequence[np.ndarray], width: int, padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and mask, (N, T) each."""
    table = np.full((len(ids), width), padding, dtype=np.int64)
    mask = np.zeros((len(ids), width), dtype=np.int64)
    for i, one in enumerate(ids):
        table[i, : len(one)] = one
        mask[i, : len(one)] = 1
    return table, mask


def run_workers(work: Callable[[Batch], None], todo: Iterator[Batch], *, workers: int, total: int,
          progress: Progress | None = None) -> None:
    """Lets workers, the calling thread among them, take batches until none is left.

    Threads are enough: tokenizers, torch and ONNX Runtime let go of the interpreter while they compute. A failure or
    Ctrl-C in one of them ends all, after the batch in hand.
    """
    lock, stop = threading.Lock(), threading.Event()
    done = 0

    def take() -> Batch | None:
        with lock:
            return None if stop.is_set() else next(todo, None)

    def labour() -> None:
        nonlocal done
        try:
            while (batch := take()) is not None:
                work(batch)
                with lock:
                    done += len(batch.rows)
                    if progress:
                        progress(done, total)
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(max(1, workers - 1), "encode") as others:
        helpers = [others.submit(labour) for _ in range(workers - 1)]
        labour()
    for helper in helpers:
        helper.result()


def worker_count(cores: int, texts: int) -> int:
    """How many workers a job of that many texts is worth; the cores are dealt out to them."""
    return max(1, min(cores, WORKERS, texts // 16))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
