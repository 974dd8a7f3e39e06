"""The margin-bias example (Fig. 2), computed: two labels in the plane whose angles spread unevenly.

Self-training by angles alone against the same with balanced angles, by the equations of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from halflabel.equations import angle_moments, angles, cosines, prototypes, psi, slopes

LABELLED, UNLABELLED = 5, 120  # texts of each label
DIRECTIONS, SPREADS = (62.0, 118.0), (5.0, 20.0)  # degrees: where labels point, and how far their texts stray
ROUNDS = 10
SEED = 0


@dataclass(frozen=True)
class Example:
    """Texts in the plane, what they are, what they were taken to be, and where the labels part."""

    f: np.ndarray  # (N, 2), labelled texts of each label first
    y: np.ndarray  # (N,) true labels
    labelled: np.ndarray  # (N,) whether the label is known
    said: dict[str, np.ndarray]  # (N,) by "AM" and "BDD"
    border: dict[str, float]  # degrees

    def errors(self, way: str) -> int:
        """Unlabelled texts that got the wrong label."""
        return int((self.said[way] != self.y)[~self.labelled].sum())


def example(seed: int = SEED) -> Example:
    """A draw of texts, and self-training on it in both ways."""
    rng = np.random.default_rng([2, seed])
    y = np.repeat([0, 1], LABELLED + UNLABELLED)
    labelled = np.tile(np.arange(LABELLED + UNLABELLED) < LABELLED, 2)
    turn = np.radians(np.array(DIRECTIONS)[y] + rng.normal(size=len(y)) * np.array(SPREADS)[y])
    f = np.stack([np.cos(turn), np.sin(turn)], axis=1) * rng.uniform(0.55, 1.0, len(y))[:, None]
    found = {way: self_trained(torch.from_numpy(f), y, labelled, balanced=way == "BDD") for way in ("AM", "BDD")}
    return Example(f, y, labelled, {way: said for way, (said, _) in found.items()},
                   {way: border for way, (_, border) in found.items()})


def self_trained(f: Tensor, y: np.ndarray, labelled: np.ndarray, *, balanced: bool) -> tuple[np.ndarray, float]:
    """Labels (N,) after rounds of labelling by the nearest label angle, and the direction at which they change."""
    known = torch.from_numpy(np.eye(2)[y])
    taken = known * torch.from_numpy(labelled)[:, None]
    fan = torch.linspace(0.0, torch.pi, 1801, dtype=f.dtype)
    around = torch.stack([fan.cos(), fan.sin()], dim=1)
    said, border = y, 90.0
    for _ in range(ROUNDS):
        c = prototypes(f, taken)
        mu, var = angle_moments(angles(cosines(f, c)), taken)
        both = [angles(cosines(points, c)) for points in (f, around)]
        near, fan_near = (psi(theta, mu, slopes(var)).argmin(1) if balanced else theta.argmin(1) for theta in both)
        said = np.where(labelled, y, near.numpy())
        taken = torch.from_numpy(np.eye(2)[said])
        between = fan_near[(fan > np.radians(DIRECTIONS[0])) & (fan < np.radians(DIRECTIONS[1]))]
        border = DIRECTIONS[0] + float((between == 0).double().mean()) * (DIRECTIONS[1] - DIRECTIONS[0])
    return said, border


def error_rates(draws: int = 100) -> dict[str, tuple[float, float]]:
    """Mean and deviation over draws of the share of unlabelled texts with a wrong label, by way."""
    found = [example(seed) for seed in range(draws)]
    shares = {way: np.array([one.errors(way) for one in found]) / (2 * UNLABELLED) for way in ("AM", "BDD")}
    return {way: (float(share.mean()), float(share.std(ddof=1))) for way, share in shares.items()}
