"""Where a batch of network inputs comes from: token ids, or vectors computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from halflabel.model.encode import encode_tokens
from halflabel.model.encoder import Encoder
from halflabel.model.schedule import padded_width, rectangle

Noise = np.random.Generator | None


class Source(Protocol):
    """Serves network inputs for rows of a corpus, in one of its views (0: the text itself)."""

    lengths: np.ndarray

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: Noise = None) -> tuple[Tensor, ...]:
        """Inputs for the network; with a generator, training noise is added."""
        ...

    def encoded(self, rows: np.ndarray, encoder: Any) -> np.ndarray:
        """Vectors of rows as they are, without noise, (N, H)."""
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
        return padded([one[self.kept(one, rng)] for one in ids], self.encoder)

    def kept(self, ids: np.ndarray, rng: Noise) -> np.ndarray:
        """Which tokens of a text stay, (T,); special ones always do."""
        if rng is None or not self.drop:
            return np.ones(len(ids), dtype=bool)
        return (rng.random(len(ids)) >= self.drop) | np.isin(ids, self.special)

    def encoded(self, rows: np.ndarray, encoder: Any) -> np.ndarray:
        """Vectors of rows, (N, H)."""
        return encode_tokens(encoder, [self.tokens[0][row] for row in rows])


class VectorSource:
    """Rows of vectors that were computed once, (V, N, H)."""

    def __init__(self, views: Sequence[Tensor]) -> None:
        self.vectors = torch.stack(list(views))
        self.lengths = np.ones(self.vectors.shape[1], dtype=np.int64)

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: Noise = None) -> tuple[Tensor, ...]:
        return (self.vectors[torch.from_numpy(np.asarray(views)), torch.from_numpy(np.asarray(rows))],)

    def encoded(self, rows: np.ndarray, encoder: Any) -> np.ndarray:
        """The vectors themselves, (N, H)."""
        return self.vectors[0, torch.from_numpy(rows)].numpy()


def padded(ids: Sequence[np.ndarray], encoder: Encoder) -> tuple[Tensor, Tensor]:
    """Token ids and mask as rectangles, (N, T) each."""
    width = padded_width(max([1, *map(len, ids)]), encoder.max_tokens)
    table, mask = rectangle(ids, width, encoder.padding)
    return torch.from_numpy(table), torch.from_numpy(mask)
