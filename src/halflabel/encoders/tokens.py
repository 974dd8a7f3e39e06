"""Token ids: by a tokenizer of transformers or by tokenizer.json alone, in batches of similar length that worker
threads share. No torch, no transformers.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from halflabel.errors import ModelError
from halflabel.integrity import COPY_OR_RETRAIN, read_json
from halflabel.types import Progress

TOKENIZER_FILE, TOKENIZER_SETTINGS = "tokenizer.json", "tokenizer_config.json"
WORD_STARTS = ("▁", "Ġ")  # marks of SentencePiece and byte-level BPE; WordPiece marks the other pieces, as ##ing
CHARACTERS = 32  # per token that are tokenised: what is far beyond the limit would be truncated anyway
WINDOW = 4096  # texts that are tokenised and sorted together, while the window before them is encoded
TOKENS = 1024  # per batch, padding included: larger batches do not fit into the processor's cache
STEP = 8  # widths in training are multiples of this, since kernels are compiled for each shape
WORKERS = 8  # at most: more would wait for each other, so each gets several threads instead
Tokenise = Callable[[Sequence[str]], list[np.ndarray]]
Window = tuple[int, list[np.ndarray]]  # the row of the first text, and the token ids of each text


def whole_words(tokenizer: Any) -> list[str]:
    """The tokens that are words of at least two letters, in the order of their ids."""
    vocabulary = getattr(tokenizer, "backend_tokenizer", tokenizer).get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    starts = [token[1:] for token in tokens if token.startswith(WORD_STARTS)]
    return [token for token in starts or tokens if len(token) > 1 and token.isalpha()]


def token_ids(tokenizer: Any, texts: Sequence[str], limit: int, prefix: str = "") -> list[np.ndarray]:
    """Token ids of each text after the prefix, truncated at the limit, special tokens included."""
    if not texts:
        return []
    encoded = tokenizer([prefix + text[: CHARACTERS * limit] for text in texts], truncation=True, max_length=limit,
                        add_special_tokens=True, return_attention_mask=False, return_token_type_ids=False)["input_ids"]
    return [np.asarray(ids, dtype=np.int32) for ids in encoded]


class Tokenizer:
    """A tokenizer.json with the interface of the transformers tokenizer that wrote it; its limit is fixed."""

    def __init__(self, folder: Path, limit: int) -> None:
        from tokenizers import Tokenizer as Backend

        file, settings = folder / TOKENIZER_FILE, folder / TOKENIZER_SETTINGS
        try:
            self.backend_tokenizer = Backend.from_file(str(file))
        except Exception as error:  # the library raises plain Exception
            raise ModelError(f"{file} is not a complete tokenizer ({error}); {COPY_OR_RETRAIN}") from error
        self.settings: dict[str, Any] = read_json(settings) if settings.exists() else {}
        self.backend_tokenizer.no_padding()
        try:
            self.backend_tokenizer.enable_truncation(limit, direction=self.settings.get("truncation_side", "right"))
        except (ValueError, TypeError, OverflowError) as error:
            raise ModelError(f"{settings} has an unknown truncation_side ({error}); {COPY_OR_RETRAIN}") from error
        self.limit = limit

    def __call__(self, texts: list[str], *, max_length: int, **defaults: bool) -> dict[str, list[list[int]]]:
        assert max_length == self.limit, "the limit is set once, since several threads use the tokenizer"
        return {"input_ids": [encoding.ids for encoding in self.backend_tokenizer.encode_batch_fast(texts)]}

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())

    @property
    def pad_token_id(self) -> int | None:
        token = self.settings.get("pad_token")
        name = token.get("content") if isinstance(token, dict) else token
        return None if name is None else self.backend_tokenizer.token_to_id(name)

    def save_pretrained(self, folder: Path) -> None:
        self.backend_tokenizer.save(str(folder / TOKENIZER_FILE))
        settings = json.dumps(self.settings, indent=2, ensure_ascii=False)
        (folder / TOKENIZER_SETTINGS).write_text(settings, encoding="utf-8")


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
