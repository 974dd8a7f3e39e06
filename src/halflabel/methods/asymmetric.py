"""The asymmetric loss: on labelled texts (ASL), and also on class-aware pseudo-labels of a pool (CAP)."""

from __future__ import annotations

from dataclasses import replace

from halflabel.methods.registry import Range, method
from halflabel.nn.losses import Asymmetric, constant
from halflabel.nn.network import Linear
from halflabel.nn.pseudo_labels import ClassAware
from halflabel.plans import MULTILABEL, SEMI_SUPERVISED_MULTILABEL
from halflabel.training.objective import SelfTraining
from halflabel.types import Shape


@method("asl", task="multi-label", paper="ASL: Ridnik et al., ICCV 2021",
        plans=MULTILABEL | {"paper": {"labelled_batch": 8, "ema": 0.9997}})
def asl(shape: Shape, *, gamma_neg: float = 4.0, gamma_pos: float = 0.0, shift: float = 0.05,
        follow: str = "paper") -> SelfTraining:
    """Binary cross-entropy that down-weights easy negatives, on labelled texts only; the pool is ignored."""
    loss = Asymmetric(gamma_neg, gamma_pos, shift, detach_focus=follow == "code")
    return SelfTraining(head=Linear(shape), loss=loss, logits=True)


@method("cap", task="multi-label", paper="CAP: Xie et al., NeurIPS 2023",
        plans=SEMI_SUPERVISED_MULTILABEL | {"paper": {**SEMI_SUPERVISED_MULTILABEL["paper"], "ema": 0.9997}},
        limits={"positives": Range(0.0, 1.0), "negatives": Range(0.0, 1.0)})
def cap(shape: Shape, *, gamma_neg: float = 4.0, gamma_pos: float = 0.0, shift: float = 0.05, positives: float = 1.0,
        negatives: float = 1.0, lambda1: float = 1.0, views: str = "same", follow: str = "paper") -> SelfTraining:
    """asl plus pseudo-labels that an averaged teacher assigns each epoch, at the labelled frequency of each label."""
    supervised = asl(shape, gamma_neg=gamma_neg, gamma_pos=gamma_pos, shift=shift, follow=follow)
    return replace(supervised, pseudo_labels=ClassAware(shape, positives, negatives), weight=constant(lambda1),
                   averaged_teacher=True, strong_views=views == "strong")
