"""Columns on disk: Arrow files of which a row is read when it is looked at, by its place in the file.

Taking rows from a chunked Arrow column would copy the whole column. Looking at rows of a file that is mapped into
memory leaves the pages around them resident, in the end the whole file. So the offsets of a row are read and then its
bytes, and nothing is held for it; a pass over all rows maps one chunk at a time.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from halflabel.data.sequences import Concat, LazySequence, Subset
from halflabel.errors import BadInput

T = TypeVar("T")
MAX_OPEN_FILES = 256  # files of a column that are open at a time: a process may have a thousand or so
DAMAGED = "; empty it with: halflabel cache --clear"
SPAN = struct.Struct("<2q")  # where a row begins and where it ends, as Arrow writes it: two of its offsets
OFFSET = SPAN.size // 2


class Chunk(NamedTuple):
    """Where the rows of one batch of a file lie."""

    file: str
    batch: int
    rows: int
    start: int  # of the first row, in bytes
    item: int  # bytes of an item; where there are no offsets, of a row
    offsets: int | None  # where the file says at which items rows begin and end; None where each row is one item


class MappedFile:
    """A file to be read at any place by any thread, closed when nobody holds it any more."""

    def __init__(self, file: str) -> None:
        try:
            self.file = open(file, "rb", buffering=0)  # noqa: SIM115
        except FileNotFoundError:
            raise BadInput(f"the cache lost {file} while it was in use; run again, and it is made anew") from None
        self.number, self.lock = self.file.fileno(), threading.Lock()

    def read(self, start: int, length: int) -> bytes:
        if hasattr(os, "pread"):  # not every system has it
            return os.pread(self.number, length, start)
        with self.lock:
            self.file.seek(start)
            return self.file.read(length)

    def __del__(self) -> None:
        if hasattr(self, "file"):
            self.file.close()


class ArrowColumn(LazySequence[T]):
    """One column of Arrow files; `cell` makes a row of its bytes, `key` names the content."""

    def __init__(self, files: Sequence[Path], name: str, cell: Callable[[bytes], T], *, key: str = "") -> None:
        self.files, self.name, self.cell, self.key = list(files), name, cell, key
        self.chunks = [chunk for file in self.files for chunk in _chunks(str(file), name)]
        self.ends = list(accumulate(chunk.rows for chunk in self.chunks))
        self.opened = lru_cache(MAX_OPEN_FILES)(MappedFile)

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def row(self, i: int) -> T:
        at = bisect_right(self.ends, i)
        file, _, _, start, item, offsets = self.chunks[at]
        first = i - (self.ends[at - 1] if at else 0)
        end, opened = first + 1, self.opened(file)
        if offsets is not None:
            first, end = SPAN.unpack(opened.read(offsets + OFFSET * first, SPAN.size))
        return self.cell(opened.read(start + item * first, item * (end - first)))

    def arrays(self) -> Iterator[Any]:
        """The column as Arrow arrays, each mapped into memory for as long as somebody holds it."""
        return (_arrow(chunk.file)[1].get_batch(chunk.batch).column(self.name) for chunk in self.chunks)


class TextColumn(ArrowColumn[str]):
    """Different texts that are not empty."""

    def __init__(self, file: Path, key: str, name: str = "text") -> None:
        super().__init__([file], name, bytes.decode, key=key)

    def __iter__(self) -> Iterator[str]:
        for array in self.arrays():
            yield from array.to_pylist()

    def among(self, wanted: Iterable[str]) -> np.ndarray:
        """Rows that hold one of the wanted texts, in order."""
        import pyarrow.compute as pc

        known = strings(list(wanted))
        return np.concatenate([np.empty(0, np.int64), *(
            start + np.flatnonzero(pc.is_in(array, value_set=known))
            for start, array in zip([0, *self.ends], self.arrays(), strict=False))])


def strings(texts: Sequence[str]) -> Any:
    """Texts as an Arrow array, by their bytes: Arrow's own way from a list imports pandas where that is installed."""
    import pyarrow as pa

    cells = [text.encode("utf-8") for text in texts]
    ends = np.cumsum([0, *map(len, cells)], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(cells), pa.py_buffer(ends), pa.py_buffer(b"".join(cells)))


def text_hash(text: str) -> bytes:
    """The content of a text as 16 bytes."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def matching_rows(texts: Sequence[str], wanted: Iterable[str]) -> np.ndarray:
    """Rows of `texts` that hold one of the wanted texts, in order."""
    names = wanted if isinstance(wanted, (set, frozenset)) else frozenset(wanted)
    if isinstance(texts, Concat):
        starts = [0, *texts.ends]
        return np.concatenate([np.empty(0, np.int64), *(
            start + matching_rows(part, names) for start, part in zip(starts, texts.parts, strict=False))])
    if isinstance(texts, Subset) and isinstance(texts.base, TextColumn):
        return np.flatnonzero(np.isin(texts.rows, matching_rows(texts.base, names)))
    if not isinstance(texts, TextColumn):
        return np.array([i for i, text in enumerate(texts) if text in names], dtype=np.int64)
    return texts.among(names)


def _arrow(file: str) -> tuple[Any, Any]:
    """The bytes of an Arrow file, mapped for as long as something of it is in use, and a reader of its batches."""
    import pyarrow as pa

    try:
        whole = pa.memory_map(file).read_buffer()
        return whole, pa.ipc.open_file(whole)
    except pa.ArrowException as error:
        raise BadInput(f"the cache is damaged ({str(error)[:80]}){DAMAGED}") from None


def _chunks(file: str, name: str) -> Iterator[Chunk]:
    import pyarrow as pa

    whole, opened = _arrow(file)
    for batch in range(opened.num_record_batches):
        try:
            column = opened.get_batch(batch).column(name)
        except (pa.ArrowException, KeyError) as error:
            raise BadInput(f"the cache is damaged ({str(error)[:80]}){DAMAGED}") from None
        if len(column):
            yield _chunk(file, batch, column, whole.address)


def _chunk(file: str, batch: int, column: Any, base: int) -> Chunk:
    """Where the rows of an Arrow array of texts or lists lie in a file that is mapped at `base`."""
    import pyarrow as pa

    data, item = column.buffers()[-1], 1
    start = data.address - base if data else 0
    if not pa.types.is_large_string(column.type):
        item = column.type.value_type.bit_width // 8
    if pa.types.is_fixed_size_list(column.type):
        return Chunk(file, batch, len(column), start, item * column.type.list_size, None)
    return Chunk(file, batch, len(column), start, item, column.buffers()[1].address - base)


def write_arrow(file: Path, batches: Iterable[Any], schema: Any) -> None:
    """Record batches as an Arrow file."""
    import pyarrow as pa

    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
