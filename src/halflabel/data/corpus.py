"""Corpora: texts and their labels, where they are known; and lazy sequences, of which rows are read, selected or
computed on access, so that a pool need not fit into memory.
"""

from __future__ import annotations

import json
import queue
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import accumulate, chain
from typing import Any, Generic, Literal, TypeVar, overload

from halflabel.types import Task

Label = str | int | bool
TextLabel = Label | tuple[Label, ...] | None  # of a text: one label, several, or unknown
T = TypeVar("T")
U = TypeVar("U")


class Partial(tuple[Label, ...]):
    """The labels that a text is known to have, where it is unknown whether it also has those in `unknown`."""

    unknown: tuple[Label, ...]

    def __new__(cls, names: Iterable[Label], unknown: Iterable[Label]) -> Partial:
        self = super().__new__(cls, names)
        self.unknown = tuple(unknown)
        return self

    def __getnewargs__(self) -> tuple[tuple[Label, ...], tuple[Label, ...]]:
        return tuple(self), self.unknown

    def __repr__(self) -> str:
        return f"Partial({tuple(self)!r}, unknown={self.unknown!r})"


@dataclass(frozen=True)
class Corpus:
    """Texts and their labels, in the order in which they were read.

    A label is one name (multi-class), a tuple of names (multi-label, `()` for none of them) or None (not labelled);
    a `Partial` tuple leaves some labels unknown. `views` holds ready-made augmented versions of each text, from the
    columns `aug_0`, `aug_1`, ... All are lists, or lazy sequences in a pool on disk (`data.pool`).
    """

    texts: Sequence[str]
    labels: Sequence[TextLabel]
    views: Sequence[tuple[str, ...]] = field(default_factory=list)
    source: str = "memory"

    def __post_init__(self) -> None:
        assert len(self.texts) == len(self.labels), "one label (or None) for each text"
        assert not self.views or len(self.views) == len(self.texts), "views for every text or for none"

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def task(self) -> Task:
        return "multi-label" if any(isinstance(label, tuple) for label in self.labels) else "multi-class"

    def take(self, rows: Sequence[int]) -> Corpus:
        """The selected rows, in that order."""
        views = subset(self.views, rows) if self.views else []
        return Corpus(subset(self.texts, rows), subset(self.labels, rows), views, self.source)

    def labelled(self) -> Corpus:
        """The texts that have a label."""
        return self.take([i for i, label in enumerate(self.labels) if label is not None])

    def unlabelled(self) -> Corpus:
        """The texts that have no label."""
        return self.take([i for i, label in enumerate(self.labels) if label is None])

    def without_labels(self) -> Corpus:
        """All texts, with their labels removed."""
        return Corpus(self.texts, [None] * len(self.texts), self.views, self.source)

    def __add__(self, other: Corpus) -> Corpus:
        views = concat(self.views, other.views) if bool(self.views) == bool(other.views) else []
        return Corpus(concat(self.texts, other.texts), concat(self.labels, other.labels), views, self.source)


def sample(part: Literal["train", "test"], label: Literal["queue", "tags"] = "queue") -> Corpus:
    """The train or test part of the sample corpus, labelled by queue (multi-class) or by tags (multi-label)."""
    lines = files("halflabel.data").joinpath("sample.jsonl").read_text(encoding="utf-8").strip().split("\n")
    rows = [row for line in lines if (row := json.loads(line))["part"] == part]
    labels = [row["queue"] if label == "queue" else tuple(row["tags"]) for row in rows]
    return Corpus([row["text"] for row in rows], labels, source=f"sample ({part})")


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
