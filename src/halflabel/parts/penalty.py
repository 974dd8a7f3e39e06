"""Terms of the objective that need no target."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from halflabel.equations import entropy, probabilities
from halflabel.parts.pseudo import Target


class NoPenalty(nn.Module):
    """Nothing is added. Of a step's scores (N, K), the last ones belong to `target`, if there is one."""

    def forward(self, scores: Tensor, target: Target | None = None) -> Tensor:
        return scores.new_zeros(())


class Entropy(nn.Module):
    """lambda2 times the mean conditional entropy of the batch (Eq. 10)."""

    def __init__(self, lambda2: float) -> None:
        super().__init__()
        self.lambda2 = lambda2

    def forward(self, scores: Tensor, target: Target | None = None) -> Tensor:
        return self.lambda2 * entropy(probabilities(scores)).mean()


class Fairness(nn.Module):
    """FreeMatch's fairness: lambda2 sum_k wanted_k log given_k, where accepted texts are.

    `wanted` are the class shares that the pool has had so far, each over how often its class was the first choice;
    `given` is the same of the accepted texts of this step. Minus a cross-entropy: lowering it spreads predictions.
    """

    def __init__(self, lambda2: float, wanted: Callable[[], Tensor]) -> None:
        super().__init__()
        self.lambda2, self.wanted = lambda2, wanted

    def forward(self, scores: Tensor, target: Target | None = None) -> Tensor:
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


Penalty = NoPenalty | Entropy | Fairness
