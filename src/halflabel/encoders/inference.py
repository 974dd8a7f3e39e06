"""Vectors of many texts, by worker threads that share one copy of the weights."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from halflabel.devices import to_device
from halflabel.encoders.text_encoder import Backend, TextEncoder
from halflabel.encoders.tokens import TOKENS, Batch, Window, batches, run_workers, windows, worker_count
from halflabel.errors import SettingError
from halflabel.notices import NoticeWarning
from halflabel.types import Progress

SMALL = 32  # texts: a smaller job is encoded in fp32, since casting and checking the weights would take longer
GPU_TOKENS = 32_768  # per batch
TOKEN_WIDTH = 1024  # times the tokens of a batch: at most so many numbers in its vectors; bags of words are wide
NUMBERS = 2**24  # in the vectors that are in memory at the same time


def encode(encoder: TextEncoder, texts: Sequence[str], progress: Progress | None = None, *,
           backend: Backend = "torch", dtype: torch.dtype | None = None, consistent: bool = False) -> np.ndarray:
    """Vectors of texts, (N, H) float32; a `dtype` prescribes the precision.

    Small jobs are encoded in fp32, unless precision is to be `consistent` whatever the size of the job.
    """
    return encoder.join([_encode(part, windows(part.tokens, texts), len(texts), progress, backend, dtype,
                                 consistent=consistent) for part in encoder.parts])


def encode_tokens(encoder: TextEncoder, tokens: list[np.ndarray]) -> np.ndarray:
    """Vectors of texts by their token ids, (N, H) float32."""
    return _encode(encoder, [(0, tokens)], len(tokens))


def texts_at_once(width: int, limit: int) -> int:
    """How many texts, at most `limit`, may have vectors of that width in memory at the same time."""
    return max(1, min(limit, NUMBERS // width))


def _encode(encoder: TextEncoder, tokens: Iterable[Window], total: int, progress: Progress | None = None,
            backend: Backend = "torch", dtype: torch.dtype | None = None, *, consistent: bool = False) -> np.ndarray:
    vectors = np.empty((total, encoder.width), dtype=np.float32)
    tokens = iter(tokens)
    first = next(tokens, (0, []))
    forward = encoder.inference_forward(first[1], backend=backend, dtype=dtype, few=total < SMALL and not consistent)

    def work(rows: np.ndarray, ids: Tensor, mask: Tensor) -> None:
        vectors[rows] = forward(ids, mask).cpu().numpy()

    _run_batches(encoder, chain([first], tokens), total, work, progress, one_worker=backend == "compile")
    return vectors


def _run_batches(encoder: TextEncoder, tokens: Iterable[Window], total: int,
                 work: Callable[[np.ndarray, Tensor, Tensor], None], progress: Progress | None = None, *,
                 one_worker: bool = False) -> None:
    """Calls `work` with the rows, token ids and mask of every batch, without gradients, on the encoder's device.

    A batch that does not fit into the memory of a GPU is halved, and so are all after it.
    """
    device = encoder.device
    gpu = device.type != "cpu"
    limit = GPU_TOKENS if gpu else TOKENS
    parts = 1  # of a batch

    @torch.inference_mode()
    def on_device(batch: Batch) -> None:
        nonlocal parts
        start = 0
        while start < len(batch.rows):
            part = slice(start, start + max(1, len(batch.rows) // parts))
            ids, mask = (to_device(torch.from_numpy(x[part]), device) for x in (batch.ids, batch.mask))
            try:
                work(batch.rows[part], ids, mask)
                start = part.stop
            except torch.OutOfMemoryError:
                if part.stop - part.start == 1:
                    raise SettingError(f"one text of {ids.shape[1]} tokens does not fit into the memory of {device}; "
                                       "choose a smaller encoder, or cpu as the device.") from None
                parts *= 2
                warnings.warn(NoticeWarning(f"{device} is out of memory; encoding in batches of {limit // parts:,} "
                                            "tokens from now on"), stacklevel=2)

    workers = 1 if gpu or one_worker else worker_count(torch.get_num_threads(), total)
    queue = batches(tokens, padding=encoder.padding, limit=limit, texts=limit * TOKEN_WIDTH // encoder.width)
    with threads_for(workers):
        run_workers(on_device, queue, workers=workers, total=total, progress=progress)


_jobs: list[int] = []  # torch's threads before each job that is running
_jobs_lock = threading.Lock()


@contextmanager
def threads_for(workers: int) -> Iterator[None]:
    """Divides torch's threads among the workers; the last of several jobs at the same time restores their number."""
    with _jobs_lock:
        _jobs.append(_jobs[0] if _jobs else torch.get_num_threads())
        torch.set_num_threads(max(1, _jobs[0] // workers))
    try:
        yield
    finally:
        with _jobs_lock:
            before = _jobs.pop()
            if not _jobs:
                torch.set_num_threads(before)
