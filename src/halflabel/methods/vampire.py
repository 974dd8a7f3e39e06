"""VAMPIRE: read all texts as bags of words first, then classify with what the reading left behind.

There is no encoder to freeze or fine-tune. Without a pool the labelled texts alone are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from halflabel.methods.registry import method
from halflabel.model.bag import Bag
from halflabel.model.topics import Autoencoder, Mixed
from halflabel.parts.coherence import npmi
from halflabel.parts.losses import cross_entropy
from halflabel.parts.pseudo import Heard
from halflabel.train.objective import Began, Draw, Given, Objective, Problem, Rule, SelfTraining, Step
from halflabel.types import Shape

WARM = 1000.0  # passes over the texts after which the latents' distance counts in full


@method("vampire", task="multi-class", paper="VAMPIRE: Gururangan et al., ACL 2019", words="counts", plans={
    "frozen": {"epochs": 20, "warmup": 0, "labelled_batch": 32},
    "laptop": {"epochs": 20, "epoch_steps": 100, "warmup": 0, "labelled_batch": 32, "unlabelled_batch": 64,
               "token_drop": 0.0, "schedule": "constant"},
    "paper": {"labelled_batch": 32, "unlabelled_batch": 64},
})
def vampire(shape: Shape, *, states: int = 81, embedding: int = 50, reading: float = 0.7, patience: int = 5,
            vocabulary: int = 30_000, follow: str = "paper") -> SelfTraining:
    """Variational pre-training on bags of words until topics cohere no better, then a small classifier."""
    head = Mixed(shape, int(states), int(embedding), literal=follow == "code")
    rule = Reading(head.autoencoder, reading, int(patience))

    def start(given: Given) -> Began:
        assert isinstance(given.encoder, Bag)
        counts = given.encoder.matrix(given.texts)
        total = np.asarray(counts.sum(axis=0)).ravel() + 1.0
        head.autoencoder.background.copy_(torch.from_numpy(np.log(total / total.sum())))
        rule.texts = counts
        return Began()

    return SelfTraining(head=head, loss=cross_entropy, pseudo=Heard(shape), start=start, rule=rule)


class Reading(Rule):
    """Steps read (the autoencoder alone learns) until coherence has not risen for some passes; then they classify.

    At most a share `reading` of the run goes into reading. The best autoencoder by NPMI is kept.
    """

    texts: Any  # sparse counts (N_l + N_u, V) that coherence is measured in

    def __init__(self, autoencoder: Autoencoder, reading: float, patience: int) -> None:
        super().__init__()
        self.reading, self.patience = reading, patience
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("best", parameters_to_vector(autoencoder.parameters()).detach().clone())
        self.register_buffer("score", torch.tensor(-torch.inf))
        self.register_buffer("stale", torch.zeros((), dtype=torch.long))
        self.register_buffer("over", torch.zeros((), dtype=torch.bool))

    steps: Tensor
    best: Tensor
    score: Tensor
    stale: Tensor
    over: Tensor

    def forward(self, objective: Objective, problem: Problem, draw: Draw, weight: float) -> Step:
        head = objective.network.head
        assert isinstance(head, Mixed)
        if not bool(self.over) and draw.progress >= self.reading:
            self.finish(head.autoencoder)
        if bool(self.over):
            alone = draw._replace(unlabelled=draw.unlabelled[:0])
            return objective.plain(problem, alone, weight)
        rows = np.concatenate([draw.labelled, problem.labelled + draw.unlabelled])
        counts = objective.network.encoder(*objective.inputs(problem, rows))
        a_pass = -(-(problem.labelled + problem.unlabelled) // len(rows))
        loss = head.autoencoder.bound(counts, min(1.0, int(self.steps) / a_pass / WARM)).mean()
        self.steps += 1
        if int(self.steps) % a_pass == 0:
            self.judge(head.autoencoder)
        return Step(loss, 0.0, float(loss.detach()), None)

    def report(self) -> dict[str, Any]:
        """How coherent the best topics are so far, and how long was read."""
        known = float(self.score) > -torch.inf
        return {"npmi": float(self.score) if known else None, "read": int(self.steps), "reading": not bool(self.over)}

    def judge(self, autoencoder: Autoencoder) -> None:
        """After a pass: keeps the autoencoder if its topics cohere better, stops when that has long not happened."""
        score = npmi(autoencoder.topics.weight.detach().T.double().numpy(), self.texts)
        if score > float(self.score):
            self.score.fill_(score)
            self.stale.zero_()
            self.best.copy_(parameters_to_vector(autoencoder.parameters()).detach())
        else:
            self.stale += 1
            if int(self.stale) >= self.patience:
                self.finish(autoencoder)

    def finish(self, autoencoder: Autoencoder) -> None:
        """Goes back to the best autoencoder, if there was one, and reads no more."""
        if float(self.score) > -torch.inf:
            parameters = list(autoencoder.parameters())
            for parameter, part in zip(parameters, self.best.split([p.numel() for p in parameters]), strict=True):
                parameter.data.copy_(part.view_as(parameter))
        self.over.fill_(True)
