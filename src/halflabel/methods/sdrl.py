"""SDRL: two classifiers whose discrepancy on the pool is maximised, then minimised, and a label relation network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.errors import SettingError
from halflabel.methods.registry import Range, method
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

PLANS = MULTILABEL | {
    # squared errors of sigmoids saturate at the rate of other losses, and learn slowly at a lower one
    "frozen": MULTILABEL["frozen"] | {"head_rate": 1e-3, "warmup": 1500},
    "paper": {"warmup": 1000},  # ours: a collapse is detected by comparison with the state after warm-up
}
CLASSIFIER_UNITS, RELATION_UNITS = 800, 1000  # hidden units
MAX_LABELS = 300  # every pair of labels has 1000 weights


@method("sdrl", task="multi-label", paper="SDRL: Wang et al., TIP 2021; public code of DRML, AAAI 2020", plans=PLANS,
        limits={"distance": Range(0.0, 1e6), "after": Range(0.0, 1.0), "relation": Range(0.0, 1e6)})
def sdrl(shape: Shape, *, distance: float = 1.0, after: float = 0.33, relation: float = 0.2,
         lambda1: float = 1e-5) -> SelfTraining:
    """Two classifiers whose discrepancy on the pool is maximised, then minimised, and a label relation network."""
    head = RelationHead(shape)
    pseudo_labels = AgreementLabels(shape, head.difference, distance, after)
    return SelfTraining(head=head, loss=squared_error, pseudo_labels=pseudo_labels, weight=constant(lambda1),
                        logits=True, custom_step=FourPhases(relation, pseudo_labels.count))


class RelationHead(Head):
    """f = tanh(A h), two classifiers of two layers, and a relation network on the outer product of their outputs."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        if shape.labels > MAX_LABELS:
            raise SettingError(f"sdrl relates every label to every other and takes at most {MAX_LABELS} labels, not "
                               f"{shape.labels:,}; choose another method, or leave out rare labels.")
        self.hidden = nn.Linear(shape.width, WIDTH)
        self.first, self.second = (
            nn.Sequential(nn.Linear(WIDTH, CLASSIFIER_UNITS), nn.ReLU(), nn.Linear(CLASSIFIER_UNITS, shape.labels))
            for _ in range(2))
        self.relation = nn.Sequential(nn.Linear(shape.labels**2, RELATION_UNITS), nn.ReLU(),
                                      nn.Linear(RELATION_UNITS, shape.labels))

    def features(self, h: Tensor) -> Tensor:
        """(N, H) -> (N, D)."""
        return torch.tanh(self.hidden(h))

    def all_logits(self, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the two classifiers and of the relation network, (N, D) -> three (N, K)."""
        first, second = self.first(f), self.second(f)
        pairs = first.sigmoid()[:, :, None] * second.sigmoid()[:, None, :]
        return first, second, self.relation(pairs.flatten(1))

    def difference(self, f: Tensor) -> Tensor:
        """The difference between the probabilities of the two classifiers, (N, D) -> (N, K)."""
        return self.first(f).sigmoid() - self.second(f).sigmoid()

    def forward(self, f: Tensor) -> Tensor:
        """Logits of the relation network, (N, D) -> (N, K)."""
        return self.all_logits(f)[2]


class AgreementLabels(PseudoLabeller):
    """Labels a text for good when the squared difference of two classifiers, summed over labels, is below `distance`.

    `difference` gives (N, K) for features (N, D). The label is the soft prediction at that time. No text is labelled
    before a share `after` of the run.
    """

    def __init__(self, shape: Shape, difference: Callable[[Tensor], Tensor], distance: float, after: float) -> None:
        super().__init__()
        self.difference, self.distance, self.after = difference, distance, after
        self.register_buffer("table", torch.zeros(shape.unlabelled, shape.labels))
        self.register_buffer("taken", torch.zeros(shape.unlabelled, dtype=torch.bool))
        self.register_buffer("progress", torch.zeros(()))  # of the run, at its last step

    table: Tensor
    taken: Tensor
    progress: Tensor

    def label(self, p: Tensor) -> Target:
        """No labels: only `update_epoch` gives them."""
        return Target(p, p.new_zeros(len(p)))

    @torch.no_grad()
    def update_epoch(self, rows: Tensor, p: Tensor, f: Tensor, y: Tensor) -> None:
        """Labels those of the rows (M,) that have no label yet and on which the classifiers agree."""
        if float(self.progress) < self.after:
            return
        agree = self.difference(f[len(y) :].to(self.table.device)).square().sum(dim=1) < self.distance
        new = agree & ~self.taken[rows]
        self.table[rows[new.cpu()]] = p.to(self.table.device)[new]
        self.taken[rows[new.cpu()]] = True

    def forward(self, rows: Tensor, predict: Callable[[], Tensor]) -> Target:
        return Target(self.table[rows], self.taken[rows].to(self.table.dtype))

    def count(self) -> int:
        """The number of texts that have been labelled."""
        return int(self.taken.sum())


# The phases of a step

ENCODER_AND_FEATURES = ("network.encoder.", "network.head.hidden.")
CLASSIFIERS = ("network.head.first.", "network.head.second.")
RELATION = ("network.head.relation.",)
DISCREPANCY_RATE = 0.1  # times the learning rate, for the two phases that change the discrepancy


class StepRows(NamedTuple):
    """Rows of the inputs that a step trains on: with labels or pseudo-labels, and without."""

    known: np.ndarray
    target: Target
    pool: np.ndarray


class FourPhases(CustomStep):
    """A step has four phases on the same texts.

    fit: all but the relation network fit the labels; maximise: the classifiers fit the labels and maximise their
    discrepancy on the pool; minimise: the features minimise it; relate: the relation network fits the labels.
    Without a pool only the first and the last remain.
    """

    phases = (OptimizerPhase("fit", ENCODER_AND_FEATURES + CLASSIFIERS),
              OptimizerPhase("maximise", CLASSIFIERS, DISCREPANCY_RATE),
              OptimizerPhase("minimise", ENCODER_AND_FEATURES, DISCREPANCY_RATE),
              OptimizerPhase("relate", RELATION))
    rows: StepRows  # chosen in the first phase of a step, for all four

    def __init__(self, relation: float, count: Callable[[], int]) -> None:
        super().__init__()
        self.relation, self.count = relation, count

    def forward(self, objective: Objective, problem: Problem, batch: StepBatch, weight: float) -> StepResult:
        pseudo_labels = objective.pseudo_labels
        assert isinstance(pseudo_labels, AgreementLabels)
        phase, target = batch.phase or "fit", None
        if phase == "fit":
            pseudo_labels.progress.fill_(batch.progress)
            self.rows = step_rows(problem, batch, pseudo_labels)
            if len(batch.unlabelled):
                target = objective.targets(problem, problem.labelled + batch.unlabelled)
        loss = self.phase_loss(phase, objective, problem, batch, weight)
        return StepResult(loss, float(loss.detach()), 0.0, target)

    def phase_loss(self, phase: str, objective: Objective, problem: Problem, batch: StepBatch, weight: float) -> Tensor:
        """The loss of a phase; a constant where there is nothing to train."""
        known, target, pool = self.rows
        if phase in ("maximise", "minimise") and not (len(pool) and weight):
            return torch.zeros(())
        rows = {"maximise": np.concatenate([known, pool]), "minimise": pool}.get(phase, known)
        with torch.set_grad_enabled(phase in ("fit", "minimise")):
            f = objective.outputs(problem, rows, rng=batch.rng).f
        if phase == "minimise":  # without its weight, since AdamW is invariant to scale
            return self.discrepancy(objective, f)
        fit = self.fit_loss(objective, f[: len(known)], target)
        return fit - weight * self.discrepancy(objective, f[len(known) :]) if phase == "maximise" else fit

    def fit_loss(self, objective: Objective, f: Tensor, target: Target) -> Tensor:
        """The losses of both classifiers and of the relation network, for features (N, D)."""
        assert isinstance(objective.network.head, RelationHead)
        first, second, related = (masked_loss(objective.method.loss, logits, target).mean()
                                  for logits in objective.network.head.all_logits(f))
        return first + second + self.relation * related

    def discrepancy(self, objective: Objective, f: Tensor) -> Tensor:
        """The L1 distance between the two classifiers, summed over texts and labels, for features (N, D)."""
        assert isinstance(objective.network.head, RelationHead)
        return objective.network.head.difference(f).abs().sum()

    def report(self) -> dict[str, Any]:
        """The number of pool texts that have been labelled."""
        return {"taken": self.count()}


def step_rows(problem: Problem, batch: StepBatch, pseudo_labels: AgreementLabels) -> StepRows:
    """Replaces some labelled rows of a batch by pseudo-labelled ones, in proportion; the pool has the rest."""
    known, target, pool = batch.labelled, problem.target(batch.labelled), batch.unlabelled
    taken = pseudo_labels.taken.cpu().numpy()
    if not taken.any():
        return StepRows(known, target, problem.labelled + pool)
    labelled, unlabelled = np.flatnonzero(taken), np.flatnonzero(~taken)
    pool = batch.rng.choice(unlabelled, min(len(pool), len(unlabelled)), replace=False)
    substitutes = batch.rng.choice(labelled, len(known))
    replaced = batch.rng.random(len(known)) < len(labelled) / (problem.labelled + len(labelled))
    replaced_rows = torch.from_numpy(replaced).to(target.y.device)
    y = torch.where(replaced_rows[:, None], pseudo_labels.table[torch.from_numpy(substitutes)], target.y)
    mask = replaced_rows.view(-1, *(1,) * (target.weight.dim() - 1))
    weight = torch.where(mask, torch.ones_like(target.weight), target.weight)
    return StepRows(np.where(replaced, problem.labelled + substitutes, known), Target(y, weight),
                    problem.labelled + pool)
