"""What is computed once of stored texts: token ids and frozen vectors, in shards that are read row by row.

A shard that is there is never computed again, so a run that is killed loses one shard at most, and two runs at once
do some work twice and no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halflabel.atomic import replace_file
from halflabel.data.columns import ArrowColumn, write_arrow
from halflabel.types import Progress

SHARD = 8192  # texts in a file


def shards(folder: Path, texts: Sequence[str], make: Callable[[list[str]], Any], size: int = SHARD,
           progress: Progress | None = None) -> list[Path]:
    """Files that hold what `make` gives for the texts as Arrow arrays; those that are missing are made."""
    import pyarrow as pa

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for start in range(0, len(texts), size):
        file = folder / f"{start // size:06d}.arrow"
        if not file.is_file():
            batch = pa.record_batch([make(list(texts[start : start + size]))], names=["value"])
            with replace_file(file) as temporary:
                write_arrow(temporary, [batch], batch.schema)
            if progress:
                progress(min(start + size, len(texts)), len(texts))
        files.append(file)
    return files


def ragged(rows: Sequence[np.ndarray]) -> Any:
    """Token ids as flat ids and offsets."""
    import pyarrow as pa

    ends = np.cumsum([0, *map(len, rows)])
    return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), pa.array(np.concatenate([
        np.empty(0, np.int32), *rows]), pa.int32()))


def table(vectors: np.ndarray) -> Any:
    """Vectors (N, H) as an Arrow array of rows of one width."""
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1), pa.float32()), vectors.shape[1])


class TokenIds(ArrowColumn[np.ndarray]):
    """Token ids of stored texts."""

    def __init__(self, files: Sequence[Path]) -> None:
        super().__init__(files, "value", lambda cell: np.frombuffer(cell, np.int32))

    def lengths(self) -> np.ndarray:
        """The number of tokens of each text, (N,)."""
        return np.concatenate([np.empty(0, np.int8), *(
            small(np.diff(np.frombuffer(array.buffers()[1], np.int64, len(array) + 1))) for array in self.arrays())])


class Vectors(ArrowColumn[np.ndarray]):
    """Frozen vectors of stored texts, rows of width H."""

    def __init__(self, files: Sequence[Path]) -> None:
        super().__init__(files, "value", lambda cell: np.frombuffer(cell, np.float32))


def small(counts: np.ndarray) -> np.ndarray:
    """Counts in as few bytes as the largest needs, since there may be many; they can be negated."""
    return counts.astype(np.min_scalar_type(-1 - int(counts.max(initial=0))))


def gather_rows(rows: Sequence[np.ndarray], wanted: Any) -> np.ndarray:
    """Some rows as one array, (M, H)."""
    if isinstance(rows, np.ndarray):
        return rows[np.asarray(wanted)]
    return np.stack([rows[int(i)] for i in wanted])
