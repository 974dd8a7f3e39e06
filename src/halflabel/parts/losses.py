"""Losses of scores against targets: (N, K), (N, K) -> (N,)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from halflabel.equations import am_loss, entropy

Loss = Callable[[Tensor, Tensor], Tensor]
TINY = 1e-8  # powers of less would have no finite slope


def angular(s: float, m: float) -> Loss:
    """The AM loss of Eq. 1; on balanced cosines it is the BDD loss of Eq. 3."""
    return lambda cos, y: am_loss(cos, y, s, m)


def binary_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """The sum over labels of each one's own cross-entropy."""
    return functional.binary_cross_entropy_with_logits(logits, y.detach(), reduction="none").sum(dim=1)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Softmax cross-entropy with hard or soft targets."""
    return -(y.detach() * functional.log_softmax(logits, dim=1)).sum(dim=1)


def squared_error(logits: Tensor, y: Tensor) -> Tensor:
    """The mean over labels of the squared difference between probability and target."""
    return (logits.sigmoid() - y.detach()).square().mean(dim=1)


def divergence(logits: Tensor, y: Tensor) -> Tensor:
    """KL(y | softmax): cross-entropy less the targets' own entropy, which is 0 for hard ones."""
    return cross_entropy(logits, y) - entropy(y.detach())


@dataclass(frozen=True)
class Asymmetric:
    """ASL: easy labels count little, and among those that a text does not have the easiest not at all.

    -y (1 - p)^gamma_pos log p - (1 - y) q^gamma_neg log(1 - q), summed over labels, where p is the probability of a
    label and q = max(p - shift, 0). With `still` the two powers have no gradient, as in the authors' training script.
    """

    gamma_neg: float
    gamma_pos: float
    shift: float
    still: bool = False

    def __call__(self, logits: Tensor, y: Tensor) -> Tensor:
        return self.labels(logits, y).sum(dim=1)

    def labels(self, logits: Tensor, y: Tensor) -> Tensor:
        """What each label costs, (N, K)."""
        y, seen = y.detach(), logits.detach() if self.still else logits
        missed = (-seen).sigmoid().clamp_min(TINY) ** self.gamma_pos
        claimed = (seen.sigmoid() - self.shift).clamp_min(TINY) ** self.gamma_neg
        shift = torch.tensor(math.log(self.shift) if self.shift else -torch.inf, dtype=logits.dtype)
        lacks = torch.logaddexp(functional.logsigmoid(-logits), shift.to(logits.device)).clamp_max(0.0)  # log(1 - q)
        return -(y * missed * functional.logsigmoid(logits) + (1.0 - y) * claimed * lacks)
