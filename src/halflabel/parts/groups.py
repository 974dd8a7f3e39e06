"""Frequent, middling and rare classes: which group a class and a text belong to, and how much each counts."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from halflabel.parts.pseudo import Target

GROUPS = 3
BOUNDS = (0.2, 0.4)  # shares of the classes, by frequency, at which the middle and the last group begin


def log_prior(counts: Tensor) -> Tensor:
    """Logarithm of the labelled class shares, (K,); a class without a text counts as half a one."""
    counts = counts.clamp_min(0.5)
    return (counts / counts.sum()).log()


def log_odds(share: Tensor, labelled: int) -> Tensor:
    """Log-odds of labelled frequencies (K,), none of them rarer than half a text or more common than one half."""
    share = share.clamp(0.5 / max(1, labelled), 0.5)
    return (share / (1.0 - share)).log()


def groups(counts: Tensor) -> Tensor:
    """Which group each class belongs to, one-hot (3, K): frequent classes first, at least one each if K allows."""
    labels = len(counts)
    first = max(1, round(BOUNDS[0] * labels))
    second = max(first + 1, round(BOUNDS[1] * labels))
    rank = counts.argsort(descending=True, stable=True).argsort()
    number = (rank >= first).long() + (rank >= min(second, labels)).long()
    return functional.one_hot(number, GROUPS).T.float()


def effective(counts: Tensor, beta: float) -> Tensor:
    """Weights by the effective number of texts, (1 - beta) / (1 - beta^n), of mean one over what has a text."""
    weight = torch.where(counts > 0, (1.0 - beta) / (1.0 - beta ** counts.clamp_min(1.0)), 0.0)
    return weight / weight.sum().clamp_min(1e-12) * (counts > 0).sum()


def assigned(target: Target, group: Tensor) -> Target:
    """The groups of texts, (N, 3): every one that has one of their labels; open where only unknown ones could be."""
    mine = (target.y @ group.T > 0).to(target.y.dtype)
    if target.weight.dim() == 1:
        return Target(mine, target.weight)
    return Target(mine, mine.maximum(((1.0 - target.weight) @ group.T == 0).to(mine.dtype)))
