"""Balanced angles: Eqs. 2 and 3, moving averages, and bounds where statistics are poor."""

from __future__ import annotations

import math

import pytest
import torch

from halflabel.equations import am_loss, angles, cosines, psi, slopes
from halflabel.methods.bdd import BOUNDS, BalancedAngles
from halflabel.nn.network import Angles
from halflabel.types import Shape

SHAPE = Shape(labels=2, width=8, labelled=4, unlabelled=0)


def at_angles(*degrees: float) -> torch.Tensor:
    turn = torch.tensor(degrees) * math.pi / 180
    return torch.stack([turn.cos(), turn.sin()], dim=1)


def one_hot(*columns: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(columns), 2).float()


def fitted(f: torch.Tensor, y: torch.Tensor, memory: float = 0.1, **options: float) -> BalancedAngles:
    balanced = BalancedAngles(SHAPE, memory, BOUNDS, width=f.shape[1], **options)
    balanced.update(f, y)
    return balanced


def test_before_the_first_update_cosines_are_unchanged() -> None:
    cos = torch.tensor([[1.0, -1.0], [0.3, 0.2]])
    assert torch.equal(BalancedAngles(SHAPE, 0.1)(cos), cos)
    assert torch.equal(Angles()(cos), cos)


def test_a_wide_label_is_compressed_and_a_narrow_one_stretched() -> None:
    wide, narrow = at_angles(-40, -10, 20, 40), at_angles(75, 85, 95, 112)
    balanced = fitted(torch.cat([wide, narrow]), one_hot(0, 0, 0, 0, 1, 1, 1, 1))
    a = balanced.slopes()
    assert a[0] < 1 < a[1]
    assert balanced.variances()[0] * a[0] ** 2 == pytest.approx(float(balanced.variances()[1] * a[1] ** 2))


def test_loss_on_balanced_cosines_is_equation_three() -> None:
    torch.manual_seed(0)
    f, w = torch.randn(40, 6), torch.randn(2, 6)
    y = one_hot(*[0, 1] * 20)
    balanced = fitted(f, y)
    cos = cosines(f, w)
    inside = psi(angles(cos), balanced.mean, slopes(balanced.variance))  # the equation without bounds
    assert inside.min() > 0 and inside.max() < math.pi
    assert torch.allclose(am_loss(balanced(cos), y, 20.0, 0.3), am_loss(inside.cos(), y, 20.0, 0.3), atol=1e-5)


def test_two_texts_of_a_label_have_no_variance_and_nothing_explodes() -> None:
    f = torch.cat([at_angles(0, 30), at_angles(80, 95, 100, 130)])
    balanced = fitted(f, one_hot(0, 0, 1, 1, 1, 1))
    assert balanced.variance[0] < 1e-6
    a = balanced.slopes()
    assert a.min() >= 1 / BOUNDS.limit - 1e-5 and a.max() <= BOUNDS.limit + 1e-5


def test_a_label_without_mass_keeps_its_statistics() -> None:
    balanced = fitted(torch.cat([at_angles(0, 20, 50), at_angles(90, 95, 120)]), one_hot(0, 0, 0, 1, 1, 1))
    before = balanced.prototype[1].clone(), float(balanced.mean[1]), float(balanced.variance[1])
    balanced.update(at_angles(5, 10, 15), one_hot(0, 0, 0))
    assert torch.equal(balanced.prototype[1], before[0])
    assert (float(balanced.mean[1]), float(balanced.variance[1])) == before[1:]


def test_a_label_never_seen_is_unchanged() -> None:
    balanced = fitted(at_angles(0, 20, 50), one_hot(0, 0, 0))
    cos = torch.tensor([[0.5, 0.5]])
    assert balanced.slopes().tolist() == [1.0, 1.0]
    assert torch.equal(balanced(cos), cos)


def test_the_first_update_sets_and_the_next_one_averages() -> None:
    balanced = fitted(at_angles(0, 20, 50), one_hot(0, 0, 0), memory=0.25)
    first = balanced.prototype[0].clone()
    balanced.update(at_angles(0, 0, 0), one_hot(0, 0, 0))
    assert torch.allclose(balanced.prototype[0], 0.75 * at_angles(0)[0] + 0.25 * first)


def test_shrinking_pulls_variances_together() -> None:
    f, y = torch.cat([at_angles(-40, -10, 20, 40), at_angles(85, 88, 92, 97)]), one_hot(0, 0, 0, 0, 1, 1, 1, 1)
    plain, shrunk = fitted(f, y).slopes(), fitted(f, y, shrink=20.0).slopes()
    assert (shrunk - 1).abs().max() < 0.5 * (plain - 1).abs().max()


def test_gradients_are_finite_at_the_poles_and_outside_the_range() -> None:
    wide, narrow = at_angles(-40, -10, 20, 40), at_angles(85, 88, 92, 97)
    balanced = fitted(torch.cat([wide, narrow]), one_hot(0, 0, 0, 0, 1, 1, 1, 1))
    cos = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [0.9999999, -0.9999999]], requires_grad=True)
    balanced(cos).sum().backward()
    assert cos.grad is not None and bool(cos.grad.isfinite().all())


def test_report_names_mean_spread_and_stretch_of_each_label() -> None:
    report = fitted(torch.cat([at_angles(0, 20, 50), at_angles(90, 95, 120)]), one_hot(0, 0, 0, 1, 1, 1)).report()
    assert set(report) == {"mu", "sigma", "a"} and all(len(column) == 2 for column in report.values())
    assert Angles().report() == {}
