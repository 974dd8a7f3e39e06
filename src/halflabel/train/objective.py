"""The objective of Eqs. 11 and 14: labelled loss + weight * unlabelled loss + penalty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.equations import probabilities
from halflabel.model.angles import Angles, Unbalanced
from halflabel.model.bag import Bag
from halflabel.model.encoder import Encoder
from halflabel.model.head import Head
from halflabel.model.network import Frozen, Network, Output
from halflabel.model.source import Source
from halflabel.parts.anneal import Release
from halflabel.parts.losses import Loss
from halflabel.parts.penalty import NoPenalty, Penalty
from halflabel.parts.pseudo import Labeller, NoPseudo, Target
from halflabel.parts.weight import Weight, constant
from halflabel.types import Task

OUT_OF_SIGHT = -1e4  # a score at which a label that a text does not have costs nothing, as log-odds or in a softmax


class Given(NamedTuple):
    """What a method may look at before the first step: all texts, the labelled ones first."""

    texts: Sequence[str]
    y: Tensor  # (N_l, K)
    encoder: Encoder | Bag
    vectors: Callable[[], np.ndarray]  # (N_l + N_u, H), frozen
    seed: int

    def unit(self) -> np.ndarray:
        """Frozen vectors of length one, (N_l + N_u, H) float64."""
        x = self.vectors()
        return (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)).astype(np.float64)

    @property
    def columns(self) -> np.ndarray:
        """The label of each labelled text, (N_l,)."""
        return self.y.argmax(dim=1).numpy()


class Began(NamedTuple):
    """What came of a start: lines for the log and, where it labelled the pool, labels and the round they came in."""

    lines: tuple[dict[str, Any], ...] = ()
    label: Tensor | None = None  # (N_u,) columns, -1 for none
    since: Tensor | None = None  # (N_u,)
    trust: float = 1.0  # factor on the weight of the pool


@dataclass(frozen=True, eq=False)
class SelfTraining:
    """A method: which parts it is made of. Variants are `dataclasses.replace` calls."""

    head: Head
    loss: Loss
    angles: Angles = field(default_factory=Unbalanced)
    pseudo: Labeller = field(default_factory=NoPseudo)
    penalty: Penalty = field(default_factory=NoPenalty)
    weight: Weight = constant(1.0)
    release: Release | None = None  # which labelled texts of a step count, if not all
    start: Callable[[Given], Began] | None = None  # fits parts before the first step
    closed_form: bool = False  # the start leaves a rule in the head that can be used as it is
    rule: Rule | None = None  # what a step does, if not `Objective.plain`
    averaged_teacher: bool = False  # looks at the texts with the averaged weights, not the current ones
    strong_views: bool = False  # unlabelled texts learn on an edited view, and are labelled on the original
    logits: bool = False  # a score is the log-odds of its label by itself; else labels share one softmax
    slope: float = 1.0  # of a multi-label probability over its evidence: see `decision.Calibration`

    @property
    def uses_pool(self) -> bool:
        return bool(self.pseudo.uses_pool)

    def probabilities(self, scores: Tensor) -> Tensor:
        """p(k | x) by which texts are pseudo-labelled, (N, K)."""
        return scores.sigmoid() if self.logits else probabilities(scores)


@dataclass(frozen=True, eq=False)
class Problem:
    """What is learnt from: rows 0..N_l-1 of the source are labelled, the N_u after them are not."""

    source: Source
    y: Tensor  # (N_l, K), NaN where it is unknown whether a text has a label
    unlabelled: int
    views: int = 1  # how many views each text has; view 0 is the text itself
    truth: Tensor | None = None  # (N_u, K) labels of the pool, for measuring alone
    task: Task = "multi-class"
    began: Began = Began()  # what the method's start came to

    @property
    def labelled(self) -> int:
        return len(self.y)

    def target(self, rows: np.ndarray) -> Target:
        """What labelled rows are known to be."""
        y = self.y[torch.from_numpy(rows)]
        known = ~y.isnan()
        return Target(y, y.new_ones(len(y))) if bool(known.all()) else Target(y.nan_to_num(), known.to(y.dtype))


class Draw(NamedTuple):
    """The rows of one step and its randomness."""

    labelled: np.ndarray
    unlabelled: np.ndarray  # counted from 0 within the pool; empty during warm-up
    rng: np.random.Generator
    progress: float = 0.0  # how far the run is, in [0, 1]; 0 during warm-up
    turn: str = ""  # which turn of the step it is


class Step(NamedTuple):
    """What one step of training came to."""

    loss: Tensor
    labelled: float
    unlabelled: float
    target: Target | None  # what the unlabelled rows were taken to be


class Turn(NamedTuple):
    """A part of a step with its own optimizer: what learns in it, by the beginnings of names, and how fast."""

    name: str = ""
    learns: tuple[str, ...] = ("",)
    rate: float = 1.0  # times the rates of the plan


class Rule(nn.Module):
    """A step of a method whose objective is not that of Eqs. 11 and 14; its state is part of a checkpoint.

    A step may have several turns, each with a loss of its own; a loss without a gradient passes its turn over. What
    the step came to is said by the first.
    """

    turns: tuple[Turn, ...] = (Turn(),)

    def forward(self, objective: Objective, problem: Problem, draw: Draw, weight: float) -> Step:
        raise AssertionError("every rule says what a step does")

    def report(self) -> dict[str, Any]:
        """What an epoch's line in the log says of it."""
        return {}


