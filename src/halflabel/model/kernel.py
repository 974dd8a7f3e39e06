"""A head that answers by the training texts that are near."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel.model.head import Head
from halflabel.types import Shape


class Kernel(Head):
    """The labels of stored points, averaged: over the nearest ones, or over all by exp(-gamma distance^2).

    Its scores are logarithms of probabilities. It holds the vectors of all training texts.
    """

    def __init__(self, shape: Shape, kernel: str, neighbours: int, gamma: float) -> None:
        super().__init__()
        number = shape.labelled + shape.unlabelled
        self.kernel, self.neighbours, self.gamma = kernel, min(neighbours, number), gamma
        self.points = nn.Parameter(torch.zeros(number, shape.width), requires_grad=False)
        self.soft = nn.Parameter(torch.zeros(number, shape.labels), requires_grad=False)

    def features(self, h: Tensor) -> Tensor:
        """(N, H) -> (N, H) of length one."""
        return functional.normalize(h, dim=1)

    def forward(self, f: Tensor) -> Tensor:
        """log p, (N, H) -> (N, K); even where no label can be heard."""
        distance = torch.cdist(f, self.points)
        if self.kernel == "knn":
            near = distance.topk(self.neighbours, dim=1, largest=False).indices
            heard = self.soft[near].sum(dim=1)
        else:
            heard = (-self.gamma * distance.square()).softmax(dim=1) @ self.soft
        total = heard.sum(dim=1, keepdim=True)
        p = torch.where(total > 0, heard / total.clamp_min(1e-30), 1.0 / heard.shape[1])
        return p.clamp_min(1e-12).log()

    @torch.no_grad()
    def set(self, points: Tensor, soft: Tensor) -> None:
        """Takes over points (N_l + N_u, H) and their labels (N_l + N_u, K)."""
        self.points.copy_(points)
        self.soft.copy_(soft)
