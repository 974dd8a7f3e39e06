"""The objective of Eqs. 11 and 14: labelled loss + weight * unlabelled loss + penalty, and one step of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from halflabel import equations as eq
from halflabel.devices import to_device
from halflabel.encoders.inputs import Inputs
from halflabel.encoders.text_encoder import TextEncoder
from halflabel.nn.losses import Loss, NoPenalty, Penalty, Reduction, Weight, constant
from halflabel.nn.network import Angles, Head, Network, Output, PrecomputedVectors
from halflabel.nn.pseudo_labels import NoPool, PseudoLabeller, Target
from halflabel.notices import Notice, unseen
from halflabel.training.distributed import ALONE, Ranks
from halflabel.types import Progress, Task

Refit = Callable[[Tensor, Tensor, Tensor], None]  # f (N_l + M, D), y (N_l, K), rows of the pool (M,)
MASKED = -1e4  # a score at which a negative label costs nothing, as log-odds or in a softmax


@dataclass(frozen=True, eq=False)
class SelfTraining:
    """A method: the parts that it is made of. Variants are `dataclasses.replace` calls."""

    head: Head
    loss: Loss
    angles: Angles = field(default_factory=Angles)
    pseudo_labels: PseudoLabeller = field(default_factory=NoPool)
    penalty: Penalty = field(default_factory=NoPenalty)
    weight: Weight = constant(1.0)
    reduction: Reduction | None = None  # of the labelled losses, if not their mean
    start: Callable[[StartInputs], StartResult] | None = None  # fits parts before the first step
    closed_form_head: bool = False  # the start leaves a usable classifier in the head
    refit: Refit | None = None  # fits the head again after the last step
    custom_step: CustomStep | None = None  # what a step does, if not `Objective.self_training_step`
    soft_labels: Callable[[], Tensor] | None = None  # of the pool, (N_u, K): a model of words learns them as well
    averaged_teacher: bool = False  # epoch statistics come from the averaged weights, not the current ones
    strong_views: bool = False  # train on an augmented view of an unlabelled text, pseudo-label the original
    logits: bool = False  # scores are log-odds of each label; otherwise labels share one softmax
    slope: float = 1.0  # of a multi-label probability over its evidence: see `evaluation.decisions.Calibration`

    @property
    def uses_pool(self) -> bool:
        return bool(self.pseudo_labels.uses_pool)

    def probabilities(self, scores: Tensor) -> Tensor:
        """p(k | x) by which texts are pseudo-labelled, (N, K)."""
        return scores.sigmoid() if self.logits else eq.probabilities(scores)


class StartInputs(NamedTuple):
    """What a method's start is fitted on: all texts, the labelled ones first."""

    texts: Sequence[str]
    y: Tensor  # (N_l, K)
    encoder: TextEncoder
    vectors: Callable[[], np.ndarray]  # (N_l + N_u, H), of the pretrained encoder
    seed: int
    names: Callable[[], np.ndarray] | None = None  # (K, H) vectors of the class names, or (K, H') of the teachers
    teachers: Callable[[], np.ndarray] | None = None  # (N_l + N_u, H') vectors of several encoders, of unit length
    names_given: bool = False  # rather than taken from the labels
    class_weights: Tensor | None = None  # (K,)
    trains: bool = False  # whether steps of training follow
    minutes: float = 0.0  # in which the encoder may be fine-tuned; 0 if it is not
    progress: Progress = unseen  # of contrast

    def unit_vectors(self) -> np.ndarray:
        """Vectors scaled to length one, (N_l + N_u, H) float64."""
        x = self.vectors()
        return (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)).astype(np.float64)

    def teacher_vectors(self) -> np.ndarray:
        """Vectors to fit soft labels on: those of the teachers, if there are any, else of the encoder itself."""
        return self.unit_vectors() if self.teachers is None else self.teachers().astype(np.float64)

    @property
    def columns(self) -> np.ndarray:
        """The column of each labelled text's label, (N_l,)."""
        return self.y.argmax(dim=1).numpy()


