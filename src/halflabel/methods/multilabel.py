"""S2TC-BDD for multi-label texts, the same without balancing (BERT+AM), and BERT+BCE."""

from __future__ import annotations

from typing import Any

from halflabel.methods.angular import without_bdd
from halflabel.methods.registry import method
from halflabel.model.angles import Balanced
from halflabel.model.head import Cosine, Linear
from halflabel.parts.cap import Cap
from halflabel.parts.losses import angular, binary_cross_entropy
from halflabel.parts.penalty import LowRank
from halflabel.parts.weight import constant
from halflabel.train.objective import SelfTraining
from halflabel.types import Shape

# Ours: on frozen vectors a head learns a hundred texts by heart unless it sees them with most of their entries gone.
QUICK: dict[str, dict[str, Any]] = {
    "frozen": {"epochs": 10, "epoch_steps": 60, "warmup": 300, "head_rate": 5e-3, "token_drop": 0.7},
    "laptop": {"epochs": 4, "epoch_steps": 60, "warmup": 100, "survey": 2000},
}
# Sec. IV-A: five epochs of warm-up in batches of 8; CAP looks at the whole pool.
PLANS = QUICK | {"paper": {"warmup": 5000, "warmup_batch": 8, "survey": 1_000_000_000}}


@method("bdd-ml", task="multi-label", paper="S2TC-BDD", plans=PLANS)
def bdd_ml(shape: Shape, *, s: float = 20.0, m: float = 0.3, lambda1: float = 1.0, lambda3: float = 0.001,
           tau: float = 0.01, memory: float = 0.001) -> SelfTraining:
    """Balanced angles, class-distribution-aware pseudo-labels, low-rank regularisation (Sec. III-D)."""
    return SelfTraining(
        head=Cosine(shape), angles=Balanced(shape, memory), loss=angular(s, m), pseudo=Cap(shape),
        penalty=LowRank(shape, lambda3, tau), weight=constant(lambda1), averaged_teacher=True, slope=s,
    )


@method("am-ml", task="multi-label", paper="BERT+AM", plans=PLANS)
def am_ml(shape: Shape, *, s: float = 20.0, m: float = 0.3, lambda1: float = 1.0, lambda3: float = 0.001,
          tau: float = 0.01) -> SelfTraining:
    """bdd-ml with angles as they are: the paper's ablation "-BDD"."""
    return without_bdd(bdd_ml(shape, s=s, m=m, lambda1=lambda1, lambda3=lambda3, tau=tau))


# Ours: at a lower rate a short run gets no further than how rare labels are.
@method("bce", task="multi-label", paper="BERT+BCE", plans=QUICK | {
    "laptop": QUICK["laptop"] | {"head_rate": 5e-3}, "paper": {"labelled_batch": 8}})
def bce(shape: Shape) -> SelfTraining:
    """Binary cross-entropy of each label on labelled texts; the unlabelled are not looked at."""
    return SelfTraining(head=Linear(shape), loss=binary_cross_entropy, logits=True)
