"""A corpus: texts and their labels, where they are known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Literal

from halflabel.data.sequences import concat, subset
from halflabel.types import Task

Label = str | int | bool
TextLabel = Label | tuple[Label, ...] | None  # of a text: one label, several, or unknown


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
