"""Meta-Expert: experts, groups, the gate and the combination, all of them trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from halflabel.classifier import TextClassifier
from halflabel.encoders.inputs import VectorInputs, padded
from halflabel.encoders.loading import load_encoder
from halflabel.methods import find
from halflabel.methods.metaexpert import (
    DEPTHS,
    ExpertHead,
    MultiClassStep,
    class_groups,
    effective_number_weights,
    log_odds,
    log_prior,
    text_groups,
)
from halflabel.nn.losses import Asymmetric, cross_entropy
from halflabel.nn.network import PrecomputedVectors
from halflabel.nn.pseudo_labels import Target
from halflabel.training.objective import Objective, Problem, StartInputs, StepBatch
from halflabel.types import Shape

SHAPE = Shape(labels=4, width=4 * 8, labelled=10, unlabelled=12)
Y = torch.eye(4)[[0, 0, 0, 0, 0, 1, 1, 2, 2, 3]]
SETS = Y + torch.eye(4)[[1, 0, 0, 2, 0, 1, 1, 2, 3, 3]] > 0  # shares 0.5, 0.3, 0.3, 0.2; groups 0, 1, 2, 2


def multi_class(cutoff: float = 0.0, **settings: object) -> tuple[Objective, Problem]:
    return built("metaexpert", Y, cutoff=cutoff, **settings)


def multi_label(**settings: object) -> tuple[Objective, Problem]:
    objective, problem = built("metaexpert-ml", SETS.float(), **settings)
    objective.pseudo_labels.set_labelled(SETS.float())
    objective.pseudo_labels.update_epoch(torch.arange(12), torch.rand(12, 4), torch.empty(0), SETS.float())
    return objective, problem


def built(name: str, y: torch.Tensor, **settings: object) -> tuple[Objective, Problem]:
    torch.manual_seed(0)
    method = find(name)(SHAPE, **settings)
    method.start(StartInputs([], y, PrecomputedVectors(), lambda: np.empty(0), 0))
    vectors = torch.randn(2, 22, 32)
    return Objective(PrecomputedVectors(), method), Problem(VectorInputs(list(vectors)), y, 12, 2)


def take_step(objective: Objective, problem: Problem, progress: float):
    batch = StepBatch(np.arange(10), np.arange(12), np.random.default_rng(0), progress)
    return objective(problem, batch, 1.0)


def gradients(objective: Objective, problem: Problem, progress: float) -> dict[str, float]:
    objective.zero_grad()
    take_step(objective, problem, progress).loss.backward()
    return {name: 0.0 if p.grad is None else float(p.grad.abs().sum()) for name, p in objective.named_parameters()}


@pytest.mark.parametrize("make", [multi_class, multi_label])
def test_gate_and_fusion_are_trained_after_the_experts_alone(make) -> None:
    objective, problem = make()
    late, early = gradients(objective, problem, 0.5), gradients(objective, problem, 0.0)
    apart = [name for name in late if any(part in name for part in ("gate", "first", "second", "depths"))]
    assert apart and all(late[name] > 0 for name in late)
    assert all(early[name] == 0 for name in apart)
    assert all(early[name] > 0 for name in early if "experts" in name or "hidden" in name)


def test_experts_learn_on_logits_adjusted_by_tau_times_log_prior() -> None:
    objective, problem = multi_class()
    head = objective.network.head
    outputs = head.expert_outputs(head.features(problem.inputs(np.arange(10), np.zeros(10, dtype=int))[0]))
    prior = torch.tensor([0.5, 0.2, 0.2, 0.1]).log()
    for q, tau in enumerate((0.0, 2.0, 4.0)):
        assert torch.allclose(outputs.adjusted[:, q], outputs.logits[:, q] + tau * prior, atol=1e-5)
    expected = sum(cross_entropy(outputs.logits[:, q] + tau * prior, Y).mean() for q, tau in enumerate((0.0, 2.0, 4.0)))
    step = objective.custom_step
    assert torch.allclose(step.labelled_loss(outputs, Target(Y, torch.ones(10)), head.group, joint=False), expected)


def test_trust_sums_to_one_and_weighs_the_plain_logits_of_predictions() -> None:
    objective, _ = multi_class()
    head = objective.network.head
    f = head.features(torch.randn(6, 32))
    outputs = head.expert_outputs(f)
    assert torch.allclose(outputs.trust.sum(dim=1), torch.ones(6))
    assert torch.allclose(head(f), torch.einsum("nq,nqk->nk", outputs.trust, outputs.logits), atol=1e-6)
    own = (outputs.logits.softmax(dim=2) * head.group).amax(dim=2)
    assert torch.allclose(outputs.trust, (own * outputs.gate.softmax(dim=1)).softmax(dim=1), atol=1e-6)


@pytest.mark.parametrize(("counts", "number"), [
    ([10, 5, 3, 1], [0, 1, 2, 2]), ([1, 5, 10, 3, 2], [2, 1, 0, 2, 2]), ([3, 3], [0, 1]),
    (list(range(10, 0, -1)), [0, 0, 1, 1, 2, 2, 2, 2, 2, 2]),
])
def test_groups_are_ordered_by_frequency_and_none_is_empty(counts: list[int], number: list[int]) -> None:
    assert class_groups(torch.tensor(counts)).argmax(dim=0).tolist() == number


def test_priors_and_effective_numbers_by_hand() -> None:
    assert log_prior(torch.tensor([3.0, 1.0])).exp().tolist() == pytest.approx([0.75, 0.25])
    assert torch.isfinite(log_prior(torch.tensor([3.0, 0.0]))).all()
    raw = np.array([0.01 / (1 - 0.99**n) for n in (10, 2)])
    weights = effective_number_weights(torch.tensor([10.0, 2.0]), 0.99)
    assert weights.tolist() == pytest.approx((raw / raw.sum() * 2).tolist())
    assert effective_number_weights(torch.tensor([5.0, 0.0]), 0.99).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(("confident", "shares"), [
    ([0, 0, 0, 0], [1 / 3, 1 / 3, 1 / 3]), ([10, 9, 8, 7], [0, 1, 0]), ([40, 20, 9, 4], [1, 0, 0]),
    ([4, 9, 20, 40], [0, 0, 1]),
])
def test_confident_labels_of_the_pool_choose_the_expert(confident: list[int], shares: list[float]) -> None:
    step = MultiClassStep(SHAPE, 0.95, 0.99, 0.08, masks=True)
    step.confident.copy_(torch.tensor(confident))
    assert step.expert_shares().tolist() == pytest.approx(shares)


def test_confident_labels_are_counted_at_every_step() -> None:
    objective, problem = multi_class()
    take_step(objective, problem, 0.0)
    assert float(objective.custom_step.confident.sum()) == 12.0


def test_without_confident_labels_the_pool_has_no_loss() -> None:
    objective, problem = multi_class(cutoff=1.0)
    result = take_step(objective, problem, 0.5)
    assert result.unlabelled == 0.0 and result.target is not None and not result.target.weight.any()
    loose, problem = multi_class(cutoff=1.0, follow="code")
    assert take_step(loose, problem, 0.5).unlabelled > 0  # the public code computes these masks and does not use them


def test_depths_are_layers_of_the_encoder(tiny_encoder: str) -> None:
    one, four = load_encoder(tiny_encoder).eval(), load_encoder(tiny_encoder, depths=DEPTHS).eval()
    inputs = padded(one.tokens(["goal match win", "bread"]), one)
    with torch.no_grad():
        plain, deep = one(*inputs), four(*inputs)
    assert four.width == 4 * one.width and torch.allclose(deep[:, -32:], plain, atol=1e-6)
    assert not torch.allclose(deep[:, :32], plain, atol=1e-2) and one.fingerprint() != four.fingerprint()
    head = ExpertHead(Shape(3, four.width, 3, 3))
    moved = deep.clone()
    moved[:, :32] += 1.0
    assert not torch.allclose(head.features(deep)[:, 128:], head.features(moved)[:, 128:])
    assert torch.equal(head.features(deep)[:, :128], head.features(moved)[:, :128])


def test_a_text_with_several_labels_belongs_to_the_group_of_each() -> None:
    group = class_groups(torch.tensor([9.0, 5.0, 3.0, 1.0]))
    y = torch.tensor([[1.0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0], [1, 1, 0, 1]])
    expected = [[1, 0, 0], [1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 1, 1]]
    assert text_groups(Target(y, torch.ones(5)), group).y.tolist() == expected
    known = torch.ones(5, 4)
    known[0, 1], known[1, 3], known[2, 0] = 0.0, 0.0, 0.0
    target = text_groups(Target(y, known), group)
    assert target.y.tolist() == expected
    # masked where an unknown label could belong to the group
    assert target.weight.tolist() == [[1, 0, 1], [1, 1, 1], [0, 1, 1], [1, 1, 1], [1, 1, 1]]


def test_log_odds_by_hand() -> None:
    share = torch.tensor([0.5, 0.2, 0.0, 0.9])
    assert log_odds(share, 20).tolist() == pytest.approx([0.0, np.log(0.25), np.log(0.025 / 0.975), 0.0], abs=1e-6)


def test_multi_label_losses_by_hand() -> None:
    objective, problem = multi_label()
    head, step, y = objective.network.head, objective.custom_step, SETS.float()
    outputs = head.expert_outputs(head.features(problem.inputs(np.arange(10), np.zeros(10, dtype=int))[0]))
    shift, loss = torch.tensor([1.0, 3 / 7, 3 / 7, 0.25]).log(), Asymmetric(4.0, 0.0, 0.05)
    moved = [outputs.logits[:, q] + tau * shift for q, tau in enumerate((0.0, 2.0, 4.0))]
    apart = sum(loss(z, y).mean() for z in moved)
    target = Target(y, torch.ones(10))
    assert torch.allclose(step.labelled_loss(outputs, target, head.group, joint=False), apart, rtol=1e-5)
    fused = sum(outputs.trust[:, [q]] * z for q, z in enumerate(moved))
    counts = torch.tensor([5.0, 3.0, 3.0, 2.0])
    balanced = (loss.labels(fused, y) * effective_number_weights(counts, 0.99)).sum(dim=1).mean()
    groups = torch.stack([y[:, 0], y[:, 1], y[:, 2:].amax(dim=1)], dim=1)
    gate = (torch.nn.functional.binary_cross_entropy_with_logits(outputs.gate, groups, reduction="none")
            * effective_number_weights(groups.sum(dim=0), 0.99)).sum(dim=1).mean()
    joint = step.labelled_loss(outputs, target, head.group, joint=True)
    assert torch.allclose(joint, apart + balanced + gate, rtol=1e-5)


def test_the_multi_label_gate_may_be_negative_and_predictions_are_adjusted_by_default() -> None:
    objective, _ = multi_label()
    head, h = objective.network.head, torch.randn(6, 32)
    with torch.no_grad():
        head.gate[-2].bias.fill_(-5.0)
    outputs = head.expert_outputs(head.features(h))
    assert (outputs.gate < -3.0).all()
    own = (outputs.adjusted.sigmoid() * head.group).amax(dim=2)
    assert torch.allclose(outputs.trust, (own * outputs.gate.softmax(dim=1)).softmax(dim=1), atol=1e-6)
    mixed = torch.einsum("nq,nqk->nk", outputs.trust, outputs.adjusted)
    assert torch.allclose(head(head.features(h)), mixed, atol=1e-5)
    plain, _ = multi_label(answer="plain")
    outputs = plain.network.head.expert_outputs(plain.network.head.features(h))
    mixed = torch.einsum("nq,nqk->nk", outputs.trust, outputs.logits)
    assert torch.allclose(plain.network.head(plain.network.head.features(h)), mixed, atol=1e-5)


def test_multi_label_pseudo_labels_are_class_aware() -> None:
    objective, problem = multi_label()
    result = take_step(objective, problem, 0.5)
    assert result.target is not None and torch.equal(result.target.y, objective.pseudo_labels.table.float())
    assert objective.pseudo_labels.table.sum(dim=0).tolist() == [6, 4, 4, 2]  # 0.5, 0.3, 0.3 and 0.2 of 12
    assert result.unlabelled > 0 and objective.method.averaged_teacher


def test_metaexpert_becomes_metaexpert_ml_for_several_labels() -> None:
    assert TextClassifier("metaexpert", plan="frozen").chosen_settings("multi-label").method == "metaexpert-ml"
    assert TextClassifier("metaexpert", plan="frozen").chosen_settings("multi-class").method == "metaexpert"
