"""S2TC-BDD for multi-class texts, and the same without balancing (BERT+AM)."""

from __future__ import annotations

from dataclasses import replace

from halflabel.methods.registry import method
from halflabel.model.angles import Balanced, Unbalanced
from halflabel.model.head import Cosine, Linear
from halflabel.parts.losses import angular, cross_entropy
from halflabel.parts.penalty import Entropy, NoPenalty
from halflabel.parts.pseudo import NoPseudo, SelfAdaptive, Sharpen
from halflabel.parts.weight import constant, ramp
from halflabel.train.objective import SelfTraining
from halflabel.types import Shape

# An entropy weight of 1 draws frozen vectors of many classes together if it pulls for long.
GENTLE = {"frozen": {"epochs": 5, "head_rate": 3e-4}}


@method("bdd-s", task="multi-class", paper="S2TC-BDD-S", plans=GENTLE)
def bdd_s(shape: Shape, *, s: float = 1.0, m: float = 0.01, T: float = 0.5, lambda1: float = 1.0,
          lambda2: float = 1.0, memory: float = 0.1) -> SelfTraining:
    """Balanced angles, sharpened pseudo-labels, entropy regularisation (Sec. III-C)."""
    return SelfTraining(
        head=Cosine(shape), angles=Balanced(shape, memory), loss=angular(s, m),
        pseudo=Sharpen(T), penalty=Entropy(lambda2), weight=ramp(lambda1),
    )


@method("bdd-f", task="multi-class", paper="S2TC-BDD-F")
def bdd_f(shape: Shape, *, s: float = 20.0, m: float = 0.3, lambda1: float = 1.0, lambda2: float = 0.001,
          memory: float = 0.1, momentum: float = 0.999) -> SelfTraining:
    """Balanced angles, hard pseudo-labels above self-adaptive thresholds, strong views (Sec. III-C)."""
    return SelfTraining(
        head=Cosine(shape), angles=Balanced(shape, memory), loss=angular(s, m),
        pseudo=SelfAdaptive(shape, momentum), penalty=Entropy(lambda2), weight=constant(lambda1), strong_views=True,
    )


@method("am-s", task="multi-class", paper="BERT+AM-S", plans=GENTLE)
def am_s(shape: Shape, *, s: float = 1.0, m: float = 0.01, T: float = 0.5, lambda1: float = 1.0,
         lambda2: float = 1.0) -> SelfTraining:
    """bdd-s with angles as they are: the paper's ablation "-BDD"."""
    return without_bdd(bdd_s(shape, s=s, m=m, T=T, lambda1=lambda1, lambda2=lambda2))


@method("am-f", task="multi-class", paper="BERT+AM-F")
def am_f(shape: Shape, *, s: float = 20.0, m: float = 0.3, lambda1: float = 1.0, lambda2: float = 0.001,
         momentum: float = 0.999) -> SelfTraining:
    """bdd-f with angles as they are: the paper's ablation "-BDD"."""
    return without_bdd(bdd_f(shape, s=s, m=m, lambda1=lambda1, lambda2=lambda2, momentum=momentum))


def without_regularization(full: SelfTraining) -> SelfTraining:
    """The paper's ablation "-regularization"."""
    return replace(full, penalty=NoPenalty())


def without_bdd(full: SelfTraining) -> SelfTraining:
    """The paper's ablation "-BDD": Eq. 1 instead of Eq. 3."""
    return replace(full, angles=Unbalanced())


def without_unlabelled(full: SelfTraining) -> SelfTraining:
    """The paper's ablation "-unlabelled": labelled texts alone, with balancing and regularisation."""
    return replace(full, pseudo=NoPseudo())


def without_all(full: SelfTraining, shape: Shape) -> SelfTraining:
    """The paper's ablation "-all": what is left is BERT+CE (its rows are equal in the tables)."""
    return replace(without_bdd(without_unlabelled(without_regularization(full))),
                   head=Linear(shape), loss=cross_entropy)
