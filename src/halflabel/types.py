"""The nouns that every room of the house shares; no torch in here.

Shape legend, used in every docstring: N texts, K labels, H encoder width, D head width, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from halflabel.sequences import chosen, joined

Label = str | int | bool
Task = Literal["multi-class", "multi-label"]
Progress = Callable[[int, int], None]  # how many are done, of how many


class BadInput(ValueError):
    """What a person can mend: one sentence that names the file, row or value, and the remedy."""


class WrongTask(BadInput):
    """A method was asked to learn labels of the other kind."""


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
        views = chosen(self.views, rows) if self.views else []
        return Corpus(chosen(self.texts, rows), chosen(self.labels, rows), views, self.source)

    def labelled(self) -> Corpus:
        return self.take([i for i, label in enumerate(self.labels) if label is not None])

    def unlabelled(self) -> Corpus:
        return self.take([i for i, label in enumerate(self.labels) if label is None])

    def without_labels(self) -> Corpus:
        return Corpus(self.texts, [None] * len(self.texts), self.views, self.source)

    def __add__(self, other: Corpus) -> Corpus:
        views = joined(self.views, other.views) if bool(self.views) == bool(other.views) else []
        return Corpus(joined(self.texts, other.texts), joined(self.labels, other.labels), views, self.source)


@dataclass(frozen=True)
class Shape:
    """What the data dictates to a method: K labels, H encoder width, N_l and N_u texts."""

    labels: int
    width: int
    labelled: int
    unlabelled: int


@dataclass(frozen=True)
class Plan:
    """How long, how fast and on what a method is trained; the method itself never sees it."""

    name: str
    frozen: bool  # train the head on vectors that are computed once
    encoder: str  # used when no encoder is named
    epochs: int  # statistics, thresholds and stored labels are refitted at the start of each
    epoch_steps: int
    passes: float  # over the pool in an epoch, at most: a small pool shortens it
    warmup: int  # steps on labelled texts alone, before the first epoch
    labelled_batch: int
    unlabelled_batch: int
    encoder_rate: float
    head_rate: float
    schedule: Literal["constant", "linear"]
    ema: float  # decay of the averaged weights
    weight_decay: float
    clip: float  # largest norm of the gradient
    dropout: bool  # keep the dropout that the encoder came with
    embeddings: bool  # train the word embeddings too: half of a small encoder, and half of an optimizer step
    token_drop: float  # share of its tokens (or entries, if it is a frozen vector) that a training text loses at random
    max_tokens: int
    survey: int  # pool texts that the statistics of an epoch look at, at most
    minutes: float  # the time that the steps have to fit into; infinite: no limit
    warmup_batch: int = 0  # labelled texts in a step of the warm-up; 0: as many as later
    frozen_layers: int = 0  # lowest layers that do not learn; what they say is computed once and kept on disk

    @property
    def steps(self) -> int:
        return self.warmup + self.epochs * self.epoch_steps

    def to_json(self) -> dict[str, Any]:
        """The fields, with null for what is infinite: JSON has no word for that."""
        return {name: None if value == float("inf") else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Plan:
        """What `to_json` gave."""
        known: dict[str, Any] = {name: float("inf") if value is None else value for name, value in fields.items()}
        return cls(**known)