class StartResult(NamedTuple):
    """What a start reports and, where it labelled the pool itself, its labels and their rounds."""

    log: tuple[dict[str, Any], ...] = ()
    notices: tuple[Notice, ...] = ()
    label: Tensor | None = None  # (N_u,) columns, -1 for none
    since: Tensor | None = None  # (N_u,)
    trust: float = 1.0  # factor on the weight of the pool
    confidence: float | None = None  # in pool texts, on average, by held-out labels
    frequencies: np.ndarray | None = None  # (K,) of the labels, where labelled texts alone do not tell them
    clusters: bool = False  # whether held-out labels or class names support that neighbours share their labels
    facts: Mapping[str, Any] = {}  # how labels, pool and names were used, for config.json
    seconds: float = 0.0  # that fine-tuning in the start took, of the minutes of the plan


@dataclass(frozen=True, eq=False)
class Problem:
    """The training data: rows 0..N_l-1 of the inputs are labelled, the N_u after them are not."""

    inputs: Inputs
    y: Tensor  # (N_l, K), NaN where it is unknown whether a text has a label
    unlabelled: int
    views: int = 1  # of each text; view 0 is the text itself
    truth: Tensor | None = None  # (N_u, K) labels of the pool, only for measuring pseudo-labels
    task: Task = "multi-class"
    start: StartResult = StartResult()
    weight: Tensor | None = None  # (N_l,) of labelled texts in the loss; all alike if None

    @property
    def labelled(self) -> int:
        return len(self.y)

    def target(self, rows: np.ndarray) -> Target:
        """Targets of labelled rows; unknown labels are masked."""
        y = self.y[torch.from_numpy(rows)]
        if self.weight is not None:
            return Target(y, self.weight[torch.from_numpy(rows)])
        known = ~y.isnan()
        return Target(y, y.new_ones(len(y))) if bool(known.all()) else Target(y.nan_to_num(), known.to(y.dtype))


class OptimizerPhase(NamedTuple):
    """A part of a step with its own optimizer: which parameters it trains, by prefix, and how fast."""

    name: str = ""
    prefixes: tuple[str, ...] = ("",)
    rate: float = 1.0  # times the learning rates of the plan


class StepBatch(NamedTuple):
    """The rows of one step and its randomness."""

    labelled: np.ndarray
    unlabelled: np.ndarray  # rows of the pool, from 0; empty during warm-up
    rng: np.random.Generator
    progress: float = 0.0  # of the run, in [0, 1]; 0 during warm-up
    phase: str = ""


class StepResult(NamedTuple):
    """The losses of one step, and the pseudo-labels of its unlabelled rows."""

    loss: Tensor
    labelled: float
    unlabelled: float
    target: Target | None


class CustomStep(nn.Module):
    """A step of a method whose objective is not that of Eqs. 11 and 14; its state is part of the checkpoint.

    A step may have several phases, each with its own loss and optimizer; a loss without a gradient skips its phase.
    The result of the first phase is that of the step.
    """

    phases: tuple[OptimizerPhase, ...] = (OptimizerPhase(),)

    def forward(self, objective: Objective, problem: Problem, batch: StepBatch, weight: float) -> StepResult:
        raise AssertionError("every custom step defines its loss")

    def report(self) -> dict[str, Any]:
        """Figures for the log."""
        return {}


