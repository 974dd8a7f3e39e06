"""Pseudo-labels that stay: texts on which two classifiers agree become labelled for good."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from halflabel.parts.pseudo import Labeller, Target
from halflabel.types import Shape


class Agreed(Labeller):
    """Takes a text over with its soft label when the squared answers of two classifiers differ by less than `distance`.

    `apart` gives the difference (N, K) for features (N, D). Nothing is taken over before a share `after` of the run,
    and nothing is given back.
    """

    def __init__(self, shape: Shape, apart: Callable[[Tensor], Tensor], distance: float, after: float) -> None:
        super().__init__()
        self.apart, self.distance, self.after = apart, distance, after
        self.register_buffer("table", torch.zeros(shape.unlabelled, shape.labels))
        self.register_buffer("taken", torch.zeros(shape.unlabelled, dtype=torch.bool))
        self.register_buffer("progress", torch.zeros(()))  # of the run, by its last step

    table: Tensor
    taken: Tensor
    progress: Tensor

    def label(self, p: Tensor) -> Target:
        """What is only looked at gets no label."""
        return Target(p, p.new_zeros(len(p)))

    @torch.no_grad()
    def refresh(self, rows: Tensor, p: Tensor, f: Tensor, y: Tensor) -> None:
        """Takes over those of the rows (M,) that are not yet taken and on which the classifiers agree."""
        if float(self.progress) < self.after:
            return
        near = self.apart(f[len(y) :].to(self.table.device)).square().sum(dim=1) < self.distance
        fresh = near & ~self.taken[rows]
        self.table[rows[fresh.cpu()]] = p.to(self.table.device)[fresh]
        self.taken[rows[fresh.cpu()]] = True

    def forward(self, rows: Tensor, ask: Callable[[], Tensor]) -> Target:
        return Target(self.table[rows], self.taken[rows].to(self.table.dtype))

    def count(self) -> int:
        """How many texts have been taken over."""
        return int(self.taken.sum())
