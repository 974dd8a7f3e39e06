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

    def fused(self, logits: Tensor) -> Tensor:
        """Logits (N, 3, K), each above its least, weighted by trust, (N, K)."""
        return (self.trust[:, :, None] * (logits - logits.amin(dim=2, keepdim=True))).sum(dim=1)


class Experts(Head):
    """Three linear experts on f = tanh(A h); the gate sees fused depths and the experts' adjusted probabilities.

    `adjustment` (3, K) is what each expert's logits are shifted by while it learns, `group` (3, K) one-hot over
    experts says whose a class is; both are set from the labelled texts before the first step.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.width = shape.width // DEPTHS
        self.hidden = nn.Linear(self.width, WIDTH)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, shape.labels) for _ in range(EXPERTS))
        self.depths = nn.ModuleList(nn.Linear(self.width, WIDTH) for _ in range(DEPTHS))
        self.first, self.second = (
            nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU()) for _ in range(DEPTHS)) for _ in range(2))
        self.gate = nn.Sequential(nn.Linear(WIDTH + EXPERTS * shape.labels, 128), nn.SiLU(), nn.Linear(128, 64),
                                  nn.SiLU(), nn.Linear(64, EXPERTS), nn.SiLU())
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
        gate = self.gate(torch.cat([fused, adjusted.softmax(dim=2).flatten(1)], dim=1))
        sure = (logits.softmax(dim=2) * self.group).amax(dim=2)
        return Opinions(logits, adjusted, gate, functional.softmax(sure * gate.softmax(dim=1), dim=1))

    def forward(self, f: Tensor) -> Tensor:
        """Experts' logits weighted by trust, (N, 2 D) -> (N, K)."""
        seen = self.opinions(f)
        return (seen.trust[:, :, None] * seen.logits).sum(dim=1)
