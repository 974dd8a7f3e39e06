"""Losses, penalties and weights."""

from __future__ import annotations

import torch

from halflabel.equations import am_loss
from halflabel.methods.bdd import Entropy, angular
from halflabel.nn.losses import NoPenalty, constant, cross_entropy, ramp


def test_angular_is_equation_one() -> None:
    cos, y = torch.tensor([[0.9, 0.1]]), torch.tensor([[1.0, 0.0]])
    assert torch.equal(angular(20.0, 0.3)(cos, y), am_loss(cos, y, 20.0, 0.3))


def test_cross_entropy_takes_hard_and_soft_targets() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0]])
    hard = cross_entropy(logits, torch.tensor([[1.0, 0.0, 0.0]]))
    assert torch.allclose(hard, torch.nn.functional.cross_entropy(logits, torch.tensor([0]), reduction="none"))
    soft = cross_entropy(logits, torch.tensor([[0.5, 0.5, 0.0]]))
    assert torch.allclose(soft, -0.5 * logits.log_softmax(1)[:, :2].sum(dim=1))


def test_entropy_penalty_is_largest_for_uniform_scores() -> None:
    penalty = Entropy(2.0)
    head = torch.nn.Linear(2, 4)
    even, sure = penalty(torch.zeros(3, 4), head), penalty(torch.tensor([[9.0, 0.0, 0.0, 0.0]]), head)
    assert torch.allclose(even, 2.0 * torch.tensor(4.0).log())
    assert sure < even
    assert NoPenalty()(torch.zeros(3, 4), head) == 0 and NoPenalty().report(head) == {}


def test_weights_ramp_or_are_constant() -> None:
    assert [ramp(2.0)(x) for x in (0.0, 0.5, 1.0)] == [0.0, 1.0, 2.0]
    assert [constant(2.0)(x) for x in (0.0, 1.0)] == [2.0, 2.0]
