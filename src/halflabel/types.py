"""Types that every package shares; no torch.

Shape legend, used in every docstring: N texts, K labels, H encoder width, D head width, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Task = Literal["multi-class", "multi-label"]
MAX_SEED = 2**32 - 1  # the largest that scikit-learn takes
Progress = Callable[[int, int], None]  # done, total


@dataclass(frozen=True)
class Shape:
    """The sizes that a method is built for: K labels, H encoder width, N_l labelled and N_u unlabelled texts."""

    labels: int
    width: int
    labelled: int
    unlabelled: int


@dataclass(frozen=True)
class Plan:
    """The training schedule; a method never sees it. Fields are set by `--set name=value`."""

    name: str
    frozen: bool  # train the head alone, on vectors that are computed once
    encoder: str  # the default encoder
    epochs: int  # each starts with an evaluation pass that updates statistics and pseudo-label tables
    epoch_steps: int
    passes: float  # over the pool in an epoch, at most: a small pool has shorter epochs
    warmup: int  # steps on labelled texts alone, before the first epoch
    labelled_batch: int
    unlabelled_batch: int
    encoder_rate: float
    head_rate: float
    schedule: Literal["constant", "linear"]
    ema: float  # decay of the averaged weights
    weight_decay: float
    clip: float  # maximum norm of the gradient
    dropout: bool  # keep the encoder's dropout
    embeddings: bool  # train the word embeddings too: half of the weights of a small encoder
    token_drop: float  # share of a training text's tokens, or of a frozen vector's entries, that are dropped at random
    max_tokens: int  # longer texts are truncated
    survey: int  # pool texts in the evaluation pass of an epoch, at most
    minutes: float  # time budget; infinite for none
    warmup_batch: int = 0  # labelled texts in a warm-up step; 0 for labelled_batch
    guard: Literal["on", "off"] = "on"  # abandon the pool if the predicted labels collapse to few
    step_tokens: int = 0  # tokens of a text in a training step, at most; 0 for max_tokens
    frozen_layers: float = 0.0  # lowest layers that are not trained: their number, or below 1 a share of them

    @property
    def steps(self) -> int:
        return self.warmup + self.epochs * self.epoch_steps

    def to_json(self) -> dict[str, Any]:
        """The fields, with null for infinity, which JSON lacks."""
        return {name: None if value == float("inf") else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Plan:
        """The inverse of `to_json`."""
        known: dict[str, Any] = {name: float("inf") if value is None else value for name, value in fields.items()}
        return cls(**known)
