"""Which rows each step sees: a pure function of seed and step, so that a run can go on from any step."""

from __future__ import annotations

import numpy as np

POOL = 50  # batches whose texts are sorted by length together
STRETCH = 1024  # batches that are held; for those after them their pass is drawn again


class Batches:
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
        rng = np.random.default_rng([self.seed, self.stream, number])
        rows = shuffled(rng, len(self.lengths))[: self.per_pass * self.size]
        for i in range(0, len(rows), POOL * self.size):
            chunk = rows[i : i + POOL * self.size]
            chunk[:] = chunk[np.argsort(self.lengths[chunk], kind="stable")]
        places = shuffled(rng, self.per_pass)[stretch * STRETCH : (stretch + 1) * STRETCH]
        return rows.reshape(-1, self.size)[places]


def shuffled(rng: np.random.Generator, number: int) -> np.ndarray:
    """0..N-1 in a random order, (N,), in four bytes each, since there may be many."""
    rows = np.arange(number, dtype=np.int32)
    rng.shuffle(rows)
    return rows
