"""A collapse is detected, reported and undone; every pseudo-label can be traced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.errors import SettingError
from halflabel.evaluation.metrics import collapsed, effective_classes
from halflabel.nn.pseudo_labels import NoLabels, SelfAdaptive, Target
from halflabel.notices import Event, StepProgress
from halflabel.processes import Interrupted, request_stop
from halflabel.training.statistics import EpochStatistics, PoolState


@pytest.mark.parametrize(("shares", "reference", "expected"), [
    ([0.25, 0.25, 0.25, 0.25], [0.3, 0.2, 0.25, 0.25], False),
    ([0.97, 0.01, 0.01, 0.01], [0.3, 0.2, 0.25, 0.25], True),
    ([0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], True),
    ([0.97, 0.03], [0.5, 0.5], True),
    ([0.8, 0.2], [0.5, 0.5], False),
    ([0.9, 0.1], [0.92, 0.08], False),
])
def test_collapse_is_judged_against_the_start(shares: list[float], reference: list[float], expected: bool) -> None:
    assert collapsed(np.array(shares), np.array(reference)) is expected


def test_effective_classes_counts() -> None:
    assert effective_classes(np.array([0.25] * 4)) == pytest.approx(4.0)
    assert effective_classes(np.array([1.0, 0.0])) == pytest.approx(1.0)
    assert effective_classes(np.zeros(3)) == pytest.approx(1.0)


def test_first_acceptance_and_latest_label_are_recorded() -> None:
    pool = PoolState(2, 3)
    y = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    pool.record(np.array([2, 0]), Target(y, torch.tensor([1.0, 0.0])), step=4)
    pool.record(np.array([2, 0]), Target(y.flip(0), torch.tensor([1.0, 1.0])), step=9)
    assert pool.since.tolist() == [9, -1, 4]
    assert pool.label.tolist() == [0, -1, 1]


@pytest.mark.parametrize(("labels", "size"), [(2, 1), (128, 1), (129, 2)])
def test_labels_take_few_bytes(labels: int, size: int) -> None:
    pool = PoolState(labels, 3)
    last = torch.zeros(1, labels)
    last[0, -1] = 1.0
    pool.record(np.array([1]), Target(last, torch.ones(1)), step=4)
    assert pool.label.tolist() == [-1, labels - 1, -1] and pool.label.element_size() == size


SHORT = {"epochs": 4, "epoch_steps": 30, "warmup": 80, "lambda1": 50.0}


@pytest.fixture
def all_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pseudo-label is the first class."""
    def label(self: SelfAdaptive, p: torch.Tensor) -> Target:
        y = torch.zeros_like(p)
        y[:, 0] = 1.0
        return Target(y, p.new_ones(len(p)))

    monkeypatch.setattr(SelfAdaptive, "label", label)


@pytest.mark.usefixtures("all_alike")
def test_a_collapsing_run_says_so_and_ends_as_one_without_pool_and_balance(tiny_encoder: str) -> None:
    texts, labels = tiny_texts(8)
    pool, _ = tiny_texts(30, seed=1)
    clf = TextClassifier("bdd-f", tiny_encoder, "frozen", settings=SHORT).fit(texts, labels, unlabelled=pool)
    alone = TextClassifier("am-f", tiny_encoder, "frozen", settings=SHORT).fit(texts, labels)
    assert len([notice for notice in clf.notices_ if "collapsed" in notice]) == 1
    assert clf.termination_condition_.endswith("after the pool was abandoned")
    assert clf.labeled_iter_.tolist() == [0] * len(texts) + [-1] * len(pool)
    assert len(set(clf.predict(pool))) == 3
    np.testing.assert_array_equal(clf.predict_proba(pool), alone.predict_proba(pool))


@pytest.mark.usefixtures("all_alike")
def test_without_the_guard_a_collapsing_run_goes_on(tiny_encoder: str) -> None:
    texts, labels = tiny_texts(8)
    pool, _ = tiny_texts(30, seed=1)
    clf = TextClassifier("bdd-f", tiny_encoder, "frozen", settings=SHORT | {"guard": "off"})
    clf.fit(texts, labels, unlabelled=pool)
    assert clf.notices_ == [] and clf.termination_condition_ == "all steps done"
    assert len(set(clf.predict(pool))) == 1


def test_the_guard_is_on_or_off() -> None:
    with pytest.raises(SettingError, match="guard=maybe is not known; give on or off"):
        TextClassifier("bdd-f", settings={"guard": "maybe"}).fit(["a", "b"], ["x", "y"])


def test_several_labels_per_text_are_judged_by_their_pseudo_labels() -> None:
    y = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    p = torch.tensor([[0.8, 0.1, 0.1], [0.8, 0.1, 0.1]])
    several = EpochStatistics(np.arange(2), torch.zeros(2, 4), y, p, Target(y, torch.ones(2)), "multi-label")
    assert several.shares().tolist() == pytest.approx([1 / 3, 2 / 3, 0.0])
    assert several._replace(task="multi-class").shares().tolist() == [1.0, 0.0, 0.0]


def test_a_method_without_pseudo_labels_is_checked_too(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(self: NoLabels, rows: torch.Tensor, predict: Callable[[], torch.Tensor]) -> Target:
        y = torch.zeros(len(rows), self.labels)
        y[:, 0] = 1.0
        return Target(y, torch.full((len(rows),), 50.0))

    monkeypatch.setattr(NoLabels, "forward", forward)
    texts, labels = tiny_texts(8)
    pool, _ = tiny_texts(30, seed=1)
    few = {name: SHORT[name] for name in ("epochs", "epoch_steps", "warmup")}
    clf = TextClassifier("vat", tiny_encoder, "frozen", settings=few).fit(texts, labels, unlabelled=pool)
    alone = TextClassifier("vat", tiny_encoder, "frozen", settings=few).fit(texts, labels)
    assert len([notice for notice in clf.notices_ if "collapsed" in notice]) == 1
    np.testing.assert_array_equal(clf.predict_proba(pool), alone.predict_proba(pool))


@pytest.mark.usefixtures("all_alike")
def test_a_run_that_abandoned_its_pool_can_be_stopped_and_resumed(tiny_encoder: str, tmp_path: Path) -> None:
    texts, labels = tiny_texts(8)
    pool, _ = tiny_texts(30, seed=1)

    def run(name: str, **how: Any) -> TextClassifier:
        clf = TextClassifier("bdd-f", tiny_encoder, "frozen", settings=SHORT)
        return clf.fit(texts, labels, unlabelled=pool, folder=tmp_path / name, **how)

    def stops_late(event: Event) -> None:
        # more steps than planned: the pool was abandoned
        if isinstance(event, StepProgress) and event.steps > 200 and event.step > 170:
            request_stop()

    whole = run("whole")
    with pytest.raises(Interrupted):
        run("stopped", report=stops_late)
    resumed = run("stopped", resume=True)
    a, b = whole.model_.network.state_dict(), resumed.model_.network.state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert resumed.notices_ == whole.notices_ and len(whole.notices_) == 1
    assert (tmp_path / "whole" / "metrics.jsonl").read_text() == (tmp_path / "stopped" / "metrics.jsonl").read_text()
