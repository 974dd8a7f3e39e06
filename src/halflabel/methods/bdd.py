"""S2TC-BDD: the paper's methods for one label and for several, and BERT+AM, the same without balanced angles.

The equations themselves are in `equations.py`; here is what is kept between steps, and how the parts fit together.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from halflabel import equations as eq
from halflabel.methods.registry import method
from halflabel.nn.losses import Loss, Penalty, constant, ramp
from halflabel.nn.network import WIDTH, Angles, HiddenHead
from halflabel.nn.pseudo_labels import ClassAware, SelfAdaptive, Sharpen, Target
from halflabel.plans import SEMI_SUPERVISED_MULTILABEL
from halflabel.training.objective import SelfTraining
from halflabel.types import Shape

# An entropy weight of 1 pulls the frozen vectors of many classes together if training is long.
GENTLE = {"frozen": {"epochs": 5, "head_rate": 3e-4}}


class Bounds(NamedTuple):
    """Bounds on Eq. 2; the defaults are the paper's: none."""

    floor: float = 0.0  # of the variances
    limit: float = math.inf  # a_k stays within [1/limit, limit]
    leak: float | None = None  # slope of psi outside [0, pi], where its value is clamped


# Ours: two texts make the same angle with their own mean, so a variance can be zero; few texts give wild variances;
# and where psi has no slope, no gradient ever brings a text back.
BOUNDS = Bounds(floor=1e-4, limit=3.0, leak=0.01)


@method("bdd-s", task="multi-class", paper="S2TC-BDD-S", plans=GENTLE)
def bdd_s(shape: Shape, *, s: float = 1.0, m: float = 0.01, T: float = 0.5, lambda1: float = 1.0,
          lambda2: float = 1.0, memory: float = 0.1) -> SelfTraining:
    """Balanced angles, sharpened pseudo-labels, entropy regularisation (Sec. III-C)."""
    return SelfTraining(
        head=CosineHead(shape), angles=BalancedAngles(shape, memory, BOUNDS), loss=angular(s, m),
        pseudo_labels=Sharpen(T), penalty=Entropy(lambda2), weight=ramp(lambda1),
    )


@method("bdd-f", task="multi-class", paper="S2TC-BDD-F")
def bdd_f(shape: Shape, *, s: float = 20.0, m: float = 0.3, lambda1: float = 1.0, lambda2: float = 0.001,
          memory: float = 0.1, momentum: float = 0.999) -> SelfTraining:
    """Balanced angles, hard pseudo-labels above self-adaptive thresholds, strong views (Sec. III-C)."""
    return SelfTraining(
        head=CosineHead(shape), angles=BalancedAngles(shape, memory, BOUNDS), loss=angular(s, m),
        pseudo_labels=SelfAdaptive(shape, momentum), penalty=Entropy(lambda2), weight=constant(lambda1),
        strong_views=True,
    )


@method("bdd-ml", task="multi-label", paper="S2TC-BDD", plans=SEMI_SUPERVISED_MULTILABEL)
def bdd_ml(shape: Shape, *, s: float = 20.0, m: float = 0.3, lambda1: float = 1.0, lambda3: float = 0.001,
           tau: float = 0.01, memory: float = 0.001) -> SelfTraining:
    """Balanced angles, class-distribution-aware pseudo-labels, low-rank regularisation (Sec. III-D)."""
    return SelfTraining(
        head=CosineHead(shape), angles=BalancedAngles(shape, memory, BOUNDS), loss=angular(s, m),
        pseudo_labels=ClassAware(shape), penalty=LowRank(shape, lambda3, tau), weight=constant(lambda1),
        averaged_teacher=True, slope=s,
    )


@method("am-s", task="multi-class", paper="BERT+AM-S", plans=GENTLE)
def am_s(shape: Shape, *, s: float = 1.0, m: float = 0.01, T: float = 0.5, lambda1: float = 1.0,
         lambda2: float = 1.0) -> SelfTraining:
    """bdd-s without balanced angles: the paper's ablation "-BDD"."""
    return without_bdd(bdd_s(shape, s=s, m=m, T=T, lambda1=lambda1, lambda2=lambda2))


