"""Virtual adversarial training: the perturbation has its length, keeps off padding, and is worse than chance."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import tiny_texts
from halflabel.encoders.inputs import padded
from halflabel.encoders.loading import load_encoder
from halflabel.methods.registry import find
from halflabel.methods.vat import Adversarial, direction
from halflabel.nn.losses import divergence
from halflabel.nn.network import PrecomputedVectors
from halflabel.training.objective import Objective
from halflabel.types import Shape

TEXTS = [*tiny_texts(4)[0], "goal"]


@pytest.fixture
def opened(tiny_encoder: str):
    """Network, rule and what the rule perturbs, for texts of different lengths, with a head that says something."""
    torch.manual_seed(0)
    encoder = load_encoder(tiny_encoder)
    objective = Objective(encoder, find("vat")(Shape(3, encoder.width, 3, 9), eps=0.5))
    with torch.no_grad():
        objective.network.head.output.weight.mul_(10)
    rule = objective.rule
    assert isinstance(rule, Adversarial)
    inputs = padded(encoder.tokens(TEXTS), encoder)
    return objective.network.eval(), rule, rule.opened(objective.network, inputs), inputs


def test_embeddings_give_what_token_ids_give(opened) -> None:
    network, _, inside, inputs = opened
    assert torch.allclose(inside.scores(inside.e), network.classify(network.encoder(*inputs)).scores, atol=1e-5)


def test_the_perturbation_has_length_eps_and_spares_padding_and_special_tokens(opened) -> None:
    _, rule, inside, (ids, mask) = opened
    _, r = rule.worst(inside)
    assert torch.allclose(r.flatten(1).norm(dim=1), torch.full((len(TEXTS),), 0.5), atol=1e-4)
    assert not r[mask == 0].any() and not r[(ids == 2) | (ids == 3)].any()
    assert r[-1, 1].norm() == pytest.approx(0.5, abs=1e-4)  # the one word of the last text


def test_the_perturbation_is_worse_than_a_random_one_of_its_length(opened) -> None:
    _, rule, inside, _ = opened
    p, r = rule.worst(inside)
    others = [0.5 * direction(torch.randn_like(r) * inside.allowed) for _ in range(10)]
    with torch.no_grad():
        found, *chance = (float(divergence(inside.scores(inside.e + d), p).mean()) for d in (r, *others))
    assert found > 2 * max(chance) > 0


def test_smoothness_teaches_by_the_perturbed_side_alone(opened) -> None:
    network, rule, inside, _ = opened
    loss = rule.smoothness(network, inside)
    loss.backward()
    assert float(loss.detach()) > 0 and network.head.hidden.weight.grad.abs().sum() > 0
    assert not network.training


def test_learning_from_it_makes_the_network_smoother() -> None:
    torch.manual_seed(0)
    objective = Objective(PrecomputedVectors(), find("vat")(Shape(3, 8, 3, 9)))
    network, rule = objective.network, objective.rule
    with torch.no_grad():
        network.head.output.weight.mul_(10)
    h = torch.randn(32, 8)
    inside = rule.opened(network, (h,))
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    before = float(rule.smoothness(network, inside).detach())
    for _ in range(30):
        optimizer.zero_grad()
        rule.smoothness(network, inside).backward()
        optimizer.step()
    assert float(rule.smoothness(network, inside).detach()) < 0.5 * before


def test_a_frozen_vector_moves_by_a_share_of_its_length() -> None:
    torch.manual_seed(0)
    objective = Objective(PrecomputedVectors(), find("vat")(Shape(3, 8, 3, 9), share=0.25))
    h = torch.randn(5, 8) * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])[:, None]
    _, r = objective.rule.worst(objective.rule.opened(objective.network, (h,)))
    assert torch.allclose(r.flatten(1).norm(dim=1), 0.25 * h.norm(dim=1), rtol=1e-3)


def test_directions_survive_tiny_slopes_and_none() -> None:
    d = torch.tensor([[[1e-25, 0.0]], [[0.0, 0.0]]])
    assert np.allclose(direction(d).numpy(), [[[1.0, 0.0]], [[0.0, 0.0]]])
