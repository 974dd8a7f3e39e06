"""Training-signal annealing: labelled texts that the model is already sure of wait until later (UDA)."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

Release = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # losses (N,), scores and y (N, K), progress -> scalar

SCHEDULES: dict[str, Callable[[float], float]] = {
    "linear": lambda progress: progress,
    "exp": lambda progress: math.exp(5.0 * (progress - 1.0)),
    "log": lambda progress: 1.0 - math.exp(-5.0 * progress),
}


def ceiling(schedule: str, labels: int, progress: float) -> float:
    """eta_t: how probable the true label may be for a text to count, from 1/K up to 1."""
    return SCHEDULES[schedule](progress) * (1.0 - 1.0 / labels) + 1.0 / labels


def annealed(schedule: str) -> Release:
    """The mean loss of the texts whose true label is not yet more probable than eta_t; 0 if there are none."""
    def release(losses: Tensor, scores: Tensor, y: Tensor, progress: float) -> Tensor:
        sure = (y * scores.detach().softmax(dim=1)).sum(dim=1)
        kept = (sure <= ceiling(schedule, y.shape[1], progress)).to(losses.dtype)
        return (kept * losses).sum() / kept.sum().clamp_min(1.0)
    return release
