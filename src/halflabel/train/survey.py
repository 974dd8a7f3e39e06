"""A look at all texts with the weights as they are: statistics, shares, pseudo-label accuracy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from halflabel.equations import angle_moments, angles, cosines, prototypes
from halflabel.metrics import variance_difference
from halflabel.model.encode import at_once
from halflabel.model.source import Source
from halflabel.parts.pseudo import Target
from halflabel.train.objective import Objective, Problem
from halflabel.types import Task

BATCH = 8192  # texts that are encoded and classified at a time


class Survey(NamedTuple):
    """Features and targets of the labelled and of (some) unlabelled texts."""

    rows: np.ndarray  # (M,) pool rows that were looked at
    f: Tensor  # (N_l + M, D)
    y: Tensor  # (N_l + M, K) labels, and pseudo-labels times their weight
    p: Tensor  # (M, K) probabilities of the unlabelled
    target: Target

    def shares(self) -> np.ndarray:
        """How the predicted labels of the pool are spread, (K,)."""
        counts = torch.bincount(self.p.argmax(dim=1), minlength=self.p.shape[1])
        return (counts / max(1, len(self.p))).double().numpy()


@torch.inference_mode()
def outputs(objective: Objective, source: Source, rows: np.ndarray) -> tuple[Tensor, Tensor]:
    """f (N, D) and scores (N, K) of rows in eval mode; their vectors are in memory for a part of them at a time."""
    was_training, parts = objective.training, []
    objective.eval()
    size = at_once(source.width, BATCH)
    for start in range(0, len(rows), size):
        h = torch.from_numpy(source.encoded(rows[start : start + size], objective.network.encoder))
        seen = objective.network.classify(h.to(objective.device))
        parts.append((seen.f.cpu(), seen.scores.cpu()))
    objective.train(was_training)
    f, scores = (torch.cat(column).clone() for column in zip(*parts, strict=True))
    return f, scores


@torch.no_grad()
def survey(objective: Objective, problem: Problem, rows: np.ndarray) -> Survey:
    """Looks at every labelled text and at the given rows of the pool."""
    everything = np.concatenate([np.arange(problem.labelled), problem.labelled + rows])
    f, scores = outputs(objective, problem.source, everything)
    p = objective.method.probabilities(scores[problem.labelled :])
    target = objective.pseudo.label(p.to(objective.device))
    return Survey(rows, f, torch.cat([problem.y.nan_to_num().cpu(), target.weighed.cpu()]), p, target)


def describe(seen: Survey, problem: Problem) -> dict[str, Any]:
    """Figures of an epoch: spread of variances, acceptance, and accuracy where the truth is known."""
    _, variance = angle_moments(angles(cosines(seen.f, prototypes(seen.f, seen.y))), seen.y)
    line: dict[str, Any] = {"dlav": variance_difference(variance.double().numpy())}
    if len(seen.rows):
        accepted = seen.target.kept.cpu()
        line |= {"accepted": float(accepted.double().mean()), "shares": seen.shares().round(4).tolist()}
        if problem.truth is not None:
            line |= correctness(seen, problem.truth[torch.from_numpy(seen.rows)], accepted, problem.task)
    return line


def correctness(seen: Survey, truth: Tensor, accepted: Tensor, task: Task) -> dict[str, Any]:
    """How right the pseudo-labels are, by the truth (M, K): accuracy, or micro F1 where texts have several."""
    if task == "multi-label":
        y = seen.target.y.cpu()
        return {"pseudo_f1": float(2 * (y * truth).sum() / (y.sum() + truth.sum()).clamp_min(1))}
    right = seen.p.argmax(dim=1) == truth.argmax(dim=1)
    return {"pseudo_accuracy": float(right.double().mean()),
            "accepted_accuracy": float(right[accepted].double().mean()) if bool(accepted.any()) else None}
