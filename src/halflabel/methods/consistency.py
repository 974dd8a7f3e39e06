"""Consistency: predictions must not change between a text and a strong view of it (UDA, FixMatch, FlexMatch, FreeMatch,
SoftMatch), or under the worst small perturbation of it (virtual adversarial training, VAT).

Without a pool, UDA is cross-entropy on the labelled texts; for the others the labelled texts serve as the pool, as in
their authors' library, which always includes them there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.encoders.encoder import Encoder
from halflabel.equations import probabilities
from halflabel.methods.registry import Choice, Range, method
from halflabel.nn.losses import Penalty, Reduction, constant, cross_entropy, divergence
from halflabel.nn.network import Linear, Network
from halflabel.nn.pseudo_labels import FixedThreshold, NoLabels, PseudoLabeller, SelfAdaptive, Sharpen, Target, one_hot
from halflabel.training.objective import CustomStep, Objective, Problem, SelfTraining, StepBatch, StepResult
from halflabel.types import Shape


@method("uda", task="multi-class", paper="UDA: Xie et al., NeurIPS 2020",
        plans={"frozen": {"warmup": 0}, "laptop": {"warmup": 0}},
        limits={"anneal": Choice(("linear", "exp", "log", "none"))})
def uda(shape: Shape, *, anneal: str = "linear", T: float = 1.0, cutoff: float = 0.0,
        lambda1: float = 1.0) -> SelfTraining:
    """Soft pseudo-labels of a text are learnt on a strong view of it; training-signal annealing of labelled texts."""
    return SelfTraining(
        head=Linear(shape), loss=divergence, pseudo_labels=Sharpen(T, cutoff), weight=constant(lambda1),
        strong_views=True, reduction=annealed_mean(anneal) if anneal != "none" and shape.unlabelled else None,
    )


@method("fixmatch", task="multi-class", paper="FixMatch: Sohn et al., NeurIPS 2020", labelled_as_pool=True)
def fixmatch(shape: Shape, *, cutoff: float = 0.95, lambda1: float = 1.0) -> SelfTraining:
    """Hard pseudo-labels above a fixed confidence threshold, learnt on a strong view of the text."""
    return matching(shape, FixedThreshold(cutoff), lambda1)


@method("flexmatch", task="multi-class", paper="FlexMatch: Zhang et al., NeurIPS 2021", labelled_as_pool=True,
        limits={"count_unused": Choice(("yes", "no"))})
def flexmatch(shape: Shape, *, cutoff: float = 0.95, count_unused: str = "yes",
              lambda1: float = 1.0) -> SelfTraining:
    """FixMatch with lower thresholds for classes that are learnt more slowly."""
    return matching(shape, FlexibleThresholds(shape, cutoff, count_unused=count_unused == "yes"), lambda1)


@method("freematch", task="multi-class", paper="FreeMatch: Wang et al., ICLR 2023", labelled_as_pool=True)
def freematch(shape: Shape, *, momentum: float = 0.999, lambda1: float = 1.0, lambda2: float = 0.001) -> SelfTraining:
    """FixMatch with self-adaptive thresholds and a fairness penalty that keeps predictions diverse."""
    thresholds = FairThresholds(shape, momentum)
    return replace(matching(shape, thresholds, lambda1), penalty=Fairness(lambda2, thresholds.expected_shares))


@method("softmatch", task="multi-class", paper="SoftMatch: Chen et al., ICLR 2023", labelled_as_pool=True,
        limits={"sigmas": Range(1e-3, 1e3)})
def softmatch(shape: Shape, *, momentum: float = 0.999, sigmas: float = 2.0, lambda1: float = 1.0) -> SelfTraining:
    """FixMatch with a truncated Gaussian weight of each text's confidence instead of a threshold."""
    return matching(shape, SoftWeights(shape, momentum, sigmas), lambda1)


def matching(shape: Shape, pseudo_labels: PseudoLabeller, lambda1: float) -> SelfTraining:
    """Hard pseudo-labels of a text, learnt on a strong view of it."""
    return SelfTraining(head=Linear(shape), loss=cross_entropy, pseudo_labels=pseudo_labels, weight=constant(lambda1),
                        strong_views=True)


# UDA: training-signal annealing

SCHEDULES: dict[str, Callable[[float], float]] = {
    "linear": lambda progress: progress,
    "exp": lambda progress: math.exp(5.0 * (progress - 1.0)),
    "log": lambda progress: 1.0 - math.exp(-5.0 * progress),
}


def annealing_threshold(schedule: str, labels: int, progress: float) -> float:
    """eta_t: the largest probability of the true label at which a text still counts, from 1/K up to 1."""
    return SCHEDULES[schedule](progress) * (1.0 - 1.0 / labels) + 1.0 / labels


def annealed_mean(schedule: str) -> Reduction:
    """The mean loss of the texts whose true label is no more probable than eta_t; 0 if there are none."""
    def reduction(losses: Tensor, scores: Tensor, y: Tensor, progress: float) -> Tensor:
        confidence = (y * scores.detach().softmax(dim=1)).sum(dim=1)
        included = (confidence <= annealing_threshold(schedule, y.shape[1], progress)).to(losses.dtype)
        return (included * losses).sum() / included.sum().clamp_min(1.0)
    return reduction


