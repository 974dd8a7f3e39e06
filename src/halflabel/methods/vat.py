"""Virtual adversarial training: predictions must not change under the worst small change of the words."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from halflabel.encoders.encoder import Encoder
from halflabel.methods.registry import method
from halflabel.nn.losses import cross_entropy, divergence
from halflabel.nn.network import Linear, Network
from halflabel.nn.pseudo_labels import NoLabels
from halflabel.training.objective import CustomStep, Objective, Problem, SelfTraining, StepBatch, StepResult
from halflabel.types import Shape


@method("vat", task="multi-class", paper="VAT: Miyato et al., TPAMI 2018; on words, ICLR 2017", needs_full_encoder=True)
def vat(shape: Shape, *, eps: float = 5.0, alpha: float = 1.0, xi: float = 0.1, share: float = 0.2) -> SelfTraining:
    """Smooth against the worst change of length eps in the word embeddings, or of a share of a frozen vector."""
    return SelfTraining(head=Linear(shape), loss=cross_entropy, pseudo_labels=NoLabels(shape),
                        custom_step=Adversarial(eps, alpha, xi, share))


class Opened(NamedTuple):
    """What is perturbed, e (N, T, H), where that is allowed, (N, T, 1), and the scores (N, K) of any e."""

    e: Tensor
    allowed: Tensor
    scores: Callable[[Tensor], Tensor]
    unit: Tensor | float  # what lengths are measured in, (N, 1, 1)


class Adversarial(CustomStep):
    """The plain step plus alpha times the local distributional smoothness of all its texts, labelled or not.

    Frozen vectors have no words to perturb. There the vector itself is: by a `share` of its own length where words
    would move by eps, since vectors of different encoders differ in length.
    """

    def __init__(self, eps: float, alpha: float, xi: float, share: float) -> None:
        super().__init__()
        self.eps, self.alpha, self.xi, self.share = eps, alpha, xi, share

    def forward(self, objective: Objective, problem: Problem, batch: StepBatch, weight: float) -> StepResult:
        step = objective.self_training_step(problem, batch, weight)
        rows = np.concatenate([batch.labelled, problem.labelled + batch.unlabelled])
        opened = self.opened(objective.network, objective.inputs(problem, rows))
        return step._replace(loss=step.loss + self.alpha * self.smoothness(objective.network, opened))

    def opened(self, network: Network, inputs: tuple[Tensor, ...]) -> Opened:
        """Word embeddings without special tokens and padding, or the frozen vector."""
        encoder = network.encoder
        if not isinstance(encoder, Encoder):
            h = inputs[0]
            unit = self.share / max(self.eps, 1e-12) * h.norm(dim=1)[:, None, None]
            return Opened(h[:, None], torch.ones_like(h[:, :1, None]), lambda e: network.classify(e[:, 0]).scores, unit)
        ids, mask = inputs
        special = torch.isin(ids, torch.tensor(sorted(encoder.special), device=ids.device))
        allowed = (mask.bool() & ~special)[:, :, None].float()
        return Opened(encoder.embeddings(ids), allowed,
                      lambda e: network.classify(encoder.from_embeddings(e, mask)).scores, 1.0)

    def smoothness(self, network: Network, opened: Opened) -> Tensor:
        """Mean KL(p | p perturbed) at the worst perturbation; only the perturbed side has a gradient."""
        training = network.training
        network.eval()  # under dropout the direction would be that of its noise
        p, r = self.worst(opened)
        network.train(training)
        return divergence(opened.scores(opened.e + r), p).mean()

    def worst(self, opened: Opened) -> tuple[Tensor, Tensor]:
        """Probabilities (N, K), and the perturbation of length eps that changes them most, by one power iteration."""
        e = opened.e.detach()
        with torch.no_grad():
            p = opened.scores(e).softmax(dim=1)
        d = self.xi * opened.unit * direction(torch.randn_like(e) * opened.allowed)
        d.requires_grad_()
        (slope,) = torch.autograd.grad(divergence(opened.scores(e + d), p).sum(), d)
        return p, self.eps * opened.unit * direction(slope * opened.allowed)


def direction(d: Tensor) -> Tensor:
    """d (N, T, H) with each text's part of length one, or zero where it is zero."""
    d = d / d.abs().amax(dim=(1, 2), keepdim=True).clamp_min(1e-30)  # squares of tiny slopes would vanish
    return d / d.square().sum(dim=(1, 2), keepdim=True).sqrt().clamp_min(1e-12)
