"""A look at all texts with the weights as they are: statistics, shares, pseudo-label accuracy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from halflabel.equations import angle_moments, angles, cosines, probabilities, prototypes
from halflabel.metrics import variance_difference
from halflabel.model.source import Source
from halflabel.parts.pseudo import Target
from halflabel.train.objective import Objective, Problem

BATCH = 8192  # vectors that are classified at a time


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
def outputs(objective: Objective, source: Source, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """h (N, H), f (N, D) and scores (N, K) of rows in eval mode."""
    was_training = objective.training
    objective.eval()
    h = torch.from_numpy(source.encoded(rows, objective.network.encoder))
    parts = [tuple(x.cpu() for x in objective.network.classify(part.to(objective.device))) for part in h.split(BATCH)]
    objective.train(was_training)
    h, f, scores = (torch.cat(column).clone() for column in zip(*parts, strict=True))
    return h, f, scores


@torch.no_grad()
def survey(objective: Objective, problem: Problem, rows: np.ndarray) -> Survey:
    """Looks at every labelled text and at the given rows of the pool."""
    everything = np.concatenate([np.arange(problem.labelled), problem.labelled + rows])
    _, f, scores = outputs(objective, problem.source, everything)
    p = probabilities(scores[problem.labelled :])
    target = objective.pseudo.label(p.to(objective.device))
    pseudo = (target.y * target.weight[:, None]).cpu()
    return Survey(rows, f, torch.cat([problem.y.cpu(), pseudo]), p, target)


def describe(seen: Survey, problem: Problem) -> dict[str, Any]:
    """Figures of an epoch: spread of variances, acceptance, and accuracy where the truth is known."""
    _, variance = angle_moments(angles(cosines(seen.f, prototypes(seen.f, seen.y))), seen.y)
    line: dict[str, Any] = {"dlav": variance_difference(variance.double().numpy())}
    if len(seen.rows):
        accepted = seen.target.weight.cpu() > 0
        line |= {"accepted": float(accepted.double().mean()), "shares": seen.shares().round(4).tolist()}
        if problem.truth is not None:
            right = seen.p.argmax(dim=1) == problem.truth[torch.from_numpy(seen.rows)]
            line["pseudo_accuracy"] = float(right.double().mean())
            line["accepted_accuracy"] = float(right[accepted].double().mean()) if bool(accepted.any()) else None
    return line
