"""What a sceptical reader tries first, by scikit-learn, on frozen vectors of length one.

These are fitted as a whole: under any plan the encoder stays as it is and no steps are taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel.errors import BadInput
from halflabel.methods.closed_form import LinearModel, from_sklearn
from halflabel.methods.registry import method
from halflabel.nn.losses import cross_entropy
from halflabel.nn.network import Head, NormalizedLinear
from halflabel.nn.pseudo_labels import NoLabels
from halflabel.training.objective import SelfTraining, StartInputs, StartResult
from halflabel.types import Shape

DENSE = 20_000  # texts whose similarities to all others are a matrix of 3 GB


@method("logreg", task="multi-class", paper="-", no_steps=True)
def logreg(shape: Shape, *, C: float = 10.0) -> SelfTraining:
    """Logistic regression on the labelled texts; the unlabelled are not looked at."""
    head = NormalizedLinear(shape)

    def start(given: StartInputs) -> StartResult:
        y = given.columns
        put(head, from_sklearn(regression(C).fit(given.unit_vectors()[: len(y)], y), shape.labels))
        return StartResult()

    return SelfTraining(head=head, loss=cross_entropy, start=start, closed_form_head=True)


@method("self-training", task="multi-class", paper="Yarowsky, ACL 1995; scikit-learn", no_steps=True)
def self_training(shape: Shape, *, C: float = 10.0, threshold: float = 0.75, rounds: int = 10) -> SelfTraining:
    """Logistic regression that takes over its own sure labels, round by round."""
    head = NormalizedLinear(shape)

    def start(given: StartInputs) -> StartResult:
        from sklearn.semi_supervised import SelfTrainingClassifier

        x, y = given.unit_vectors(), given.columns
        if len(x) == len(y):
            put(head, from_sklearn(regression(C).fit(x, y), shape.labels))
            return StartResult()
        columns = np.concatenate([y, np.full(len(x) - len(y), -1)])
        model = SelfTrainingClassifier(regression(C), threshold=threshold, max_iter=int(rounds) or None)
        model.fit(x, columns)
        put(head, from_sklearn(model.estimator_, shape.labels))
        label = torch.from_numpy(model.transduction_[len(y) :])
        return StartResult(label=label, since= torch.from_numpy(model.labeled_iter_[len(y) :]))

    return SelfTraining(head=head, loss=cross_entropy, pseudo_labels=NoLabels(shape), start=start, closed_form_head=True)


@method("label-spreading", task="multi-class", paper="Zhou et al., NeurIPS 2003; scikit-learn", no_steps=True)
def label_spreading(shape: Shape, *, kernel: str = "knn", neighbours: int = 7, gamma: float = 20.0,
                    relax: float = 0.2, rounds: int = 30) -> SelfTraining:
    """Labels spread over a graph of all texts; a new text hears its neighbours, so the model keeps their vectors."""
    head = NeighboursHead(shape, kernel, int(neighbours), gamma)

    def start(given: StartInputs) -> StartResult:
        from sklearn.semi_supervised import LabelSpreading

        if kernel == "rbf" and len(given.texts) > DENSE:
            raise BadInput(f"kernel=rbf compares {len(given.texts):,} texts with each other, more than the {DENSE:,} "
                           "that fit into memory; use kernel=knn, or fewer unlabelled texts.")
        x, y = given.unit_vectors(), given.columns
        columns = np.concatenate([y, np.full(len(x) - len(y), -1)])
        model = LabelSpreading(kernel=kernel, n_neighbors=head.neighbours, gamma=gamma, alpha=relax,
                               max_iter=int(rounds))
        with quiet():
            model.fit(x, columns)
        soft = np.zeros((len(x), shape.labels))
        soft[:, model.classes_] = np.nan_to_num(model.label_distributions_)
        head.set(torch.from_numpy(x), torch.from_numpy(soft))
        heard = soft[len(y) :].sum(axis=1) > 0
        label = torch.from_numpy(np.where(heard, soft[len(y) :].argmax(axis=1), -1))
        return StartResult(label=label, since= torch.where(label >= 0, 1, -1))

    return SelfTraining(head=head, loss=cross_entropy, pseudo_labels=NoLabels(shape), start=start, closed_form_head=True)


def regression(C: float) -> Any:
    """The logistic regression that all of these stand on."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=C, max_iter=1000)


def put(head: NormalizedLinear, rule: LinearModel) -> None:
    """Takes a rule of numpy into the head."""
    head.set(torch.from_numpy(rule.weight), torch.from_numpy(rule.bias))


def quiet() -> Any:
    """scikit-learn warns when spreading has not settled or a text is out of reach; both are dealt with here."""
    import warnings

    return warnings.catch_warnings(action="ignore")


class NeighboursHead(Head):
    """The labels of stored points, averaged: over the nearest ones, or over all by exp(-gamma distance^2).

    Its scores are logarithms of probabilities. It holds the vectors of all training texts.
    """

    def __init__(self, shape: Shape, kernel: str, neighbours: int, gamma: float) -> None:
        super().__init__()
        number = shape.labelled + shape.unlabelled
        self.kernel, self.neighbours, self.gamma = kernel, min(neighbours, number), gamma
        self.points = nn.Parameter(torch.zeros(number, shape.width), requires_grad=False)
        self.soft = nn.Parameter(torch.zeros(number, shape.labels), requires_grad=False)

    def features(self, h: Tensor) -> Tensor:
        """(N, H) -> (N, H) of length one."""
        return functional.normalize(h, dim=1)

    def forward(self, f: Tensor) -> Tensor:
        """log p, (N, H) -> (N, K); even where no label can be heard."""
        distance = torch.cdist(f, self.points)
        if self.kernel == "knn":
            near = distance.topk(self.neighbours, dim=1, largest=False).indices
            heard = self.soft[near].sum(dim=1)
        else:
            heard = (-self.gamma * distance.square()).softmax(dim=1) @ self.soft
        total = heard.sum(dim=1, keepdim=True)
        p = torch.where(total > 0, heard / total.clamp_min(1e-30), 1.0 / heard.shape[1])
        return p.clamp_min(1e-12).log()

    @torch.no_grad()
    def set(self, points: Tensor, soft: Tensor) -> None:
        """Takes over points (N_l + N_u, H) and their labels (N_l + N_u, K)."""
        self.points.copy_(points)
        self.soft.copy_(soft)
