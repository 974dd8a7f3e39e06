"""MetaExpert's head: three experts, a gate that says whom to trust, and features of several depths for it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel.model.head import WIDTH, Head
from halflabel.types import Shape

DEPTHS = 4  # layers of the encoder whose features are fused
EXPERTS = 3  # for classes with many, some and few labelled texts


class Opinions(NamedTuple):
    """What the experts say of N texts."""

    logits: Tensor  # (N, 3, K), not adjusted
    adjusted: Tensor  # (N, 3, K), by tau_q log prior
    gate: Tensor  # (N, 3) logits of the gate
    trust: Tensor  # (N, 3) weights that sum to one

    def mixed(self, logits: Tensor) -> Tensor:
        """Logits (N, 3, K) weighted by trust, (N, K)."""
        return (self.trust[:, :, None] * logits).sum(dim=1)

    def fused(self, logits: Tensor) -> Tensor:
        """The same with each expert's logits above its least: nothing to a softmax, but all at an expert's own rate."""
        return self.mixed(logits - logits.amin(dim=2, keepdim=True))


class Experts(Head):
    """Three linear experts on f = tanh(A h); the gate sees fused depths and the experts' adjusted probabilities.

    `adjustment` (3, K) is what each expert's logits are shifted by while it learns, `group` (3, K) one-hot over
    experts says whose a class is; both are set from the labelled texts before the first step.

    Where texts have several labels, each label has a probability by itself. To move it by tau_q then moves what it is
    compared with, one half, so answers stay `adjusted`, unless they are to be plain as those for one label are. The
    gate's last activation is left out, since it could not say no: it is never far below 0.
    """

    def __init__(self, shape: Shape, *, several: bool = False, adjusted: bool = False) -> None:
        super().__init__()
        self.several, self.answers_adjusted = several, adjusted
        self.width = shape.width // DEPTHS
        self.hidden = nn.Linear(self.width, WIDTH)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, shape.labels) for _ in range(EXPERTS))
        self.depths = nn.ModuleList(nn.Linear(self.width, WIDTH) for _ in range(DEPTHS))
        self.first, self.second = (
            nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU()) for _ in range(DEPTHS)) for _ in range(2))
        self.gate = nn.Sequential(nn.Linear(WIDTH + EXPERTS * shape.labels, 128), nn.SiLU(), nn.Linear(128, 64),
                                  nn.SiLU(), nn.Linear(64, EXPERTS), nn.Identity() if several else nn.SiLU())
        self.register_buffer("adjustment", torch.zeros(EXPERTS, shape.labels))
        self.register_buffer("group", torch.ones(EXPERTS, shape.labels))

    adjustment: Tensor
    group: Tensor

    def features(self, h: Tensor) -> Tensor:
        """(N, 4 H) -> (N, 2 D): the experts' features and the fused depths side by side."""
        depths = h.split(self.width, dim=1)
        return torch.cat([torch.tanh(self.hidden(depths[-1])), self.fusion(depths)], dim=1)

    def fusion(self, depths: tuple[Tensor, ...]) -> Tensor:
        """Two passes from shallow to deep, each layer hearing the one before, (N, H) each -> (N, D)."""
        u = v = torch.zeros(())
        for depth, project, first, second in zip(depths, self.depths, self.first, self.second, strict=True):
            u = first(project(depth) + u)
            v = second(u + v)
        return v

    def opinions(self, f: Tensor) -> Opinions:
        """(N, 2 D) -> logits, gate and trust; trust also asks how sure an expert is of a class of its own group."""
        own, fused = f.split(WIDTH, dim=1)
        logits = torch.stack([expert(own) for expert in self.experts], dim=1)
        adjusted = logits + self.adjustment
        gate = self.gate(torch.cat([fused, self.probabilities(adjusted).flatten(1)], dim=1))
        sure = (self.probabilities(adjusted if self.several else logits) * self.group).amax(dim=2)
        return Opinions(logits, adjusted, gate, functional.softmax(sure * gate.softmax(dim=1), dim=1))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Of each expert's logits (N, 3, K): one softmax, or each label by itself."""
        return logits.sigmoid() if self.several else logits.softmax(dim=2)

    def forward(self, f: Tensor) -> Tensor:
        """Experts' logits weighted by trust, (N, 2 D) -> (N, K)."""
        seen = self.opinions(f)
        return seen.mixed(seen.adjusted if self.answers_adjusted else seen.logits)
