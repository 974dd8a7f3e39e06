"""The low-rank penalty: ADMM does what the direct penalty does, and its state is saved."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from halflabel.equations import nuclear_norm, singular_value_threshold
from halflabel.methods.bdd import LowRank
from halflabel.types import Shape

SHAPE = Shape(labels=6, width=4, labelled=4, unlabelled=4)


class Weights(nn.Module):
    """A head that is nothing but its weights."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())


def penalty(lambda3: float = 0.3, tau: float = 0.5) -> LowRank:
    return LowRank(SHAPE, lambda3, tau, width=5)


def test_nothing_is_added_before_the_first_update() -> None:
    part, head = penalty(), Weights(torch.randn(6, 5))
    cost = part(torch.zeros(2, 6), head)
    cost.backward()
    assert float(cost.detach()) == 0.0 and not head.weight.grad.any()
    part.update(head)
    assert float(part(torch.zeros(2, 6), head).detach()) > 0.0


def test_a_update_agrees_with_numpy() -> None:
    torch.manual_seed(0)
    part, head = penalty(), Weights(torch.randn(6, 5))
    w, twin, dual = head.weight.detach().double().numpy(), np.zeros((6, 5)), np.zeros((6, 5))
    for _ in range(4):
        part.update(head)
        u, values, v = np.linalg.svd(w - dual / 0.5, full_matrices=False)
        twin = u @ np.diag(np.maximum(values - 0.3 / 0.5, 0)) @ v
        dual = dual + 0.5 * (twin - w)
        assert np.allclose(part.twin.numpy(), twin, atol=1e-5) and np.allclose(part.dual.numpy(), dual, atol=1e-5)
        assert np.linalg.norm(dual, 2) <= 0.3 + 1e-9
        expected = 0.25 * ((twin - w + dual / 0.5) ** 2).sum()
        assert float(part(torch.zeros(1, 6), head).detach()) == pytest.approx(expected, rel=1e-4)


def test_admm_ends_where_the_direct_penalty_ends() -> None:
    """min 1/2 |W - A|^2 + lambda3 |W|_* is solved by thresholding A; both ways have to find it."""
    torch.manual_seed(0)
    A, lambda3 = torch.randn(6, 5), 0.8
    solution = singular_value_threshold(A, lambda3)
    split, direct, part = Weights(A), Weights(A), penalty(lambda3, tau=1.0)
    for _ in range(80):
        part.update(split)
        # the step in phi, exactly: gradient W - A + tau (W - twin) - dual = 0
        with torch.no_grad():
            split.weight.copy_((A + part.twin + part.dual) / 2.0)
    optimizer = torch.optim.SGD(direct.parameters(), lr=0.05)
    for _ in range(600):
        optimizer.zero_grad()
        (0.5 * (direct.weight - A).square().sum() + lambda3 * nuclear_norm(direct.weight)).backward()
        optimizer.step()
    assert torch.allclose(part.twin, solution, atol=1e-3) and torch.allclose(split.weight, solution, atol=1e-3)
    assert torch.allclose(direct.weight, solution, atol=0.1)
    assert int(torch.linalg.matrix_rank(part.twin, atol=1e-3)) < 5


def test_the_gradient_ties_the_weights_to_the_twin() -> None:
    torch.manual_seed(0)
    part, head = penalty(), Weights(torch.randn(6, 5))
    part.update(head)
    part(torch.zeros(1, 6), head).backward()
    assert torch.allclose(head.weight.grad, 0.5 * (head.weight.detach() - part.twin) - part.dual, atol=1e-6)


def test_state_and_report() -> None:
    torch.manual_seed(0)
    part, head = penalty(), Weights(3.0 * torch.randn(6, 5))
    part.update(head)
    again = penalty()
    again.load_state_dict(part.state_dict())
    assert again.report(head) == part.report(head)
    directions = head.weight.detach().numpy() / np.linalg.norm(head.weight.detach().numpy(), axis=1, keepdims=True)
    assert part.report(head)["nuclear_norm"] == pytest.approx(np.linalg.norm(directions, "nuc"), rel=1e-5)
    same = Weights(torch.ones(6, 5) * torch.arange(1.0, 7.0)[:, None])
    assert part.report(same)["nuclear_norm"] == pytest.approx(np.sqrt(6.0), rel=1e-5)


def test_without_weight_nothing_is_added() -> None:
    part, head = penalty(lambda3=0.0), Weights(torch.randn(6, 5))
    part.update(head)
    with torch.no_grad():
        head.weight += 1.0
    assert float(part(torch.zeros(2, 6), head).detach()) == 0.0
