"""The objective of Eqs. 11 and 14: labelled loss + weight * unlabelled loss + penalty."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.equations import probabilities
from halflabel.model.angles import Angles, Unbalanced
from halflabel.model.encoder import Encoder
from halflabel.model.head import Head
from halflabel.model.network import Frozen, Network, Output
from halflabel.model.source import Source
from halflabel.parts.losses import Loss
from halflabel.parts.penalty import NoPenalty, Penalty
from halflabel.parts.pseudo import Labeller, NoPseudo, Target
from halflabel.parts.weight import Weight, constant
from halflabel.types import Task

OUT_OF_SIGHT = -1e4  # a score at which a label that a text does not have costs nothing, as log-odds or in a softmax


@dataclass(frozen=True, eq=False)
class SelfTraining:
    """A method: which parts it is made of. Variants are `dataclasses.replace` calls."""

    head: Head
    loss: Loss
    angles: Angles = field(default_factory=Unbalanced)
    pseudo: Labeller = field(default_factory=NoPseudo)
    penalty: Penalty = field(default_factory=NoPenalty)
    weight: Weight = constant(1.0)
    closed_form: bool = False  # begins with the rule of `parts.start` in its head and its soft labels stored
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


class Step(NamedTuple):
    """What one step of training came to."""

    loss: Tensor
    labelled: float
    unlabelled: float
    target: Target | None  # what the unlabelled rows were taken to be


class Objective(nn.Module):
    """Network and parts as one module: its state is all that learning changes."""

    def __init__(self, encoder: Encoder | Frozen, method: SelfTraining) -> None:
        super().__init__()
        self.network = Network(encoder, method.head, method.angles)
        self.pseudo, self.penalty = method.pseudo, method.penalty
        self.method = method

    def forward(self, problem: Problem, draw: Draw, weight: float) -> Step:
        known = problem.target(draw.labelled)
        if not len(draw.unlabelled):
            scores = self._scores(problem, draw.labelled, np.zeros_like(draw.labelled), draw.rng).scores
            loss = self._cost(scores, known)
            return Step(loss + self.penalty(scores, self.network.head), float(loss.detach()), 0.0, None)

        pool = problem.labelled + draw.unlabelled
        target = self._targets(problem, pool)
        views = np.concatenate([np.zeros_like(draw.labelled), self._strong(problem, draw)])
        scores = self._scores(problem, np.concatenate([draw.labelled, pool]), views, draw.rng).scores
        labelled = self._cost(scores[: len(known.y)], known)
        unlabelled = self._cost(scores[len(known.y) :], target)
        loss = labelled + weight * unlabelled + self.penalty(scores, self.network.head)
        return Step(loss, float(labelled.detach()), float(unlabelled.detach()), target)

    def _cost(self, scores: Tensor, target: Target) -> Tensor:
        """Mean loss of texts; a label that is masked out is put where no loss can see it."""
        if target.weight.dim() == 1:
            return (target.weight * self.method.loss(scores, target.y)).mean()
        return self.method.loss(scores.masked_fill(target.weight == 0, OUT_OF_SIGHT), target.y * target.weight).mean()

    @torch.no_grad()
    def _targets(self, problem: Problem, rows: np.ndarray) -> Target:
        """Pseudo-labels from the fixed copy of the current weights (Sec. III-A), on the texts themselves."""
        def ask() -> Tensor:
            return self.method.probabilities(self._scores(problem, rows, np.zeros_like(rows), None).scores)

        target: Target = self.pseudo(torch.from_numpy(rows - problem.labelled), ask)
        return target

    def _strong(self, problem: Problem, draw: Draw) -> np.ndarray:
        """The view that each unlabelled text is learnt on: one of the strong ones, if the method wants them."""
        if not self.method.strong_views or problem.views < 2:
            return np.zeros_like(draw.unlabelled)
        return draw.rng.integers(1, problem.views, len(draw.unlabelled))

    def _scores(self, problem: Problem, rows: np.ndarray, views: np.ndarray,
                rng: np.random.Generator | None) -> Output:
        device = self.device
        output: Output = self.network(*(x.to(device) for x in problem.source(rows, views, rng)))
        return output

    def report(self) -> dict[str, Any]:
        """What an epoch's line in the log says of the parts."""
        return self.network.angles.report() | self.penalty.report(self.network.head)

    @property
    def device(self) -> torch.device:
        return next(self.network.head.parameters()).device
