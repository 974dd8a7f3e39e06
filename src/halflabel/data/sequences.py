"""Sequences that are looked at where they lie: rows chosen from one, several one after the other."""

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
    """A sequence that is not a list: subclasses say how long it is and what stands in row i."""

    def row(self, i: int) -> T:
        """What stands in a row that is there."""
        raise AssertionError("every such sequence finds its rows")

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
    """Some rows of a sequence, in the given order."""

    def __init__(self, base: Sequence[T], rows: Any) -> None:
        import numpy as np

        self.base, self.rows = base, np.asarray(rows, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, i: int) -> T:
        return self.base[int(self.rows[i])]


class Repeated(LazySequence[T]):
    """One thing in every row."""

    def __init__(self, thing: T, number: int) -> None:
        self.thing, self.number = thing, number

    def __len__(self) -> int:
        return self.number

    def row(self, i: int) -> T:
        return self.thing


class Concat(LazySequence[T]):
    """Sequences one after the other."""

    def __init__(self, parts: Sequence[Sequence[T]]) -> None:
        self.parts: list[Sequence[T]] = list(chain.from_iterable(
            part.parts if isinstance(part, Concat) else [part] for part in parts))
        self.ends = list(accumulate(map(len, self.parts)))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def row(self, i: int) -> T:
        part = bisect_right(self.ends, i)
        return self.parts[part][i - (self.ends[part - 1] if part else 0)]

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.parts)

    def shares(self, rows: Any) -> list[tuple[Sequence[T], Any]]:
        """Rising rows as the rows of each part, counted within it."""
        import numpy as np

        rows, ends = np.asarray(rows, dtype=np.int64), np.asarray(self.ends)
        cuts = [0, *np.searchsorted(rows, ends).tolist()]
        starts = [0, *self.ends]
        return [(part, rows[cuts[k] : cuts[k + 1]] - starts[k]) for k, part in enumerate(self.parts)]


class Zipped(LazySequence[tuple[T, ...]]):
    """Columns side by side, as a row of each."""

    def __init__(self, columns: Sequence[Sequence[T]]) -> None:
        self.columns = list(columns)

    def __len__(self) -> int:
        return len(self.columns[0])

    def row(self, i: int) -> tuple[T, ...]:
        return tuple(column[i] for column in self.columns)


def columns_of(views: Sequence[tuple[T, ...]]) -> list[Sequence[T]]:
    """The columns of which `views` are the rows."""
    def column(j: int) -> Sequence[T]:
        return map_parts(views, lambda base: base.columns[j] if isinstance(base, Zipped) else [row[j] for row in base])

    return [column(j) for j in range(len(views[0]))]


def concat(*parts: Sequence[T]) -> Sequence[T]:
    """The parts one after the other: a list if all are lists, otherwise where they lie."""
    if all(isinstance(part, list) for part in parts):
        return list(chain.from_iterable(parts))
    filled = [part for part in parts if len(part)]
    return filled[0] if len(filled) == 1 else Concat(filled)


def subset(base: Sequence[T], rows: Sequence[int]) -> Sequence[T]:
    """The given rows: a list of a list, otherwise where they lie."""
    if not isinstance(base, LazySequence):
        return [base[i] for i in rows]
    if isinstance(base, Repeated):
        return Repeated(base.thing, len(rows))
    if isinstance(base, Subset):
        return Subset(base.base, base.rows[rows])
    if isinstance(base, Concat) and _is_increasing(rows):
        return concat(*(subset(part, some) for part, some in base.shares(rows)))
    return Subset(base, rows)


def _is_increasing(rows: Sequence[int]) -> bool:
    import numpy as np

    return bool((np.diff(np.asarray(rows, dtype=np.int64)) > 0).all())


def parts_of(base: Sequence[T]) -> list[Sequence[T]]:
    """The sequences that `base` was joined from."""
    return base.parts if isinstance(base, Concat) else [base]


def origin_of(base: Sequence[T]) -> tuple[Sequence[T], Any]:
    """The sequence that rows were chosen from, and these rows; a slice of all if none were chosen."""
    return (base.base, base.rows) if isinstance(base, Subset) else (base, slice(None))


def map_parts(base: Sequence[T], make: Callable[[Sequence[T]], Sequence[U]]) -> Sequence[U]:
    """What `make` gives for each whole sequence that `base` was joined or chosen from, put together in the same way."""
    if isinstance(base, Concat):
        return Concat([map_parts(part, make) for part in base.parts])
    if isinstance(base, Subset):
        return Subset(map_parts(base.base, make), base.rows)
    return make(base)


def prefetch(source: Iterable[T], depth: int = 2) -> Iterator[T]:
    """The same, read by a thread that is a few steps ahead."""
    found: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(depth)
    left = threading.Event()

    def work() -> None:
        try:
            for one in source:
                found.put((one, None))
                if left.is_set():
                    return
            found.put((None, StopIteration()))
        except BaseException as error:
            found.put((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            one, error = found.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield one  # type: ignore[misc]
    finally:
        left.set()
        while thread.is_alive() and not found.empty():
            found.get()
