"""Collapse is noticed, said and mended; every pseudo-label can be traced."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.metrics import collapsed, effective_classes
from halflabel.parts.pseudo import SelfAdaptive, Target
from halflabel.train.guard import Guard


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
    guard = Guard(2, 3)
    y = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    guard.record(np.array([2, 0]), Target(y, torch.tensor([1.0, 0.0])), step=4)
    guard.record(np.array([2, 0]), Target(y.flip(0), torch.tensor([1.0, 1.0])), step=9)
    assert guard.since.tolist() == [9, -1, 4]
    assert guard.label.tolist() == [0, -1, 1]


@pytest.mark.parametrize(("labels", "size"), [(2, 1), (128, 1), (129, 2)])
def test_labels_take_few_bytes(labels: int, size: int) -> None:
    guard = Guard(labels, 3)
    last = torch.zeros(1, labels)
    last[0, -1] = 1.0
    guard.record(np.array([1]), Target(last, torch.ones(1)), step=4)
    assert guard.label.tolist() == [-1, labels - 1, -1] and guard.label.element_size() == size


def test_trust_halves_and_then_goes() -> None:
    guard = Guard(2, 3)
    sentences = [guard.recover() for _ in range(3)]
    assert float(guard.trust) == 0.0
    assert "half" in sentences[0] and "alone" in sentences[2]


def test_a_collapsing_run_says_so_and_keeps_what_labels_gave(
        tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_first(self: SelfAdaptive, p: torch.Tensor) -> Target:
        y = torch.zeros_like(p)
        y[:, 0] = 1.0
        return Target(y, p.new_ones(len(p)))

    monkeypatch.setattr(SelfAdaptive, "label", all_first)
    texts, labels = tiny_texts(8)
    pool, truth = tiny_texts(30, seed=1)
    short = {"epochs": 4, "epoch_steps": 60, "warmup": 150, "lambda1": 50.0}
    clf = TextClassifier("bdd-f", tiny_encoder, "frozen", settings=short).fit(texts, labels, unlabelled=pool)
    alone = TextClassifier("bdd-f", tiny_encoder, "frozen", settings=short).fit(texts, labels)
    assert any("collapsed" in notice for notice in clf.notices_)
    assert len(set(clf.predict(pool))) == 3
    assert clf.score(pool, truth) > alone.score(pool, truth) - 0.1