class FlexibleThresholds(PseudoLabeller):
    """Hard labels above a threshold that is lower for classes with few confident texts so far (FlexMatch).

    With `count_unused` the texts that were never confident count as one more class, so that all thresholds start low.
    """

    def __init__(self, shape: Shape, cutoff: float, *, count_unused: bool) -> None:
        super().__init__()
        self.cutoff, self.count_unused = cutoff, count_unused
        self.register_buffer("passed", torch.full((shape.unlabelled,), -1))  # last confident class of each text
        self.register_buffer("status", torch.zeros(shape.labels))  # beta_k: learning status of each class

    passed: Tensor
    status: Tensor

    def thresholds(self) -> Tensor:
        """cutoff * beta / (2 - beta), (K,)."""
        return self.cutoff * self.status / (2.0 - self.status)

    def label(self, p: Tensor) -> Target:
        confidence, label = p.max(dim=1)
        return Target(one_hot(p), (confidence >= self.thresholds()[label]).to(p.dtype))

    @torch.no_grad()
    def record(self, rows: Tensor, p: Tensor) -> None:
        """Records which rows (N,) reach the full cutoff, and updates the learning status of the classes."""
        confidence, label = p.max(dim=1)
        confident = confidence >= self.cutoff
        self.passed[rows.to(label.device)[confident]] = label[confident]
        counts = torch.bincount(self.passed + 1, minlength=len(self.status) + 1)
        largest = int(counts.max() if self.count_unused else counts[1:].max())
        if int(counts[1:].sum()):
            self.status.copy_(counts[1:] / largest)

    def forward(self, rows: Tensor, predict: Callable[[], Tensor]) -> Target:
        p = predict()
        target = self.label(p)
        self.record(rows, p)
        return target


class FairThresholds(SelfAdaptive):
    """FreeMatch's thresholds, with the histogram of predicted classes that its fairness penalty needs."""

    def __init__(self, shape: Shape, momentum: float) -> None:
        super().__init__(shape, momentum)
        self.register_buffer("chosen", torch.full((shape.labels,), 1.0 / shape.labels))

    chosen: Tensor

    @torch.no_grad()
    def update(self, p: Tensor) -> None:
        super().update(p)
        self.chosen.lerp_(one_hot(p).mean(dim=0), 1.0 - self.momentum)

    def expected_shares(self) -> Tensor:
        """The mean probabilities of the pool over its histogram of predicted classes, (K,)."""
        return histogram_normalised(self.marginal, self.chosen)


class Fairness(Penalty):
    """FreeMatch's fairness: lambda2 sum_k expected_k log q_k, where q are the shares of this step's accepted texts.

    `expected` gives the running shares of the pool. Both are normalised by the histogram of predicted classes.
    It is a negative cross-entropy: minimising it makes predictions more diverse.
    """

    def __init__(self, lambda2: float, expected: Callable[[], Tensor]) -> None:
        super().__init__()
        self.lambda2, self.expected = lambda2, expected

    def forward(self, scores: Tensor, head: nn.Module, target: Target | None = None) -> Tensor:
        if target is None or not bool((target.weight > 0).any()):
            return scores.new_zeros(())
        p = probabilities(scores[-len(target.y) :][target.weight > 0])
        histogram = torch.bincount(p.argmax(dim=1), minlength=p.shape[1]).to(p.dtype) / len(p)
        shares = histogram_normalised(p.mean(dim=0), histogram)
        return self.lambda2 * (self.expected() * (shares + 1e-12).log()).sum()


def histogram_normalised(share: Tensor, histogram: Tensor) -> Tensor:
    """Class shares (K,) over the histogram of predicted classes (K,), summing to one; 0 for a class never predicted."""
    ratio = torch.where(histogram > 0, share / histogram.clamp_min(torch.finfo(histogram.dtype).tiny), 0.0)
    return ratio / ratio.sum()


class SoftWeights(PseudoLabeller):
    """Hard labels weighted by a Gaussian of their confidence, truncated to 1 above its mean (SoftMatch).

    The confidence is measured after uniform alignment: probabilities over their running mean, normalised.
    """

    def __init__(self, shape: Shape, momentum: float, sigmas: float) -> None:
        super().__init__()
        self.momentum, self.sigmas = momentum, sigmas
        self.register_buffer("marginal", torch.zeros(shape.labels))  # zeros: no batch seen yet
        self.register_buffer("mean", torch.tensor(1.0 / shape.labels))
        self.register_buffer("variance", torch.tensor(1.0))

    marginal: Tensor
    mean: Tensor
    variance: Tensor

    @torch.no_grad()
    def update(self, p: Tensor) -> None:
        """Moving averages of the marginal, which starts at the first batch, and of the confidence."""
        first = not bool(self.marginal.any())
        self.marginal.lerp_(p.mean(dim=0), 1.0 if first else 1.0 - self.momentum)
        confidence = self.aligned(p).amax(dim=1)
        self.mean.lerp_(confidence.mean(), 1.0 - self.momentum)
        if len(p) > 1:
            self.variance.lerp_(confidence.var(), 1.0 - self.momentum)

    def aligned(self, p: Tensor) -> Tensor:
        """Probabilities as if all classes were equally frequent in the pool, (N, K)."""
        if not bool(self.marginal.any()):
            return p
        q = p * (1.0 / p.shape[1] + 1e-6) / (self.marginal + 1e-6)
        return q / q.sum(dim=1, keepdim=True)

    def label(self, p: Tensor) -> Target:
        below = (self.aligned(p).amax(dim=1) - self.mean).clamp_max(0.0)
        variance = (self.variance / self.sigmas**2).clamp_min(torch.finfo(p.dtype).tiny)
        return Target(one_hot(p), torch.exp(-below.square() / (2.0 * variance)))


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
