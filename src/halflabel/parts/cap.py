"""Class-distribution-aware pseudo-labels (Eq. 12): every label goes to exactly its share of the pool."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from halflabel.equations import cap_counts, cap_labels
from halflabel.parts.prior import prior
from halflabel.parts.pseudo import Labeller, Target
from halflabel.types import Shape

COLUMNS = 8  # labels that are sorted together: places are 64 bits, so all at once would take twice the table


class Cap(Labeller):
    """The texts that score a label highest get it, as many as the labelled frequencies ask for.

    Labels stand in a table until the next epoch. Ties go to the lower row; a label that no labelled text has
    goes to none.
    """

    trains_on_survey = True

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.register_buffer("prior", torch.zeros(shape.labels))
        self.register_buffer("table", torch.zeros(shape.unlabelled, shape.labels, dtype=torch.bool))

    prior: Tensor
    table: Tensor

    def meet(self, y: Tensor) -> None:
        self.prior.copy_(prior(y))

    def label(self, p: Tensor) -> Target:
        counts, y = cap_counts(self.prior, len(p)), torch.empty_like(p)
        for start in range(0, p.shape[1], COLUMNS):
            part = slice(start, start + COLUMNS)
            y[:, part] = cap_labels(p[:, part], counts=counts[part])
        return Target(y, p.new_ones(len(p)))

    @torch.no_grad()
    def refresh(self, rows: Tensor, p: Tensor, f: Tensor, y: Tensor) -> None:
        """Labels the rows (M,) anew by what the teacher makes of them, p (M, K)."""
        self.table[rows] = self.label(p.to(self.prior.device)).y.bool()

    def forward(self, rows: Tensor, ask: Callable[[], Tensor]) -> Target:
        y = self.table[rows].to(self.prior.dtype)
        return Target(y, y.new_ones(len(y)))
