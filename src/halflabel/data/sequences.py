"""Lazy sequences: rows are read, selected or computed on access, so that a pool need not fit into memory."""

from __future__ import annotations

import queue
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
U = TypeVar("U")


class LazySequence(Sequence[T], Generic[T]):
    """A read-only sequence that computes a row on access; subclasses define `__len__` and `row`."""

    def row(self, i: int) -> T:
        """Row i, for 0 <= i < len."""
        raise NotImplementedError

    @overload
    def __getitem__(self, i: int) -> T: ...
    @overload
    def __getitem__(self, i: slice) -> list[T]: ...
    def __getitem__(self, i: int | slice) -> T | list[T]:
        if isinstance(i, slice):
            return [self.row(j) for j in range(*i.indices(len(self)))]
        n = len(self)
        if not -n <= i < n:
            raise IndexError(f"row {i} of {n}")
        return self.row(int(i) % n)

    def __iter__(self) -> Iterator[T]:
        return (self.row(i) for i in range(len(self)))


class Subset(LazySequence[T]):
    """Selected rows of a sequence, in the order of `rows`."""

    def __init__(self, base: Sequence[T], rows: Any) -> None:
        import numpy as np

        self.base, self.rows = base, np.asarray(rows, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, i: int) -> T:
        return self.base[int(self.rows[i])]


class Repeated(LazySequence[T]):
    """The same value in every row."""

    def __init__(self, value: T, length: int) -> None:
        self.value, self.length = value, length

    def __len__(self) -> int:
        return self.length

    def row(self, i: int) -> T:
        return self.value


class Concat(LazySequence[T]):
    """Several sequences one after the other."""

    def __init__(self, parts: Sequence[Sequence[T]]) -> None:
        self.parts: list[Sequence[T]] = list(chain.from_iterable(map(parts_of, parts)))
        self.ends = list(accumulate(map(len, self.parts)))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def row(self, i: int) -> T:
        part = bisect_right(self.ends, i)
        return self.parts[part][i - (self.ends[part - 1] if part else 0)]

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.parts)

    def rows_by_part(self, rows: Any) -> list[tuple[Sequence[T], Any]]:
        """Each part with those of the increasing `rows` that fall into it, counted from its start."""
        import numpy as np

        rows, starts = np.asarray(rows, dtype=np.int64), [0, *self.ends]
        cuts = np.searchsorted(rows, starts).tolist()
        return [(part, rows[cuts[k] : cuts[k + 1]] - starts[k]) for k, part in enumerate(self.parts)]


class Zipped(LazySequence[tuple[T, ...]]):
    """Columns of equal length as a sequence of rows."""

    def __init__(self, columns: Sequence[Sequence[T]]) -> None:
        self.columns = list(columns)

    def __len__(self) -> int:
        return len(self.columns[0])

    def row(self, i: int) -> tuple[T, ...]:
        return tuple(column[i] for column in self.columns)


def columns_of(rows: Sequence[tuple[T, ...]]) -> list[Sequence[T]]:
    """The columns of a sequence of tuples: the inverse of `Zipped`."""
    def column(j: int) -> Sequence[T]:
        return map_parts(rows, lambda base: base.columns[j] if isinstance(base, Zipped) else [row[j] for row in base])

    return [column(j) for j in range(len(rows[0]))]


def concat(*parts: Sequence[T]) -> Sequence[T]:
    """The parts one after the other: a list if all are lists, otherwise lazy."""
    if all(isinstance(part, list) for part in parts):
        return list(chain.from_iterable(parts))
    filled = [part for part in parts if len(part)]
    return filled[0] if len(filled) == 1 else Concat(filled)


def subset(base: Sequence[T], rows: Sequence[int]) -> Sequence[T]:
    """The selected rows: a list if `base` is one, otherwise lazy, and never nested more deeply than `base`."""
    if not isinstance(base, LazySequence):
        return [base[i] for i in rows]
    if isinstance(base, Repeated):
        return Repeated(base.value, len(rows))
    if isinstance(base, Subset):
        return Subset(base.base, base.rows[rows])
    if isinstance(base, Concat) and _is_increasing(rows):
        return concat(*(subset(part, part_rows) for part, part_rows in base.rows_by_part(rows)))
    return Subset(base, rows)


def _is_increasing(rows: Sequence[int]) -> bool:
    import numpy as np

    return bool((np.diff(np.asarray(rows, dtype=np.int64)) > 0).all())


def parts_of(base: Sequence[T]) -> list[Sequence[T]]:
    """The parts of a `Concat`; any other sequence is its own only part."""
    return base.parts if isinstance(base, Concat) else [base]


def origin_of(base: Sequence[T]) -> tuple[Sequence[T], Any]:
    """The sequence under a `Subset` and the rows it selects; any other sequence with a slice of all rows."""
    return (base.base, base.rows) if isinstance(base, Subset) else (base, slice(None))


def map_parts(base: Sequence[T], make: Callable[[Sequence[T]], Sequence[U]]) -> Sequence[U]:
    """Applies `make` to each sequence under `Concat` and `Subset`, and combines the results in the same way."""
    if isinstance(base, Concat):
        return Concat([map_parts(part, make) for part in base.parts])
    if isinstance(base, Subset):
        return Subset(map_parts(base.base, make), base.rows)
    return make(base)


def prefetch(source: Iterable[T], depth: int = 2) -> Iterator[T]:
    """The same items, read by a thread that is up to `depth` items ahead; its exceptions are raised here."""
    items: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(depth)
    closed = threading.Event()

    def read_ahead() -> None:
        try:
            for item in source:
                items.put((item, None))
                if closed.is_set():
                    return
            items.put((None, StopIteration()))
        except BaseException as error:
            items.put((None, error))

    thread = threading.Thread(target=read_ahead, daemon=True)
    thread.start()
    try:
        while True:
            item, error = items.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        closed.set()
        while thread.is_alive() and not items.empty():  # make room, so that a blocked thread can end
            items.get()
