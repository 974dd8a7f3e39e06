"""Pseudo-labels for unlabelled texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel.equations import sharpen
from halflabel.parts.graph import neighbour_graph, smoothed
from halflabel.parts.words import with_words
from halflabel.types import Shape


class Target(NamedTuple):
    """What texts are taken to be, y (N, K), and how much that counts: weight (N,), or a mask (N, K) of known labels."""

    y: Tensor
    weight: Tensor

    @property
    def weighed(self) -> Tensor:
        """y times its weight, (N, K)."""
        return self.y * (self.weight if self.weight.dim() == 2 else self.weight[:, None])

    @property
    def kept(self) -> Tensor:
        """Texts of which something counts, (N,)."""
        return (self.weight if self.weight.dim() == 1 else self.weight.amax(dim=1)) > 0


class Labeller(nn.Module):
    """Labels texts by the probabilities of the model as it stands."""

    uses_pool = True
    gives_labels = True  # if not, a collapse can be told from what a warm-up gave alone
    trains_on_survey = False  # whether an epoch learns only from the rows that were looked at

    def meet(self, y: Tensor) -> None:
        """Before anything else: the labels of the labelled texts (N_l, K), NaN where unknown."""

    def label(self, p: Tensor) -> Target:
        """Targets for probabilities (N, K); changes nothing."""
        raise AssertionError("every labeller says how it labels")

    def update(self, p: Tensor) -> None:
        """Keeps what later steps need to know of these probabilities."""

    def refresh(self, rows: Tensor, p: Tensor, f: Tensor, y: Tensor) -> None:
        """At the start of an epoch: probabilities (M, K) of the pool's rows (M,) that were looked at.

        f (N_l + M, D) are features, labelled texts first, whose labels are y (N_l, K).
        """

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


class Heard(Labeller):
    """Unlabelled texts take part in a step, but get no labels."""

    gives_labels = False

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.labels = shape.labels

    def label(self, p: Tensor) -> Target:
        return Target(p, p.new_zeros(len(p)))

    def forward(self, rows: Tensor, ask: Callable[[], Tensor]) -> Target:
        return Target(torch.zeros(len(rows), self.labels), torch.zeros(len(rows)))


class Sharpen(Labeller):
    """Soft labels at temperature T (Eq. 9); every text counts in full if its confidence passes the cutoff."""

    def __init__(self, T: float, cutoff: float = 0.0) -> None:
        super().__init__()
        self.T, self.cutoff = T, cutoff

    def label(self, p: Tensor) -> Target:
        return Target(sharpen(p, self.T), (p.amax(dim=1) > self.cutoff).to(p.dtype))


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
        return Target(hard(p), (confidence >= self.thresholds()[label]).to(p.dtype))


class Stored(Labeller):
    """Labels that stand in a table until the next epoch, when neighbours have been heard again.

    A label is sharpened, and weighs by how far it stood above chance before that. The pool as a whole keeps the weight
    that the start gave it: where that found little in the pool, the pool says little.
    """

    trains_on_survey = True

    def __init__(self, shape: Shape, power: float) -> None:
        super().__init__()
        self.power = power
        self.register_buffer("table", torch.full((shape.unlabelled, shape.labels), 1.0 / shape.labels))
        self.register_buffer("weight", torch.zeros(shape.unlabelled))
        self.register_buffer("alpha", torch.zeros(()))
        self.register_buffer("trust", torch.zeros(()))

    table: Tensor
    weight: Tensor
    alpha: Tensor
    trust: Tensor

    def label(self, p: Tensor) -> Target:
        return Target(sharpen(p, 1.0 / self.power), p.new_ones(len(p)))

    def begin(self, soft: Tensor, alpha: float, words: Any) -> None:
        """Takes over calibrated soft labels of the whole pool (N_u, K), and how far neighbours are to be heard.

        `words` is the sparse (N_l + N_u, V) of `parts.words`.
        """
        self.words = words
        self.table.copy_(sharpen(soft, 1.0 / self.power))
        self.weight.copy_(above_chance(soft))
        self.alpha.fill_(alpha)
        self.trust.copy_(self.weight.mean())

    @torch.no_grad()
    def refresh(self, rows: Tensor, p: Tensor, f: Tensor, y: Tensor) -> None:
        """Smooths the model's probabilities over neighbours in its own features and corrects them by words."""
        given = torch.cat([y, p]).numpy()
        heard = smoothed(neighbour_graph(f.numpy()), given, float(self.alpha))[len(y) :]
        counts = self.words[np.concatenate([np.arange(len(y)), len(y) + rows.numpy()])]
        soft = torch.from_numpy(with_words(counts, y.numpy(), heard))
        weight = above_chance(soft)
        self.table[rows] = sharpen(soft, 1.0 / self.power).to(self.table)
        self.weight[rows] = (self.trust * weight / weight.mean().clamp_min(1e-6)).clamp_max(1.0)

    def forward(self, rows: Tensor, ask: Callable[[], Tensor]) -> Target:
        return Target(self.table[rows], self.weight[rows])


def hard(p: Tensor) -> Tensor:
    """One-hot labels of the likeliest classes, (N, K)."""
    return functional.one_hot(p.argmax(dim=1), p.shape[1]).to(p.dtype)


def above_chance(p: Tensor) -> Tensor:
    """How far the largest of K probabilities stands above 1/K: 0 for even ones, 1 for a sure one, (N,)."""
    chance = 1.0 / p.shape[1]
    return (p.amax(dim=1) - chance) / (1.0 - chance)
