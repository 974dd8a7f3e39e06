"""The margin-bias example (Fig. 2), computed: two labels in the plane whose angles have unequal variances.

Self-training by plain angles against self-training by balanced angles, with the paper's equations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from halflabel.equations import angle_moments, angles, cosines, prototypes, psi, slopes

LABELLED, UNLABELLED = 5, 120  # texts of each label
DIRECTIONS, DEVIATIONS = (62.0, 118.0), (5.0, 20.0)  # degrees: mean direction of each label, and its deviation
ROUNDS = 10
SEED = 0


@dataclass(frozen=True)
class PlaneExample:
    """Texts in the plane, their pseudo-labels and the decision boundary, by "AM" and "BDD"."""

    f: np.ndarray  # (N, 2), labelled texts of each label first
    y: np.ndarray  # (N,) true labels
    labelled: np.ndarray  # (N,) whether the label is known
    pseudo_labels: dict[str, np.ndarray]  # (N,)
    boundary: dict[str, float]  # degrees

    def errors(self, angles: str) -> int:
        """Unlabelled texts with a wrong pseudo-label."""
        return int((self.pseudo_labels[angles] != self.y)[~self.labelled].sum())


def example(seed: int = SEED) -> PlaneExample:
    """A random sample of texts, and self-training on it with both kinds of angles."""
    rng = np.random.default_rng([2, seed])
    y = np.repeat([0, 1], LABELLED + UNLABELLED)
    labelled = np.tile(np.arange(LABELLED + UNLABELLED) < LABELLED, 2)
    direction = np.radians(np.array(DIRECTIONS)[y] + rng.normal(size=len(y)) * np.array(DEVIATIONS)[y])
    f = np.stack([np.cos(direction), np.sin(direction)], axis=1) * rng.uniform(0.55, 1.0, len(y))[:, None]
    trained = {name: self_train(torch.from_numpy(f), y, labelled, balanced=name == "BDD") for name in ("AM", "BDD")}
    return PlaneExample(f, y, labelled, {name: labels for name, (labels, _) in trained.items()},
                        {name: boundary for name, (_, boundary) in trained.items()})


def self_train(f: Tensor, y: np.ndarray, labelled: np.ndarray, *, balanced: bool) -> tuple[np.ndarray, float]:
    """Pseudo-labels (N,) after rounds of labelling by the smallest angle, and the decision boundary in degrees."""
    weights, pseudo_labels = torch.from_numpy(np.eye(2)[y]) * torch.from_numpy(labelled)[:, None], y

    def nearest(points: Tensor) -> np.ndarray:
        theta = angles(cosines(points, c))
        return (psi(theta, mu, slopes(var)) if balanced else theta).argmin(dim=1).numpy()

    for _ in range(ROUNDS):
        c = prototypes(f, weights)
        mu, var = angle_moments(angles(cosines(f, c)), weights)
        pseudo_labels = np.where(labelled, y, nearest(f))
        weights = torch.from_numpy(np.eye(2)[pseudo_labels])
    fan = torch.linspace(0.0, torch.pi, 1801, dtype=f.dtype)  # all directions, to find the boundary
    between = (fan > np.radians(DIRECTIONS[0])) & (fan < np.radians(DIRECTIONS[1]))
    first = nearest(torch.stack([fan.cos(), fan.sin()], dim=1))[between.numpy()] == 0
    return pseudo_labels, DIRECTIONS[0] + float(first.mean()) * (DIRECTIONS[1] - DIRECTIONS[0])


def error_rates(samples: int = 100) -> dict[str, tuple[float, float]]:
    """Mean and deviation over random samples of the share of unlabelled texts with a wrong pseudo-label."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on tensors this small, more threads take twenty times as long
    try:
        examples = [example(seed) for seed in range(samples)]
    finally:
        torch.set_num_threads(threads)
    shares = {name: np.array([sample.errors(name) for sample in examples]) / (2 * UNLABELLED) for name in ("AM", "BDD")}
    return {name: (float(share.mean()), float(share.std(ddof=1))) for name, share in shares.items()}
