"""Meta-Expert: experts for frequent, medium and rare classes, and a gate that learns which of them to trust.

Based on its public code, with these corrections: gate and fusion are trained, confidence masks are applied, classes
are ordered by frequency, no group is empty, and label counts are whole numbers. Without the batch normalisation
branches of its image network, `follow=code` only restores the masks that are not applied.

There is no public code for several labels per text. There, experts are trained by the asymmetric loss on logits
shifted by tau_q times the log-odds of each label; all experts learn the same class-aware pseudo-labels; and a text
belongs to every expert that is responsible for one of its labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel.methods.registry import Choice, Range, method
from halflabel.nn.losses import Asymmetric, constant, cross_entropy
from halflabel.nn.network import WIDTH, HiddenHead, start_logits
from halflabel.nn.pseudo_labels import ClassAware, FixedThreshold, Target, label_frequencies
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
GROUP_BOUNDS = (0.2, 0.4)  # shares of the classes, by frequency, at which the second and the third group begin
LIMITS = {"tau2": Range(0.0, 1e3), "tau3": Range(0.0, 1e3), "beta": Range(0.0, 0.999999), "apart": Range(0.0, 1.0)}


@method("metaexpert", task="multi-class", paper="Meta-Expert: Hou and Jia, ICML 2025", depths=DEPTHS,
        multilabel_method="metaexpert-ml", limits=LIMITS)
def metaexpert(shape: Shape, *, cutoff: float = 0.95, tau2: float = 2.0, tau3: float = 4.0, beta: float = 0.99,
               apart: float = 0.08, lambda1: float = 1.0, follow: str = "paper") -> SelfTraining:
    """Experts for frequent, medium and rare classes, weighted by a gate on features of several encoder layers."""
    head, step = ExpertHead(shape), MultiClassStep(shape, cutoff, beta, apart, masks=follow == "paper")
    return SelfTraining(
        head=head, loss=cross_entropy, pseudo_labels=FixedThreshold(cutoff), weight=constant(lambda1),
        strong_views=True, custom_step=step,
        start=lambda inputs: fit_frequencies(head, step, inputs, (tau2, tau3), log_prior(inputs.y.sum(dim=0))),
    )


@method("metaexpert-ml", task="multi-label", paper="Meta-Expert: Hou and Jia, ICML 2025, with the asymmetric loss",
        depths=DEPTHS, plans=SEMI_SUPERVISED_MULTILABEL, limits=LIMITS | {"answer": Choice(("adjusted", "plain"))})
def metaexpert_ml(shape: Shape, *, gamma_neg: float = 4.0, gamma_pos: float = 0.0, shift: float = 0.05,
                  tau2: float = 2.0, tau3: float = 4.0, beta: float = 0.99, apart: float = 0.08, lambda1: float = 1.0,
                  answer: str = "adjusted", views: str = "same") -> SelfTraining:
    """Meta-Expert for several labels per text: the asymmetric loss, and the pseudo-labels of cap."""
    loss = Asymmetric(gamma_neg, gamma_pos, shift)
    head = ExpertHead(shape, multi_label=True, predict_adjusted=answer == "adjusted")
    step = MultiLabelStep(shape, loss, beta, apart)
    return SelfTraining(
        head=head, loss=loss, pseudo_labels=ClassAware(shape), weight=constant(lambda1), averaged_teacher=True,
        logits=True, strong_views=views == "strong", custom_step=step,
        start=lambda inputs: fit_frequencies(head, step, inputs, (tau2, tau3),
                                             log_odds(label_frequencies(inputs.y), shape.labelled)),
    )


def fit_frequencies(head: ExpertHead, step: ExpertStep, inputs: StartInputs, taus: tuple[float, float],
                    adjustment: Tensor) -> StartResult:
    """Sets what depends on labelled frequencies: groups of classes, logit adjustment tau_q * (K,), class weights."""
    target = Target(inputs.y.nan_to_num(), (~inputs.y.isnan()).to(inputs.y.dtype))
    head.adjustment.copy_(torch.tensor([0.0, *taus])[:, None] * adjustment)
    head.group.copy_(class_groups(target.y.sum(dim=0)))
    step.set_weights(target, head.group)
    return StartResult()


class ExpertOutputs(NamedTuple):
    """Outputs of experts and gate for N texts."""

    logits: Tensor  # (N, 3, K), not adjusted
    adjusted: Tensor  # (N, 3, K), logits shifted by tau_q log prior
    gate: Tensor  # (N, 3) logits of the gate
    trust: Tensor  # (N, 3) weights of the experts, summing to one

    def combined(self, logits: Tensor) -> Tensor:
        """Logits (N, 3, K) of the experts, averaged by trust, (N, K)."""
        return (self.trust[:, :, None] * logits).sum(dim=1)


class ExpertHead(HiddenHead):
    """Three linear experts on f = tanh(A h); the gate sees fused layers and the experts' adjusted probabilities.

    `adjustment` (3, K) shifts the logits of each expert during training; `group` (3, K) is one-hot over experts and
    says which of them is responsible for a class. Both are set from the labelled texts before the first step.

    With several labels per text each label has its own probability. An adjustment by tau_q then also moves the point
    at which it is one half, so predictions remain adjusted, unless `predict_adjusted` is off. The gate's last
    activation is left out, since it is never far below 0 and so could not exclude an expert.
    """

    def __init__(self, shape: Shape, *, multi_label: bool = False, predict_adjusted: bool = False) -> None:
        super().__init__(shape.width // DEPTHS)
        self.multi_label, self.predict_adjusted = multi_label, predict_adjusted
        self.width = shape.width // DEPTHS
        self.experts = nn.ModuleList(nn.Linear(WIDTH, shape.labels) for _ in range(EXPERTS))
        self.depths = nn.ModuleList(nn.Linear(self.width, WIDTH) for _ in range(DEPTHS))
        self.first, self.second = (
            nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU()) for _ in range(DEPTHS)) for _ in range(2))
        self.gate = nn.Sequential(nn.Linear(WIDTH + EXPERTS * shape.labels, 128), nn.SiLU(), nn.Linear(128, 64),
                                  nn.SiLU(), nn.Linear(64, EXPERTS), nn.Identity() if multi_label else nn.SiLU())
        self.register_buffer("adjustment", torch.zeros(EXPERTS, shape.labels))
        self.register_buffer("group", torch.ones(EXPERTS, shape.labels))

    adjustment: Tensor
    group: Tensor

    def features(self, h: Tensor) -> Tensor:
        """(N, 4 H) -> (N, 2 D): the experts' features and the fused layers side by side."""
        layers = h.split(self.width, dim=1)
        return torch.cat([torch.tanh(self.hidden(layers[-1])), self.fused_layers(layers)], dim=1)

    def start_from_names(self, names: Tensor, texts: Tensor) -> None:
        """The experts see the last layer."""
        super().start_from_names(names[:, -self.width :], texts[:, -self.width :])

    @torch.no_grad()
    def set_label_weights(self, weight: Tensor) -> None:
        for expert in self.experts:
            assert isinstance(expert, nn.Linear)
            start_logits(expert, weight)

    def fused_layers(self, layers: tuple[Tensor, ...]) -> Tensor:
        """Two recurrent passes from the lowest to the highest layer, (N, H) each -> (N, D)."""
        u = v = torch.zeros(())
        for layer, project, first, second in zip(layers, self.depths, self.first, self.second, strict=True):
            u = first(project(layer) + u)
            v = second(u + v)
        return v

    def expert_outputs(self, f: Tensor) -> ExpertOutputs:
        """(N, 2 D) -> logits, gate and trust; trust also depends on the confidence in classes of the expert's group."""
        own, fused = f.split(WIDTH, dim=1)
        logits = torch.stack([expert(own) for expert in self.experts], dim=1)
        adjusted = logits + self.adjustment
        gate = self.gate(torch.cat([fused, self.probabilities(adjusted).flatten(1)], dim=1))
        confidence = (self.probabilities(adjusted if self.multi_label else logits) * self.group).amax(dim=2)
        return ExpertOutputs(logits, adjusted, gate, functional.softmax(confidence * gate.softmax(dim=1), dim=1))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities by each expert, (N, 3, K): a softmax, or a sigmoid of each label."""
        return logits.sigmoid() if self.multi_label else logits.softmax(dim=2)

    def forward(self, f: Tensor) -> Tensor:
        """The experts' logits averaged by trust, (N, 2 D) -> (N, K)."""
        outputs = self.expert_outputs(f)
        return outputs.combined(outputs.adjusted if self.predict_adjusted else outputs.logits)


