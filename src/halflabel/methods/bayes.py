"""Naive Bayes with EM: counts of words, no encoder, nothing to fine-tune."""

from __future__ import annotations

import torch

from halflabel.methods.registry import method
from halflabel.model.bag import Bag, Counted
from halflabel.parts.bayes import fit
from halflabel.parts.losses import cross_entropy
from halflabel.parts.pseudo import Heard
from halflabel.train.objective import Began, Given, SelfTraining
from halflabel.types import Shape


@method("nb-em", task="multi-class", paper="NB+EM: Nigam et al., Machine Learning 2000", words="tf-idf", closed=True)
def nb_em(shape: Shape, *, smooth: float = 1.0, lambda1: float = 1.0, rounds: int = 50, still: float = 1e-4,
          vocabulary: int = 30_000) -> SelfTraining:
    """Multinomial naive Bayes on tf-idf, with EM over the pool; the objective of each round stands in the log."""
    head = Counted(shape)

    def start(given: Given) -> Began:
        assert isinstance(given.encoder, Bag)
        x, known = given.encoder.matrix(given.texts), len(given.y)
        found = fit(x[:known], given.y.double().numpy(), x[known:], smooth=smooth, lambda1=lambda1,
                    rounds=int(rounds), still=still)
        head.set(torch.from_numpy(found.model.words), torch.from_numpy(found.model.prior))
        lines = tuple({"round": i, "objective": value} for i, value in enumerate(found.trace))
        label = torch.from_numpy(found.model.posterior(x[known:]).argmax(axis=1))
        return Began(lines, label, torch.ones_like(label))

    return SelfTraining(head=head, loss=cross_entropy, pseudo=Heard(shape), start=start, closed_form=True)
