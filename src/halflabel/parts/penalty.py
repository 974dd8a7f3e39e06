"""Terms of the objective that need no target: functions of the scores (N, K) and of the head."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from halflabel.equations import (
    dual_ascent,
    entropy,
    lagrangian_penalty,
    nuclear_norm,
    probabilities,
    singular_value_threshold,
)
from halflabel.parts.pseudo import Target
from halflabel.types import Shape


class Penalty(nn.Module):
    """Nothing is added, and nothing happens between epochs; other penalties say what does."""

    def forward(self, scores: Tensor, head: nn.Module, target: Target | None = None) -> Tensor:
        """Of a step's scores (N, K), the last ones belong to `target`, if there is one."""
        return scores.new_zeros(())

    def refresh(self, head: nn.Module) -> None:
        """At the start of an epoch."""

    def report(self, head: nn.Module) -> dict[str, float]:
        """What an epoch's line in the log says."""
        return {}


class NoPenalty(Penalty):
    """Nothing is added."""


class Entropy(Penalty):
    """lambda2 times the mean conditional entropy of the batch (Eq. 10)."""

    def __init__(self, lambda2: float) -> None:
        super().__init__()
        self.lambda2 = lambda2

    def forward(self, scores: Tensor, head: nn.Module, target: Target | None = None) -> Tensor:
        return self.lambda2 * entropy(probabilities(scores)).mean()


class Fairness(Penalty):
    """FreeMatch's fairness: lambda2 sum_k wanted_k log given_k, where accepted texts are.

    `wanted` are the class shares that the pool has had so far, each over how often its class was the first choice;
    `given` is the same of the accepted texts of this step. Minus a cross-entropy: lowering it spreads predictions.
    """

    def __init__(self, lambda2: float, wanted: Callable[[], Tensor]) -> None:
        super().__init__()
        self.lambda2, self.wanted = lambda2, wanted

    def forward(self, scores: Tensor, head: nn.Module, target: Target | None = None) -> Tensor:
        if target is None or not bool((target.weight > 0).any()):
            return scores.new_zeros(())
        p = probabilities(scores[-len(target.y) :][target.weight > 0])
        chosen = torch.bincount(p.argmax(dim=1), minlength=p.shape[1]).to(p.dtype) / len(p)
        given = evened(p.mean(dim=0), chosen)
        return self.lambda2 * (self.wanted() * (given + 1e-12).log()).sum()


def evened(share: Tensor, chosen: Tensor) -> Tensor:
    """Class shares (K,) over how often each class was the first choice (K,), summing to one; never chosen: 0."""
    ratio = torch.where(chosen > 0, share / chosen.clamp_min(torch.finfo(chosen.dtype).tiny), 0.0)
    return ratio / ratio.sum()


class LowRank(Penalty):
    """lambda3 times the nuclear norm of the head's weights (Eq. 13), by ADMM (Eqs. 15 and 16).

    The weights are tied to a low-rank twin under a dual; both are renewed once an epoch. Nothing is added before
    the first time: warm-up is the loss alone. Nor is anything with lambda3 = 0, where the twin would be the weights
    as they were and only hold them back.
    """

    def __init__(self, shape: Shape, lambda3: float, tau: float, *, width: int = 128) -> None:
        super().__init__()
        self.lambda3, self.tau = lambda3, tau
        self.register_buffer("twin", torch.zeros(shape.labels, width))
        self.register_buffer("dual", torch.zeros(shape.labels, width))
        self.register_buffer("begun", torch.zeros(()))

    twin: Tensor
    dual: Tensor
    begun: Tensor

    def forward(self, scores: Tensor, head: nn.Module, target: Target | None = None) -> Tensor:
        return self.begun * lagrangian_penalty(_weight(head), self.twin, self.dual, self.tau)

    @torch.no_grad()
    def refresh(self, head: nn.Module) -> None:
        """Steps 2 and 3 below Eq. 16: the twin by singular value thresholding, then the dual."""
        w = _weight(head)
        self.twin.copy_(singular_value_threshold(w - self.dual / self.tau, self.lambda3 / self.tau))
        self.dual.copy_(dual_ascent(self.dual, self.twin, w, self.tau))
        self.begun.fill_(float(self.lambda3 > 0))

    @torch.no_grad()
    def report(self, head: nn.Module) -> dict[str, float]:
        """The nuclear norm of the directions alone: only these matter to cosines, lengths do not."""
        w = _weight(head)
        return {"nuclear_norm": float(nuclear_norm(normalize(w, dim=1))), "twin_gap": float((self.twin - w).norm()),
                "twin_rank": float(torch.linalg.matrix_rank(self.twin))}


def _weight(head: nn.Module) -> Tensor:
    """The weights of the labels, (K, D)."""
    weight = head.weight
    assert isinstance(weight, Tensor)
    return weight
