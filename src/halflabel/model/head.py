"""The two-layer classifier on the pooled vector: angular or linear."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel.equations import cosines
from halflabel.types import Shape

WIDTH = 128  # Sec. IV-A: hidden size of the classifier


class Head(nn.Module):
    """From pooled vectors (N, H) to features (N, D), and by `forward` from those to scores (N, K)."""

    def features(self, h: Tensor) -> Tensor:
        raise AssertionError("every head says what its features are")


class Cosine(Head):
    """f = tanh(A h), scored by its cosine with the weight vector of each label; no bias."""

    def __init__(self, shape: Shape, *, width: int = WIDTH) -> None:
        super().__init__()
        self.hidden = nn.Linear(shape.width, width)
        self.weight = nn.Parameter(nn.init.xavier_normal_(torch.empty(shape.labels, width)))

    def features(self, h: Tensor) -> Tensor:
        """(N, H) -> (N, D)."""
        return torch.tanh(self.hidden(h))

    def forward(self, f: Tensor) -> Tensor:
        """cos(theta), (N, D) -> (N, K)."""
        return cosines(f, self.weight)


class Linear(Head):
    """f = tanh(A h), then plain logits."""

    def __init__(self, shape: Shape, *, width: int = WIDTH) -> None:
        super().__init__()
        self.hidden = nn.Linear(shape.width, width)
        self.output = nn.Linear(width, shape.labels)

    def features(self, h: Tensor) -> Tensor:
        """(N, H) -> (N, D)."""
        return torch.tanh(self.hidden(h))

    def forward(self, f: Tensor) -> Tensor:
        """Logits, (N, D) -> (N, K)."""
        logits: Tensor = self.output(f)
        return logits


class Unit(Head):
    """Plain logits of the vector scaled to unit length: the form that a closed-form start gives."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.output = nn.Linear(shape.width, shape.labels)

    def features(self, h: Tensor) -> Tensor:
        """(N, H) -> (N, H) of length one."""
        return functional.normalize(h, dim=1)

    def forward(self, f: Tensor) -> Tensor:
        """Logits, (N, H) -> (N, K)."""
        logits: Tensor = self.output(f)
        return logits

    @torch.no_grad()
    def set(self, weight: Tensor, bias: Tensor) -> None:
        """Takes over a linear rule, logits = f W + b, W (H, K), b (K,)."""
        self.output.weight.copy_(weight.T)
        self.output.bias.copy_(bias)
