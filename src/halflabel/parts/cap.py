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
    goes to none. Of the texts that get a label, and of those that do not, the surest shares `positives` and
    `negatives` count; the others are left open.
    """

    trains_on_survey = True

    def __init__(self, shape: Shape, positives: float = 1.0, negatives: float = 1.0) -> None:
        super().__init__()
        self.positives, self.negatives = positives, negatives
        self.all_count = min(positives, negatives) == 1.0
        self.register_buffer("prior", torch.zeros(shape.labels))
        self.register_buffer("table", torch.zeros(shape.unlabelled, shape.labels, dtype=torch.bool))
        left_open = 0 if self.all_count else shape.unlabelled
        self.register_buffer("counted", torch.zeros(left_open, shape.labels, dtype=torch.bool))

    prior: Tensor
    table: Tensor
    counted: Tensor

    def meet(self, y: Tensor) -> None:
        self.prior.copy_(prior(y))

    def label(self, p: Tensor) -> Target:
        counts = cap_counts(self.prior, len(p))
        y = ranked(p, counts)
        if self.all_count:
            return Target(y, p.new_ones(len(p)))
        sure = cap_counts(self.positives * self.prior, len(p)).minimum(counts)
        unsure = len(p) - ((len(p) - counts) * self.negatives + 0.5).floor().long()
        return Target(y, ranked(p, sure) + 1.0 - ranked(p, unsure))

    @torch.no_grad()
    def refresh(self, rows: Tensor, p: Tensor, f: Tensor, y: Tensor) -> None:
        """Labels the rows (M,) anew by what the teacher makes of them, p (M, K)."""
        target = self.label(p.to(self.prior.device))
        self.table[rows] = target.y.bool()
        if not self.all_count:
            self.counted[rows] = target.weight.bool()

    def forward(self, rows: Tensor, ask: Callable[[], Tensor]) -> Target:
        y = self.table[rows].to(self.prior.dtype)
        return Target(y, y.new_ones(len(y)) if self.all_count else self.counted[rows].to(y.dtype))


def ranked(p: Tensor, counts: Tensor) -> Tensor:
    """1 for the counts[k] largest of each column of p (N, K), else 0, (N, K)."""
    y = torch.empty_like(p)
    for start in range(0, p.shape[1], COLUMNS):
        part = slice(start, start + COLUMNS)
        y[:, part] = cap_labels(p[:, part], counts=counts[part])
    return y
