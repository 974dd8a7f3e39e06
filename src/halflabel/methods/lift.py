"""halflabel's own: a closed-form start, lifted by fine-tuning on its soft labels."""

from __future__ import annotations

from halflabel.methods.registry import method
from halflabel.model.head import Unit
from halflabel.parts.losses import cross_entropy
from halflabel.parts.pseudo import Stored
from halflabel.parts.weight import constant
from halflabel.train.objective import SelfTraining
from halflabel.types import Shape


@method("lift", task="multi-class", paper="-", plans={
    "frozen": {"epochs": 0, "warmup": 0},
    "laptop": {"epochs": 3, "epoch_steps": 125, "passes": 2.0, "warmup": 0, "survey": 4000,
               "labelled_batch": 8, "unlabelled_batch": 32},
})
def lift(shape: Shape, *, lambda1: float = 1.0, power: float = 4.0) -> SelfTraining:
    """Gaussian EM and logistic regression on frozen vectors, then fine-tuning on the soft labels they give."""
    return SelfTraining(
        head=Unit(shape), loss=cross_entropy, pseudo=Stored(shape, power), weight=constant(lambda1),
        closed_form=True, averaged_teacher=True,
    )
