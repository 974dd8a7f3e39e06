"""Watches the pseudo-labels: who got which label when, and whether they collapse to few classes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.metrics import collapsed
from halflabel.parts.pseudo import Target
from halflabel.types import Task

LEFT = 0.6  # of the classes (beyond the first) that labelled texts alone gave to the pool: less is a collapse


class Guard(nn.Module):
    """All that is remembered of the pool during a run, as buffers, so that a checkpoint holds it."""

    def __init__(self, labels: int, unlabelled: int, task: Task = "multi-class") -> None:
        super().__init__()
        # latest pseudo-label of each text: its column, in as few bytes as will do, since there may be many texts; or
        # where texts have several a row of yes and no
        one = torch.from_numpy(np.full(unlabelled, -1, np.min_scalar_type(-labels)))
        several = torch.zeros(unlabelled, labels if task == "multi-label" else 0, dtype=torch.bool)
        self.register_buffer("label", several if task == "multi-label" else one)
        # step at which it was first accepted
        self.register_buffer("since", torch.full((unlabelled,), -1, dtype=torch.int32))
        self.register_buffer("trust", torch.ones(()))  # factor on the weight of the pool
        self.register_buffer("reference", torch.zeros(labels))  # class shares that labels alone give

    label: Tensor
    since: Tensor
    trust: Tensor
    reference: Tensor

    def record(self, rows: np.ndarray, target: Target, step: int) -> None:
        """Notes what the rows of a step were taken to be."""
        kept, y = target.kept.cpu(), target.y.cpu()
        accepted = torch.from_numpy(rows)[kept]
        self.label[accepted] = (y.argmax(dim=1) if self.label.dim() == 1 else y > 0.5)[kept].to(self.label.dtype)
        fresh = accepted[self.since[accepted] < 0]
        self.since[fresh] = step

    def refer(self, shares: np.ndarray) -> None:
        """Sets the class shares against which a collapse is judged."""
        self.reference.copy_(torch.from_numpy(shares))

    def collapsed(self, shares: np.ndarray) -> bool:
        """Whether class shares have fallen in on few classes since the reference; a pool that is not heard cannot."""
        return float(self.trust) > 0.0 and collapsed(shares, self.reference.double().numpy(), LEFT)

    def give_up(self) -> str:
        """Trusts the pool no more, and forgets what it was taken to be, which nothing is learnt from; says why.

        Trusting it half as much ended below the labels alone in most trials.
        """
        self.trust.zero_()
        self.since.fill_(-1)
        return "pseudo-labels collapsed to few classes; giving up the pool, going on with the labelled texts alone"
