"""Types that every package shares; no torch.

Shape legend, used in every docstring: N texts, K labels, H encoder width, D head width, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Task = Literal["multi-class", "multi-label"]
MAX_SEED = 2**32 - 1  # the largest that scikit-learn takes
Progress = Callable[[int, int], None]  # how many are done, of how many


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
