"""What training reports while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from halflabel.notices import Notice


@dataclass(frozen=True)
class EncodingProgress:
    """Texts that have been encoded."""

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


Event = EncodingProgress | TimeEstimate | StepProgress | EpochReport | Notice
Report = Callable[[Event], None]


def silent(event: Event) -> None:
    """Reports nothing."""
