"""The estimator with several labels per text: sets and matrices, unknown entries, rare labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from conftest import TOPICS, tiny_texts
from halflabel import TextClassifier
from halflabel.data.corpus import Partial
from halflabel.data.labels import from_matrix
from halflabel.encoders.inputs import VectorInputs
from halflabel.errors import HalflabelError, WrongTask
from halflabel.methods import METHODS, find
from halflabel.methods.metaexpert import ExpertHead
from halflabel.methods.sdrl import RelationHead
from halflabel.nn.losses import Asymmetric
from halflabel.nn.network import PrecomputedVectors
from halflabel.nn.pseudo_labels import unlearnable_labels, unlearnable_notices
from halflabel.notices import EpochReport, Event
from halflabel.training.objective import Objective, Problem, StepBatch
from halflabel.types import Shape

SHORT = {"epochs": 2, "epoch_steps": 10, "warmup": 100, "labelled_batch": 8, "unlabelled_batch": 16}
NAMES = sorted(TOPICS)
MULTI_LABEL = sorted(name for name, method in METHODS.items() if method.task == "multi-label")


def quick(encoder: str, method: str | None = None, **changes: object) -> TextClassifier:
    return TextClassifier(method, encoder, "frozen", settings=SHORT | changes)


def topics(per_class: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Texts and their topics as a matrix; every fourth text is of two topics."""
    texts, labels = tiny_texts(per_class, seed)
    y = np.array([[int(name == label) for name in NAMES] for label in labels])
    for i in range(0, len(texts) - 1, 4):
        texts[i], y[i] = f"{texts[i]} {texts[i + 1]}", y[i] | y[i + 1]
    return texts, y


def test_sets_matrices_and_sparse_matrices_give_the_same_model(tiny_encoder: str) -> None:
    texts, y = topics(6)
    pool, _ = tiny_texts(8, seed=1)
    sets = [{k for k in range(3) if row[k]} for row in y]
    forms = {"sets": sets, "matrix": y, "sparse": sparse.csr_matrix(y), "bools": y.astype(bool)}
    fitted = {name: quick(tiny_encoder).fit(texts, form, unlabelled=pool) for name, form in forms.items()}
    assert {clf.method_ for clf in fitted.values()} == {"lift-ml"}
    p = fitted["sets"].predict_proba(pool)
    for name, clf in fitted.items():
        assert np.array_equal(clf.predict_proba(pool), p), name
        assert clf.classes_.tolist() == [0, 1, 2]
    matrix, tuples = fitted["matrix"].predict(pool), fitted["sets"].predict(pool)
    assert matrix.shape == (24, 3) and set(np.unique(matrix)) <= {0, 1} and tuples.shape == (24,)
    assert [tuple(np.flatnonzero(row)) for row in matrix] == list(tuples)
    assert fitted["matrix"].score(texts, y) == fitted["sets"].score(texts, sets) > 0.5


def test_a_matrix_comes_back_as_a_matrix_from_a_folder(tiny_encoder: str, tmp_path: Path) -> None:
    texts, y = topics(4)
    clf = quick(tiny_encoder).fit(texts, y)
    clf.save(tmp_path / "model")
    again = TextClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict(texts), clf.predict(texts)) and again.predict(texts).shape == (12, 3)
    assert again.decision_.chosen == clf.decision_.chosen == "fixed"
    assert (tmp_path / "model" / "decision.json").is_file()


@pytest.mark.parametrize("mark", [-1, np.nan])
def test_unknown_entries_differ_from_negative_ones(mark: float, tiny_encoder: str) -> None:
    texts, y = topics(5)
    partial = y.astype(float)
    partial[0, 1], partial[1] = mark, mark
    labels, classes = from_matrix(partial, "y")
    assert isinstance(labels[0], Partial) and labels[0].unknown == (1,) and labels[1] is None
    assert np.isnan(classes.matrix([labels[0]])[0, 1])
    clf = quick(tiny_encoder).fit(texts, partial)
    assert (clf.model_.shape.labelled, clf.model_.shape.unlabelled) == (14, 1)
    rest, _ = from_matrix(sparse.csr_matrix(partial), "y")
    assert rest[1] is None and rest[0].unknown == (1,)  # type: ignore[union-attr]


