"""MetaExpert: which expert is right for a text is learnt too.

Taken from its public code, with what is broken there mended: the gate and the fusion are trained, confidence masks
count, classes are ordered by frequency here, every group has a class, counts of labels are whole. Without the batch
normalisation branches of an image network, `follow=code` can only bring back the masks that do not count.

For several labels there is no public code. Experts learn by the asymmetric loss, their logits moved by tau_q log-odds
of each label; the pool has class-aware labels, in the labelled frequencies, for all experts alike; a text belongs to
every expert that has one of its labels.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from halflabel.methods.multilabel import PLANS
from halflabel.methods.registry import method
from halflabel.model.experts import DEPTHS, EXPERTS, Experts, Opinions
from halflabel.parts.cap import Cap
from halflabel.parts.groups import assigned, effective, groups, log_odds, log_prior
from halflabel.parts.losses import Asymmetric, cross_entropy
from halflabel.parts.prior import prior
from halflabel.parts.pseudo import Target
from halflabel.parts.thresholds import Confident
from halflabel.parts.weight import constant
from halflabel.train.objective import Began, Draw, Given, Objective, Problem, Rule, SelfTraining, Step, each
from halflabel.types import Shape


@method("metaexpert", task="multi-class", paper="Meta-Expert: Hou and Jia, ICML 2025", depths=DEPTHS,
        twin="metaexpert-ml")
def metaexpert(shape: Shape, *, cutoff: float = 0.95, tau2: float = 2.0, tau3: float = 4.0, beta: float = 0.99,
               apart: float = 0.08, lambda1: float = 1.0, follow: str = "paper") -> SelfTraining:
    """Experts for frequent, middling and rare classes, and a gate over several depths that weighs them."""
    head, rule = Experts(shape), Fusion(shape, cutoff, beta, apart, masks=follow == "paper")
    return SelfTraining(
        head=head, loss=cross_entropy, pseudo=Confident(cutoff), weight=constant(lambda1), strong_views=True, rule=rule,
        start=lambda given: begin(head, rule, given, (tau2, tau3), log_prior(given.y.sum(dim=0))),
    )


@method("metaexpert-ml", task="multi-label", paper="Meta-Expert: Hou and Jia, ICML 2025, with the asymmetric loss",
        depths=DEPTHS, plans=PLANS)
def metaexpert_ml(shape: Shape, *, gamma_neg: float = 4.0, gamma_pos: float = 0.0, shift: float = 0.05,
                  tau2: float = 2.0, tau3: float = 4.0, beta: float = 0.99, apart: float = 0.08, lambda1: float = 1.0,
                  answer: str = "adjusted", views: str = "same") -> SelfTraining:
    """Experts for frequent, middling and rare labels by the asymmetric loss, a gate that weighs them, CAP's labels."""
    loss = Asymmetric(gamma_neg, gamma_pos, shift)
    head, rule = Experts(shape, several=True, adjusted=answer == "adjusted"), Sets(shape, loss, beta, apart)
    return SelfTraining(
        head=head, loss=loss, pseudo=Cap(shape), weight=constant(lambda1), averaged_teacher=True, logits=True,
        strong_views=views == "strong", rule=rule,
        start=lambda given: begin(head, rule, given, (tau2, tau3), log_odds(prior(given.y), shape.labelled)),
    )


def begin(head: Experts, rule: Balance, given: Given, taus: tuple[float, float], shift: Tensor) -> Began:
    """Sets whose a class is, by what experts' logits are shifted (K,) times tau_q, and how much classes count."""
    known = ~given.y.isnan()
    target = Target(given.y.nan_to_num(), known.to(given.y.dtype))
    head.adjustment.copy_(torch.tensor([0.0, *taus])[:, None] * shift)
    head.group.copy_(groups(target.y.sum(dim=0)))
    rule.count(target, head.group)
    return Began()


class Balance(Rule):
    """Losses of each expert by itself and, once a share `apart` of the run is over, of their fusion and the gate."""

    def __init__(self, shape: Shape, beta: float, apart: float) -> None:
        super().__init__()
        self.beta, self.apart = beta, apart
        self.register_buffer("class_weight", torch.ones(shape.labels))
        self.register_buffer("group_weight", torch.ones(EXPERTS))
        self.register_buffer("order", torch.arange(shape.labels))  # frequent classes first

    class_weight: Tensor
    group_weight: Tensor
    order: Tensor

    def count(self, target: Target, group: Tensor) -> None:
        """Weighs classes and groups by their labelled texts."""
        counts = target.y.sum(dim=0)
        self.class_weight.copy_(effective(counts, self.beta))
        self.group_weight.copy_(effective(assigned(target, group).y.sum(dim=0), self.beta))
        self.order.copy_(counts.argsort(descending=True, stable=True))

    def forward(self, objective: Objective, problem: Problem, draw: Draw, weight: float) -> Step:
        head = objective.network.head
        assert isinstance(head, Experts)
        given, pool = problem.target(draw.labelled), problem.labelled + draw.unlabelled
        views = np.concatenate([np.zeros_like(draw.labelled), objective.strong(problem, draw)])
        seen = head.opinions(objective.outputs(problem, np.concatenate([draw.labelled, pool]), views, draw.rng).f)
        n = len(given.y)
        known, strong = (Opinions(*(part[rows] for part in seen)) for rows in (slice(n), slice(n, None)))
        together = draw.progress >= self.apart
        labelled = self.supervised(known, given, head.group, together)
        if not len(pool):
            return Step(labelled, float(labelled.detach()), 0.0, None)
        unlabelled, target = self.taught(objective, problem, strong, pool, together)
        return Step(labelled + weight * unlabelled, float(labelled.detach()), float(unlabelled.detach()), target)

    def supervised(self, seen: Opinions, target: Target, group: Tensor, together: bool) -> Tensor:
        """Each expert on adjusted logits; then their fusion by balanced classes, and the gate by balanced groups."""
        raise AssertionError("for one label and for several")

    def taught(self, objective: Objective, problem: Problem, strong: Opinions, pool: np.ndarray,
               together: bool) -> tuple[Tensor, Target]:
        """The loss of unlabelled texts, of which `strong` is thought, and what they were taken to be."""
        raise AssertionError("for one label and for several")


