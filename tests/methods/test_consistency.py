"""Consistency methods: their shared loss, and what they are without a pool."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.encoders.inputs import VectorInputs
from halflabel.methods import find
from halflabel.nn.network import PrecomputedVectors
from halflabel.training.objective import Objective, Problem, StepBatch
from halflabel.types import Shape

SHORT = {"epochs": 2, "epoch_steps": 5, "warmup": 3, "labelled_batch": 4, "unlabelled_batch": 8}
SHAPE = Shape(labels=3, width=8, labelled=6, unlabelled=10)
MATCHING = ["fixmatch", "flexmatch", "freematch", "softmatch"]


def make_step(method: str, **settings: object) -> tuple[Objective, Problem, StepBatch]:
    torch.manual_seed(0)
    problem = Problem(VectorInputs(list(torch.randn(2, 16, 8))), torch.eye(3)[[0, 1, 2, 0, 1, 2]], 10, 2)
    batch = StepBatch(np.arange(6), np.arange(10), np.random.default_rng(0), 0.5)
    return Objective(PrecomputedVectors(), find(method)(SHAPE, **settings)), problem, batch


@pytest.mark.parametrize("method", MATCHING)
def test_the_loss_is_that_of_strong_views_under_labels_of_the_texts(method: str) -> None:
    settings = {"lambda2": 0.0} if method == "freematch" else {"cutoff": 0.36} if method != "softmatch" else {}
    objective, problem, batch = make_step(method, **settings)
    step = objective(problem, batch, 1.0)
    rows = 6 + np.arange(10)
    with torch.no_grad():
        weak, strong = (objective.network(*problem.inputs(rows, np.full(len(rows), view))).scores for view in (0, 1))
    each = torch.nn.functional.cross_entropy(strong, weak.argmax(dim=1), reduction="none")
    assert step.unlabelled == pytest.approx(float((step.target.weight * each).mean()), rel=1e-5)
    assert step.target.y.argmax(dim=1).tolist() == weak.argmax(dim=1).tolist()
    assert float(step.target.weight.sum()) > 0


def test_uda_moves_the_strong_view_towards_the_text_and_not_back() -> None:
    objective, problem, batch = make_step("uda")
    step = objective(problem, batch, 1.0)
    rows = 6 + np.arange(10)
    weak, strong = (objective.network(*problem.inputs(rows, np.full(len(rows), view))).scores for view in (0, 1))
    expected = torch.nn.functional.kl_div(strong.log_softmax(dim=1), weak.softmax(dim=1), reduction="batchmean")
    assert step.unlabelled == pytest.approx(float(expected.detach()), rel=1e-4)
    assert not step.target.y.requires_grad


def test_without_a_pool_uda_is_cross_entropy(tiny_encoder: str) -> None:
    texts, labels = tiny_texts(4)
    uda, ce = (TextClassifier(name, tiny_encoder, "frozen", settings=SHORT).fit(texts, labels)
               for name in ("uda", "ce"))
    assert np.allclose(uda.predict_proba(texts), ce.predict_proba(texts), atol=1e-6)


@pytest.mark.parametrize("method", MATCHING)
def test_without_a_pool_the_labelled_texts_serve_as_one(method: str, tiny_encoder: str) -> None:
    texts, labels = tiny_texts(4)
    clf = TextClassifier(method, tiny_encoder, "frozen", settings=SHORT).fit(texts, labels)
    assert clf.model_.shape.unlabelled == 12 and clf.model_.facts["texts"]["unlabelled"] == 0
    assert clf.transduction_.tolist() == labels and clf.labeled_iter_.tolist() == [0] * 12
