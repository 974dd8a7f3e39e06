"""MetaExpert: which expert is right for a text is learnt too.

Taken from its public code, with what is broken there mended: the gate and the fusion are trained, confidence masks
count, classes are ordered by frequency here, every group has a class, counts of labels are whole. Without the batch
normalisation branches of an image network, `follow=code` can only bring back the masks that do not count.

For several labels there is no public code. Experts learn by the asymmetric loss, their logits moved by tau_q log-odds
of each label; the pool has class-aware labels, in the labelled frequencies, for all experts alike; a text belongs to
every expert that has one of its labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel.methods.registry import method
from halflabel.nn.label_frequencies import label_frequencies
from halflabel.nn.losses import Asymmetric, constant, cross_entropy
from halflabel.nn.network import WIDTH, Head
from halflabel.nn.pseudo_labels import ClassAware, FixedThreshold, Target
from halflabel.plans import SEMI_SUPERVISED_MULTILABEL
from halflabel.training.objective import (
    CustomStep,
    Objective,
    Problem,
    SelfTraining,
    StartInputs,
    StartResult,
    StepBatch,
    StepResult,
    masked_loss,
)
from halflabel.types import Shape

DEPTHS = 4  # layers of the encoder whose features are fused
EXPERTS = 3  # for classes with many, some and few labelled texts
GROUPS = 3
BOUNDS = (0.2, 0.4)  # shares of the classes, by frequency, at which the middle and the last group begin


@method("metaexpert", task="multi-class", paper="Meta-Expert: Hou and Jia, ICML 2025", depths=DEPTHS,
        multilabel_method="metaexpert-ml")
def metaexpert(shape: Shape, *, cutoff: float = 0.95, tau2: float = 2.0, tau3: float = 4.0, beta: float = 0.99,
               apart: float = 0.08, lambda1: float = 1.0, follow: str = "paper") -> SelfTraining:
    """Experts for frequent, middling and rare classes, and a gate over several depths that weighs them."""
    head, rule = Experts(shape), Fusion(shape, cutoff, beta, apart, masks=follow == "paper")
    return SelfTraining(
        head=head, loss=cross_entropy, pseudo_labels=FixedThreshold(cutoff), weight=constant(lambda1), strong_views=True, custom_step=rule,
        start=lambda given: begin(head, rule, given, (tau2, tau3), log_prior(given.y.sum(dim=0))),
    )


@method("metaexpert-ml", task="multi-label", paper="Meta-Expert: Hou and Jia, ICML 2025, with the asymmetric loss",
        depths=DEPTHS, plans=SEMI_SUPERVISED_MULTILABEL)
def metaexpert_ml(shape: Shape, *, gamma_neg: float = 4.0, gamma_pos: float = 0.0, shift: float = 0.05,
                  tau2: float = 2.0, tau3: float = 4.0, beta: float = 0.99, apart: float = 0.08, lambda1: float = 1.0,
                  answer: str = "adjusted", views: str = "same") -> SelfTraining:
    """Experts for frequent, middling and rare labels by the asymmetric loss, a gate that weighs them, CAP's labels."""
    loss = Asymmetric(gamma_neg, gamma_pos, shift)
    head, rule = Experts(shape, several=True, adjusted=answer == "adjusted"), Sets(shape, loss, beta, apart)
    return SelfTraining(
        head=head, loss=loss, pseudo_labels=ClassAware(shape), weight=constant(lambda1), averaged_teacher=True, logits=True,
        strong_views=views == "strong", custom_step=rule,
        start=lambda given: begin(head, rule, given, (tau2, tau3), log_odds(label_frequencies(given.y), shape.labelled)),
    )


