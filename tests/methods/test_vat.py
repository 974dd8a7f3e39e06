"""Virtual adversarial training: the perturbation has length eps, spares padding, and is worse than random ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import tiny_texts
from halflabel.encoders.inputs import padded
from halflabel.encoders.loading import load_encoder
from halflabel.methods import find
from halflabel.methods.consistency import AdversarialStep, unit_direction
from halflabel.nn.losses import divergence
from halflabel.nn.network import PrecomputedVectors
from halflabel.training.objective import Objective
from halflabel.types import Shape

TEXTS = [*tiny_texts(4)[0], "goal"]


@pytest.fixture
def perturbed(tiny_encoder: str):
    """Network, step and perturbable embeddings of texts of different lengths, with a head that is not uniform."""
    torch.manual_seed(0)
    encoder = load_encoder(tiny_encoder)
    objective = Objective(encoder, find("vat")(Shape(3, encoder.width, 3, 9), eps=0.5))
    with torch.no_grad():
        objective.network.head.output.weight.mul_(10)
    step = objective.custom_step
    assert isinstance(step, AdversarialStep)
    inputs = padded(encoder.tokens(TEXTS), encoder)
    return objective.network.eval(), step, step.perturbable(objective.network, inputs), inputs


def test_embeddings_give_what_token_ids_give(perturbed) -> None:
    network, _, embeddings, inputs = perturbed
    assert torch.allclose(embeddings.scores(embeddings.e), network.classify(network.encoder(*inputs)).scores, atol=1e-5)


def test_the_perturbation_has_length_eps_and_spares_padding_and_special_tokens(perturbed) -> None:
    _, step, embeddings, (ids, mask) = perturbed
    _, r = step.worst_perturbation(embeddings)
    assert torch.allclose(r.flatten(1).norm(dim=1), torch.full((len(TEXTS),), 0.5), atol=1e-4)
    assert not r[mask == 0].any() and not r[(ids == 2) | (ids == 3)].any()
    assert r[-1, 1].norm() == pytest.approx(0.5, abs=1e-4)  # the one word of the last text


def test_the_perturbation_is_worse_than_random_ones(perturbed) -> None:
    _, step, embeddings, _ = perturbed
    p, r = step.worst_perturbation(embeddings)
    directions = [0.5 * unit_direction(torch.randn_like(r) * embeddings.mask) for _ in range(10)]
    with torch.no_grad():
        worst, *random = (float(divergence(embeddings.scores(embeddings.e + d), p).mean()) for d in (r, *directions))
    assert worst > 2 * max(random) > 0


def test_smoothness_has_a_gradient_and_restores_the_mode(perturbed) -> None:
    network, step, embeddings, _ = perturbed
    loss = step.smoothness(network, embeddings)
    loss.backward()
    assert float(loss.detach()) > 0 and network.head.hidden.weight.grad.abs().sum() > 0
    assert not network.training


def test_training_makes_the_network_smoother() -> None:
    torch.manual_seed(0)
    objective = Objective(PrecomputedVectors(), find("vat")(Shape(3, 8, 3, 9)))
    network, step = objective.network, objective.custom_step
    with torch.no_grad():
        network.head.output.weight.mul_(10)
    h = torch.randn(32, 8)
    embeddings = step.perturbable(network, (h,))
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    before = float(step.smoothness(network, embeddings).detach())
    for _ in range(30):
        optimizer.zero_grad()
        step.smoothness(network, embeddings).backward()
        optimizer.step()
    assert float(step.smoothness(network, embeddings).detach()) < 0.5 * before


def test_a_frozen_vector_is_perturbed_by_a_share_of_its_length() -> None:
    torch.manual_seed(0)
    objective = Objective(PrecomputedVectors(), find("vat")(Shape(3, 8, 3, 9), share=0.25))
    h = torch.randn(5, 8) * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])[:, None]
    _, r = objective.custom_step.worst_perturbation(objective.custom_step.perturbable(objective.network, (h,)))
    assert torch.allclose(r.flatten(1).norm(dim=1), 0.25 * h.norm(dim=1), rtol=1e-3)


def test_directions_of_tiny_and_zero_gradients() -> None:
    d = torch.tensor([[[1e-25, 0.0]], [[0.0, 0.0]]])
    assert np.allclose(unit_direction(d).numpy(), [[[1.0, 0.0]], [[0.0, 0.0]]])
