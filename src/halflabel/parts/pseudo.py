"""Pseudo-labels for unlabelled texts, from the probabilities of the model as it stands."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel.equations import sharpen
from halflabel.types import Shape


class Target(NamedTuple):
    """What an unlabelled text is taken to be, y (N, K), and how much that counts, weight (N,)."""

    y: Tensor
    weight: Tensor


class NoPseudo(nn.Module):
    """Unlabelled texts are left alone."""

    learns_from_pool = False

    def update(self, p: Tensor) -> None:
        """Nothing to keep."""

    def forward(self, p: Tensor) -> Target:
        return Target(p, p.new_zeros(len(p)))


class Sharpen(nn.Module):
    """Soft labels at temperature T (Eq. 9); every text counts in full."""

    learns_from_pool = True

    def __init__(self, T: float) -> None:
        super().__init__()
        self.T = T

    def update(self, p: Tensor) -> None:
        """Nothing to keep."""

    def forward(self, p: Tensor) -> Target:
        return Target(sharpen(p, self.T), p.new_ones(len(p)))


class SelfAdaptive(nn.Module):
    """Hard labels where the confidence passes FreeMatch's self-adaptive threshold of their class."""

    learns_from_pool = True

    def __init__(self, shape: Shape, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("confidence", torch.tensor(1.0 / shape.labels))
        self.register_buffer("marginal", torch.full((shape.labels,), 1.0 / shape.labels))

    confidence: Tensor
    marginal: Tensor

    @torch.no_grad()
    def update(self, p: Tensor) -> None:
        """Moving averages of the confidence and of the class marginal, before they are used."""
        self.confidence.lerp_(p.amax(dim=1).mean(), 1.0 - self.momentum)
        self.marginal.lerp_(p.mean(dim=0), 1.0 - self.momentum)

    def thresholds(self) -> Tensor:
        """tau(k) = tau p~(k) / max p~, (K,)."""
        return self.confidence * self.marginal / self.marginal.max()

    def forward(self, p: Tensor) -> Target:
        confidence, label = p.max(dim=1)
        y = functional.one_hot(label, p.shape[1]).to(p.dtype)
        return Target(y, (confidence >= self.thresholds()[label]).to(p.dtype))
