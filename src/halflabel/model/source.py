"""Where a batch of network inputs comes from: token ids, or vectors computed once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from halflabel.columns import Column
from halflabel.model.bag import Bag
from halflabel.model.encode import encode_tokens
from halflabel.model.encoder import Encoder
from halflabel.model.schedule import padded_width, rectangle
from halflabel.model.stored import Ids, gathered, ragged, shards
from halflabel.sequences import Chosen, Joined, Lying, mapped

Noise = np.random.Generator | None


class Source(Protocol):
    """Serves network inputs for rows of a corpus, in one of its views (0: the text itself)."""

    lengths: np.ndarray
    width: int  # of the vectors that `encoded` gives

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: Noise = None) -> tuple[Tensor, ...]:
        """Inputs for the network; with a generator, training noise is added."""
        ...

    def encoded(self, rows: np.ndarray, encoder: Any) -> np.ndarray:
        """Vectors of rows as they are, without noise, (N, H)."""
        ...


class TokenSource:
    """Padded token ids and mask, (N, T) each; in training a share of the tokens is dropped."""

    def __init__(self, encoder: Encoder | Bag, views: Sequence[Sequence[str]], *, drop: float = 0.0,
                 folder: Path | None = None) -> None:
        self.tokens = [token_ids(encoder, texts, folder) for texts in views]
        self.lengths = lengths(self.tokens[0])
        self.encoder, self.drop, self.width = encoder, drop, encoder.width
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
    """Rows of vectors that were computed once: V views of N rows of width H, in memory or where they lie on disk.

    In training a share of their entries is dropped.
    """

    def __init__(self, views: Sequence[Sequence[np.ndarray]], *, drop: float = 0.0) -> None:
        self.views, self.drop = list(views), drop
        self.lengths = np.broadcast_to(np.int8(1), len(self.views[0]))
        self.width = len(self.views[0][0])

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: Noise = None) -> tuple[Tensor, ...]:
        rows, views = np.asarray(rows), np.asarray(views)
        found = np.empty((len(rows), self.width), dtype=np.float32)
        for view in np.unique(views):
            found[views == view] = gathered(self.views[view], rows[views == view])
        if rng is not None and self.drop:
            found *= (rng.random(found.shape, dtype=np.float32) >= self.drop) / np.float32(1 - self.drop)
        return (torch.from_numpy(found),)

    def encoded(self, rows: np.ndarray, encoder: Any) -> np.ndarray:
        """The vectors themselves, (N, H)."""
        return gathered(self.views[0], rows)


class Tokenized(Lying[np.ndarray]):
    """Token ids that are made anew at each look: of views that nobody keeps."""

    def __init__(self, encoder: Encoder | Bag, texts: Sequence[str]) -> None:
        self.encoder, self.texts = encoder, texts

    def __len__(self) -> int:
        return len(self.texts)

    def row(self, i: int) -> np.ndarray:
        return self.encoder.tokens([self.texts[i]])[0]


def token_ids(encoder: Encoder | Bag, texts: Sequence[str], folder: Path | None) -> Sequence[np.ndarray]:
    """Token ids of each text: in memory for texts in memory, in a folder for stored texts, else made when looked at."""
    if not isinstance(texts, Lying):
        return encoder.tokens(texts)
    assert folder is not None, "stored texts have a folder for their tokens"

    def found(part: Sequence[str]) -> Sequence[np.ndarray]:
        if not isinstance(part, Lying):
            return encoder.tokens(part)
        if not isinstance(part, Column):
            return Tokenized(encoder, part)
        place = folder / encoder.tokenizer_fingerprint() / part.key
        return Ids(shards(place, part, lambda some: ragged(encoder.tokens(some))))

    return mapped(texts, found)


def lengths(ids: Sequence[np.ndarray]) -> np.ndarray:
    """The number of tokens of each text, (N,)."""
    if isinstance(ids, Ids):
        return ids.lengths()
    if isinstance(ids, Chosen):
        return lengths(ids.base)[ids.rows]
    if isinstance(ids, Joined):
        return np.concatenate([lengths(part) for part in ids.parts])
    return np.array([len(one) for one in ids], dtype=np.int32)


def padded(ids: Sequence[np.ndarray], encoder: Encoder | Bag) -> tuple[Tensor, Tensor]:
    """Token ids and mask as rectangles, (N, T) each."""
    width = padded_width(max([1, *map(len, ids)]), encoder.max_tokens)
    table, mask = rectangle(ids, width, encoder.padding)
    return torch.from_numpy(table), torch.from_numpy(mask)
