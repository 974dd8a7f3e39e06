"""halflabel's own: a closed-form start, lifted by fine-tuning on its soft labels."""

from __future__ import annotations

import torch

from halflabel.methods.registry import method
from halflabel.model.head import Unit
from halflabel.parts.losses import cross_entropy
from halflabel.parts.pseudo import Stored
from halflabel.parts.start import closed_form
from halflabel.parts.weight import constant
from halflabel.parts.words import word_counts
from halflabel.train.objective import Began, Given, SelfTraining
from halflabel.types import Shape

UNHEARD = {
    False: "held-out labels do not bear out what the pool suggests: the labelled texts decide alone",
    True: "held-out labels do not bear out the groups in the pool: the labelled texts decide, with the pool's words",
}


@method("lift", task="multi-class", paper="-", bounded=True, plans={
    "frozen": {"epochs": 0, "warmup": 0},
    "laptop": {"epochs": 3, "epoch_steps": 125, "passes": 2.0, "warmup": 0, "survey": 4000,
               "labelled_batch": 8, "unlabelled_batch": 32},
})
def lift(shape: Shape, *, lambda1: float = 1.0, power: float = 4.0) -> SelfTraining:
    """Gaussian EM and logistic regression on frozen vectors, then fine-tuning on the soft labels they give."""
    head, pseudo = Unit(shape), Stored(shape, power)
    return SelfTraining(
        head=head, loss=cross_entropy, pseudo=pseudo, weight=constant(lambda1),
        start=lambda given: begin(head, pseudo, given), closed_form=True, averaged_teacher=True,
    )


def begin(head: Unit, pseudo: Stored, given: Given) -> Began:
    """Puts the closed-form rule into the head and its soft labels into the table."""
    x, y, words = given.unit(), given.columns, word_counts(given.texts)
    start = closed_form(x[: len(y)], y, x[len(y) :], words, given.y.shape[1], seed=given.seed)
    head.set(torch.from_numpy(start.rule.weight), torch.from_numpy(start.rule.bias))
    pseudo.begin(torch.from_numpy(start.soft), start.alpha, words if start.words else words[:, :0])
    if start.heard or not len(start.soft):
        return Began()
    return Began(({"notice": UNHEARD[start.words]},), trust=float(start.words))
