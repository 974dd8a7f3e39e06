"""What halflabel reports while it works: notices that the user should know about, and the events of training."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class Notice(str):
    """A sentence, at which step of training it became true, if at any, and the place in the code that says so."""

    message: str
    step: int | None
    origin: str

    def __new__(cls, message: str, step: int | None = None) -> Notice:
        self = super().__new__(cls, message if step is None else f"step {step}: {message}")
        self.message, self.step, self.origin = message, step, calling_place()
        return self

    def __getnewargs__(self) -> tuple[str, int | None]:  # type: ignore[override]
        return self.message, self.step


def calling_place() -> str:
    """The module and line that called into this module."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno}"


class NoticeWarning(UserWarning):
    """A notice from a place that cannot report events: a Python warning, which the command prints as a notice."""


class Dropped(Notice):
    """Texts that were left out of a corpus, such as "2 empty texts in a.csv were left out"."""

    warning: str  # the same before it has happened

    def __new__(cls, message: str, warning: str) -> Dropped:
        self = super().__new__(cls, message)
        assert isinstance(self, Dropped)
        self.warning = warning
        return self

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.message, self.warning


def dropped(count: int, what: str, source: str, why: str = "") -> list[Notice]:
    """A notice about texts that were left out; none if there are none."""
    if not count:
        return []
    subject, because = f"{count} {what}{'s' * (count > 1)} in {source}", f" because {why}" if why else ""
    return [Dropped(f"{subject} {'were' if count > 1 else 'was'} left out{because}",
                    f"{subject} would be left out{because}")]


@dataclass(frozen=True)
class EncodingProgress:
    """Texts that have been encoded."""

    done: int
    total: int


@dataclass(frozen=True)
class ContrastProgress:
    """Steps of contrast that have been done, before training."""

    done: int
    total: int


@dataclass(frozen=True)
class TimeEstimate:
    """How long training will take, by a short measurement."""

    seconds: float
    steps: int
    evaluation_passes: int


@dataclass(frozen=True)
class StepProgress:
    """One step of training."""

    step: int
    steps: int
    loss: float
    accepted: float | None  # share of the step's unlabelled texts that got a pseudo-label


@dataclass(frozen=True)
class EpochReport:
    """The figures at the start of an epoch, or at the end of the run."""

    step: int
    epoch: int
    figures: dict[str, Any] = field(default_factory=dict)
    end: bool = False

    def to_json(self) -> dict[str, Any]:
        """A line of metrics.jsonl."""
        return {"step": self.step, "epoch": self.epoch} | self.figures | ({"end": True} if self.end else {})


Event = EncodingProgress | ContrastProgress | TimeEstimate | StepProgress | EpochReport | Notice
Report = Callable[[Event], None]


def silent(event: Event) -> None:
    """Reports nothing."""


def unseen(done: int, total: int) -> None:
    """Progress that is not reported."""
