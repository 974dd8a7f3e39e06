"""SDRL's head: two classifiers that see the same features, and a network over all pairs of what they say."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from halflabel.model.head import WIDTH, Head
from halflabel.types import BadInput, Shape

CLASSIFIER, RELATION = 800, 1000  # hidden units
MOST = 300  # labels: every pair of them has 1000 weights


class Related(Head):
    """f = tanh(A h), two classifiers of two layers on it, and the relation network on the product of their answers."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        if shape.labels > MOST:
            raise BadInput(f"sdrl relates every label to every other, and {shape.labels:,} labels are more than the "
                           f"{MOST} that fit into memory; choose another method, or leave out rare labels.")
        self.hidden = nn.Linear(shape.width, WIDTH)
        self.first, self.second = (
            nn.Sequential(nn.Linear(WIDTH, CLASSIFIER), nn.ReLU(), nn.Linear(CLASSIFIER, shape.labels))
            for _ in range(2))
        self.relation = nn.Sequential(nn.Linear(shape.labels**2, RELATION), nn.ReLU(),
                                      nn.Linear(RELATION, shape.labels))

    def features(self, h: Tensor) -> Tensor:
        """(N, H) -> (N, D)."""
        return torch.tanh(self.hidden(h))

    def answers(self, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the two classifiers and of the relation network, (N, D) -> three (N, K)."""
        first, second = self.first(f), self.second(f)
        pairs = first.sigmoid()[:, :, None] * second.sigmoid()[:, None, :]
        return first, second, self.relation(pairs.flatten(1))

    def apart(self, f: Tensor) -> Tensor:
        """By how much the probabilities of the two classifiers differ, (N, D) -> (N, K)."""
        return self.first(f).sigmoid() - self.second(f).sigmoid()

    def forward(self, f: Tensor) -> Tensor:
        """Logits of the relation network, (N, D) -> (N, K)."""
        return self.answers(f)[2]
