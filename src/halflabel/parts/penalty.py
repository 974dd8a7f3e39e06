"""Terms of the objective that need no target."""

from __future__ import annotations

from torch import Tensor, nn

from halflabel.equations import entropy, probabilities


class NoPenalty(nn.Module):
    """Nothing is added."""

    def forward(self, scores: Tensor) -> Tensor:
        return scores.new_zeros(())


class Entropy(nn.Module):
    """lambda2 times the mean conditional entropy of the batch (Eq. 10)."""

    def __init__(self, lambda2: float) -> None:
        super().__init__()
        self.lambda2 = lambda2

    def forward(self, scores: Tensor) -> Tensor:
        return self.lambda2 * entropy(probabilities(scores)).mean()


Penalty = NoPenalty | Entropy