@method("am-f", task="multi-class", paper="BERT+AM-F")
def am_f(shape: Shape, *, s: float = 20.0, m: float = 0.3, lambda1: float = 1.0, lambda2: float = 0.001,
         momentum: float = 0.999) -> SelfTraining:
    """bdd-f without balanced angles: the paper's ablation "-BDD"."""
    return without_bdd(bdd_f(shape, s=s, m=m, lambda1=lambda1, lambda2=lambda2, momentum=momentum))


@method("am-ml", task="multi-label", paper="BERT+AM", plans=SEMI_SUPERVISED_MULTILABEL)
def am_ml(shape: Shape, *, s: float = 20.0, m: float = 0.3, lambda1: float = 1.0, lambda3: float = 0.001,
          tau: float = 0.01) -> SelfTraining:
    """bdd-ml without balanced angles: the paper's ablation "-BDD"."""
    return without_bdd(bdd_ml(shape, s=s, m=m, lambda1=lambda1, lambda3=lambda3, tau=tau))


def without_bdd(full: SelfTraining) -> SelfTraining:
    """Eq. 1 instead of Eq. 3."""
    return replace(full, angles=Angles())


def angular(s: float, m: float) -> Loss:
    """The loss of Eq. 1, which on balanced cosines is that of Eq. 3."""
    return lambda cos, y: eq.am_loss(cos, y, s, m)


class CosineHead(HiddenHead):
    """f = tanh(A h), scored by its cosine with the weight vector of each label; no bias."""

    def __init__(self, shape: Shape, *, width: int = WIDTH) -> None:
        super().__init__(shape.width, width)
        self.weight = nn.Parameter(nn.init.xavier_normal_(torch.empty(shape.labels, width)))

    @torch.no_grad()
    def set_label_weights(self, weight: Tensor) -> None:
        self.weight.copy_(weight)

    def forward(self, f: Tensor) -> Tensor:
        """cos(theta), (N, D) -> (N, K)."""
        return eq.cosines(f, self.weight)


class BalancedAngles(Angles):
    """Label angles stretched about their means until all labels have the same variance (Eq. 2).

    `memory` is the share of the past in the moving averages (the paper's gamma). `shrink` adds that many imaginary
    texts with the pooled variance to each label; the paper has none.
    """

    def __init__(self, shape: Shape, memory: float, bounds: Bounds | None = None, *, width: int = WIDTH,
                 shrink: float = 0.0) -> None:
        super().__init__()
        self.memory, self.bounds, self.shrink = memory, bounds or Bounds(), shrink
        self.register_buffer("prototype", torch.zeros(shape.labels, width))
        self.register_buffer("mean", torch.zeros(shape.labels))
        self.register_buffer("variance", torch.zeros(shape.labels))
        self.register_buffer("mass", torch.zeros(shape.labels))

    prototype: Tensor
    mean: Tensor
    variance: Tensor
    mass: Tensor

    def forward(self, cos: Tensor) -> Tensor:
        """cos(psi), (N, K)."""
        return eq.balanced(cos, self.mean, self.slopes(), leak=self.bounds.leak)

    def slopes(self) -> Tensor:
        """a_k, (K,); 1 for a label that no text has had so far."""
        return eq.slopes(self.variances(), floor=self.bounds.floor, limit=self.bounds.limit, seen=self.seen)

    @property
    def seen(self) -> Tensor:
        """Labels that at least one text has had, (K,)."""
        return self.mass >= 1.0

    def variances(self) -> Tensor:
        """The variances of Eq. 8, shrunk towards their mean if asked to, (K,)."""
        if not self.shrink:
            return self.variance
        variance = self.variance.clamp_min(self.bounds.floor)
        freedom = (self.mass - 1.0).clamp_min(0.0)
        pooled = variance[self.seen].mean() if bool(self.seen.any()) else variance.mean()
        return (freedom * variance + self.shrink * pooled) / (freedom + self.shrink)

    @torch.no_grad()
    def update(self, f: Tensor, y: Tensor) -> None:
        """Eqs. 6 to 8 over labelled and pseudo-labelled texts, f (N, D), y (N, K), then the moving averages."""
        mass, seen = y.sum(dim=0), self.seen
        present = mass >= 1.0

        def averaged(new: Tensor, old: Tensor) -> Tensor:
            """The moving average; the first texts of a label set it, and without texts it stays."""
            here, before = (flag.view(-1, *(1,) * (new.dim() - 1)) for flag in (present, seen))
            return torch.where(here, torch.where(before, eq.blend(new, old, self.memory), new), old)

        self.prototype.copy_(averaged(eq.prototypes(f, y), self.prototype))
        mean, variance = eq.angle_moments(eq.angles(eq.cosines(f, self.prototype)), y)
        self.mean.copy_(averaged(mean, self.mean))
        self.variance.copy_(averaged(variance, self.variance))
        self.mass.copy_(torch.where(present, mass, self.mass))

    def report(self) -> dict[str, list[float]]:
        """The statistics of each label, for the log."""
        return {"mu": self.mean.tolist(), "sigma": self.variance.sqrt().tolist(), "a": self.slopes().tolist()}