def last_layers(head: torch.nn.Module) -> list[torch.Tensor]:
    """Weights of the last layers, (K, D) each."""
    if isinstance(head, RelationHead):  # the loss of a label reaches both classifiers through the relation network
        return [head.relation[-1].weight]
    if isinstance(head, ExpertHead):
        return [expert.weight for expert in head.experts]
    return [head.weight if hasattr(head, "weight") else head.output.weight]


@pytest.mark.parametrize("method", MULTI_LABEL)
def test_unknown_entries_do_not_enter_the_loss(method: str) -> None:
    torch.manual_seed(0)
    shape = Shape(labels=4, width=8, labelled=3, unlabelled=0)
    objective = Objective(PrecomputedVectors(), find(method)(shape))
    y = torch.tensor([[1.0, float("nan"), 0.0, 0.0], [0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    problem = Problem(VectorInputs([torch.randn(3, 8)]), y, 0, task="multi-label")
    batch = StepBatch(np.array([0]), np.empty(0, dtype=np.int64), np.random.default_rng(0))
    objective(problem, batch, 0.0).loss.backward()
    for gradient in (weight.grad for weight in last_layers(objective.network.head)):
        assert gradient[1].abs().sum() == 0 and gradient[0].abs().sum() > 0 and gradient[2].abs().sum() > 0
    without = Problem(problem.inputs, y.nan_to_num(), 0, task="multi-label")
    assert objective(problem, batch, 0.0).loss < objective(without, batch, 0.0).loss
    empty = StepBatch(np.array([2]), np.empty(0, dtype=np.int64), np.random.default_rng(0))
    assert torch.isfinite(objective(problem, empty, 0.0).loss)


@pytest.mark.parametrize(("y", "message"), [
    (np.array([[0, 2], [1, 0]]), "row 1, column 2 of the label matrix is 2"),
    (sparse.csr_matrix([[0, 1], [3, 0]]), "row 2, column 1"),
    (np.array([[0], [1]]), "at least two columns"),
    (np.array([[1, 0]]), "2 texts and 1 labels"),
    ([("a",), "b"], "lists and single labels"),
    ([("a",), ("a",)], "only one class"),
])
def test_bad_labels_are_refused(y: object, message: str, tiny_encoder: str) -> None:
    with pytest.raises(HalflabelError, match=message):
        quick(tiny_encoder).fit(["goal win", "bread soup"], y)


def test_a_method_for_the_other_kind_of_labels_is_refused(tiny_encoder: str) -> None:
    with pytest.raises(WrongTask, match=r"sets of labels, but the method ce is for one label .* choose one of am-ml"):
        quick(tiny_encoder, "ce").fit(["goal", "soup"], [("a", "b"), ("a",)])
    with pytest.raises(WrongTask, match=r"one label for each text, but the method bce is for sets of labels"):
        quick(tiny_encoder, "bce").fit(["goal", "soup"], ["a", "b"])
    with pytest.raises(HalflabelError, match="nothing to decide"):
        quick(tiny_encoder, "ce").fit(["goal", "soup"], ["a", "b"]).predict(["x"], decision="fixed")


@pytest.mark.parametrize("method", MULTI_LABEL)
def test_rare_labels_are_not_predicted_everywhere(method: str, tiny_encoder: str) -> None:
    rng = np.random.default_rng(0)
    texts, labels = tiny_texts(34)
    pool, _ = tiny_texts(40, seed=1)
    y = np.zeros((102, 40), dtype=int)
    y[:, :3] = [[int(name == label) for name in NAMES] for label in labels]
    y[rng.permutation(102)[:16], 3 + np.arange(16)] = 1  # sixteen labels with one text each, twenty-one with none
    clf = quick(tiny_encoder, method).fit(texts, y, unlabelled=pool)
    p, predicted = clf.predict_proba(pool), clf.predict(pool)
    assert np.isfinite(p).all() and np.isfinite(clf.model_.scores(pool)).all()
    assert predicted[:, 19:].sum() == 0 and predicted[:, 3:].sum(axis=1).mean() < 1.0
    assert predicted.sum(axis=1).mean() < (4.0 if isinstance(find(method)(clf.model_.shape).loss, Asymmetric) else 3.0)
    notices = " / ".join(clf.notices_)
    assert "21 labels can hardly be learnt, since no labelled text has it" in notices and "16 labels" in notices
    hard = {entry["label"]: entry["why"] for entry in clf.model_.facts["hard_labels"]}
    assert len(hard) == 37 and hard[39] == "no labelled text has it" and hard[3] == "only one labelled text has it"


def test_labels_that_cannot_be_learnt_are_named_with_the_reason() -> None:
    nan = float("nan")
    y = torch.tensor([[1.0, 0.0, 1.0, nan, 1.0], [1.0, 0.0, 0.0, 0.0, 1.0], [1.0, nan, 0.0, 0.0, 0.0]])
    reasons = {entry["label"]: entry["why"] for entry in unlearnable_labels(y, "abcde")}
    assert reasons == {"a": "every labelled text has it", "b": "no labelled text has it",
                       "c": "only one labelled text has it", "d": "no labelled text has it"}
    assert unlearnable_notices(unlearnable_labels(y, "abcde"))[0].endswith("no labelled text has it: b, d")


def test_a_dev_set_keeps_the_best_model(tiny_encoder: str) -> None:
    texts, y = topics(6)
    events: list[Event] = []
    clf = quick(tiny_encoder, "bdd-ml", epochs=3).fit(texts, y, dev=topics(6, seed=3), report=events.append)
    scores = [figures["dev"] for figures in epoch_figures(events) if "dev" in figures]
    assert clf.model_.facts["run"]["dev"] == max(scores) and len(scores) == 4
    incomplete = np.full((18, 3), np.nan)
    incomplete[:, 0] = 1
    with pytest.raises(HalflabelError, match="dev texts are unknown"):
        quick(tiny_encoder).fit(texts, y, dev=(topics(6, seed=3)[0], incomplete))


def test_the_truth_of_the_pool_only_measures(tiny_encoder: str) -> None:
    texts, y = topics(4)
    pool, truth = topics(6, seed=1)
    events: list[Event] = []
    plain = quick(tiny_encoder, "bdd-ml").fit(texts, y, unlabelled=pool)
    measured = quick(tiny_encoder, "bdd-ml").fit(texts, y, unlabelled=pool, truth=truth, report=events.append)
    assert np.array_equal(plain.predict_proba(pool), measured.predict_proba(pool))
    last = epoch_figures(events)[-1]
    assert 0.3 < last["pseudo_f1"] <= 1.0 and last["nuclear_norm"] > 0


def epoch_figures(events: list[Event]) -> list[dict[str, Any]]:
    return [event.figures for event in events if isinstance(event, EpochReport)]


def test_a_collapsed_run_is_reported(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from halflabel.nn.pseudo_labels import ClassAware, Target

    honest, calls = ClassAware.label, list[int]()

    def all_first(self: ClassAware, p: torch.Tensor) -> Target:
        """After the first epoch, every pseudo-label is the first label."""
        calls.append(len(p))
        if len(calls) <= 2:
            return honest(self, p)
        y = torch.zeros_like(p)
        y[:, 0] = 1.0
        return Target(y, p.new_ones(len(p)))

    monkeypatch.setattr(ClassAware, "label", all_first)
    texts, y = topics(8)
    pool, _ = tiny_texts(20, seed=1)
    clf = quick(tiny_encoder, "bdd-ml", epochs=4, epoch_steps=60, lambda1=50.0).fit(texts, y, unlabelled=pool)
    assert any("collapsed" in notice for notice in clf.notices_)
    assert (clf.predict(pool).sum(axis=0) > 0).all()


@pytest.mark.parametrize("plan", ["frozen", "laptop"])
def test_a_text_has_the_same_labels_whatever_it_is_read_with(plan: str, tiny_encoder: str,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.encoders.encoder.bf16_products", lambda device: True)
    texts, y = topics(6)
    pool, _ = topics(20, seed=1)
    settings = SHORT | {"warmup": 10}
    clf = TextClassifier("bdd-ml", tiny_encoder, plan, settings=settings).fit(texts, y, unlabelled=pool)
    labels, p = clf.predict(pool), clf.predict_proba(pool)
    for size in (1, 20):
        parts = [pool[start : start + size] for start in range(0, len(pool), size)]
        assert np.array_equal(np.concatenate([clf.predict(part) for part in parts]), labels)
        assert np.allclose(np.concatenate([clf.predict_proba(part) for part in parts]), p, atol=1e-5)
