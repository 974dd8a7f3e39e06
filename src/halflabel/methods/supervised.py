"""Labelled texts alone: the bar that every semi-supervised method has to pass."""

from __future__ import annotations

from halflabel.methods.registry import method
from halflabel.model.head import Linear
from halflabel.parts.losses import cross_entropy
from halflabel.train.objective import SelfTraining
from halflabel.types import Shape


@method("ce", task="multi-class", paper="BERT+CE", plans={"paper": {"labelled_batch": 8}})
def ce(shape: Shape) -> SelfTraining:
    """Cross-entropy on labelled texts; the unlabelled are not looked at."""
    return SelfTraining(head=Linear(shape), loss=cross_entropy)
