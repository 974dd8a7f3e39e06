"""Evaluation passes over the training texts: features, pseudo-labels and figures of an epoch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from halflabel import equations as eq
from halflabel.encoders.inference import texts_at_once
from halflabel.encoders.inputs import Inputs
from halflabel.evaluation.metrics import variance_difference
from halflabel.nn.pseudo_labels import Target
from halflabel.training.objective import Objective, Problem
from halflabel.types import Task

BATCH = 8192  # texts that are encoded and classified at a time


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
