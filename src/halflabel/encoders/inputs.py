"""Batches of network inputs: which rows a step sees, and their token ids or precomputed vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from halflabel.data.columns import ArrowColumn
from halflabel.data.sequences import Concat, LazySequence, Subset, map_parts
from halflabel.encoders.bag_of_words import BagOfWords
from halflabel.encoders.batching import pad, padded_width
from halflabel.encoders.encoder import Encoder
from halflabel.encoders.inference import encode_tokens
from halflabel.encoders.shards import TokenIds, gather_rows, ragged, shards
from halflabel.randomness import generator, shuffled

POOL = 50  # batches whose texts are sorted by length together
STRETCH = 1024  # batches that are held; for those after them their pass is drawn again
Rng = np.random.Generator | None


class BatchSampler:
    """Shuffled passes over rows 0..N-1 in batches of similar length; `rows(step)` needs no history."""

    def __init__(self, lengths: np.ndarray, size: int, *, seed: int, stream: int) -> None:
        self.lengths, self.seed, self.stream = lengths, seed, stream
        self.size = min(size, len(lengths))
        self.per_pass = len(lengths) // self.size if self.size else 0
        self._drawn, self._rows = (-1, -1), np.empty((0, 0), np.int32)

    def rows(self, step: int) -> np.ndarray:
        """Rows of one step, (size,); none when there is nothing to draw from."""
        if not self.size:
            return np.empty(0, dtype=np.int64)
        number, place = divmod(step, self.per_pass)
        stretch, at = divmod(place, STRETCH)
        if (number, stretch) != self._drawn:
            self._drawn, self._rows = (number, stretch), self._draw(number, stretch)
        return self._rows[at].astype(np.int64)

    def _draw(self, number: int, stretch: int) -> np.ndarray:
        """The batches of a stretch of a pass, (STRETCH or fewer, size)."""
        rng = generator(self.seed, self.stream, number)
        rows = shuffled(rng, len(self.lengths))[: self.per_pass * self.size]
        for i in range(0, len(rows), POOL * self.size):
            chunk = rows[i : i + POOL * self.size]
            chunk[:] = chunk[np.argsort(self.lengths[chunk], kind="stable")]
        places = shuffled(rng, self.per_pass)[stretch * STRETCH : (stretch + 1) * STRETCH]
        return rows.reshape(-1, self.size)[places]


class Inputs(Protocol):
    """Serves network inputs for rows of a corpus, in one of its views (0: the text itself)."""

    lengths: np.ndarray
    width: int  # of the vectors that `encoded` gives

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: Rng = None) -> tuple[Tensor, ...]:
        """Inputs for the network; with a generator, training noise is added."""
        ...

    def encoded(self, rows: np.ndarray, encoder: Any) -> np.ndarray:
        """Vectors of rows as they are, without noise, (N, H)."""
        ...


class TokenInputs:
    """Padded token ids and mask, (N, T) each; in training a share of the tokens is dropped."""

    def __init__(self, encoder: Encoder | BagOfWords, views: Sequence[Sequence[str]], *, drop: float = 0.0,
                 folder: Path | None = None) -> None:
        self.tokens = [cached_token_ids(encoder, texts, folder) for texts in views]
        self.lengths = lengths(self.tokens[0])
        self.encoder, self.drop, self.width = encoder, drop, encoder.width
        self.special = np.array(sorted(encoder.special), dtype=np.int32)

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: Rng = None) -> tuple[Tensor, ...]:
        ids = [self.tokens[view][row] for row, view in zip(rows, views, strict=True)]
        return padded([one[self.kept(one, rng)] for one in ids], self.encoder)

    def kept(self, ids: np.ndarray, rng: Rng) -> np.ndarray:
        """Which tokens of a text stay, (T,); special ones always do."""
        if rng is None or not self.drop:
            return np.ones(len(ids), dtype=bool)
        return (rng.random(len(ids)) >= self.drop) | np.isin(ids, self.special)

    def encoded(self, rows: np.ndarray, encoder: Any) -> np.ndarray:
        """Vectors of rows, (N, H)."""
        return encode_tokens(encoder, [self.tokens[0][row] for row in rows])


class VectorInputs:
    """Rows of vectors that were computed once: V views of N rows of width H, in memory or where they lie on disk.

    In training a share of their entries is dropped.
    """

    def __init__(self, views: Sequence[Sequence[np.ndarray]], *, drop: float = 0.0) -> None:
        self.views, self.drop = list(views), drop
        self.lengths = np.broadcast_to(np.int8(1), len(self.views[0]))
        self.width = len(self.views[0][0])

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: Rng = None) -> tuple[Tensor, ...]:
        rows, views = np.asarray(rows), np.asarray(views)
        found = np.empty((len(rows), self.width), dtype=np.float32)
        for view in np.unique(views):
            found[views == view] = gather_rows(self.views[view], rows[views == view])
        if rng is not None and self.drop:
            found *= (rng.random(found.shape, dtype=np.float32) >= self.drop) / np.float32(1 - self.drop)
        return (torch.from_numpy(found),)

    def encoded(self, rows: np.ndarray, encoder: Any) -> np.ndarray:
        """The vectors themselves, (N, H)."""
        return gather_rows(self.views[0], rows)


class LazyTokens(LazySequence[np.ndarray]):
    """Token ids that are made anew at each look: of views that nobody keeps."""

    def __init__(self, encoder: Encoder | BagOfWords, texts: Sequence[str]) -> None:
        self.encoder, self.texts = encoder, texts

    def __len__(self) -> int:
        return len(self.texts)

    def row(self, i: int) -> np.ndarray:
        return self.encoder.tokens([self.texts[i]])[0]


def cached_token_ids(encoder: Encoder | BagOfWords, texts: Sequence[str], folder: Path | None) -> Sequence[np.ndarray]:
    """Token ids of each text: in memory for texts in memory, in a folder for stored texts, else made when looked at."""
    if not isinstance(texts, LazySequence):
        return encoder.tokens(texts)
    assert folder is not None, "stored texts have a folder for their tokens"

    def found(part: Sequence[str]) -> Sequence[np.ndarray]:
        if not isinstance(part, LazySequence):
            return encoder.tokens(part)
        if not isinstance(part, ArrowColumn):
            return LazyTokens(encoder, part)
        place = folder / encoder.tokenizer_fingerprint() / part.key
        return TokenIds(shards(place, part, lambda some: ragged(encoder.tokens(some))))

    return map_parts(texts, found)


def lengths(ids: Sequence[np.ndarray]) -> np.ndarray:
    """The number of tokens of each text, (N,)."""
    if isinstance(ids, TokenIds):
        return ids.lengths()
    if isinstance(ids, Subset):
        return lengths(ids.base)[ids.rows]
    if isinstance(ids, Concat):
        return np.concatenate([lengths(part) for part in ids.parts])
    return np.array([len(one) for one in ids], dtype=np.int32)


def padded(ids: Sequence[np.ndarray], encoder: Encoder | BagOfWords) -> tuple[Tensor, Tensor]:
    """Token ids and mask as rectangles, (N, T) each."""
    width = padded_width(max([1, *map(len, ids)]), encoder.max_tokens)
    table, mask = pad(ids, width, encoder.padding)
    return torch.from_numpy(table), torch.from_numpy(mask)
