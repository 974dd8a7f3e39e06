"""Losses of scores against targets: (N, K), (N, K) -> (N,)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from halflabel.equations import am_loss, entropy

Loss = Callable[[Tensor, Tensor], Tensor]


def angular(s: float, m: float) -> Loss:
    """The AM loss of Eq. 1; on balanced cosines it is the BDD loss of Eq. 3."""
    return lambda cos, y: am_loss(cos, y, s, m)


def binary_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """The sum over labels of each one's own cross-entropy."""
    return functional.binary_cross_entropy_with_logits(logits, y.detach(), reduction="none").sum(dim=1)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Softmax cross-entropy with hard or soft targets."""
    return -(y.detach() * functional.log_softmax(logits, dim=1)).sum(dim=1)


def divergence(logits: Tensor, y: Tensor) -> Tensor:
    """KL(y | softmax): cross-entropy less the targets' own entropy, which is 0 for hard ones."""
    return cross_entropy(logits, y) - entropy(y.detach())