def begin(head: Experts, rule: Balance, given: StartInputs, taus: tuple[float, float], shift: Tensor) -> StartResult:
    """Sets whose a class is, by what experts' logits are shifted (K,) times tau_q, and how much classes count."""
    known = ~given.y.isnan()
    target = Target(given.y.nan_to_num(), known.to(given.y.dtype))
    head.adjustment.copy_(torch.tensor([0.0, *taus])[:, None] * shift)
    head.group.copy_(groups(target.y.sum(dim=0)))
    rule.count(target, head.group)
    return StartResult()


class Balance(CustomStep):
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

    def forward(self, objective: Objective, problem: Problem, batch: StepBatch, weight: float) -> StepResult:
        head = objective.network.head
        assert isinstance(head, Experts)
        given, pool = problem.target(batch.labelled), problem.labelled + batch.unlabelled
        views = np.concatenate([np.zeros_like(batch.labelled), objective.sample_views(problem, batch)])
        seen = head.opinions(objective.outputs(problem, np.concatenate([batch.labelled, pool]), views, batch.rng).f)
        n = len(given.y)
        known, strong = (Opinions(*(part[rows] for part in seen)) for rows in (slice(n), slice(n, None)))
        together = batch.progress >= self.apart
        labelled = self.supervised(known, given, head.group, together)
        if not len(pool):
            return StepResult(labelled, float(labelled.detach()), 0.0, None)
        unlabelled, target = self.taught(objective, problem, strong, pool, together)
        return StepResult(labelled + weight * unlabelled, float(labelled.detach()), float(unlabelled.detach()), target)

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
        self.sure, self.masks = FixedThreshold(cutoff).label, masks
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
        target = objective.pseudo_labels.label(asked.scores.softmax(dim=1))
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
        losses = [masked_loss(self.loss, seen.adjusted[:, q], target) for q in range(EXPERTS)]
        if together:
            losses.append(masked_loss(self.balanced, seen.mixed(seen.adjusted), target))
            losses.append(masked_loss(self.guessed, seen.gate, assigned(target, group)))
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


class Opinions(NamedTuple):
    """What the experts say of N texts."""

    logits: Tensor  # (N, 3, K), not adjusted
    adjusted: Tensor  # (N, 3, K), by tau_q log prior
    gate: Tensor  # (N, 3) logits of the gate
    trust: Tensor  # (N, 3) weights that sum to one

    def mixed(self, logits: Tensor) -> Tensor:
        """Logits (N, 3, K) weighted by trust, (N, K)."""
        return (self.trust[:, :, None] * logits).sum(dim=1)

    def fused(self, logits: Tensor) -> Tensor:
        """The same with each expert's logits above its least: nothing to a softmax, but all at an expert's own rate."""
        return self.mixed(logits - logits.amin(dim=2, keepdim=True))