class Objective(nn.Module):
    """Network and parts as one module: its state is all that training changes."""

    def __init__(self, encoder: TextEncoder | PrecomputedVectors, method: SelfTraining, ranks: Ranks = ALONE) -> None:
        super().__init__()
        self.ranks = ranks
        self.network = Network(encoder, method.head, method.angles)
        self.pseudo_labels, self.penalty, self.custom_step = method.pseudo_labels, method.penalty, method.custom_step
        self.method = method

    def forward(self, problem: Problem, batch: StepBatch, weight: float) -> StepResult:
        step = self.custom_step or Objective.self_training_step
        result: StepResult = step(self, problem, batch, weight)
        return result

    def self_training_step(self, problem: Problem, batch: StepBatch, weight: float) -> StepResult:
        """Labelled loss + weight * unlabelled loss + penalty."""
        known, head = problem.target(batch.labelled), self.network.head
        if not len(batch.unlabelled):
            scores = self.outputs(problem, batch.labelled, rng=batch.rng).scores
            labelled = self._labelled_loss(scores, known, batch.progress)
            return StepResult(labelled + self.penalty(scores, head), float(labelled.detach()), 0.0, None)

        pool = problem.labelled + batch.unlabelled
        target = self.targets(problem, pool)
        views = np.concatenate([np.zeros_like(batch.labelled), self.sample_views(problem, batch)])
        scores = self.outputs(problem, np.concatenate([batch.labelled, pool]), views, batch.rng).scores
        labelled = self._labelled_loss(scores[: len(known.y)], known, batch.progress)
        unlabelled = masked_loss(self.method.loss, scores[len(known.y) :], target).mean()
        loss = labelled + weight * unlabelled + self.penalty(scores, head, target)
        return StepResult(loss, float(labelled.detach()), float(unlabelled.detach()), target)

    def _labelled_loss(self, scores: Tensor, known: Target, progress: float) -> Tensor:
        losses, reduction = masked_loss(self.method.loss, scores, known), self.method.reduction
        if not len(losses):  # trained on class names and the pool alone
            return losses.sum()
        return losses.mean() if reduction is None else reduction(losses, scores, known.y, progress)

    @torch.no_grad()
    def targets(self, problem: Problem, rows: np.ndarray) -> Target:
        """Pseudo-labels by the current weights without gradient (Sec. III-A), on the original texts."""
        def predict() -> Tensor:
            return self.method.probabilities(self.outputs(problem, rows).scores)

        target: Target = self.pseudo_labels(torch.from_numpy(rows - problem.labelled).to(self.device), predict)
        return target

    def sample_views(self, problem: Problem, batch: StepBatch) -> np.ndarray:
        """The view that each unlabelled text is trained on: a random strong one, if the method wants those."""
        if not self.method.strong_views or problem.views < 2:
            return np.zeros_like(batch.unlabelled)
        return batch.rng.integers(1, problem.views, len(batch.unlabelled))

    def outputs(self, problem: Problem, rows: np.ndarray, views: np.ndarray | None = None,
                rng: np.random.Generator | None = None) -> Output:
        """The network's outputs for rows, in the given views or on the original texts; with `rng`, under noise."""
        inputs = self.inputs(problem, rows, views, rng)
        if not self.ranks.several or isinstance(self.network.encoder, PrecomputedVectors):
            output: Output = self.network(*inputs)
            return output
        share = torch.from_numpy(self.ranks.share(len(rows))).to(self.device)
        with self.ranks.own_noise(self.device):
            h = self.network.encode(*(x[share] for x in inputs))
        return self.network.classify(self.ranks.gather(h, len(rows)))

    def inputs(self, problem: Problem, rows: np.ndarray, views: np.ndarray | None = None,
               rng: np.random.Generator | None = None) -> tuple[Tensor, ...]:
        """The network's inputs, on its device."""
        views = np.zeros_like(rows) if views is None else views
        return tuple(to_device(x, self.device) for x in problem.inputs(rows, views, rng))

    def report(self) -> dict[str, Any]:
        """Figures of the parts, for the log."""
        figures = self.network.angles.report() | self.penalty.report(self.network.head)
        return figures | (self.custom_step.report() if self.custom_step is not None else {})

    @property
    def phases(self) -> tuple[OptimizerPhase, ...]:
        """The phases of a step: one that trains everything, unless the method has its own."""
        return (OptimizerPhase(),) if self.custom_step is None else self.custom_step.phases

    @property
    def device(self) -> torch.device:
        return next(self.network.head.parameters()).device


def masked_loss(loss: Loss, scores: Tensor, target: Target) -> Tensor:
    """The weighted loss of each text, (N,); masked labels get a score that costs nothing."""
    if target.weight.dim() == 1:
        return target.weight * loss(scores, target.y)
    return loss(scores.masked_fill(target.weight == 0, MASKED), target.weighted)
