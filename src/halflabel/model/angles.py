"""Balanced label angles: the statistics of Eqs. 6-8 and the transformation of Eq. 2."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from halflabel.equations import angle_moments, angles, blend, cosines, prototypes
from halflabel.types import Shape

FLOOR = 1e-4  # rad^2: two texts make the same angle with their own mean, so a variance can be zero
STRETCH = 3.0  # a_k stays within [1/3, 3]
LEAK = 0.01  # slope outside [0, pi], so that gradients there do not die


class Unbalanced(nn.Module):
    """Angles as they are: the AM loss."""

    balances = False

    def forward(self, cos: Tensor) -> Tensor:
        return cos

    def refit(self, f: Tensor, y: Tensor) -> None:
        """Nothing to learn."""

    def report(self) -> dict[str, list[float]]:
        return {}


class Balanced(nn.Module):
    """Angles stretched about their label's mean until all labels have the same variance (Eq. 2).

    `memory` is the share of the past in the moving averages (the paper's gamma). `shrink` adds that many imaginary
    texts with the pooled variance to each label; the paper has none.
    """

    balances = True

    def __init__(self, shape: Shape, memory: float, *, width: int = 128, shrink: float = 0.0) -> None:
        super().__init__()
        self.memory, self.shrink = memory, shrink
        self.register_buffer("prototype", torch.zeros(shape.labels, width))
        self.register_buffer("mean", torch.zeros(shape.labels))
        self.register_buffer("variance", torch.zeros(shape.labels))
        self.register_buffer("mass", torch.zeros(shape.labels))

    prototype: Tensor
    mean: Tensor
    variance: Tensor
    mass: Tensor

    @property
    def seen(self) -> Tensor:
        """Labels that have ever had a text's worth of mass, (K,)."""
        return self.mass >= 1.0

    def variances(self) -> Tensor:
        """Variances that are safe to divide by, shrunk towards their mean if asked to, (K,)."""
        safe = self.variance.clamp_min(FLOOR)
        dof = (self.mass - 1.0).clamp_min(0.0)
        pooled = safe[self.seen].mean() if bool(self.seen.any()) else safe.mean()
        return (dof * safe + self.shrink * pooled) / (dof + self.shrink).clamp_min(1e-9) if self.shrink else safe

    def stretch(self) -> Tensor:
        """a_k of Eq. 2, kept within bounds; 1 for a label never seen, which the mean leaves out, (K,)."""
        var, seen = self.variances(), self.seen
        mean = var[seen].mean() if bool(seen.any()) else var.mean()
        return (mean / var).sqrt().clamp(1.0 / STRETCH, STRETCH).where(seen, torch.ones_like(var))

    def forward(self, cos: Tensor) -> Tensor:
        """cos(psi), (N, K)."""
        return turned(cos, self.stretch(), self.mean)

    @torch.no_grad()
    def refit(self, f: Tensor, y: Tensor) -> None:
        """Eqs. 6-8 over labelled and pseudo-labelled texts, f (N, D), y (N, K), then the moving averages."""
        mass = y.sum(dim=0)
        present, known = mass >= 1.0, self.seen
        old = self.prototype, self.mean, self.variance
        prototype = _average(prototypes(f, y), old[0], present, known, self.memory)
        mean, variance = angle_moments(angles(cosines(f, prototype)), y)
        self.prototype.copy_(prototype)
        self.mean.copy_(_average(mean, old[1], present, known, self.memory))
        self.variance.copy_(_average(variance, old[2], present, known, self.memory))
        self.mass.copy_(torch.where(present, mass, self.mass))

    def report(self) -> dict[str, list[float]]:
        """What an epoch's line in the log says of each label."""
        return {
            "mu": self.mean.tolist(), "sigma": self.variance.sqrt().tolist(), "a": self.stretch().tolist(),
        }


def turned(cos: Tensor, a: Tensor, mean: Tensor) -> Tensor:
    """Eq. 2 on cosines (N, K): cos(psi); where a_k = 1 the cosine passes untouched, as in AM."""
    psi = a * angles(cos) + (1.0 - a) * mean
    inside = psi.clamp(0.0, math.pi)
    bent = torch.cos(inside + LEAK * (psi - inside) - LEAK * (psi - inside).detach())
    return torch.where((a - 1.0).abs() < 1e-6, cos, bent)


class Settled(nn.Module):
    """Balanced angles whose statistics no longer change: what an exported model holds."""

    def __init__(self, angles: Balanced) -> None:
        super().__init__()
        self.register_buffer("a", angles.stretch().detach().clone())
        self.register_buffer("mean", angles.mean.detach().clone())

    a: Tensor
    mean: Tensor

    def forward(self, cos: Tensor) -> Tensor:
        """cos(psi), (N, K)."""
        return turned(cos, self.a, self.mean)


def _average(new: Tensor, old: Tensor, present: Tensor, known: Tensor, memory: float) -> Tensor:
    """The moving average for labels with mass; the first time sets, no mass keeps."""
    shape = (-1,) + (1,) * (new.dim() - 1)
    present, known = present.view(shape), known.view(shape)
    return torch.where(present, torch.where(known, blend(new, old, memory), new), old)


Angles = Balanced | Unbalanced