class Experts(Head):
    """Three linear experts on f = tanh(A h); the gate sees fused depths and the experts' adjusted probabilities.

    `adjustment` (3, K) is what each expert's logits are shifted by while it learns, `group` (3, K) one-hot over
    experts says whose a class is; both are set from the labelled texts before the first step.

    Where texts have several labels, each label has a probability by itself. To move it by tau_q then moves what it is
    compared with, one half, so answers stay `adjusted`, unless they are to be plain as those for one label are. The
    gate's last activation is left out, since it could not say no: it is never far below 0.
    """

    def __init__(self, shape: Shape, *, several: bool = False, adjusted: bool = False) -> None:
        super().__init__()
        self.several, self.answers_adjusted = several, adjusted
        self.width = shape.width // DEPTHS
        self.hidden = nn.Linear(self.width, WIDTH)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, shape.labels) for _ in range(EXPERTS))
        self.depths = nn.ModuleList(nn.Linear(self.width, WIDTH) for _ in range(DEPTHS))
        self.first, self.second = (
            nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU()) for _ in range(DEPTHS)) for _ in range(2))
        self.gate = nn.Sequential(nn.Linear(WIDTH + EXPERTS * shape.labels, 128), nn.SiLU(), nn.Linear(128, 64),
                                  nn.SiLU(), nn.Linear(64, EXPERTS), nn.Identity() if several else nn.SiLU())
        self.register_buffer("adjustment", torch.zeros(EXPERTS, shape.labels))
        self.register_buffer("group", torch.ones(EXPERTS, shape.labels))

    adjustment: Tensor
    group: Tensor

    def features(self, h: Tensor) -> Tensor:
        """(N, 4 H) -> (N, 2 D): the experts' features and the fused depths side by side."""
        depths = h.split(self.width, dim=1)
        return torch.cat([torch.tanh(self.hidden(depths[-1])), self.fusion(depths)], dim=1)

    def fusion(self, depths: tuple[Tensor, ...]) -> Tensor:
        """Two passes from shallow to deep, each layer hearing the one before, (N, H) each -> (N, D)."""
        u = v = torch.zeros(())
        for depth, project, first, second in zip(depths, self.depths, self.first, self.second, strict=True):
            u = first(project(depth) + u)
            v = second(u + v)
        return v

    def opinions(self, f: Tensor) -> Opinions:
        """(N, 2 D) -> logits, gate and trust; trust also asks how sure an expert is of a class of its own group."""
        own, fused = f.split(WIDTH, dim=1)
        logits = torch.stack([expert(own) for expert in self.experts], dim=1)
        adjusted = logits + self.adjustment
        gate = self.gate(torch.cat([fused, self.probabilities(adjusted).flatten(1)], dim=1))
        sure = (self.probabilities(adjusted if self.several else logits) * self.group).amax(dim=2)
        return Opinions(logits, adjusted, gate, functional.softmax(sure * gate.softmax(dim=1), dim=1))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Of each expert's logits (N, 3, K): one softmax, or each label by itself."""
        return logits.sigmoid() if self.several else logits.softmax(dim=2)

    def forward(self, f: Tensor) -> Tensor:
        """Experts' logits weighted by trust, (N, 2 D) -> (N, K)."""
        seen = self.opinions(f)
        return seen.mixed(seen.adjusted if self.answers_adjusted else seen.logits)


def log_prior(counts: Tensor) -> Tensor:
    """Logarithm of the labelled class shares, (K,); a class without a text counts as half a one."""
    counts = counts.clamp_min(0.5)
    return (counts / counts.sum()).log()


def log_odds(share: Tensor, labelled: int) -> Tensor:
    """Log-odds of labelled frequencies (K,), none of them rarer than half a text or more common than one half."""
    share = share.clamp(0.5 / max(1, labelled), 0.5)
    return (share / (1.0 - share)).log()


def groups(counts: Tensor) -> Tensor:
    """Which group each class belongs to, one-hot (3, K): frequent classes first, at least one each if K allows."""
    labels = len(counts)
    first = max(1, round(BOUNDS[0] * labels))
    second = max(first + 1, round(BOUNDS[1] * labels))
    rank = counts.argsort(descending=True, stable=True).argsort()
    number = (rank >= first).long() + (rank >= min(second, labels)).long()
    return functional.one_hot(number, GROUPS).T.float()


def effective(counts: Tensor, beta: float) -> Tensor:
    """Weights by the effective number of texts, (1 - beta) / (1 - beta^n), of mean one over what has a text."""
    weight = torch.where(counts > 0, (1.0 - beta) / (1.0 - beta ** counts.clamp_min(1.0)), 0.0)
    return weight / weight.sum().clamp_min(1e-12) * (counts > 0).sum()


def assigned(target: Target, group: Tensor) -> Target:
    """The groups of texts, (N, 3): every one that has one of their labels; open where only unknown ones could be."""
    mine = (target.y @ group.T > 0).to(target.y.dtype)
    if target.weight.dim() == 1:
        return Target(mine, target.weight)
    return Target(mine, mine.maximum(((1.0 - target.weight) @ group.T == 0).to(mine.dtype)))
