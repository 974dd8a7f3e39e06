"""halflabel's own: a closed-form start, lifted by fine-tuning on its soft labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halflabel.equations import sharpen
from halflabel.methods.closed_form import closed_form
from halflabel.methods.label_smoothing import neighbour_graph, smoothed, with_words, word_counts
from halflabel.methods.registry import method
from halflabel.nn.losses import constant, cross_entropy
from halflabel.nn.network import NormalizedLinear
from halflabel.nn.pseudo_labels import PseudoLabeller, Target
from halflabel.notices import Notice
from halflabel.training.objective import SelfTraining, StartInputs, StartResult
from halflabel.types import Shape

POOL_IGNORED = {
    False: "held-out labels show no benefit from the pool; training on labelled texts only",
    True: "held-out labels show no benefit from clusters in the pool; training on labelled texts and the pool's words",
}


@method("lift", task="multi-class", paper="-", subsamples_pool=True, plans={
    "frozen": {"epochs": 0, "warmup": 0},
    "laptop": {"epochs": 3, "epoch_steps": 125, "passes": 2.0, "warmup": 0, "survey": 4000,
               "labelled_batch": 8, "unlabelled_batch": 32},
})
def lift(shape: Shape, *, lambda1: float = 1.0, power: float = 4.0) -> SelfTraining:
    """Gaussian EM and logistic regression on frozen vectors, then fine-tuning on the soft labels they give."""
    head, pseudo = NormalizedLinear(shape), LabelTable(shape, power)
    return SelfTraining(
        head=head, loss=cross_entropy, pseudo_labels=pseudo, weight=constant(lambda1),
        start=lambda given: start(head, pseudo, given), closed_form_head=True, averaged_teacher=True,
    )


def start(head: NormalizedLinear, pseudo: LabelTable, given: StartInputs) -> StartResult:
    """Puts the closed-form rule into the head and its soft labels into the table."""
    x, y, words = given.unit_vectors(), given.columns, word_counts(given.texts)
    start = closed_form(x[: len(y)], y, x[len(y) :], words, given.y.shape[1], seed=given.seed)
    head.set(torch.from_numpy(start.rule.weight), torch.from_numpy(start.rule.bias))
    pseudo.begin(torch.from_numpy(start.soft), start.alpha, words if start.words else words[:, :0])
    if start.heard or not len(start.soft):
        return StartResult()
    return StartResult(notices=(Notice(POOL_IGNORED[start.words]),), trust=float(start.words))


class LabelTable(PseudoLabeller):
    """Labels that stand in a table until the next epoch, when neighbours have been heard again.

    A label is sharpened, and weighs by how far it stood above chance before that. The pool as a whole keeps the weight
    that the start gave it: where that found little in the pool, the pool says little.
    """

    trains_on_epoch_sample = True

    def __init__(self, shape: Shape, power: float) -> None:
        super().__init__()
        self.power = power
        self.register_buffer("table", torch.full((shape.unlabelled, shape.labels), 1.0 / shape.labels))
        self.register_buffer("weight", torch.zeros(shape.unlabelled))
        self.register_buffer("alpha", torch.zeros(()))
        self.register_buffer("trust", torch.zeros(()))

    table: Tensor
    weight: Tensor
    alpha: Tensor
    trust: Tensor

    def label(self, p: Tensor) -> Target:
        return Target(sharpen(p, 1.0 / self.power), p.new_ones(len(p)))

    def begin(self, soft: Tensor, alpha: float, words: Any) -> None:
        """Takes over calibrated soft labels of the whole pool (N_u, K), and how far neighbours are to be heard.

        `words` is the sparse (N_l + N_u, V) of `parts.words`.
        """
        self.words = words
        self.table.copy_(sharpen(soft, 1.0 / self.power))
        self.weight.copy_(above_chance(soft))
        self.alpha.fill_(alpha)
        self.trust.copy_(self.weight.mean())

    @torch.no_grad()
    def update_epoch(self, rows: Tensor, p: Tensor, f: Tensor, y: Tensor) -> None:
        """Smooths the model's probabilities over neighbours in its own features and corrects them by words."""
        given = torch.cat([y, p]).numpy()
        heard = smoothed(neighbour_graph(f.numpy()), given, float(self.alpha))[len(y) :]
        counts = self.words[np.concatenate([np.arange(len(y)), len(y) + rows.numpy()])]
        soft = torch.from_numpy(with_words(counts, y.numpy(), heard))
        weight = above_chance(soft)
        self.table[rows] = sharpen(soft, 1.0 / self.power).to(self.table)
        self.weight[rows] = (self.trust * weight / weight.mean().clamp_min(1e-6)).clamp_max(1.0)

    def forward(self, rows: Tensor, ask: Callable[[], Tensor]) -> Target:
        return Target(self.table[rows], self.weight[rows])


def above_chance(p: Tensor) -> Tensor:
    """How far the largest of K probabilities stands above 1/K: 0 for even ones, 1 for a sure one, (N,)."""
    chance = 1.0 / p.shape[1]
    return (p.amax(dim=1) - chance) / (1.0 - chance)
