"""The state of the pool during a run: its pseudo-labels, and whether they collapse to few classes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.evaluation.metrics import collapsed
from halflabel.nn.pseudo_labels import Target
from halflabel.types import Task

# Share of the effective classes (beyond the first) of the reference below which pseudo-labels count as collapsed.
COLLAPSE_THRESHOLD = 0.6


class PoolState(nn.Module):
    """Pseudo-labels and trust as buffers, so that a checkpoint holds them."""

    def __init__(self, labels: int, unlabelled: int, task: Task = "multi-class", *, guard: bool = True) -> None:
        super().__init__()
        self.guard = guard  # whether a collapse is looked for
        # Latest pseudo-label of each text: its column, in as few bytes as possible, since there may be many texts;
        # for several labels per text a row of booleans.
        columns = torch.from_numpy(np.full(unlabelled, -1, np.min_scalar_type(-labels)))
        rows = torch.zeros(unlabelled, labels if task == "multi-label" else 0, dtype=torch.bool)
        self.register_buffer("label", rows if task == "multi-label" else columns)
        self.register_buffer("since", torch.full((unlabelled,), -1, dtype=torch.int32))  # step of first acceptance
        self.register_buffer("trust", torch.ones(()))  # factor on the weight of the pool
        self.register_buffer("reference", torch.zeros(labels))  # class shares predicted from labelled texts alone

    label: Tensor
    since: Tensor
    trust: Tensor
    reference: Tensor

    def record(self, rows: np.ndarray, target: Target, step: int) -> None:
        """Records the accepted pseudo-labels of a step's rows."""
        accepted, y = target.accepted.cpu(), target.y.cpu()
        places = torch.from_numpy(rows)[accepted]
        self.label[places] = (y.argmax(dim=1) if self.label.dim() == 1 else y > 0.5)[accepted].to(self.label.dtype)
        self.since[places[self.since[places] < 0]] = step

    def set_reference(self, shares: np.ndarray) -> None:
        """Sets the class shares (K,) that a collapse is measured against."""
        self.reference.copy_(torch.from_numpy(shares))

    def collapsed(self, shares: np.ndarray) -> bool:
        """Whether class shares (K,) have collapsed to few classes; never once the pool was abandoned."""
        watched = self.guard and float(self.trust) > 0.0
        return watched and collapsed(shares, self.reference.double().numpy(), COLLAPSE_THRESHOLD)

    def abandon(self) -> str:
        """Sets the trust in the pool to zero and forgets its pseudo-labels; returns the reason.

        Halving the trust instead ended below the labelled texts alone in most trials.
        """
        self.trust.zero_()
        self.since.fill_(-1)
        return "pseudo-labels collapsed to few classes; the pool is abandoned, training on labelled texts only"