class ExpertStep(CustomStep):
    """Losses of each expert alone and, after a share `apart` of the run, of their combination and of the gate."""

    def __init__(self, shape: Shape, beta: float, apart: float) -> None:
        super().__init__()
        self.beta, self.apart = beta, apart
        self.register_buffer("class_weight", torch.ones(shape.labels))
        self.register_buffer("group_weight", torch.ones(EXPERTS))
        self.register_buffer("order", torch.arange(shape.labels))  # frequent classes first

    class_weight: Tensor
    group_weight: Tensor
    order: Tensor

    def set_weights(self, target: Target, group: Tensor) -> None:
        """Sets the weights of classes and groups by their labelled texts."""
        counts = target.y.sum(dim=0)
        self.class_weight.copy_(effective_number_weights(counts, self.beta))
        self.group_weight.copy_(effective_number_weights(text_groups(target, group).y.sum(dim=0), self.beta))
        self.order.copy_(counts.argsort(descending=True, stable=True))

    def forward(self, objective: Objective, problem: Problem, batch: StepBatch, weight: float) -> StepResult:
        head = objective.network.head
        assert isinstance(head, ExpertHead)
        known, pool = problem.target(batch.labelled), problem.labelled + batch.unlabelled
        rows = np.concatenate([batch.labelled, pool])
        views = np.concatenate([np.zeros_like(batch.labelled), objective.sample_views(problem, batch)])
        outputs = head.expert_outputs(objective.outputs(problem, rows, views, batch.rng).f)
        n, joint = len(known.y), batch.progress >= self.apart
        labelled = self.labelled_loss(ExpertOutputs(*(part[:n] for part in outputs)), known, head.group, joint)
        if not len(pool):
            return StepResult(labelled, float(labelled.detach()), 0.0, None)
        strong = ExpertOutputs(*(part[n:] for part in outputs))
        unlabelled, target = self.pool_loss(objective, problem, strong, pool, joint)
        return StepResult(labelled + weight * unlabelled, float(labelled.detach()), float(unlabelled.detach()), target)

    def labelled_loss(self, outputs: ExpertOutputs, target: Target, group: Tensor, joint: bool) -> Tensor:
        """The losses of each expert on adjusted logits; if `joint`, also of their combination and of the gate."""
        raise AssertionError("defined for one label per text and for several")

    def pool_loss(self, objective: Objective, problem: Problem, strong: ExpertOutputs, pool: np.ndarray,
                  joint: bool) -> tuple[Tensor, Target]:
        """The loss of unlabelled texts, given the outputs for their strong views, and their pseudo-labels."""
        raise AssertionError("defined for one label per text and for several")


