"""What a sceptical reader tries first, by scikit-learn, on frozen vectors of length one.

These are fitted as a whole: under any plan the encoder stays as it is and no steps are taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from halflabel.methods.registry import method
from halflabel.model.head import Unit
from halflabel.model.kernel import Kernel
from halflabel.parts.losses import cross_entropy
from halflabel.parts.pseudo import Heard
from halflabel.parts.views import Rule, as_rule
from halflabel.train.objective import Began, Given, SelfTraining
from halflabel.types import BadInput, Shape

DENSE = 20_000  # texts whose similarities to all others are a matrix of 3 GB


@method("logreg", task="multi-class", paper="-", closed=True)
def logreg(shape: Shape, *, C: float = 10.0) -> SelfTraining:
    """Logistic regression on the labelled texts; the unlabelled are not looked at."""
    head = Unit(shape)

    def start(given: Given) -> Began:
        y = given.columns
        put(head, as_rule(regression(C).fit(given.unit()[: len(y)], y), shape.labels))
        return Began()

    return SelfTraining(head=head, loss=cross_entropy, start=start, closed_form=True)


@method("self-training", task="multi-class", paper="Yarowsky, ACL 1995; scikit-learn", closed=True)
def self_training(shape: Shape, *, C: float = 10.0, threshold: float = 0.75, rounds: int = 10) -> SelfTraining:
    """Logistic regression that takes over its own sure labels, round by round."""
    head = Unit(shape)

    def start(given: Given) -> Began:
        from sklearn.semi_supervised import SelfTrainingClassifier

        x, y = given.unit(), given.columns
        if len(x) == len(y):
            put(head, as_rule(regression(C).fit(x, y), shape.labels))
            return Began()
        columns = np.concatenate([y, np.full(len(x) - len(y), -1)])
        model = SelfTrainingClassifier(regression(C), threshold=threshold, max_iter=int(rounds) or None)
        model.fit(x, columns)
        put(head, as_rule(model.estimator_, shape.labels))
        label = torch.from_numpy(model.transduction_[len(y) :])
        return Began((), label, torch.from_numpy(model.labeled_iter_[len(y) :]))

    return SelfTraining(head=head, loss=cross_entropy, pseudo=Heard(shape), start=start, closed_form=True)


@method("label-spreading", task="multi-class", paper="Zhou et al., NeurIPS 2003; scikit-learn", closed=True)
def label_spreading(shape: Shape, *, kernel: str = "knn", neighbours: int = 7, gamma: float = 20.0,
                    relax: float = 0.2, rounds: int = 30) -> SelfTraining:
    """Labels spread over a graph of all texts; a new text hears its neighbours, so the model keeps their vectors."""
    head = Kernel(shape, kernel, int(neighbours), gamma)

    def start(given: Given) -> Began:
        from sklearn.semi_supervised import LabelSpreading

        if kernel == "rbf" and len(given.texts) > DENSE:
            raise BadInput(f"kernel=rbf compares {len(given.texts):,} texts with each other, more than the {DENSE:,} "
                           "that fit into memory; use kernel=knn, or fewer unlabelled texts.")
        x, y = given.unit(), given.columns
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
        return Began((), label, torch.where(label >= 0, 1, -1))

    return SelfTraining(head=head, loss=cross_entropy, pseudo=Heard(shape), start=start, closed_form=True)


def regression(C: float) -> Any:
    """The logistic regression that all of these stand on."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=C, max_iter=1000)


def put(head: Unit, rule: Rule) -> None:
    """Takes a rule of numpy into the head."""
    head.set(torch.from_numpy(rule.weight), torch.from_numpy(rule.bias))


def quiet() -> Any:
    """scikit-learn warns when spreading has not settled or a text is out of reach; both are dealt with here."""
    import warnings

    return warnings.catch_warnings(action="ignore")
