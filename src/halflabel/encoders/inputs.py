"""Network inputs of a step: which rows it trains on, and their token ids or cached vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from halflabel.data.corpus import Concat, Subset
from halflabel.encoders.cache import EncoderCache, TokenIds
from halflabel.encoders.inference import encode_tokens
from halflabel.encoders.text_encoder import TextEncoder
from halflabel.encoders.tokens import pad, padded_width
from halflabel.randomness import generator, shuffled

SORTED_BATCHES = 50  # whose texts are sorted by length together
STRETCH = 1024  # batches in memory; those of the next stretch are sampled when they are needed
Rng = np.random.Generator | None


class BatchSampler:
    """Shuffled passes over rows 0..N-1 in batches of similar length; `rows(step)` does not depend on earlier calls."""

    def __init__(self, lengths: np.ndarray, size: int, *, seed: int, stream: int) -> None:
        self.lengths, self.seed, self.stream = lengths, seed, stream
        self.size = min(size, len(lengths))
        self.per_pass = len(lengths) // self.size if self.size else 0
        self._sampled, self._rows = (-1, -1), np.empty((0, 0), np.int32)

    def rows(self, step: int) -> np.ndarray:
        """Rows of one step, (size,); empty if there are no texts."""
        if not self.size:
            return np.empty(0, dtype=np.int64)
        number, batch = divmod(step, self.per_pass)
        stretch, position = divmod(batch, STRETCH)
        if (number, stretch) != self._sampled:
            self._sampled, self._rows = (number, stretch), self._sample(number, stretch)
        return self._rows[position].astype(np.int64)

    def _sample(self, number: int, stretch: int) -> np.ndarray:
        """The batches of a stretch of a pass, (STRETCH or fewer, size)."""
        rng = generator(self.seed, self.stream, number)
        rows = shuffled(rng, len(self.lengths))[: self.per_pass * self.size]
        for i in range(0, len(rows), SORTED_BATCHES * self.size):
            chunk = rows[i : i + SORTED_BATCHES * self.size]
            chunk[:] = chunk[np.argsort(self.lengths[chunk], kind="stable")]
        order = shuffled(rng, self.per_pass)[stretch * STRETCH : (stretch + 1) * STRETCH]
        return rows.reshape(-1, self.size)[order]


class Inputs(Protocol):
    """Network inputs for rows of a corpus, in one of its views (0: the text itself)."""

    lengths: np.ndarray  # (N,) tokens
    width: int  # of the vectors that `encoded` returns

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: Rng = None) -> tuple[Tensor, ...]:
        """Inputs for the network; with a generator, training noise is added."""
        ...

    def encoded(self, rows: np.ndarray, encoder: Any) -> np.ndarray:
        """Vectors of rows without noise, (N, H)."""
        ...


class TokenInputs:
    """Padded token ids and mask, (N, T) each; in training long texts are cut and a share of the tokens is dropped.

    Only pools on disk need a cache.
    """

    def __init__(self, encoder: TextEncoder, views: Sequence[Sequence[str]], *, drop: float = 0.0, limit: int = 0,
                 cache: EncoderCache | None = None) -> None:
        self.tokens = [encoder.tokens(texts) if cache is None else cache.token_ids(texts) for texts in views]
        self.lengths = lengths(self.tokens[0])
        self.encoder, self.drop, self.limit, self.width = encoder, drop, limit, encoder.width
        self.special = np.array(sorted(encoder.special), dtype=np.int32)

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: Rng = None) -> tuple[Tensor, ...]:
        ids = [self.tokens[view][row] for row, view in zip(rows, views, strict=True)]
        return padded([text[self.kept(text, rng)] for text in ids], self.encoder)

    def kept(self, ids: np.ndarray, rng: Rng) -> np.ndarray:
        """Which tokens of a text are neither cut nor dropped, (T,); the last one, and special ones, never are."""
        kept = np.ones(len(ids), dtype=bool)
        if rng is None:
            return kept
        if self.drop:
            kept = (rng.random(len(ids)) >= self.drop) | np.isin(ids, self.special)
        if self.limit:
            kept[self.limit - 1 : -1] = False
        return kept

    def encoded(self, rows: np.ndarray, encoder: Any) -> np.ndarray:
        """Vectors of rows, (N, H)."""
        return encode_tokens(encoder, [self.tokens[0][row] for row in rows])


class VectorInputs:
    """Precomputed vectors, N rows of width H for each view, in memory or on disk.

    In training a share of their entries is dropped.
    """

    def __init__(self, views: Sequence[Sequence[np.ndarray]], *, drop: float = 0.0) -> None:
        self.views, self.drop = list(views), drop
        self.lengths = np.broadcast_to(np.int8(1), len(self.views[0]))
        self.width = len(self.views[0][0])

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: Rng = None) -> tuple[Tensor, ...]:
        rows, views = np.asarray(rows), np.asarray(views)
        vectors = np.empty((len(rows), self.width), dtype=np.float32)
        for view in np.unique(views):
            vectors[views == view] = gather_rows(self.views[view], rows[views == view])
        if rng is not None and self.drop:
            vectors *= (rng.random(vectors.shape, dtype=np.float32) >= self.drop) / np.float32(1 - self.drop)
        return (torch.from_numpy(vectors),)

    def encoded(self, rows: np.ndarray, encoder: Any) -> np.ndarray:
        """The vectors themselves, (N, H)."""
        return gather_rows(self.views[0], rows)


def lengths(ids: Sequence[np.ndarray]) -> np.ndarray:
    """The number of tokens of each text, (N,)."""
    if isinstance(ids, TokenIds):
        return ids.lengths()
    if isinstance(ids, Subset):
        return lengths(ids.base)[ids.rows]
    if isinstance(ids, Concat):
        return np.concatenate([lengths(part) for part in ids.parts])
    return np.array([len(text) for text in ids], dtype=np.int32)


def padded(ids: Sequence[np.ndarray], encoder: TextEncoder) -> tuple[Tensor, Tensor]:
    """Token ids and mask as tensors, (N, T) each."""
    width = padded_width(max([1, *map(len, ids)]), encoder.max_tokens)
    table, mask = pad(ids, width, encoder.padding)
    return torch.from_numpy(table), torch.from_numpy(mask)


def gather_rows(rows: Sequence[np.ndarray], indices: Any) -> np.ndarray:
    """Some rows as one array, (M, H)."""
    if isinstance(rows, np.ndarray):
        return rows[np.asarray(indices)]
    return np.stack([rows[int(i)] for i in indices])
