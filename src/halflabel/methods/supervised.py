"""Supervised baselines: cross-entropy on the labelled texts."""

from __future__ import annotations

from halflabel.methods.registry import method
from halflabel.nn.losses import binary_cross_entropy, cross_entropy
from halflabel.nn.network import Linear
from halflabel.plans import MULTILABEL
from halflabel.training.objective import SelfTraining
from halflabel.types import Shape


@method("ce", task="multi-class", paper="BERT+CE", plans={"paper": {"labelled_batch": 8}})
def ce(shape: Shape) -> SelfTraining:
    """Cross-entropy on labelled texts only; the pool is ignored."""
    return SelfTraining(head=Linear(shape), loss=cross_entropy)


# Ours: at a lower rate a short run learns little more than how rare each label is.
@method("bce", task="multi-label", paper="BERT+BCE", plans=MULTILABEL | {
    "laptop": MULTILABEL["laptop"] | {"head_rate": 5e-3}, "paper": {"labelled_batch": 8}})
def bce(shape: Shape) -> SelfTraining:
    """Binary cross-entropy of each label on labelled texts only; the pool is ignored."""
    return SelfTraining(head=Linear(shape), loss=binary_cross_entropy, logits=True)
