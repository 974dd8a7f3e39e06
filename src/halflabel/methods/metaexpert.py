"""MetaExpert: which expert is right for a text is learnt too.

Taken from its public code, with what is broken there mended: the gate and the fusion are trained, confidence masks
count, classes are ordered by frequency here, every group has a class, counts of labels are whole. Without the batch
normalisation branches of an image network, `follow=code` can only bring back the masks that do not count.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from halflabel.methods.registry import method
from halflabel.model.experts import DEPTHS, EXPERTS, Experts, Opinions
from halflabel.parts.losses import Loss, cross_entropy
from halflabel.parts.thresholds import Confident
from halflabel.parts.weight import constant
from halflabel.train.objective import Began, Draw, Given, Objective, Problem, Rule, SelfTraining, Step
from halflabel.types import Shape

GROUPS = (0.2, 0.4)  # shares of the classes, by frequency, at which the middle and the last group begin


@method("metaexpert", task="multi-class", paper="Meta-Expert: Hou and Jia, ICML 2025", depths=DEPTHS)
def metaexpert(shape: Shape, *, cutoff: float = 0.95, tau2: float = 2.0, tau3: float = 4.0, beta: float = 0.99,
               apart: float = 0.08, lambda1: float = 1.0, follow: str = "paper") -> SelfTraining:
    """Experts for frequent, middling and rare classes, and a gate over several depths that weighs them."""
    head = Experts(shape)
    rule = Fusion(shape, cutoff, beta, apart, masks=follow == "paper")

    def start(given: Given) -> Began:
        counts = given.y.sum(dim=0)
        head.adjustment.copy_(torch.tensor([0.0, tau2, tau3])[:, None] * log_prior(counts))
        head.group.copy_(groups(counts))
        rule.count(counts, head.group)
        return Began()

    return SelfTraining(head=head, loss=cross_entropy, pseudo=Confident(cutoff), weight=constant(lambda1),
                        strong_views=True, start=start, rule=rule)


def log_prior(counts: Tensor) -> Tensor:
    """Logarithm of the labelled class shares, (K,); a class without a text counts as half a one."""
    counts = counts.clamp_min(0.5)
    return (counts / counts.sum()).log()


def groups(counts: Tensor) -> Tensor:
    """Which expert each class belongs to, one-hot (3, K): frequent classes first, at least one each if K allows."""
    labels = len(counts)
    first = max(1, round(GROUPS[0] * labels))
    second = max(first + 1, round(GROUPS[1] * labels))
    rank = counts.argsort(descending=True, stable=True).argsort()
    number = (rank >= first).long() + (rank >= min(second, labels)).long()
    return functional.one_hot(number, EXPERTS).T.float()


def effective(counts: Tensor, beta: float) -> Tensor:
    """Weights by the effective number of texts, (1 - beta) / (1 - beta^n), of mean one over what has a text."""
    weight = torch.where(counts > 0, (1.0 - beta) / (1.0 - beta ** counts.clamp_min(1.0)), 0.0)
    return weight / weight.sum() * (counts > 0).sum()


class Fusion(Rule):
    """Losses of each expert by itself and, once a share `apart` of the run is over, of their fusion and the gate.

    `loss` is one of logits against y: the sums over experts below are the same for one label and for several.
    """

    def __init__(self, shape: Shape, cutoff: float, beta: float, apart: float, *, masks: bool,
                 loss: Loss = cross_entropy) -> None:
        super().__init__()
        self.sure = Confident(cutoff).label
        self.beta, self.apart, self.masks, self.loss = beta, apart, masks, loss
        self.register_buffer("class_weight", torch.ones(shape.labels))
        self.register_buffer("group_weight", torch.ones(EXPERTS))
        self.register_buffer("order", torch.arange(shape.labels))  # frequent classes first
        self.register_buffer("confident", torch.zeros(shape.labels))  # sure labels of the middle expert so far

    class_weight: Tensor
    group_weight: Tensor
    order: Tensor
    confident: Tensor

    def count(self, counts: Tensor, group: Tensor) -> None:
        """Weighs classes and groups by their labelled texts."""
        self.class_weight.copy_(effective(counts, self.beta))
        self.group_weight.copy_(effective(group @ counts, self.beta))
        self.order.copy_(counts.argsort(descending=True, stable=True))

    def forward(self, objective: Objective, problem: Problem, draw: Draw, weight: float) -> Step:
        head = objective.network.head
        assert isinstance(head, Experts)
        y, pool = problem.y[torch.from_numpy(draw.labelled)], problem.labelled + draw.unlabelled
        views = np.concatenate([np.zeros_like(draw.labelled), objective.strong(problem, draw)])
        seen = head.opinions(objective.outputs(problem, np.concatenate([draw.labelled, pool]), views, draw.rng).f)
        known, strong = (Opinions(*(part[rows] for part in seen)) for rows in (slice(len(y)), slice(len(y), None)))
        together = draw.progress >= self.apart
        labelled = self.supervised(known, y, head.group, together)
        if not len(pool):
            return Step(labelled, float(labelled.detach()), 0.0, None)
        with torch.no_grad():
            asked = objective.outputs(problem, pool)
            weak = head.opinions(asked.f)
        target = objective.pseudo.label(asked.scores.softmax(dim=1))
        unlabelled = self.unsupervised(strong, weak, together)
        return Step(labelled + weight * unlabelled, float(labelled.detach()), float(unlabelled.detach()), target)

    def supervised(self, seen: Opinions, y: Tensor, group: Tensor, together: bool) -> Tensor:
        """Each expert on adjusted logits; then their fusion by balanced classes, and the gate by balanced groups."""
        loss = torch.stack([self.loss(seen.adjusted[:, q], y).mean() for q in range(EXPERTS)]).sum()
        if together:
            loss = loss + weighted(self.loss(seen.fused(seen.adjusted), y), y @ self.class_weight)
            mine = y @ group.T
            loss = loss + weighted(self.loss(seen.gate, mine), mine @ self.group_weight)
        return loss

    def unsupervised(self, strong: Opinions, weak: Opinions, together: bool) -> Tensor:
        """Each expert on its own sure labels; then the fusion on those of the expert that fits the pool, and the gate.

        Which one fits is read off the sure labels of the middle expert; until there are any, all do alike.
        """
        targets = [self.sure(weak.logits[:, q].softmax(dim=1)) for q in range(EXPERTS)]
        loss = torch.stack([weighted(self.loss(strong.logits[:, q], target.y), target.weight)
                            for q, target in enumerate(targets)]).sum()
        self.confident += (targets[1].y * targets[1].weight[:, None]).sum(dim=0)
        if together:
            fused = strong.fused(strong.logits)
            for fits, target in zip(self.fitting(), targets, strict=True):
                counts = target.weight if self.masks else torch.ones_like(target.weight)
                loss = loss + fits * (counts * self.loss(fused, target.y)).mean()
            gate = self.sure(weak.gate.softmax(dim=1))
            counts = gate.weight if self.masks else torch.ones_like(gate.weight)
            loss = loss + (counts * self.loss(strong.gate, gate.y)).mean()
        return loss

    def fitting(self) -> Tensor:
        """How well each expert fits the pool, (3,): a third each, or one for the shape that its sure labels have.

        Even within a factor of two: the middle one. More in the rare half, by that factor: the last. Else the first.
        """
        if not bool(self.confident.any()):
            return torch.full((EXPERTS,), 1.0 / EXPERTS)
        share = self.confident[self.order] + 1e-9
        frequent, rare = share[: len(share) // 2], share[len(share) // 2 :]
        even = share.max() < 2.0 * share.min()
        turned = (rare.max() > 2.0 * frequent.min()) & (frequent.max() < 2.0 * rare.min())
        return torch.stack([~(even | turned), even, turned & ~even]).float()


def weighted(losses: Tensor, weight: Tensor) -> Tensor:
    """The mean of losses (N,) under weights (N,); 0 where nothing weighs."""
    return (weight * losses).sum() / weight.sum().clamp_min(1e-12)
