"""The pool during a run: evaluation passes with the figures of an epoch, pseudo-labels, and whether they collapse."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from halflabel import equations as eq
from halflabel.encoders.inference import texts_at_once
from halflabel.encoders.inputs import Inputs
from halflabel.evaluation.metrics import collapsed, variance_difference
from halflabel.nn.pseudo_labels import Target
from halflabel.training.objective import Objective, Problem
from halflabel.types import Task

BATCH = 8192  # texts that are encoded and classified at a time
# Share of the effective classes (beyond the first) of the reference below which pseudo-labels count as collapsed.
COLLAPSE_THRESHOLD = 0.6


class EpochStatistics(NamedTuple):
    """Features and targets of the labelled texts and of a sample of the pool."""

    rows: np.ndarray  # (M,) of the pool
    f: Tensor  # (N_l + M, D)
    y: Tensor  # (N_l + M, K) labels, and pseudo-labels times their weight
    p: Tensor  # (M, K) probabilities of the unlabelled texts
    target: Target
    task: Task

    def shares(self) -> np.ndarray:
        """The distribution of labels over the pool, (K,): the predicted one, or all accepted ones of each text."""
        if self.task == "multi-label":
            counts = self.target.weighted.sum(dim=0)
            return (counts / counts.sum().clamp_min(1e-12)).double().numpy()
        counts = torch.bincount(self.p.argmax(dim=1), minlength=self.p.shape[1])
        return (counts / max(1, len(self.p))).double().numpy()

    def figures(self, problem: Problem) -> dict[str, Any]:
        """Figures for the log: DLAV, acceptance, and the accuracy of pseudo-labels where the truth is known."""
        _, variance = eq.angle_moments(eq.angles(eq.cosines(self.f, eq.prototypes(self.f, self.y))), self.y)
        figures: dict[str, Any] = {"dlav": variance_difference(variance.double().numpy())}
        if len(self.rows):
            accepted = float(self.target.accepted.double().mean())
            figures |= {"accepted": accepted, "shares": self.shares().round(4).tolist()}
            if problem.truth is not None:
                figures |= self.pseudo_label_accuracy(problem.truth[torch.from_numpy(self.rows)], problem)
        return figures

    def pseudo_label_accuracy(self, truth: Tensor, problem: Problem) -> dict[str, float | None]:
        """Accuracy of the pseudo-labels against the truth (M, K), or micro F1 for several labels per text."""
        if problem.task == "multi-label":
            y = self.target.y
            return {"pseudo_f1": float(2 * (y * truth).sum() / (y.sum() + truth.sum()).clamp_min(1))}
        accepted, correct = self.target.accepted, self.p.argmax(dim=1) == truth.argmax(dim=1)
        return {"pseudo_accuracy": float(correct.double().mean()),
                "accepted_accuracy": float(correct[accepted].double().mean()) if bool(accepted.any()) else None}


@torch.no_grad()
def epoch_statistics(objective: Objective, problem: Problem, rows: np.ndarray) -> EpochStatistics:
    """One evaluation pass over the labelled texts and the given rows of the pool."""
    everything = np.concatenate([np.arange(problem.labelled), problem.labelled + rows])
    f, scores = outputs(objective, problem.inputs, everything)
    p = objective.method.probabilities(scores[problem.labelled :])
    target = Target(*(x.cpu() for x in objective.pseudo_labels.label(p.to(objective.device))))
    return EpochStatistics(rows, f, torch.cat([problem.y.nan_to_num().cpu(), target.weighted]), p, target, problem.task)


@torch.inference_mode()
def outputs(objective: Objective, inputs: Inputs, rows: np.ndarray) -> tuple[Tensor, Tensor]:
    """f (N, D) and scores (N, K) of rows in eval mode; only a part of their vectors is in memory at a time.

    Several processes share the work, and all get the result.
    """
    was_training, ranks, parts = objective.training, objective.ranks, []
    objective.eval()
    size = texts_at_once(inputs.width, BATCH)
    for start in range(0, len(rows), size):
        chunk = rows[start : start + size]
        h = torch.from_numpy(inputs.encoded(chunk[ranks.share(len(chunk))], objective.network.encoder))
        output = objective.network.classify(h.to(objective.device))
        parts.append(tuple(ranks.gather(x.cpu(), len(chunk)) for x in (output.f, output.scores)))
    objective.train(was_training)
    f, scores = (torch.cat(column).clone() for column in zip(*parts, strict=True))
    return f, scores


class PoolState(nn.Module):
    """Pseudo-labels and trust as buffers, so that a checkpoint holds them."""

    def __init__(self, labels: int, unlabelled: int, task: Task = "multi-class", *, guard: bool = True) -> None:
        super().__init__()
        self.guard = guard  # whether a collapse is looked for
        # Latest pseudo-label of each text: its column, in as few bytes as possible, since there may be many texts;
        # for several labels per text a row of booleans.
        columns = torch.from_numpy(np.full(unlabelled, -1, np.min_scalar_type(-labels)))
        rows = torch.zeros(unlabelled, labels if task == "multi-label" else 0, dtype=torch.bool)
        self.register_buffer("label", rows if task == "multi-label" else columns)
        self.register_buffer("since", torch.full((unlabelled,), -1, dtype=torch.int32))  # step of first acceptance
        self.register_buffer("trust", torch.ones(()))  # factor on the weight of the pool
        self.register_buffer("reference", torch.zeros(labels))  # class shares predicted from labelled texts alone

    label: Tensor
    since: Tensor
    trust: Tensor
    reference: Tensor

    def record(self, rows: np.ndarray, target: Target, step: int) -> None:
        """Records the accepted pseudo-labels of a step's rows."""
        accepted, y = target.accepted.cpu(), target.y.cpu()
        places = torch.from_numpy(rows)[accepted]
        self.label[places] = (y.argmax(dim=1) if self.label.dim() == 1 else y > 0.5)[accepted].to(self.label.dtype)
        self.since[places[self.since[places] < 0]] = step

    def set_reference(self, shares: np.ndarray) -> None:
        """Sets the class shares (K,) that a collapse is measured against."""
        self.reference.copy_(torch.from_numpy(shares))

    def collapsed(self, shares: np.ndarray) -> bool:
        """Whether class shares (K,) have collapsed to few classes; never once the pool was abandoned."""
        watched = self.guard and float(self.trust) > 0.0
        return watched and collapsed(shares, self.reference.double().numpy(), COLLAPSE_THRESHOLD)

    def abandon(self) -> str:
        """Sets the trust in the pool to zero and forgets its pseudo-labels; returns the reason.

        Halving the trust instead ended below the labelled texts alone in most trials.
        """
        self.trust.zero_()
        self.since.fill_(-1)
        return "pseudo-labels collapsed to few classes; the pool is abandoned, training on labelled texts only"
