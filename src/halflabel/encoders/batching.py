"""Batches of texts of similar length, and worker threads that share them. No torch."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from halflabel.types import Progress

WINDOW = 4096  # texts that are tokenised and sorted together, while the window before them is encoded
TOKENS = 1024  # per batch, padding included: larger batches do not fit into the processor's cache
STEP = 8  # widths in training are multiples of this, since kernels are compiled for each shape
WORKERS = 8  # at most: more would wait for each other, so each gets several threads instead

Tokenise = Callable[[Sequence[str]], list[np.ndarray]]
Window = tuple[int, list[np.ndarray]]  # the row of the first text, and the token ids of each text


class Batch(NamedTuple):
    """B texts of similar length, padded."""

    rows: np.ndarray  # (B,)
    ids: np.ndarray  # (B, T) int64
    mask: np.ndarray  # (B, T) int64, 0 for padding


def windows(tokenise: Tokenise, texts: Sequence[str]) -> Iterator[Window]:
    """Token ids of WINDOW texts at a time; the next window is tokenised in the background."""
    with ThreadPoolExecutor(1, "tokens") as background:
        pending = background.submit(tokenise, texts[:WINDOW])
        for start in range(0, len(texts), WINDOW):
            tokens = pending.result()
            pending = background.submit(tokenise, texts[start + WINDOW : start + 2 * WINDOW])
            yield start, tokens


def batches(tokens: Iterable[Window], *, padding: int, limit: int = TOKENS, texts: int = WINDOW) -> Iterator[Batch]:
    """Batches of at most `limit` tokens (unless one text has more) and `texts` texts, long texts first in a window."""
    for start, ids in tokens:
        lengths = np.array([len(text) for text in ids])
        order = np.argsort(-lengths, kind="stable")
        position = 0
        while position < len(order):
            width = max(1, int(lengths[order[position]]))
            rows = order[position : position + max(1, min(limit // width, texts))]
            yield Batch(start + rows, *pad([ids[row] for row in rows], width, padding))
            position += len(rows)


def padded_width(longest: int, limit: int) -> int:
    """The next multiple of STEP, but not beyond the encoder's limit."""
    return max(1, longest, min(-(-longest // STEP) * STEP, limit))


def pad(ids: Sequence[np.ndarray], width: int, padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and mask, (N, T) each."""
    table = np.full((len(ids), width), padding, dtype=np.int64)
    mask = np.zeros((len(ids), width), dtype=np.int64)
    for i, text in enumerate(ids):
        table[i, : len(text)] = text
        mask[i, : len(text)] = 1
    return table, mask


def run_workers(work: Callable[[Batch], None], queue: Iterator[Batch], *, workers: int, total: int,
                progress: Progress | None = None) -> None:
    """Processes all batches of the queue by worker threads, the calling thread among them.

    Threads suffice: tokenizers, torch and ONNX Runtime release the interpreter lock while they compute. An exception or
    Ctrl-C in one of them stops all of them after their current batch.
    """
    lock, stop = threading.Lock(), threading.Event()
    done = 0

    def take() -> Batch | None:
        with lock:
            return None if stop.is_set() else next(queue, None)

    def loop() -> None:
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

    with ThreadPoolExecutor(max(1, workers - 1), "encode") as pool:
        helpers = [pool.submit(loop) for _ in range(workers - 1)]
        loop()
    for helper in helpers:
        helper.result()


def worker_count(cores: int, texts: int) -> int:
    """How many workers a job of that many texts gets; the cores are divided among them."""
    return max(1, min(cores, WORKERS, texts // 16))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
