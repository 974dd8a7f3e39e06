"""MetaExpert: experts, groups, the gate and the fusion, all of it trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from halflabel.classifier import TextClassifier
from halflabel.encoders.inputs import VectorInputs, padded
from halflabel.encoders.loading import load_encoder
from halflabel.methods.metaexpert import DEPTHS, Experts, Fusion, assigned, effective, groups, log_odds, log_prior
from halflabel.methods.registry import find
from halflabel.nn.losses import Asymmetric, cross_entropy
from halflabel.nn.network import PrecomputedVectors
from halflabel.nn.pseudo_labels import Target
from halflabel.training.objective import Objective, Problem, StartInputs, StepBatch
from halflabel.types import Shape

SHAPE = Shape(labels=4, width=4 * 8, labelled=10, unlabelled=12)
Y = torch.eye(4)[[0, 0, 0, 0, 0, 1, 1, 2, 2, 3]]
SETS = Y + torch.eye(4)[[1, 0, 0, 2, 0, 1, 1, 2, 3, 3]] > 0  # shares 0.5, 0.3, 0.3, 0.2; groups 0, 1, 2, 2


def made(cutoff: float = 0.0, **settings: object) -> tuple[Objective, Problem]:
    return built("metaexpert", Y, cutoff=cutoff, **settings)


def made_for_sets(**settings: object) -> tuple[Objective, Problem]:
    objective, problem = built("metaexpert-ml", SETS.float(), **settings)
    objective.pseudo.meet(SETS.float())
    objective.pseudo.refresh(torch.arange(12), torch.rand(12, 4), torch.empty(0), SETS.float())
    return objective, problem


def built(name: str, y: torch.Tensor, **settings: object) -> tuple[Objective, Problem]:
    torch.manual_seed(0)
    recipe = find(name)(SHAPE, **settings)
    recipe.start(StartInputs([], y, PrecomputedVectors(), lambda: np.empty(0), 0))
    vectors = torch.randn(2, 22, 32)
    return Objective(PrecomputedVectors(), recipe), Problem(VectorInputs(list(vectors)), y, 12, 2)


def step(objective: Objective, problem: Problem, progress: float):
    draw = StepBatch(np.arange(10), np.arange(12), np.random.default_rng(0), progress)
    return objective(problem, draw, 1.0)


def gradients(objective: Objective, problem: Problem, progress: float) -> dict[str, float]:
    objective.zero_grad()
    step(objective, problem, progress).loss.backward()
    return {name: 0.0 if p.grad is None else float(p.grad.abs().sum()) for name, p in objective.named_parameters()}


@pytest.mark.parametrize("make", [made, made_for_sets])
def test_gate_and_fusion_receive_gradient_once_the_experts_have_learnt_apart(make) -> None:
    objective, problem = make()
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
    assert torch.allclose(rule.supervised(seen, Target(Y, torch.ones(10)), head.group, together=False), expected)


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


def test_a_text_with_several_labels_belongs_to_every_expert_that_has_one_of_them() -> None:
    group = groups(torch.tensor([9.0, 5.0, 3.0, 1.0]))
    y = torch.tensor([[1.0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0], [1, 1, 0, 1]])
    expected = [[1, 0, 0], [1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 1, 1]]
    assert assigned(Target(y, torch.ones(5)), group).y.tolist() == expected
    known = torch.ones(5, 4)
    known[0, 1], known[1, 3], known[2, 0] = 0.0, 0.0, 0.0
    found = assigned(Target(y, known), group)
    assert found.y.tolist() == expected
    assert found.weight.tolist() == [[1, 0, 1], [1, 1, 1], [0, 1, 1], [1, 1, 1], [1, 1, 1]]  # open: an unknown could be


def test_log_odds_by_hand() -> None:
    share = torch.tensor([0.5, 0.2, 0.0, 0.9])
    assert log_odds(share, 20).tolist() == pytest.approx([0.0, np.log(0.25), np.log(0.025 / 0.975), 0.0], abs=1e-6)


def test_losses_for_sets_by_hand() -> None:
    objective, problem = made_for_sets()
    head, rule, y = objective.network.head, objective.rule, SETS.float()
    seen = head.opinions(head.features(problem.source(np.arange(10), np.zeros(10, dtype=int))[0]))
    shift, loss = torch.tensor([1.0, 3 / 7, 3 / 7, 0.25]).log(), Asymmetric(4.0, 0.0, 0.05)
    moved = [seen.logits[:, q] + tau * shift for q, tau in enumerate((0.0, 2.0, 4.0))]
    apart = sum(loss(z, y).mean() for z in moved)
    target = Target(y, torch.ones(10))
    assert torch.allclose(rule.supervised(seen, target, head.group, together=False), apart, rtol=1e-5)
    fused = sum(seen.trust[:, [q]] * z for q, z in enumerate(moved))
    counts = torch.tensor([5.0, 3.0, 3.0, 2.0])
    balanced = (loss.labels(fused, y) * effective(counts, 0.99)).sum(dim=1).mean()
    mine = torch.stack([y[:, 0], y[:, 1], y[:, 2:].amax(dim=1)], dim=1)
    gate = (torch.nn.functional.binary_cross_entropy_with_logits(seen.gate, mine, reduction="none")
            * effective(mine.sum(dim=0), 0.99)).sum(dim=1).mean()
    together = rule.supervised(seen, target, head.group, together=True)
    assert torch.allclose(together, apart + balanced + gate, rtol=1e-5)


def test_for_sets_the_gate_can_say_no_and_answers_are_adjusted_unless_asked_otherwise() -> None:
    objective, _ = made_for_sets()
    head, h = objective.network.head, torch.randn(6, 32)
    with torch.no_grad():
        head.gate[-2].bias.fill_(-5.0)
    seen = head.opinions(head.features(h))
    assert (seen.gate < -3.0).all()
    own = (seen.adjusted.sigmoid() * head.group).amax(dim=2)
    assert torch.allclose(seen.trust, (own * seen.gate.softmax(dim=1)).softmax(dim=1), atol=1e-6)
    mixed = torch.einsum("nq,nqk->nk", seen.trust, seen.adjusted)
    assert torch.allclose(head(head.features(h)), mixed, atol=1e-5)
    plain, _ = made_for_sets(answer="plain")
    seen = plain.network.head.opinions(plain.network.head.features(h))
    mixed = torch.einsum("nq,nqk->nk", seen.trust, seen.logits)
    assert torch.allclose(plain.network.head(plain.network.head.features(h)), mixed, atol=1e-5)


def test_the_pool_teaches_sets_by_class_aware_labels() -> None:
    objective, problem = made_for_sets()
    done = step(objective, problem, 0.5)
    assert done.target is not None and torch.equal(done.target.y, objective.pseudo.table.float())
    assert objective.pseudo.table.sum(dim=0).tolist() == [6, 4, 4, 2]  # 0.5, 0.3, 0.3 and 0.2 of 12
    assert done.unlabelled > 0 and objective.method.averaged_teacher


def test_metaexpert_is_its_twin_where_texts_have_several_labels() -> None:
    assert TextClassifier("metaexpert", plan="frozen").chosen_settings("multi-label").method == "metaexpert-ml"
    assert TextClassifier("metaexpert", plan="frozen").chosen_settings("multi-class").method == "metaexpert"