class Fusion(Balance):
    """One label for each text: experts teach themselves what they are sure of."""

    def __init__(self, shape: Shape, cutoff: float, beta: float, apart: float, *, masks: bool) -> None:
        super().__init__(shape, beta, apart)
        self.sure, self.masks = Confident(cutoff).label, masks
        self.register_buffer("confident", torch.zeros(shape.labels))  # sure labels of the middle expert so far

    confident: Tensor

    def supervised(self, seen: Opinions, target: Target, group: Tensor, together: bool) -> Tensor:
        y, mine = target.y, assigned(target, group).y
        loss = torch.stack([cross_entropy(seen.adjusted[:, q], y).mean() for q in range(EXPERTS)]).sum()
        if together:
            loss = loss + weighted(cross_entropy(seen.fused(seen.adjusted), y), y @ self.class_weight)
            loss = loss + weighted(cross_entropy(seen.gate, mine), mine @ self.group_weight)
        return loss

    def taught(self, objective: Objective, problem: Problem, strong: Opinions, pool: np.ndarray,
               together: bool) -> tuple[Tensor, Target]:
        head = objective.network.head
        assert isinstance(head, Experts)
        with torch.no_grad():
            asked = objective.outputs(problem, pool)
            weak = head.opinions(asked.f)
        target = objective.pseudo.label(asked.scores.softmax(dim=1))
        return self.unsupervised(strong, weak, together), target

    def unsupervised(self, strong: Opinions, weak: Opinions, together: bool) -> Tensor:
        """Each expert on its own sure labels; then the fusion on those of the expert that fits the pool, and the gate.

        Which one fits is read off the sure labels of the middle expert; until there are any, all do alike.
        """
        targets = [self.sure(weak.logits[:, q].softmax(dim=1)) for q in range(EXPERTS)]
        loss = torch.stack([weighted(cross_entropy(strong.logits[:, q], target.y), target.weight)
                            for q, target in enumerate(targets)]).sum()
        self.confident += (targets[1].y * targets[1].weight[:, None]).sum(dim=0)
        if together:
            fused = strong.fused(strong.logits)
            for fits, target in zip(self.fitting(), targets, strict=True):
                counts = target.weight if self.masks else torch.ones_like(target.weight)
                loss = loss + fits * (counts * cross_entropy(fused, target.y)).mean()
            gate = self.sure(weak.gate.softmax(dim=1))
            counts = gate.weight if self.masks else torch.ones_like(gate.weight)
            loss = loss + (counts * cross_entropy(strong.gate, gate.y)).mean()
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


class Sets(Balance):
    """Several labels for each text: labelled texts and CAP's labels teach experts, fusion and gate in the same way.

    CAP's labels have the labelled frequencies, so experts learn them on adjusted logits too, and there is no choice
    of an expert that would fit the pool better.
    """

    def __init__(self, shape: Shape, loss: Asymmetric, beta: float, apart: float) -> None:
        super().__init__(shape, beta, apart)
        self.loss = loss

    def supervised(self, seen: Opinions, target: Target, group: Tensor, together: bool) -> Tensor:
        losses = [each(self.loss, seen.adjusted[:, q], target) for q in range(EXPERTS)]
        if together:
            losses.append(each(self.balanced, seen.mixed(seen.adjusted), target))
            losses.append(each(self.guessed, seen.gate, assigned(target, group)))
        return torch.stack(losses).mean(dim=1).sum()

    def balanced(self, logits: Tensor, y: Tensor) -> Tensor:
        """The loss with labels weighed by their effective numbers, (N,)."""
        return (self.class_weight * self.loss.labels(logits, y)).sum(dim=1)

    def guessed(self, gate: Tensor, mine: Tensor) -> Tensor:
        """The gate's cross-entropy about each expert by itself, experts weighed by their texts, (N,)."""
        return functional.binary_cross_entropy_with_logits(gate, mine, self.group_weight, reduction="none").sum(dim=1)

    def taught(self, objective: Objective, problem: Problem, strong: Opinions, pool: np.ndarray,
               together: bool) -> tuple[Tensor, Target]:
        head = objective.network.head
        assert isinstance(head, Experts)
        target = objective.targets(problem, pool)
        return self.supervised(strong, target, head.group, together), target


def weighted(losses: Tensor, weight: Tensor) -> Tensor:
    """The mean of losses (N,) under weights (N,); 0 where nothing weighs."""
    return (weight * losses).sum() / weight.sum().clamp_min(1e-12)
