"""MetaExpert: experts, groups, the gate and the fusion, all of it trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from halflabel.methods import find
from halflabel.methods.metaexpert import Fusion, effective, groups, log_prior
from halflabel.model.encoder import load_encoder
from halflabel.model.experts import DEPTHS, Experts
from halflabel.model.network import Frozen
from halflabel.model.source import VectorSource, padded
from halflabel.parts.losses import cross_entropy
from halflabel.train.objective import Draw, Given, Objective, Problem
from halflabel.types import Shape

SHAPE = Shape(labels=4, width=4 * 8, labelled=10, unlabelled=12)
Y = torch.eye(4)[[0, 0, 0, 0, 0, 1, 1, 2, 2, 3]]


def made(cutoff: float = 0.0, **settings: object) -> tuple[Objective, Problem]:
    torch.manual_seed(0)
    recipe = find("metaexpert")(SHAPE, cutoff=cutoff, **settings)
    recipe.start(Given([], Y, Frozen(), lambda: np.empty(0), 0))
    vectors = torch.randn(2, 22, 32)
    return Objective(Frozen(), recipe), Problem(VectorSource(list(vectors)), Y, 12, 2)


def step(objective: Objective, problem: Problem, progress: float):
    draw = Draw(np.arange(10), np.arange(12), np.random.default_rng(0), progress)
    return objective(problem, draw, 1.0)


def gradients(objective: Objective, problem: Problem, progress: float) -> dict[str, float]:
    objective.zero_grad()
    step(objective, problem, progress).loss.backward()
    return {name: 0.0 if p.grad is None else float(p.grad.abs().sum()) for name, p in objective.named_parameters()}


def test_gate_and_fusion_receive_gradient_once_the_experts_have_learnt_apart() -> None:
    objective, problem = made()
    late, early = gradients(objective, problem, 0.5), gradients(objective, problem, 0.0)
    apart = [name for name in late if any(part in name for part in ("gate", "first", "second", "depths"))]
    assert apart and all(late[name] > 0 for name in late)
    assert all(early[name] == 0 for name in apart)
    assert all(early[name] > 0 for name in early if "experts" in name or "hidden" in name)


def test_experts_learn_on_logits_adjusted_by_tau_times_log_prior() -> None:
    objective, problem = made()
    head = objective.network.head
    seen = head.opinions(head.features(problem.source(np.arange(10), np.zeros(10, dtype=int))[0]))
    prior = torch.tensor([0.5, 0.2, 0.2, 0.1]).log()
    for q, tau in enumerate((0.0, 2.0, 4.0)):
        assert torch.allclose(seen.adjusted[:, q], seen.logits[:, q] + tau * prior, atol=1e-5)
    expected = sum(cross_entropy(seen.logits[:, q] + tau * prior, Y).mean() for q, tau in enumerate((0.0, 2.0, 4.0)))
    rule = objective.rule
    assert torch.allclose(rule.supervised(seen, Y, head.group, together=False), expected)


def test_trust_sums_to_one_and_prediction_is_the_trusted_mix_of_plain_logits() -> None:
    objective, _ = made()
    head = objective.network.head
    f = head.features(torch.randn(6, 32))
    seen = head.opinions(f)
    assert torch.allclose(seen.trust.sum(dim=1), torch.ones(6))
    assert torch.allclose(head(f), torch.einsum("nq,nqk->nk", seen.trust, seen.logits), atol=1e-6)
    own = (seen.logits.softmax(dim=2) * head.group).amax(dim=2)
    assert torch.allclose(seen.trust, (own * seen.gate.softmax(dim=1)).softmax(dim=1), atol=1e-6)


@pytest.mark.parametrize(("counts", "number"), [
    ([10, 5, 3, 1], [0, 1, 2, 2]), ([1, 5, 10, 3, 2], [2, 1, 0, 2, 2]), ([3, 3], [0, 1]),
    (list(range(10, 0, -1)), [0, 0, 1, 1, 2, 2, 2, 2, 2, 2]),
])
def test_groups_go_by_frequency_and_none_is_empty_for_want_of_order(counts: list[int], number: list[int]) -> None:
    assert groups(torch.tensor(counts)).argmax(dim=0).tolist() == number


def test_priors_and_effective_numbers_by_hand() -> None:
    assert log_prior(torch.tensor([3.0, 1.0])).exp().tolist() == pytest.approx([0.75, 0.25])
    assert torch.isfinite(log_prior(torch.tensor([3.0, 0.0]))).all()
    raw = np.array([0.01 / (1 - 0.99**n) for n in (10, 2)])
    assert effective(torch.tensor([10.0, 2.0]), 0.99).tolist() == pytest.approx((raw / raw.sum() * 2).tolist())
    assert effective(torch.tensor([5.0, 0.0]), 0.99).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(("sure", "fits"), [
    ([0, 0, 0, 0], [1 / 3, 1 / 3, 1 / 3]), ([10, 9, 8, 7], [0, 1, 0]), ([40, 20, 9, 4], [1, 0, 0]),
    ([4, 9, 20, 40], [0, 0, 1]),
])
def test_the_pools_sure_labels_say_which_expert_fits(sure: list[int], fits: list[float]) -> None:
    rule = Fusion(SHAPE, 0.95, 0.99, 0.08, masks=True)
    rule.confident.copy_(torch.tensor(sure))
    assert rule.fitting().tolist() == pytest.approx(fits)


def test_sure_labels_are_counted_with_their_repeats() -> None:
    objective, problem = made()
    step(objective, problem, 0.0)
    assert float(objective.rule.confident.sum()) == 12.0


def test_nobody_sure_nobody_taught() -> None:
    objective, problem = made(cutoff=1.0)
    done = step(objective, problem, 0.5)
    assert done.unlabelled == 0.0 and done.target is not None and not done.target.weight.any()
    loose, problem = made(cutoff=1.0, follow="code")
    assert step(loose, problem, 0.5).unlabelled > 0  # the public code computes these masks and does not use them


def test_depths_are_layers_of_the_encoder(tiny_encoder: str) -> None:
    one, four = load_encoder(tiny_encoder).eval(), load_encoder(tiny_encoder, depths=DEPTHS).eval()
    inputs = padded(one.tokens(["goal match win", "bread"]), one)
    with torch.no_grad():
        plain, deep = one(*inputs), four(*inputs)
    assert four.width == 4 * one.width and torch.allclose(deep[:, -32:], plain, atol=1e-6)
    assert not torch.allclose(deep[:, :32], plain, atol=1e-2) and one.fingerprint() != four.fingerprint()
    head = Experts(Shape(3, four.width, 3, 3))
    moved = deep.clone()
    moved[:, :32] += 1.0
    assert not torch.allclose(head.features(deep)[:, 128:], head.features(moved)[:, 128:])
    assert torch.equal(head.features(deep)[:, :128], head.features(moved)[:, :128])
