"""Pseudo-labels: sharpened, or hard above FreeMatch's thresholds."""

from __future__ import annotations

import pytest
import torch
from scipy import sparse

from halflabel.methods.lift import LabelTable
from halflabel.nn.pseudo_labels import NoPool, SelfAdaptive, Sharpen
from halflabel.types import Shape

SHAPE = Shape(labels=4, width=8, labelled=4, unlabelled=8)


def test_sharpened_labels_have_weight_one() -> None:
    p = torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    target = Sharpen(0.5).label(p)
    assert torch.allclose(target.y, p.square() / p.square().sum())
    assert target.weight.tolist() == [1.0]


def test_no_pool_gives_weight_zero() -> None:
    assert NoPool().label(torch.full((3, 4), 0.25)).weight.tolist() == [0.0, 0.0, 0.0]


def test_the_first_mask_is_all_ones_for_uniform_probabilities() -> None:
    labeller = SelfAdaptive(SHAPE, 0.999)
    p = torch.full((8, 4), 0.25)
    labeller.update(p)
    assert labeller.label(p).weight.tolist() == [1.0] * 8


def test_thresholds_follow_five_steps_computed_by_hand() -> None:
    torch.manual_seed(0)
    labeller = SelfAdaptive(SHAPE, 0.9)
    tau, marginal = 0.25, torch.full((4,), 0.25)
    for _ in range(5):
        p = torch.randn(8, 4).softmax(dim=1)
        labeller.update(p)
        tau = 0.9 * tau + 0.1 * float(p.max(dim=1).values.mean())
        marginal = 0.9 * marginal + 0.1 * p.mean(dim=0)
    expected = tau * marginal / marginal.max()
    assert torch.allclose(labeller.thresholds(), expected, atol=1e-6)
    p = torch.randn(50, 4).softmax(dim=1)
    keep = p.max(dim=1).values >= expected[p.argmax(dim=1)]
    assert labeller.label(p).weight.bool().tolist() == keep.tolist()
    assert 0 < keep.sum() < 50


def test_labelling_without_update_changes_nothing() -> None:
    labeller = SelfAdaptive(SHAPE, 0.9)
    before = labeller.thresholds().clone()
    labeller.label(torch.randn(8, 4).softmax(dim=1))
    assert torch.equal(labeller.thresholds(), before)


def test_hard_labels_are_one_hot() -> None:
    y = SelfAdaptive(SHAPE, 0.9).label(torch.tensor([[0.1, 0.6, 0.2, 0.1]])).y
    assert y.tolist() == [[0.0, 1.0, 0.0, 0.0]]


def test_a_step_updates_before_it_labels() -> None:
    labeller = SelfAdaptive(SHAPE, 0.0)
    p = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1]])
    target = labeller(torch.arange(2), lambda: p)
    assert float(labeller.confidence) == pytest.approx(0.55)
    assert target.weight.tolist() == [1.0, 0.0]


def never() -> torch.Tensor:
    raise AssertionError("a label from the table needs no forward pass")


def test_labels_in_the_table_are_weighted_by_confidence_above_chance() -> None:
    labeller = LabelTable(SHAPE, power=2.0)
    soft = torch.full((8, 4), 0.25)
    soft[3] = torch.tensor([0.7, 0.1, 0.1, 0.1])
    labeller.initialise(soft, 0.8, sparse.csr_matrix((12, 0)))
    target = labeller(torch.tensor([3, 0]), never)
    assert torch.allclose(target.y[0], soft[3].square() / soft[3].square().sum())
    assert target.weight.tolist() == pytest.approx([0.6, 0.0])
    assert float(labeller.trust) == pytest.approx(0.6 / 8)


def test_updated_labels_are_smoothed_and_keep_their_mean_weight() -> None:
    torch.manual_seed(0)
    shape = Shape(labels=2, width=8, labelled=2, unlabelled=40)
    labeller = LabelTable(shape, power=4.0)
    truth = torch.arange(40) % 2
    labeller.initialise(torch.nn.functional.one_hot(truth, 2) * 0.5 + 0.25, 0.8, sparse.csr_matrix((42, 0)))
    trust = float(labeller.trust)
    f = torch.nn.functional.one_hot(torch.cat([torch.tensor([0, 1]), truth]), 2) + 0.1 * torch.randn(42, 2)
    p = torch.nn.functional.one_hot(truth, 2) * 0.8 + 0.1
    p[:6] = p[:6].flip(1)  # a few errors, whose neighbours are right
    labeller.update_epoch(torch.arange(40), p, f, torch.eye(2))
    target = labeller(torch.arange(40), never)
    assert target.y.argmax(dim=1).tolist() == truth.tolist()
    assert float(target.weight.mean()) == pytest.approx(trust, rel=0.1)
