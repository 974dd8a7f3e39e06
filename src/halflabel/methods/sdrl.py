"""SDRL: two classifiers that part and meet over the pool, and a network that relates what they say of each label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.errors import BadInput
from halflabel.methods.registry import method
from halflabel.nn.losses import constant, squared_error
from halflabel.nn.network import WIDTH, Head
from halflabel.nn.pseudo_labels import PseudoLabeller, Target
from halflabel.plans import MULTILABEL
from halflabel.training.objective import (
    CustomStep,
    Objective,
    OptimizerPhase,
    Problem,
    SelfTraining,
    StepBatch,
    StepResult,
    masked_loss,
)
from halflabel.types import Shape

BODY = ("network.encoder.", "network.head.hidden.")
CLASSIFIERS = ("network.head.first.", "network.head.second.")
RELATION = ("network.head.relation.",)
SLOW = 0.1  # of the first turn's rate, for the two in which the classifiers part and meet


PLANS = MULTILABEL | {
    # squared errors of sigmoids die at the rate of other losses, and learn slowly at a lower one
    "frozen": MULTILABEL["frozen"] | {"head_rate": 1e-3, "warmup": 1500},
    "paper": {"warmup": 1000},  # ours: a collapse is told by what labelled texts alone had given
}
CLASSIFIER_UNITS, RELATION_UNITS = 800, 1000  # hidden units
MOST = 300  # labels: every pair of them has 1000 weights


@method("sdrl", task="multi-label", paper="SDRL: Wang et al., TIP 2021; public code of DRML, AAAI 2020", plans=PLANS)
def sdrl(shape: Shape, *, distance: float = 1.0, after: float = 0.33, relation: float = 0.2,
         lambda1: float = 1e-5) -> SelfTraining:
    """Two classifiers part and meet over the pool, a network relates their answers, agreed texts become labelled."""
    head = RelationHead(shape)
    pseudo = AgreementLabels(shape, head.apart, distance, after)
    return SelfTraining(head=head, loss=squared_error, pseudo_labels=pseudo, weight=constant(lambda1), logits=True,
                        custom_step=FourPhases(relation, pseudo.count))


class StepRows(NamedTuple):
    """Rows of the source that a step learns from: with labels, given or taken over, and without."""

    known: np.ndarray
    target: Target
    pool: np.ndarray


class FourPhases(CustomStep):
    """A step is four turns on the same texts.

    learn: everything but the relation network fits the labels; part: the classifiers fit them and disagree about the
    pool; meet: the features change until they agree; relate: the relation network fits the labels. Without a pool the
    first and the last are left.
    """

    phases = (OptimizerPhase("learn", BODY + CLASSIFIERS), OptimizerPhase("part", CLASSIFIERS, SLOW),
              OptimizerPhase("meet", BODY, SLOW), OptimizerPhase("relate", RELATION))
    chosen: StepRows  # by the first turn of a step, for all four

    def __init__(self, relation: float, count: Callable[[], int]) -> None:
        super().__init__()
        self.relation, self.count = relation, count

    def forward(self, objective: Objective, problem: Problem, batch: StepBatch, weight: float) -> StepResult:
        pseudo = objective.pseudo_labels
        assert isinstance(pseudo, AgreementLabels)
        turn, target = batch.phase or "learn", None
        if turn == "learn":
            pseudo.progress.fill_(batch.progress)
            self.chosen = choose(problem, batch, pseudo)
            if len(batch.unlabelled):
                target = objective.targets(problem, problem.labelled + batch.unlabelled)
        loss = self.loss(turn, objective, problem, batch, weight)
        return StepResult(loss, float(loss.detach()), 0.0, target)

    def loss(self, turn: str, objective: Objective, problem: Problem, batch: StepBatch, weight: float) -> Tensor:
        """What is lowered in a turn; without gradient where there is nothing to do."""
        known, target, pool = self.chosen
        if turn in ("part", "meet") and not (len(pool) and weight):
            return torch.zeros(())
        rows = {"part": np.concatenate([known, pool]), "meet": pool}.get(turn, known)
        with torch.set_grad_enabled(turn in ("learn", "meet")):
            f = objective.outputs(problem, rows, rng=batch.rng).f
        if turn == "meet":  # alone: its size is nothing to AdamW
            return self.discrepancy(objective, f)
        fit = self.fit(objective, f[: len(known)], target)
        return fit - weight * self.discrepancy(objective, f[len(known) :]) if turn == "part" else fit

    def fit(self, objective: Objective, f: Tensor, target: Target) -> Tensor:
        """How far all three networks are from the labels, for features (N, D)."""
        assert isinstance(objective.network.head, RelationHead)
        first, second, related = (masked_loss(objective.method.loss, logits, target).mean()
                                  for logits in objective.network.head.answers(f))
        return first + second + self.relation * related

    def discrepancy(self, objective: Objective, f: Tensor) -> Tensor:
        """How far the two classifiers are apart, summed over texts and labels, for features (N, D)."""
        assert isinstance(objective.network.head, RelationHead)
        return objective.network.head.apart(f).abs().sum()

    def report(self) -> dict[str, Any]:
        """How many texts of the pool have become labelled."""
        return {"taken": self.count()}


def choose(problem: Problem, batch: StepBatch, pseudo: AgreementLabels) -> StepRows:
    """Labelled texts, among which those taken over are as often as in all, and texts that are still unlabelled."""
    known, given, pool = batch.labelled, problem.target(batch.labelled), batch.unlabelled
    taken = np.flatnonzero(pseudo.taken.cpu().numpy())
    if not len(taken):
        return StepRows(known, given, problem.labelled + pool)
    left = np.flatnonzero(~pseudo.taken.cpu().numpy())
    pool = batch.rng.choice(left, min(len(pool), len(left)), replace=False)
    other = batch.rng.choice(taken, len(known))
    swap = batch.rng.random(len(known)) < len(taken) / (problem.labelled + len(taken))
    theirs = torch.from_numpy(swap).to(given.y.device)
    y = torch.where(theirs[:, None], pseudo.table[torch.from_numpy(other)], given.y)
    across = theirs.view(-1, *(1,) * (given.weight.dim() - 1))
    weight = torch.where(across, torch.ones_like(given.weight), given.weight)
    return StepRows(np.where(swap, problem.labelled + other, known), Target(y, weight), problem.labelled + pool)


class RelationHead(Head):
    """f = tanh(A h), two classifiers of two layers on it, and the relation network on the product of their answers."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        if shape.labels > MOST:
            raise BadInput(f"sdrl relates every label to every other, and {shape.labels:,} labels are more than the "
                           f"{MOST} that fit into memory; choose another method, or leave out rare labels.")
        self.hidden = nn.Linear(shape.width, WIDTH)
        self.first, self.second = (
            nn.Sequential(nn.Linear(WIDTH, CLASSIFIER_UNITS), nn.ReLU(), nn.Linear(CLASSIFIER_UNITS, shape.labels))
            for _ in range(2))
        self.relation = nn.Sequential(nn.Linear(shape.labels**2, RELATION_UNITS), nn.ReLU(),
                                      nn.Linear(RELATION_UNITS, shape.labels))

    def features(self, h: Tensor) -> Tensor:
        """(N, H) -> (N, D)."""
        return torch.tanh(self.hidden(h))

    def answers(self, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the two classifiers and of the relation network, (N, D) -> three (N, K)."""
        first, second = self.first(f), self.second(f)
        pairs = first.sigmoid()[:, :, None] * second.sigmoid()[:, None, :]
        return first, second, self.relation(pairs.flatten(1))

    def apart(self, f: Tensor) -> Tensor:
        """By how much the probabilities of the two classifiers differ, (N, D) -> (N, K)."""
        return self.first(f).sigmoid() - self.second(f).sigmoid()

    def forward(self, f: Tensor) -> Tensor:
        """Logits of the relation network, (N, D) -> (N, K)."""
        return self.answers(f)[2]


class AgreementLabels(PseudoLabeller):
    """Takes a text over with its soft label when the squared answers of two classifiers differ by less than `distance`.

    `apart` gives the difference (N, K) for features (N, D). Nothing is taken over before a share `after` of the run,
    and nothing is given back.
    """

    def __init__(self, shape: Shape, apart: Callable[[Tensor], Tensor], distance: float, after: float) -> None:
        super().__init__()
        self.apart, self.distance, self.after = apart, distance, after
        self.register_buffer("table", torch.zeros(shape.unlabelled, shape.labels))
        self.register_buffer("taken", torch.zeros(shape.unlabelled, dtype=torch.bool))
        self.register_buffer("progress", torch.zeros(()))  # of the run, by its last step

    table: Tensor
    taken: Tensor
    progress: Tensor

    def label(self, p: Tensor) -> Target:
        """What is only looked at gets no label."""
        return Target(p, p.new_zeros(len(p)))

    @torch.no_grad()
    def update_epoch(self, rows: Tensor, p: Tensor, f: Tensor, y: Tensor) -> None:
        """Takes over those of the rows (M,) that are not yet taken and on which the classifiers agree."""
        if float(self.progress) < self.after:
            return
        near = self.apart(f[len(y) :].to(self.table.device)).square().sum(dim=1) < self.distance
        fresh = near & ~self.taken[rows]
        self.table[rows[fresh.cpu()]] = p.to(self.table.device)[fresh]
        self.taken[rows[fresh.cpu()]] = True

    def forward(self, rows: Tensor, ask: Callable[[], Tensor]) -> Target:
        return Target(self.table[rows], self.taken[rows].to(self.table.dtype))

    def count(self) -> int:
        """How many texts have been taken over."""
        return int(self.taken.sum())