class MultiClassStep(ExpertStep):
    """One label per text: each expert learns its own confident pseudo-labels."""

    def __init__(self, shape: Shape, cutoff: float, beta: float, apart: float, *, masks: bool) -> None:
        super().__init__(shape, beta, apart)
        self.pseudo_label, self.masks = FixedThreshold(cutoff).label, masks
        self.register_buffer("confident", torch.zeros(shape.labels))  # confident labels of the second expert so far

    confident: Tensor

    def labelled_loss(self, outputs: ExpertOutputs, target: Target, group: Tensor, joint: bool) -> Tensor:
        y, groups = target.y, text_groups(target, group).y
        loss = torch.stack([cross_entropy(outputs.adjusted[:, q], y).mean() for q in range(EXPERTS)]).sum()
        if joint:
            combined = outputs.combined(outputs.adjusted)
            loss = loss + weighted_mean(cross_entropy(combined, y), y @ self.class_weight)
            loss = loss + weighted_mean(cross_entropy(outputs.gate, groups), groups @ self.group_weight)
        return loss

    def pool_loss(self, objective: Objective, problem: Problem, strong: ExpertOutputs, pool: np.ndarray,
                  joint: bool) -> tuple[Tensor, Target]:
        head = objective.network.head
        assert isinstance(head, ExpertHead)
        with torch.no_grad():
            output = objective.outputs(problem, pool)
            weak = head.expert_outputs(output.f)
        target = objective.pseudo_labels.label(output.scores.softmax(dim=1))
        return self.consistency_loss(strong, weak, joint), target

    def consistency_loss(self, strong: ExpertOutputs, weak: ExpertOutputs, joint: bool) -> Tensor:
        """The loss of each expert on its own confident labels; if `joint`, also of their combination and of the gate.

        The combination learns the labels of the expert that suits the pool's distribution best.
        """
        targets = [self.pseudo_label(weak.logits[:, q].softmax(dim=1)) for q in range(EXPERTS)]
        loss = torch.stack([weighted_mean(cross_entropy(strong.logits[:, q], target.y), target.weight)
                            for q, target in enumerate(targets)]).sum()
        self.confident += targets[1].weighted.sum(dim=0)
        if joint:
            combined = strong.combined(strong.logits)
            for share, target in zip(self.expert_shares(), targets, strict=True):
                loss = loss + share * self.masked_mean(cross_entropy(combined, target.y), target)
            gate = self.pseudo_label(weak.gate.softmax(dim=1))
            loss = loss + self.masked_mean(cross_entropy(strong.gate, gate.y), gate)
        return loss

    def masked_mean(self, losses: Tensor, target: Target) -> Tensor:
        """The mean of losses (N,) with those of rejected texts set to 0, unless masks are off."""
        return (target.weight * losses if self.masks else losses).mean()

    def expert_shares(self) -> Tensor:
        """The weight of each expert's labels, (3,): 1 for the one that suits the pool's distribution, else 0.

        The distribution is that of confident labels of the second expert; while there are none, each has a third.
        Uniform within a factor of two: the second; rare ones more frequent by that factor: the third; else the first.
        """
        if not bool(self.confident.any()):
            return torch.full((EXPERTS,), 1.0 / EXPERTS)
        counts = self.confident[self.order] + 1e-9
        frequent, rare = counts[: len(counts) // 2], counts[len(counts) // 2 :]
        uniform = counts.max() < 2.0 * counts.min()
        inverted = (rare.max() > 2.0 * frequent.min()) & (frequent.max() < 2.0 * rare.min())
        return torch.stack([~(uniform | inverted), uniform, inverted & ~uniform]).float()


class MultiLabelStep(ExpertStep):
    """Several labels per text: labelled and class-aware pseudo-labelled texts have the same losses.

    Class-aware labels have the labelled frequencies, so that experts learn them on adjusted logits too, and no expert
    suits the pool better than another.
    """

    def __init__(self, shape: Shape, loss: Asymmetric, beta: float, apart: float) -> None:
        super().__init__(shape, beta, apart)
        self.loss = loss

    def labelled_loss(self, outputs: ExpertOutputs, target: Target, group: Tensor, joint: bool) -> Tensor:
        losses = [masked_loss(self.loss, outputs.adjusted[:, q], target) for q in range(EXPERTS)]
        if joint:
            losses.append(masked_loss(self.class_balanced_loss, outputs.combined(outputs.adjusted), target))
            losses.append(masked_loss(self.gate_loss, outputs.gate, text_groups(target, group)))
        return torch.stack(losses).mean(dim=1).sum()

    def class_balanced_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """The loss with labels weighted by their effective numbers, (N,)."""
        return (self.class_weight * self.loss.labels(logits, y)).sum(dim=1)

    def gate_loss(self, gate: Tensor, groups: Tensor) -> Tensor:
        """Binary cross-entropy of the gate for each group, weighted by effective numbers, (N,)."""
        return functional.binary_cross_entropy_with_logits(gate, groups, self.group_weight, reduction="none").sum(dim=1)

    def pool_loss(self, objective: Objective, problem: Problem, strong: ExpertOutputs, pool: np.ndarray,
                  joint: bool) -> tuple[Tensor, Target]:
        head = objective.network.head
        assert isinstance(head, ExpertHead)
        target = objective.targets(problem, pool)
        return self.labelled_loss(strong, target, head.group, joint), target


def weighted_mean(losses: Tensor, weight: Tensor) -> Tensor:
    """The mean of losses (N,) under weights (N,); 0 if all weights are."""
    return (weight * losses).sum() / weight.sum().clamp_min(1e-12)


# Frequencies of the labelled texts


def log_prior(counts: Tensor) -> Tensor:
    """Logarithm of the labelled class frequencies, (K,); a class without texts counts as half a text."""
    counts = counts.clamp_min(0.5)
    return (counts / counts.sum()).log()


def log_odds(frequency: Tensor, labelled: int) -> Tensor:
    """Log-odds of labelled frequencies (K,), clamped between half a text and one half."""
    frequency = frequency.clamp(0.5 / max(1, labelled), 0.5)
    return (frequency / (1.0 - frequency)).log()


def class_groups(counts: Tensor) -> Tensor:
    """The group of each class, one-hot (3, K): frequent classes first, none empty if K allows."""
    labels = len(counts)
    second = max(1, round(GROUP_BOUNDS[0] * labels))
    third = max(second + 1, round(GROUP_BOUNDS[1] * labels))
    rank = counts.argsort(descending=True, stable=True).argsort()
    group = (rank >= second).long() + (rank >= min(third, labels)).long()
    return functional.one_hot(group, EXPERTS).T.float()


def text_groups(target: Target, group: Tensor) -> Target:
    """The groups of texts, (N, 3): all that contain one of their labels; masked where an unknown label could be one."""
    groups = (target.y @ group.T > 0).to(target.y.dtype)
    if target.weight.dim() == 1:
        return Target(groups, target.weight)
    return Target(groups, groups.maximum(((1.0 - target.weight) @ group.T == 0).to(groups.dtype)))


def effective_number_weights(counts: Tensor, beta: float) -> Tensor:
    """Weights by the effective number of texts, (1 - beta) / (1 - beta^n), with mean one over non-zero counts."""
    weight = torch.where(counts > 0, (1.0 - beta) / (1.0 - beta ** counts.clamp_min(1.0)), 0.0)
    return weight / weight.sum().clamp_min(1e-12) * (counts > 0).sum()
