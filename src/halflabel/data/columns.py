"""Columns on disk: Arrow files of which single rows are read on access.

Taking rows from a chunked Arrow column would copy the whole column, and touching rows of a memory-mapped file leaves
the pages around them resident, in the end the whole file. So a row is read with two calls, its offsets and then its
bytes, and nothing is kept; iterating over all rows maps one record batch at a time.
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

from halflabel.cache_limit import EntryLock
from halflabel.data.corpus import Concat, LazySequence, Subset
from halflabel.errors import DataError

T = TypeVar("T")
MAX_OPEN_FILES = 256  # of a column: a process may often open no more than about a thousand
OFFSETS = struct.Struct("<2q")  # the start and the end of a row, as Arrow stores them


class Chunk(NamedTuple):
    """The position of the rows of one record batch in its file."""

    file: str
    batch: int
    rows: int
    start: int  # byte at which the data of the first row starts
    item: int  # bytes of an item, or of a whole row if there are no offsets
    offsets: int | None  # byte at which the offsets start, in items; None if all rows have the same size


def removed(path: str) -> DataError:
    """The error about a file of the cache that is there no more."""
    return DataError(f"{path} was removed from the cache while it was in use; run the command again to rebuild it")


class MappedFile:
    """A file that any thread can read at any position; it is closed when it is no longer referenced."""

    def __init__(self, path: str) -> None:
        try:
            self.file = open(path, "rb", buffering=0)  # noqa: SIM115
        except FileNotFoundError:
            raise removed(path) from None
        self.number, self.lock = self.file.fileno(), threading.Lock()

    def read(self, start: int, length: int) -> bytes:
        """`length` bytes from position `start`."""
        if hasattr(os, "pread"):  # not on Windows
            return os.pread(self.number, length, start)
        with self.lock:
            self.file.seek(start)
            return self.file.read(length)

    def __del__(self) -> None:
        if hasattr(self, "file"):
            self.file.close()


class ArrowColumn(LazySequence[T]):
    """One column of Arrow files; `decode` turns the bytes of a row into its value, `key` identifies the content.

    `lock` keeps files of the cache from being removed while the column is in use.
    """

    def __init__(self, files: Sequence[Path], name: str, decode: Callable[[bytes], T], *, key: str = "",
                 lock: EntryLock | None = None) -> None:
        self.files, self.name, self.decode, self.key, self.lock = list(files), name, decode, key, lock
        self.chunks = [chunk for file in self.files for chunk in _chunks(str(file), name)]
        self.ends = list(accumulate(chunk.rows for chunk in self.chunks))
        self.opened = lru_cache(MAX_OPEN_FILES)(MappedFile)

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def row(self, i: int) -> T:
        number = bisect_right(self.ends, i)
        path, _, _, start, item, offsets = self.chunks[number]
        first = i - (self.ends[number - 1] if number else 0)
        end, file = first + 1, self.opened(path)
        if offsets is not None:
            first, end = OFFSETS.unpack(file.read(offsets + OFFSETS.size // 2 * first, OFFSETS.size))
        return self.decode(file.read(start + item * first, item * (end - first)))

    def arrays(self) -> Iterator[Any]:
        """The column as Arrow arrays, each mapped into memory for as long as it is referenced."""
        return (_open_arrow(chunk.file)[1].get_batch(chunk.batch).column(self.name) for chunk in self.chunks)


class TextColumn(ArrowColumn[str]):
    """A column of distinct texts, none of them empty."""

    def __init__(self, file: Path, key: str, name: str = "text", lock: EntryLock | None = None) -> None:
        super().__init__([file], name, bytes.decode, key=key, lock=lock)

    def __iter__(self) -> Iterator[str]:
        for array in self.arrays():
            yield from array.to_pylist()

    def matching(self, wanted: Iterable[str]) -> np.ndarray:
        """The rows whose text is among the wanted ones, in order."""
        import pyarrow.compute as pc

        values = arrow_strings(list(wanted))
        return np.concatenate([np.empty(0, np.int64), *(
            start + np.flatnonzero(pc.is_in(array, value_set=values))
            for start, array in zip([0, *self.ends], self.arrays(), strict=False))])


def arrow_strings(texts: Sequence[str]) -> Any:
    """Texts as an Arrow array of strings, built from buffers since `pyarrow.array` imports pandas if installed."""
    import pyarrow as pa

    cells = [text.encode("utf-8") for text in texts]
    ends = np.cumsum([0, *map(len, cells)], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(cells), pa.py_buffer(ends), pa.py_buffer(b"".join(cells)))


def text_hash(text: str, size: int = 16) -> bytes:
    """A hash of a text in `size` bytes."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()


def text_hashes(texts: Sequence[str]) -> np.ndarray:
    """A hash of each text in 8 bytes, (N,)."""
    return np.fromiter((int.from_bytes(text_hash(text, size=8)) for text in texts), np.uint64, len(texts))


def matching_rows(texts: Sequence[str], wanted: Iterable[str]) -> np.ndarray:
    """The rows of `texts` whose text is among the wanted ones, in order."""
    names = wanted if isinstance(wanted, (set, frozenset)) else frozenset(wanted)
    if isinstance(texts, Concat):
        return np.concatenate([np.empty(0, np.int64), *(
            start + matching_rows(part, names) for start, part in zip([0, *texts.ends], texts.parts, strict=False))])
    if isinstance(texts, Subset) and isinstance(texts.base, TextColumn):
        return np.flatnonzero(np.isin(texts.rows, texts.base.matching(names)))
    if isinstance(texts, TextColumn):
        return texts.matching(names)
    return np.array([i for i, text in enumerate(texts) if text in names], dtype=np.int64)


def _open_arrow(file: str) -> tuple[Any, Any]:
    """A memory-mapped Arrow file as a buffer, and a reader of its record batches."""
    import pyarrow as pa

    try:
        buffer = pa.memory_map(file).read_buffer()
        return buffer, pa.ipc.open_file(buffer)
    except FileNotFoundError:
        raise removed(file) from None
    except pa.ArrowException as error:
        raise _damaged(error) from None


def _chunks(file: str, name: str) -> Iterator[Chunk]:
    import pyarrow as pa

    buffer, reader = _open_arrow(file)
    for batch in range(reader.num_record_batches):
        try:
            column = reader.get_batch(batch).column(name)
        except (pa.ArrowException, KeyError) as error:
            raise _damaged(error) from None
        if len(column):
            yield _chunk(file, batch, column, buffer.address)


def _damaged(error: Exception) -> DataError:
    return DataError(f"the cache is damaged ({str(error)[:80]}); empty it with: halflabel cache --clear")


def _chunk(file: str, batch: int, column: Any, base: int) -> Chunk:
    """The position of the rows of an Arrow array of strings or lists in a file that is mapped at address `base`."""
    import pyarrow as pa

    data, item = column.buffers()[-1], 1
    start = data.address - base if data else 0
    if not pa.types.is_large_string(column.type):
        item = column.type.value_type.bit_width // 8
    if pa.types.is_fixed_size_list(column.type):
        return Chunk(file, batch, len(column), start, item * column.type.list_size, None)
    return Chunk(file, batch, len(column), start, item, column.buffers()[1].address - base)


def write_arrow(file: Path, batches: Iterable[Any], schema: Any) -> None:
    """Writes record batches as an Arrow file."""
    import pyarrow as pa

    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
