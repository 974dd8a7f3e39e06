"""Where a batch of network inputs comes from: token ids, or vectors computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from halflabel.model.encoder import Encoder

Noise = np.random.Generator | None


class Source(Protocol):
    """Serves network inputs for rows of a corpus, in one of its views (0: the text itself)."""

    lengths: np.ndarray

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: Noise = None) -> tuple[Tensor, ...]:
        """Inputs for the network; with a generator, training noise is added."""
        ...


class TokenSource:
    """Padded token ids and mask, (N, T) each; in training a share of the tokens is dropped."""

    def __init__(self, encoder: Encoder, views: Sequence[Sequence[str]], *, drop: float = 0.0) -> None:
        self.tokens = [encoder.tokens(texts) for texts in views]
        self.lengths = np.array([len(ids) for ids in self.tokens[0]], dtype=np.int64)
        self.encoder, self.drop = encoder, drop
        self.special = np.array(sorted(encoder.special), dtype=np.int32)

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: Noise = None) -> tuple[Tensor, ...]:
        ids = [self.tokens[view][row] for row, view in zip(rows, views, strict=True)]
        if rng is not None and self.drop:
            ids = [self._thinned(one, rng) for one in ids]
        return padded(ids, self.encoder)

    def _thinned(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        keep = (rng.random(len(ids)) >= self.drop) | np.isin(ids, self.special)
        return ids[keep]


class VectorSource:
    """Rows of vectors that were computed once, (V, N, H); in training a share of their entries is dropped."""

    def __init__(self, views: Sequence[Tensor], *, drop: float = 0.0) -> None:
        self.vectors, self.drop = torch.stack(list(views)), drop
        self.lengths = np.ones(self.vectors.shape[1], dtype=np.int64)

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: Noise = None) -> tuple[Tensor, ...]:
        found = self.vectors[torch.from_numpy(np.asarray(views)), torch.from_numpy(np.asarray(rows))]
        if rng is not None and self.drop:
            found = found * torch.from_numpy(rng.random(found.shape, dtype=np.float32) >= self.drop) / (1 - self.drop)
        return (found,)


def padded(ids: Sequence[np.ndarray], encoder: Encoder) -> tuple[Tensor, Tensor]:
    """Token ids and mask as rectangles, (N, T) each; T is a multiple of 8, since kernels are made for each shape."""
    longest = max([1, *map(len, ids)])
    width = max(longest, min(-(-longest // 8) * 8, encoder.max_tokens))
    table = np.full((len(ids), width), encoder.padding, dtype=np.int64)
    mask = np.zeros((len(ids), width), dtype=np.int64)
    for i, one in enumerate(ids):
        table[i, : len(one)] = one
        mask[i, : len(one)] = 1
    return torch.from_numpy(table), torch.from_numpy(mask)
