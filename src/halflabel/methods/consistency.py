"""Consistency between a text and a strong view of it: UDA, FixMatch, FlexMatch, FreeMatch, SoftMatch.

Without a pool, UDA is cross-entropy on the labelled texts; for the others the labelled texts stand in for the pool,
as in their authors' library, which always puts them there too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from halflabel.equations import probabilities
from halflabel.methods.registry import method
from halflabel.nn.losses import Penalty, Reduction, constant, cross_entropy, divergence
from halflabel.nn.network import Linear
from halflabel.nn.pseudo_labels import FixedThreshold, PseudoLabeller, SelfAdaptive, Sharpen, Target, one_hot
from halflabel.training.objective import SelfTraining
from halflabel.types import Shape

SCHEDULES: dict[str, Callable[[float], float]] = {
    "linear": lambda progress: progress,
    "exp": lambda progress: math.exp(5.0 * (progress - 1.0)),
    "log": lambda progress: 1.0 - math.exp(-5.0 * progress),
}


@method("uda", task="multi-class", paper="UDA: Xie et al., NeurIPS 2020",
        plans={"frozen": {"warmup": 0}, "laptop": {"warmup": 0}})
def uda(shape: Shape, *, anneal: str = "linear", T: float = 1.0, cutoff: float = 0.0,
        lambda1: float = 1.0) -> SelfTraining:
    """A strong view gets the text's own soft label; sure labelled texts wait (training-signal annealing)."""
    return SelfTraining(
        head=Linear(shape), loss=divergence, pseudo_labels=Sharpen(T, cutoff), weight=constant(lambda1), strong_views=True,
        reduction=annealed(anneal) if anneal != "none" and shape.unlabelled else None,
    )


@method("fixmatch", task="multi-class", paper="FixMatch: Sohn et al., NeurIPS 2020", labelled_as_pool=True)
def fixmatch(shape: Shape, *, cutoff: float = 0.95, lambda1: float = 1.0) -> SelfTraining:
    """A strong view gets the text's hard label where that is surer than a fixed cutoff."""
    return matching(shape, FixedThreshold(cutoff), lambda1)


@method("flexmatch", task="multi-class", paper="FlexMatch: Zhang et al., NeurIPS 2021", labelled_as_pool=True)
def flexmatch(shape: Shape, *, cutoff: float = 0.95, count_unused: str = "yes",
              lambda1: float = 1.0) -> SelfTraining:
    """FixMatch with a lower cutoff for classes that are learnt more slowly."""
    return matching(shape, FlexibleThresholds(shape, cutoff, count_unused=count_unused == "yes"), lambda1)


@method("freematch", task="multi-class", paper="FreeMatch: Wang et al., ICLR 2023", labelled_as_pool=True)
def freematch(shape: Shape, *, momentum: float = 0.999, lambda1: float = 1.0, lambda2: float = 0.001) -> SelfTraining:
    """FixMatch with self-adaptive thresholds and a fairness term that keeps predictions spread."""
    pseudo = FairThresholds(shape, momentum)
    return replace(matching(shape, pseudo, lambda1), penalty=Fairness(lambda2, pseudo.wanted))


@method("softmatch", task="multi-class", paper="SoftMatch: Chen et al., ICLR 2023", labelled_as_pool=True)
def softmatch(shape: Shape, *, momentum: float = 0.999, sigmas: float = 2.0, lambda1: float = 1.0) -> SelfTraining:
    """FixMatch with a weight for each text, by a bell curve of its confidence, instead of a cutoff."""
    return matching(shape, SoftWeights(shape, momentum, sigmas), lambda1)


def matching(shape: Shape, pseudo: PseudoLabeller, lambda1: float) -> SelfTraining:
    """Hard labels of the text itself, learnt on a strong view."""
    return SelfTraining(head=Linear(shape), loss=cross_entropy, pseudo_labels=pseudo, weight=constant(lambda1),
                        strong_views=True)


class FlexibleThresholds(PseudoLabeller):
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
        return Target(one_hot(p), (confidence >= self.thresholds()[label]).to(p.dtype))

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


class SoftWeights(PseudoLabeller):
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
        return Target(one_hot(p), torch.exp(-below.square() / (2.0 * spread)))


class FairThresholds(SelfAdaptive):
    """FreeMatch's thresholds, with the record of first choices that its fairness term needs."""

    def __init__(self, shape: Shape, momentum: float) -> None:
        super().__init__(shape, momentum)
        self.register_buffer("chosen", torch.full((shape.labels,), 1.0 / shape.labels))

    chosen: Tensor

    @torch.no_grad()
    def update(self, p: Tensor) -> None:
        super().update(p)
        self.chosen.lerp_(one_hot(p).mean(dim=0), 1.0 - self.momentum)

    def wanted(self) -> Tensor:
        """Class shares over how often each class was the first choice, (K,), summing to one."""
        return evened(self.marginal, self.chosen)


def ceiling(schedule: str, labels: int, progress: float) -> float:
    """eta_t: how probable the true label may be for a text to count, from 1/K up to 1."""
    return SCHEDULES[schedule](progress) * (1.0 - 1.0 / labels) + 1.0 / labels


def annealed(schedule: str) -> Reduction:
    """The mean loss of the texts whose true label is not yet more probable than eta_t; 0 if there are none."""
    def release(losses: Tensor, scores: Tensor, y: Tensor, progress: float) -> Tensor:
        sure = (y * scores.detach().softmax(dim=1)).sum(dim=1)
        kept = (sure <= ceiling(schedule, y.shape[1], progress)).to(losses.dtype)
        return (kept * losses).sum() / kept.sum().clamp_min(1.0)
    return release


class Fairness(Penalty):
    """FreeMatch's fairness: lambda2 sum_k wanted_k log given_k, where accepted texts are.

    `wanted` are the class shares that the pool has had so far, each over how often its class was the first choice;
    `given` is the same of the accepted texts of this step. Minus a cross-entropy: lowering it spreads predictions.
    """

    def __init__(self, lambda2: float, wanted: Callable[[], Tensor]) -> None:
        super().__init__()
        self.lambda2, self.wanted = lambda2, wanted

    def forward(self, scores: Tensor, head: nn.Module, target: Target | None = None) -> Tensor:
        if target is None or not bool((target.weight > 0).any()):
            return scores.new_zeros(())
        p = probabilities(scores[-len(target.y) :][target.weight > 0])
        chosen = torch.bincount(p.argmax(dim=1), minlength=p.shape[1]).to(p.dtype) / len(p)
        given = evened(p.mean(dim=0), chosen)
        return self.lambda2 * (self.wanted() * (given + 1e-12).log()).sum()


def evened(share: Tensor, chosen: Tensor) -> Tensor:
    """Class shares (K,) over how often each class was the first choice (K,), summing to one; never chosen: 0."""
    ratio = torch.where(chosen > 0, share / chosen.clamp_min(torch.finfo(chosen.dtype).tiny), 0.0)
    return ratio / ratio.sum()
