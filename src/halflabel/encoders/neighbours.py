"""The vote of neighbours: labels of the pool texts that are nearest to a text. No torch, scipy or scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halflabel.arrays import Floats
from halflabel.errors import ModelError
from halflabel.integrity import read_arrays

Ints = NDArray[np.integer]

NEIGHBOURS = 15
FLOOR = 0.01  # added to the shares of labels among the neighbours, so that they have logarithms
MAX_TEXTS, MAX_NUMBERS = 10_000, 1 << 23  # pool texts that are kept, and the numbers of all: 16 MB in float16
SAME = 0.999  # cosine from which on two texts are the same, though their vectors differ by rounding
GROUP = 32  # texts of which the nearest is found first
BLOCK = 1024  # texts whose similarities to all kept texts are in memory at a time


@dataclass(frozen=True, eq=False)
class NeighbourVote:
    """Logits of classes: `scale` times the logarithm of their share among the nearest texts.

    Vectors are compared by their direction from the centre, after they were scaled to unit length. A neighbour counts
    as much as it is nearer than the first text that is none any more: so a vote does not jump if a vector differs by
    rounding.
    """

    centre: Floats  # (H,) of the texts
    vectors: Floats  # (N, H) of unit length, seen from there
    labels: Floats  # (N, K) soft labels
    scale: float = 1.0
    skips_itself: bool = False  # whether a text that is one of these is no neighbour of itself

    @classmethod
    def of(cls, h: NDArray[Any], labels: NDArray[Any]) -> NeighbourVote:
        """Texts with vectors h (N, H) and soft labels (N, K)."""
        centre = unit(h).mean(axis=0, dtype=np.float64).astype(np.float32)
        return cls(centre, unit(unit(h) - centre), labels.astype(np.float32))

    def logits(self, h: NDArray[Any]) -> Floats:
        """Vectors (M, H) -> (M, K)."""
        logits = np.empty((len(h), self.labels.shape[1]), np.float32)
        nearest = min(NEIGHBOURS, len(self.vectors) - 1)
        for start in range(0, len(h), BLOCK):
            cosines = unit(unit(h[start : start + BLOCK]) - self.centre) @ self.vectors.T
            if self.skips_itself:
                cosines[cosines > SAME] = -1.0
            rows = largest(cosines, nearest + 1)
            cosines = np.take_along_axis(cosines, rows, axis=1)
            weights = cosines - cosines.min(axis=1, keepdims=True) + np.float32(1e-6)
            shares = np.einsum("mn,mnk->mk", weights / weights.sum(axis=1, keepdims=True), self.labels[rows])
            logits[start : start + BLOCK] = np.float32(self.scale) * np.log(shares + np.float32(FLOOR))
        return logits

    def without(self, rows: Ints) -> NeighbourVote:
        """The vote without some of its texts."""
        kept = np.setdiff1d(np.arange(len(self.vectors)), rows)
        return replace(self, vectors=self.vectors[kept], labels=self.labels[kept])

    def scaled(self, factor: float) -> NeighbourVote:
        """The vote whose logits are `factor` times those of this one."""
        return replace(self, scale=factor * self.scale)

    def as_stored(self) -> NeighbourVote:
        """The vote as it is after a file has rounded its numbers."""
        return _from_tensors(self.tensors())

    def tensors(self) -> dict[str, NDArray[Any]]:
        """What a file keeps of it."""
        return {"centre": self.centre, "vectors": self.vectors.astype(np.float16),
                "labels": self.labels.astype(np.float16), "scale": np.array([self.scale], np.float32)}


def _from_tensors(tensors: dict[str, NDArray[Any]]) -> NeighbourVote:
    return NeighbourVote(tensors["centre"], tensors["vectors"].astype(np.float32),
                         tensors["labels"].astype(np.float32), float(tensors["scale"][0]))


def unit(h: NDArray[Any]) -> Floats:
    """Vectors (N, H) scaled to length one."""
    h = h.astype(np.float32)
    return np.asarray(h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12), np.float32)


def largest(values: NDArray[np.floating], number: int) -> Ints:
    """Columns of the largest values in each row, (N, M) -> (N, number), in any order.

    Columns are dealt to groups, and only those groups are searched whose largest values are the largest: the largest
    values are in them. That takes a fifth of the time of searching all columns.
    """
    groups = values.shape[1] // GROUP
    if groups <= number:
        return np.argpartition(values, values.shape[1] - number, axis=1)[:, values.shape[1] - number :]
    dealt = groups * GROUP
    best = values[:, :dealt].reshape(len(values), GROUP, groups).max(axis=1)
    chosen = np.argpartition(best, -number, axis=1)[:, -number:]
    columns = (chosen[:, None, :] + groups * np.arange(GROUP)[:, None]).reshape(len(values), -1)
    rest = np.broadcast_to(np.arange(dealt, values.shape[1]), (len(values), values.shape[1] - dealt))
    columns = np.concatenate([columns, rest], axis=1)
    found = np.argpartition(np.take_along_axis(values, columns, axis=1), -number, axis=1)[:, -number:]
    return np.take_along_axis(columns, found, axis=1)


def texts_to_keep(width: int, labels: int) -> int:
    """How many texts a vote keeps, at most."""
    return min(MAX_TEXTS, MAX_NUMBERS // (width + labels))


def read_neighbour_vote(file: Path, shape: tuple[int, int], remedy: str) -> NeighbourVote:
    """A vote from its tensors, if they fit vectors of that width and so many labels and all numbers are finite."""
    tensors = read_arrays(file, remedy)
    (width, labels), number = shape, len(tensors["vectors"]) if "vectors" in tensors and tensors["vectors"].ndim else 0
    shapes = {"centre": ("float32", (width,)), "vectors": ("float16", (number, width)),
              "labels": ("float16", (number, labels)), "scale": ("float32", (1,))}
    if {name: (str(array.dtype), array.shape) for name, array in tensors.items()} != shapes or number < 2:
        raise ModelError(f"{file} does not fit {labels} labels and vectors of width {width}; {remedy}")
    if not all(np.isfinite(array).all() for array in tensors.values()) or (tensors["labels"] < 0).any():
        raise ModelError(f"{file} has numbers that are impossible; {remedy}")
    return _from_tensors(tensors)
