"""Pseudo-labels for unlabelled texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel.equations import sharpen
from halflabel.types import Shape


class Target(NamedTuple):
    """What unlabelled texts are taken to be, y (N, K), and how much that counts, weight (N,)."""

    y: Tensor
    weight: Tensor


class Labeller(nn.Module):
    """Labels texts by the probabilities of the model as it stands."""

    uses_pool = True

    def label(self, p: Tensor) -> Target:
        """Targets for probabilities (N, K); changes nothing."""
        raise AssertionError("every labeller says how it labels")

    def update(self, p: Tensor) -> None:
        """Keeps what later steps need to know of these probabilities."""

    def refresh(self, rows: Tensor, p: Tensor) -> None:
        """At the start of an epoch: probabilities (N, K) of some rows of the pool."""

    def forward(self, rows: Tensor, ask: Callable[[], Tensor]) -> Target:
        """Targets for one step; `ask` gives the probabilities of its rows, at the price of a forward pass."""
        p = ask()
        self.update(p)
        return self.label(p)


class NoPseudo(Labeller):
    """Unlabelled texts are left alone."""

    uses_pool = False

    def label(self, p: Tensor) -> Target:
        return Target(p, p.new_zeros(len(p)))


class Sharpen(Labeller):
    """Soft labels at temperature T (Eq. 9); every text counts in full."""

    def __init__(self, T: float) -> None:
        super().__init__()
        self.T = T

    def label(self, p: Tensor) -> Target:
        return Target(sharpen(p, self.T), p.new_ones(len(p)))


class SelfAdaptive(Labeller):
    """Hard labels where the confidence passes FreeMatch's self-adaptive threshold of their class."""

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

    def label(self, p: Tensor) -> Target:
        confidence, label = p.max(dim=1)
        y = functional.one_hot(label, p.shape[1]).to(p.dtype)
        return Target(y, (confidence >= self.thresholds()[label]).to(p.dtype))


class Stored(Labeller):
    """Soft labels that stand in a table, a row for each text of the pool, and are written anew each epoch."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.register_buffer("table", torch.full((shape.unlabelled, shape.labels), 1.0 / shape.labels))

    table: Tensor

    def label(self, p: Tensor) -> Target:
        return Target(p, p.new_ones(len(p)))

    @torch.no_grad()
    def refresh(self, rows: Tensor, p: Tensor) -> None:
        """Writes the soft labels of some rows."""
        self.table[rows] = p.to(self.table)

    def forward(self, rows: Tensor, ask: Callable[[], Tensor]) -> Target:
        return self.label(self.table[rows])
