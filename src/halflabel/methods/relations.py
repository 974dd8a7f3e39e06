"""SDRL: two classifiers that part and meet over the pool, and a network that relates what they say of each label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from halflabel.methods.multilabel import QUICK
from halflabel.methods.registry import method
from halflabel.model.relation import Related
from halflabel.parts.agreement import Agreed
from halflabel.parts.losses import squared_error
from halflabel.parts.pseudo import Target
from halflabel.parts.weight import constant
from halflabel.train.objective import Draw, Objective, Problem, Rule, SelfTraining, Step, Turn, each
from halflabel.types import Shape

BODY = ("network.encoder.", "network.head.hidden.")
CLASSIFIERS = ("network.head.first.", "network.head.second.")
RELATION = ("network.head.relation.",)
SLOW = 0.1  # of the first turn's rate, for the two in which the classifiers part and meet


PLANS = QUICK | {
    # squared errors of sigmoids die at the rate of other losses, and learn slowly at a lower one
    "frozen": QUICK["frozen"] | {"head_rate": 1e-3, "warmup": 1500},
    "paper": {"warmup": 1000},  # ours: a collapse is told by what labelled texts alone had given
}


@method("sdrl", task="multi-label", paper="SDRL: Wang et al., TIP 2021; public code of DRML, AAAI 2020", plans=PLANS)
def sdrl(shape: Shape, *, distance: float = 1.0, after: float = 0.33, relation: float = 0.2,
         lambda1: float = 1e-5) -> SelfTraining:
    """Two classifiers part and meet over the pool, a network relates their answers, agreed texts become labelled."""
    head = Related(shape)
    pseudo = Agreed(shape, head.apart, distance, after)
    return SelfTraining(head=head, loss=squared_error, pseudo=pseudo, weight=constant(lambda1), logits=True,
                        rule=FourTurns(relation, pseudo.count))


class Chosen(NamedTuple):
    """Rows of the source that a step learns from: with labels, given or taken over, and without."""

    known: np.ndarray
    target: Target
    pool: np.ndarray


class FourTurns(Rule):
    """A step is four turns on the same texts.

    learn: everything but the relation network fits the labels; part: the classifiers fit them and disagree about the
    pool; meet: the features change until they agree; relate: the relation network fits the labels. Without a pool the
    first and the last are left.
    """

    turns = (Turn("learn", BODY + CLASSIFIERS), Turn("part", CLASSIFIERS, SLOW), Turn("meet", BODY, SLOW),
             Turn("relate", RELATION))
    chosen: Chosen  # by the first turn of a step, for all four

    def __init__(self, relation: float, count: Callable[[], int]) -> None:
        super().__init__()
        self.relation, self.count = relation, count

    def forward(self, objective: Objective, problem: Problem, draw: Draw, weight: float) -> Step:
        pseudo = objective.pseudo
        assert isinstance(pseudo, Agreed)
        turn, target = draw.turn or "learn", None
        if turn == "learn":
            pseudo.progress.fill_(draw.progress)
            self.chosen = choose(problem, draw, pseudo)
            if len(draw.unlabelled):
                target = objective.targets(problem, problem.labelled + draw.unlabelled)
        loss = self.loss(turn, objective, problem, draw, weight)
        return Step(loss, float(loss.detach()), 0.0, target)

    def loss(self, turn: str, objective: Objective, problem: Problem, draw: Draw, weight: float) -> Tensor:
        """What is lowered in a turn; without gradient where there is nothing to do."""
        known, target, pool = self.chosen
        if turn in ("part", "meet") and not (len(pool) and weight):
            return torch.zeros(())
        rows = {"part": np.concatenate([known, pool]), "meet": pool}.get(turn, known)
        with torch.set_grad_enabled(turn in ("learn", "meet")):
            f = objective.outputs(problem, rows, rng=draw.rng).f
        if turn == "meet":  # alone: its size is nothing to AdamW
            return self.discrepancy(objective, f)
        fit = self.fit(objective, f[: len(known)], target)
        return fit - weight * self.discrepancy(objective, f[len(known) :]) if turn == "part" else fit

    def fit(self, objective: Objective, f: Tensor, target: Target) -> Tensor:
        """How far all three networks are from the labels, for features (N, D)."""
        assert isinstance(objective.network.head, Related)
        first, second, related = (each(objective.method.loss, logits, target).mean()
                                  for logits in objective.network.head.answers(f))
        return first + second + self.relation * related

    def discrepancy(self, objective: Objective, f: Tensor) -> Tensor:
        """How far the two classifiers are apart, summed over texts and labels, for features (N, D)."""
        assert isinstance(objective.network.head, Related)
        return objective.network.head.apart(f).abs().sum()

    def report(self) -> dict[str, Any]:
        """How many texts of the pool have become labelled."""
        return {"taken": self.count()}


def choose(problem: Problem, draw: Draw, pseudo: Agreed) -> Chosen:
    """Labelled texts, among which those taken over are as often as in all, and texts that are still unlabelled."""
    known, given, pool = draw.labelled, problem.target(draw.labelled), draw.unlabelled
    taken = np.flatnonzero(pseudo.taken.cpu().numpy())
    if not len(taken):
        return Chosen(known, given, problem.labelled + pool)
    left = np.flatnonzero(~pseudo.taken.cpu().numpy())
    pool = draw.rng.choice(left, min(len(pool), len(left)), replace=False)
    other = draw.rng.choice(taken, len(known))
    swap = draw.rng.random(len(known)) < len(taken) / (problem.labelled + len(taken))
    theirs = torch.from_numpy(swap).to(given.y.device)
    y = torch.where(theirs[:, None], pseudo.table[torch.from_numpy(other)], given.y)
    across = theirs.view(-1, *(1,) * (given.weight.dim() - 1))
    weight = torch.where(across, torch.ones_like(given.weight), given.weight)
    return Chosen(np.where(swap, problem.labelled + other, known), Target(y, weight), problem.labelled + pool)
