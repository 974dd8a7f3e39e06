"""Virtual adversarial training: predictions must not change under the worst small perturbation of a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from halflabel.encoders.encoder import Encoder
from halflabel.methods.registry import Range, method
from halflabel.nn.losses import cross_entropy, divergence
from halflabel.nn.network import Linear, Network
from halflabel.nn.pseudo_labels import NoLabels
from halflabel.training.objective import CustomStep, Objective, Problem, SelfTraining, StepBatch, StepResult
from halflabel.types import Shape


@method("vat", task="multi-class", paper="VAT: Miyato et al., TPAMI 2018; on words, ICLR 2017", needs_full_encoder=True,
        limits={"eps": Range(0.0, 1e6), "alpha": Range(0.0, 1e6), "xi": Range(1e-9, 1e6), "share": Range(0.0, 1e3)})
def vat(shape: Shape, *, eps: float = 5.0, alpha: float = 1.0, xi: float = 0.1, share: float = 0.2) -> SelfTraining:
    """Predictions smooth under the worst perturbation of length eps of the word embeddings, or of frozen vectors."""
    return SelfTraining(head=Linear(shape), loss=cross_entropy, pseudo_labels=NoLabels(shape),
                        custom_step=AdversarialStep(eps, alpha, xi, share))


class Perturbable(NamedTuple):
    """Embeddings e (N, T, H), a mask (N, T, 1) of those that may be perturbed, and the scores (N, K) as a function."""

    e: Tensor
    mask: Tensor
    scores: Callable[[Tensor], Tensor]
    unit: Tensor | float  # in which the length of perturbations is measured, (N, 1, 1)


class AdversarialStep(CustomStep):
    """The usual step plus alpha times the local distributional smoothness of all its texts, labelled or not.

    Frozen vectors have no words to perturb. There the vector itself is perturbed: by a `share` of its own length
    instead of eps, since vectors of different encoders differ in length.
    """

    def __init__(self, eps: float, alpha: float, xi: float, share: float) -> None:
        super().__init__()
        self.eps, self.alpha, self.xi, self.share = eps, alpha, xi, share

    def forward(self, objective: Objective, problem: Problem, batch: StepBatch, weight: float) -> StepResult:
        result = objective.self_training_step(problem, batch, weight)
        rows = np.concatenate([batch.labelled, problem.labelled + batch.unlabelled])
        perturbable = self.perturbable(objective.network, objective.inputs(problem, rows))
        return result._replace(loss=result.loss + self.alpha * self.smoothness(objective.network, perturbable))

    def perturbable(self, network: Network, inputs: tuple[Tensor, ...]) -> Perturbable:
        """Word embeddings without special tokens and padding, or the frozen vector."""
        encoder = network.encoder
        if not isinstance(encoder, Encoder):
            h = inputs[0]
            unit = self.share / max(self.eps, 1e-12) * h.norm(dim=1)[:, None, None]
            return Perturbable(h[:, None], torch.ones_like(h[:, :1, None]),
                               lambda e: network.classify(e[:, 0]).scores, unit)
        ids, attention = inputs
        special = torch.isin(ids, torch.tensor(sorted(encoder.special), device=ids.device))
        mask = (attention.bool() & ~special)[:, :, None].float()
        return Perturbable(encoder.embeddings(ids), mask,
                           lambda e: network.classify(encoder.from_embeddings(e, attention)).scores, 1.0)

    def smoothness(self, network: Network, perturbable: Perturbable) -> Tensor:
        """Mean KL(p | p perturbed) at the worst perturbation; only the perturbed side has a gradient."""
        training = network.training
        network.eval()  # under dropout the direction would be that of its noise
        p, perturbation = self.worst_perturbation(perturbable)
        network.train(training)
        return divergence(perturbable.scores(perturbable.e + perturbation), p).mean()

    def worst_perturbation(self, perturbable: Perturbable) -> tuple[Tensor, Tensor]:
        """Probabilities (N, K), and the perturbation of length eps that changes them most, by one power iteration."""
        e = perturbable.e.detach()
        with torch.no_grad():
            p = perturbable.scores(e).softmax(dim=1)
        d = self.xi * perturbable.unit * unit_direction(torch.randn_like(e) * perturbable.mask)
        d.requires_grad_()
        (gradient,) = torch.autograd.grad(divergence(perturbable.scores(e + d), p).sum(), d)
        return p, self.eps * perturbable.unit * unit_direction(gradient * perturbable.mask)


def unit_direction(d: Tensor) -> Tensor:
    """d (N, T, H) scaled to length one for each text; zero where it is zero."""
    d = d / d.abs().amax(dim=(1, 2), keepdim=True).clamp_min(1e-30)  # squares of tiny gradients would vanish
    return d / d.square().sum(dim=(1, 2), keepdim=True).sqrt().clamp_min(1e-12)
