"""Which pseudo-labels count, and how much: by a fixed cutoff, by class, or by a bell curve."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from halflabel.parts.penalty import evened
from halflabel.parts.pseudo import Labeller, SelfAdaptive, Target, hard
from halflabel.types import Shape


class Confident(Labeller):
    """Hard labels whose probability reaches the cutoff (FixMatch)."""

    def __init__(self, cutoff: float) -> None:
        super().__init__()
        self.cutoff = cutoff

    def label(self, p: Tensor) -> Target:
        return Target(hard(p), (p.amax(dim=1) >= self.cutoff).to(p.dtype))


class Flexible(Labeller):
    """Hard labels above a cutoff that is lower for classes in which few texts have passed it so far (FlexMatch).

    With `count_unused` the texts that have never passed stand in the comparison too, so that all cutoffs start low.
    """

    def __init__(self, shape: Shape, cutoff: float, *, count_unused: bool) -> None:
        super().__init__()
        self.cutoff, self.count_unused = cutoff, count_unused
        self.register_buffer("passed", torch.full((shape.unlabelled,), -1))  # the class that each text passed in
        self.register_buffer("status", torch.zeros(shape.labels))  # beta_k: learning status of each class

    passed: Tensor
    status: Tensor

    def thresholds(self) -> Tensor:
        """cutoff * beta / (2 - beta), (K,)."""
        return self.cutoff * self.status / (2.0 - self.status)

    def label(self, p: Tensor) -> Target:
        confidence, label = p.max(dim=1)
        return Target(hard(p), (confidence >= self.thresholds()[label]).to(p.dtype))

    @torch.no_grad()
    def note(self, rows: Tensor, p: Tensor) -> None:
        """Remembers which rows passed the full cutoff, and how far that leaves each class behind the first."""
        confidence, label = p.max(dim=1)
        sure = confidence >= self.cutoff
        self.passed[rows.to(label.device)[sure]] = label[sure]
        counts = torch.bincount(self.passed + 1, minlength=len(self.status) + 1)
        most = int(counts.max() if self.count_unused else counts[1:].max())
        if int(counts[1:].sum()):
            self.status.copy_(counts[1:] / most)

    def forward(self, rows: Tensor, ask: Callable[[], Tensor]) -> Target:
        p = ask()
        target = self.label(p)
        self.note(rows, p)
        return target


class Truncated(Labeller):
    """Hard labels that weigh by a bell curve of their confidence, in full above its mean (SoftMatch).

    The confidence is measured after uniform alignment: probabilities over their running mean, scaled to one.
    """

    def __init__(self, shape: Shape, momentum: float, sigmas: float) -> None:
        super().__init__()
        self.momentum, self.sigmas = momentum, sigmas
        self.register_buffer("marginal", torch.zeros(shape.labels))  # zeros: nothing seen yet
        self.register_buffer("mean", torch.tensor(1.0 / shape.labels))
        self.register_buffer("variance", torch.tensor(1.0))

    marginal: Tensor
    mean: Tensor
    variance: Tensor

    @torch.no_grad()
    def update(self, p: Tensor) -> None:
        """Moving averages: of the marginal, which begins with the first batch, and of the confidence."""
        first = not bool(self.marginal.any())
        self.marginal.lerp_(p.mean(dim=0), 1.0 if first else 1.0 - self.momentum)
        confidence = self.aligned(p).amax(dim=1)
        self.mean.lerp_(confidence.mean(), 1.0 - self.momentum)
        if len(p) > 1:
            self.variance.lerp_(confidence.var(), 1.0 - self.momentum)

    def aligned(self, p: Tensor) -> Tensor:
        """Probabilities as they would be if the pool's classes were even, (N, K)."""
        if not bool(self.marginal.any()):
            return p
        q = p * (1.0 / p.shape[1] + 1e-6) / (self.marginal + 1e-6)
        return q / q.sum(dim=1, keepdim=True)

    def label(self, p: Tensor) -> Target:
        below = (self.aligned(p).amax(dim=1) - self.mean).clamp_max(0.0)
        spread = (self.variance / self.sigmas**2).clamp_min(torch.finfo(p.dtype).tiny)
        return Target(hard(p), torch.exp(-below.square() / (2.0 * spread)))


class Fair(SelfAdaptive):
    """FreeMatch's thresholds, with the record of first choices that its fairness term needs."""

    def __init__(self, shape: Shape, momentum: float) -> None:
        super().__init__(shape, momentum)
        self.register_buffer("chosen", torch.full((shape.labels,), 1.0 / shape.labels))

    chosen: Tensor

    @torch.no_grad()
    def update(self, p: Tensor) -> None:
        super().update(p)
        self.chosen.lerp_(hard(p).mean(dim=0), 1.0 - self.momentum)

    def wanted(self) -> Tensor:
        """Class shares over how often each class was the first choice, (K,), summing to one."""
        return evened(self.marginal, self.chosen)