class FixedBalance(nn.Module):
    """Balanced angles whose statistics no longer change: what an exported model holds."""

    def __init__(self, angles: BalancedAngles) -> None:
        super().__init__()
        self.leak = angles.bounds.leak
        self.register_buffer("a", angles.slopes().detach().clone())
        self.register_buffer("mean", angles.mean.detach().clone())

    a: Tensor
    mean: Tensor

    def forward(self, cos: Tensor) -> Tensor:
        """cos(psi), (N, K)."""
        return eq.balanced(cos, self.mean, self.a, leak=self.leak)


class Entropy(Penalty):
    """lambda2 times the mean conditional entropy of the batch (Eq. 10)."""

    def __init__(self, lambda2: float) -> None:
        super().__init__()
        self.lambda2 = lambda2

    def forward(self, scores: Tensor, head: nn.Module, target: Target | None = None) -> Tensor:
        return self.lambda2 * eq.entropy(eq.probabilities(scores)).mean()


class LowRank(Penalty):
    """lambda3 times the nuclear norm of the head's weights (Eq. 13), by ADMM (Eqs. 15 and 16).

    The weights are tied to a low-rank twin under a dual; both are updated once an epoch. Before the first update the
    penalty is 0: warm-up minimises the loss alone. It also is with lambda3 = 0, where the twin would be the weights as
    they were and only hold them back.
    """

    def __init__(self, shape: Shape, lambda3: float, tau: float, *, width: int = WIDTH) -> None:
        super().__init__()
        self.lambda3, self.tau = lambda3, tau
        self.register_buffer("twin", torch.zeros(shape.labels, width))
        self.register_buffer("dual", torch.zeros(shape.labels, width))
        self.register_buffer("active", torch.zeros(()))

    twin: Tensor
    dual: Tensor
    active: Tensor

    def forward(self, scores: Tensor, head: nn.Module, target: Target | None = None) -> Tensor:
        return self.active * eq.lagrangian_penalty(_label_weights(head), self.twin, self.dual, self.tau)

    @torch.no_grad()
    def update(self, head: nn.Module) -> None:
        """Steps 2 and 3 below Eq. 16: the twin by singular value thresholding, then the dual."""
        w = _label_weights(head)
        self.twin.copy_(eq.singular_value_threshold(w - self.dual / self.tau, self.lambda3 / self.tau))
        self.dual.copy_(eq.dual_ascent(self.dual, self.twin, w, self.tau))
        self.active.fill_(float(self.lambda3 > 0))

    @torch.no_grad()
    def report(self, head: nn.Module) -> dict[str, float]:
        """The nuclear norm of the normalised weights, since cosines do not depend on lengths, and the twin."""
        w = _label_weights(head)
        return {"nuclear_norm": float(eq.nuclear_norm(normalize(w, dim=1))), "twin_gap": float((self.twin - w).norm()),
                "twin_rank": float(torch.linalg.matrix_rank(self.twin))}


def _label_weights(head: nn.Module) -> Tensor:
    """The weight vectors of the labels, (K, D)."""
    weight = head.weight
    assert isinstance(weight, Tensor)
    return weight
