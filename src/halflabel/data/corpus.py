"""A corpus: texts with what is known of their labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from halflabel.data.sequences import concat, subset
from halflabel.types import Task

Label = str | int | bool


class Partial(tuple[Label, ...]):
    """Labels that a text is known to have, where it is open whether it has those in `unknown` as well."""

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
    """Texts with what is known of their labels, in the order in which they came.

    A label is one name (multi-class), a tuple of names (multi-label, `()` meaning none) or None (not labelled);
    a tuple that is a `Partial` leaves some labels open.
    `views` holds ready-made strong views: for each text as many as the file had columns `aug_0`, `aug_1`, ...
    All are lists; in a pool on disk (`data.pool`) they are sequences that no step here takes into memory.
    """

    texts: Sequence[str]
    labels: Sequence[Label | tuple[Label, ...] | None]
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
        """The given rows, in the given order."""
        views = subset(self.views, rows) if self.views else []
        return Corpus(subset(self.texts, rows), subset(self.labels, rows), views, self.source)

    def labelled(self) -> Corpus:
        return self.take([i for i, label in enumerate(self.labels) if label is not None])

    def unlabelled(self) -> Corpus:
        return self.take([i for i, label in enumerate(self.labels) if label is None])

    def without_labels(self) -> Corpus:
        return Corpus(self.texts, [None] * len(self.texts), self.views, self.source)

    def __add__(self, other: Corpus) -> Corpus:
        views = concat(self.views, other.views) if bool(self.views) == bool(other.views) else []
        return Corpus(concat(self.texts, other.texts), concat(self.labels, other.labels), views, self.source)
