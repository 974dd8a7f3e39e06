"""Columns on disk: Arrow files mapped into memory, looked at row by row through their chunks.

Taking rows from a chunked Arrow column would copy the whole column, so a row is found by the offsets of its chunk.
"""

from __future__ import annotations

import hashlib
import mmap
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from halflabel.sequences import Chosen, Joined, Lying
from halflabel.types import BadInput

T = TypeVar("T")
LEASE = 8192  # rows that are looked at before their pages are given back; a look maps 64 kB, so at most 512 MB


class Column(Lying[T]):
    """One column of Arrow files; `cell` takes row i of a chunk, `key` names the content."""

    def __init__(self, files: Sequence[Path], name: str, cell: Callable[[Any, int], T], *, key: str = "") -> None:
        self.files, self.name, self.cell, self.key = list(files), name, cell, key
        self.maps = [_mapped(file) for file in files]
        self.chunks = [chunk for found in self.maps for chunk in _chunks(found, name)]
        self.ends = list(accumulate(map(len, self.chunks)))
        self.looked = 0

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def row(self, i: int) -> T:
        self.looked += 1
        if self.looked >= LEASE:
            self.release()
        at = bisect_right(self.ends, i)
        return self.cell(self.chunks[at], i - (self.ends[at - 1] if at else 0))

    def release(self) -> None:
        """Gives the pages back; the next look brings them in again."""
        self.looked = 0
        for found in self.maps:
            with suppress(AttributeError, OSError):  # not every system can
                found.madvise(mmap.MADV_DONTNEED)


class Texts(Column[str]):
    """Different texts that are not empty."""

    def __init__(self, file: Path, key: str, name: str = "text") -> None:
        super().__init__([file], name, lambda chunk, i: chunk[i].as_py(), key=key)

    def __iter__(self) -> Iterator[str]:
        for chunk in self.chunks:
            yield from chunk.to_pylist()
            self.release()

    def among(self, wanted: Iterable[str]) -> np.ndarray:
        """Whether each text is one of the wanted, (N,)."""
        import pyarrow.compute as pc

        known = strings(list(wanted))
        found = [np.empty(0, dtype=bool)]
        for chunk in self.chunks:
            found.append(np.asarray(pc.is_in(chunk, value_set=known)))
            self.release()
        return np.concatenate(found)


def strings(texts: Sequence[str]) -> Any:
    """Texts as an Arrow array, by their bytes: Arrow's own way from a list imports pandas where that is installed."""
    import pyarrow as pa

    cells = [text.encode("utf-8") for text in texts]
    ends = np.cumsum([0, *map(len, cells)], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(cells), pa.py_buffer(ends), pa.py_buffer(b"".join(cells)))


def key_of(text: str) -> bytes:
    """The content of a text as 16 bytes."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def rows_holding(texts: Sequence[str], wanted: Iterable[str]) -> np.ndarray:
    """Rows of `texts` that hold one of the wanted texts, in order."""
    names = wanted if isinstance(wanted, (set, frozenset)) else frozenset(wanted)
    if isinstance(texts, Joined):
        starts = [0, *texts.ends]
        return np.concatenate([np.empty(0, np.int64), *(
            start + rows_holding(part, names) for start, part in zip(starts, texts.parts, strict=False))])
    if isinstance(texts, Chosen) and isinstance(texts.base, Texts):
        return np.flatnonzero(np.isin(texts.rows, rows_holding(texts.base, names)))
    if not isinstance(texts, Texts):
        return np.array([i for i, text in enumerate(texts) if text in names], dtype=np.int64)
    return np.flatnonzero(texts.among(names))


def _mapped(file: Path) -> mmap.mmap:
    with open(file, "rb") as handle:
        return mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)


def _chunks(found: mmap.mmap, name: str) -> list[Any]:
    import pyarrow as pa

    try:
        opened = pa.ipc.open_file(pa.py_buffer(found))
        return [opened.get_batch(i).column(name) for i in range(opened.num_record_batches)]
    except (pa.ArrowException, KeyError) as error:
        raise BadInput(f"the cache is damaged ({str(error)[:80]}); empty it with: halflabel cache --clear") from None


def write_arrow(file: Path, batches: Iterable[Any], schema: Any) -> None:
    """Record batches as an Arrow file."""
    import pyarrow as pa

    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
