"""Losses of scores against targets, (N, K), (N, K) -> (N,), penalties, and the weight of the unlabelled loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel import equations as eq
from halflabel.nn.pseudo_labels import Target

Loss = Callable[[Tensor, Tensor], Tensor]  # scores (N, K), targets (N, K) -> (N,)
TINY = 1e-8  # powers of smaller numbers would have no finite slope
Reduction = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # losses (N,), scores and y (N, K), progress -> scalar
Weight = Callable[[float], float]  # progress in [0, 1] -> weight of the unlabelled loss


def binary_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Binary cross-entropy of each label, summed over labels."""
    return functional.binary_cross_entropy_with_logits(logits, y.detach(), reduction="none").sum(dim=1)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Softmax cross-entropy with hard or soft targets."""
    return -(y.detach() * functional.log_softmax(logits, dim=1)).sum(dim=1)


def squared_error(logits: Tensor, y: Tensor) -> Tensor:
    """Squared error of the probabilities, averaged over labels."""
    return (logits.sigmoid() - y.detach()).square().mean(dim=1)


def divergence(logits: Tensor, y: Tensor) -> Tensor:
    """KL(y | softmax): cross-entropy minus the entropy of the targets, which is 0 for hard ones."""
    return cross_entropy(logits, y) - eq.entropy(y.detach())


@dataclass(frozen=True)
class Asymmetric:
    """Asymmetric loss (ASL): easy labels are down-weighted, and very easy negatives are ignored.

    -y (1 - p)^gamma_pos log p - (1 - y) q^gamma_neg log(1 - q), summed over labels, where p is the probability of a
    label and q = max(p - shift, 0). With `detach_focus` no gradient flows through the two powers, as in the authors'
    training script.
    """

    gamma_neg: float
    gamma_pos: float
    shift: float
    detach_focus: bool = False

    def __call__(self, logits: Tensor, y: Tensor) -> Tensor:
        return self.labels(logits, y).sum(dim=1)

    def labels(self, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of each label, (N, K)."""
        y, focus = y.detach(), logits.detach() if self.detach_focus else logits
        positive = (-focus).sigmoid().clamp_min(TINY) ** self.gamma_pos
        negative = (focus.sigmoid() - self.shift).clamp_min(TINY) ** self.gamma_neg
        shift = torch.tensor(math.log(self.shift) if self.shift else -torch.inf, dtype=logits.dtype)
        log_not_q = torch.logaddexp(functional.logsigmoid(-logits), shift.to(logits.device)).clamp_max(0.0)
        return -(y * positive * functional.logsigmoid(logits) + (1.0 - y) * negative * log_not_q)


class Penalty(nn.Module):
    """A term of the objective besides the losses; this one adds nothing."""

    def forward(self, scores: Tensor, head: nn.Module, target: Target | None = None) -> Tensor:
        """The penalty of a step's scores (N, K), of which the last belong to the pseudo-labels `target`, if any."""
        return scores.new_zeros(())

    def update(self, head: nn.Module) -> None:
        """At the start of an epoch."""

    def report(self, head: nn.Module) -> dict[str, float]:
        """Figures for the log."""
        return {}


class NoPenalty(Penalty):
    """Nothing is added."""


def ramp(lambda1: float) -> Weight:
    """A weight that grows linearly over the whole run (Sec. III-C: ramped up over [0, 1])."""
    return lambda progress: lambda1 * progress


def constant(lambda1: float) -> Weight:
    """The same weight from beginning to end."""
    return lambda progress: lambda1