class Objective(nn.Module):
    """Network and parts as one module: its state is all that learning changes."""

    def __init__(self, encoder: Encoder | Bag | Frozen, method: SelfTraining) -> None:
        super().__init__()
        self.network = Network(encoder, method.head, method.angles)
        self.pseudo, self.penalty, self.rule = method.pseudo, method.penalty, method.rule
        self.method = method

    def forward(self, problem: Problem, draw: Draw, weight: float) -> Step:
        if self.rule is None:
            return self.plain(problem, draw, weight)
        step: Step = self.rule(self, problem, draw, weight)
        return step

    def plain(self, problem: Problem, draw: Draw, weight: float) -> Step:
        """Labelled loss + weight * unlabelled loss + penalty."""
        known, head = problem.target(draw.labelled), self.network.head
        if not len(draw.unlabelled):
            scores = self.outputs(problem, draw.labelled, rng=draw.rng).scores
            loss = self._supervised(scores, known, draw.progress)
            return Step(loss + self.penalty(scores, head), float(loss.detach()), 0.0, None)

        pool = problem.labelled + draw.unlabelled
        target = self.targets(problem, pool)
        views = np.concatenate([np.zeros_like(draw.labelled), self.strong(problem, draw)])
        scores = self.outputs(problem, np.concatenate([draw.labelled, pool]), views, draw.rng).scores
        labelled = self._supervised(scores[: len(known.y)], known, draw.progress)
        unlabelled = each(self.method.loss, scores[len(known.y) :], target).mean()
        loss = labelled + weight * unlabelled + self.penalty(scores, head, target)
        return Step(loss, float(labelled.detach()), float(unlabelled.detach()), target)

    def _supervised(self, scores: Tensor, known: Target, progress: float) -> Tensor:
        """The mean loss of labelled texts, of those alone that are released."""
        losses, release = each(self.method.loss, scores, known), self.method.release
        return losses.mean() if release is None else release(losses, scores, known.y, progress)

    @torch.no_grad()
    def targets(self, problem: Problem, rows: np.ndarray) -> Target:
        """Pseudo-labels from the fixed copy of the current weights (Sec. III-A), on the texts themselves."""
        def ask() -> Tensor:
            return self.method.probabilities(self.outputs(problem, rows).scores)

        target: Target = self.pseudo(torch.from_numpy(rows - problem.labelled), ask)
        return target

    def strong(self, problem: Problem, draw: Draw) -> np.ndarray:
        """The view that each unlabelled text is learnt on: one of the strong ones, if the method wants them."""
        if not self.method.strong_views or problem.views < 2:
            return np.zeros_like(draw.unlabelled)
        return draw.rng.integers(1, problem.views, len(draw.unlabelled))

    def outputs(self, problem: Problem, rows: np.ndarray, views: np.ndarray | None = None,
                rng: np.random.Generator | None = None) -> Output:
        """What the network says of rows, in the given views or on the texts themselves; with `rng`, under noise."""
        output: Output = self.network(*self.inputs(problem, rows, views, rng))
        return output

    def inputs(self, problem: Problem, rows: np.ndarray, views: np.ndarray | None = None,
               rng: np.random.Generator | None = None) -> tuple[Tensor, ...]:
        """Inputs of the network where it lives."""
        device = self.device
        return tuple(x.to(device) for x in problem.source(rows, np.zeros_like(rows) if views is None else views, rng))

    def report(self) -> dict[str, Any]:
        """What an epoch's line in the log says of the parts."""
        line = self.network.angles.report() | self.penalty.report(self.network.head)
        return line | (self.rule.report() if self.rule is not None else {})

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns of a step: one in which everything learns, unless the method says otherwise."""
        return (Turn(),) if self.rule is None else self.rule.turns

    @property
    def device(self) -> torch.device:
        return next(self.network.head.parameters()).device


def each(loss: Loss, scores: Tensor, target: Target) -> Tensor:
    """Loss of each text, (N,); a label that is masked out is put where no loss can see it."""
    if target.weight.dim() == 1:
        return target.weight * loss(scores, target.y)
    return loss(scores.masked_fill(target.weight == 0, OUT_OF_SIGHT), target.weighed)
