"""Thresholds and weights of FixMatch, FlexMatch, SoftMatch and FreeMatch, and UDA's annealing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from halflabel.methods.consistency import (
    Fairness,
    FairThresholds,
    FlexibleThresholds,
    SoftWeights,
    annealed_mean,
    annealing_threshold,
)
from halflabel.nn.losses import cross_entropy, divergence
from halflabel.nn.pseudo_labels import FixedThreshold, Sharpen, Target
from halflabel.types import Shape

SHAPE = Shape(labels=3, width=4, labelled=3, unlabelled=6)
HEAD = nn.Identity()  # which the fairness penalty does not use


def rows(*confidences: tuple[int, float]) -> torch.Tensor:
    """Probabilities of which one class has the given confidence and the others share the rest."""
    p = torch.empty(len(confidences), 3)
    for i, (k, confidence) in enumerate(confidences):
        p[i] = (1 - confidence) / 2
        p[i, k] = confidence
    return p


class TestFixMatch:
    def test_the_cutoff_itself_passes(self) -> None:
        target = FixedThreshold(0.75).label(torch.tensor([[0.75, 0.25, 0.0], [0.25, 0.7, 0.05]]))
        assert target.weight.tolist() == [1.0, 0.0] and target.y.tolist() == [[1, 0, 0], [0, 1, 0]]

    def test_labels_are_hard_at_any_confidence(self) -> None:
        assert FixedThreshold(0.0).label(rows((2, 0.4))).y.tolist() == [[0, 0, 1]]

    def test_there_is_no_state(self) -> None:
        assert not FixedThreshold(0.9).state_dict()


class TestFlexMatch:
    def weights(self, labeller: FlexibleThresholds, ids: list[int], p: torch.Tensor) -> list[float]:
        return labeller(torch.tensor(ids), lambda: p).weight.tolist()

    def test_thresholds_follow_the_classes_by_hand(self) -> None:
        labeller = FlexibleThresholds(SHAPE, 0.9, count_unused=False)
        assert self.weights(labeller, [0, 1, 2], rows((0, 0.95), (0, 0.95), (1, 0.95))) == [1, 1, 1]
        assert labeller.status.tolist() == [1.0, 0.5, 0.0]  # two texts in class 0, one in class 1
        assert labeller.thresholds().tolist() == pytest.approx([0.9, 0.9 * 0.5 / 1.5, 0.0])
        assert self.weights(labeller, [3, 4, 5], rows((0, 0.85), (1, 0.35), (2, 0.34))) == [0, 1, 1]

    def test_unused_texts_keep_all_thresholds_low_at_first(self) -> None:
        labeller = FlexibleThresholds(SHAPE, 0.9, count_unused=True)
        self.weights(labeller, [0], rows((0, 0.95)))
        assert labeller.status.tolist() == pytest.approx([1 / 5, 0.0, 0.0])  # five texts were never confident

    def test_the_mask_precedes_the_count_of_its_own_texts(self) -> None:
        labeller = FlexibleThresholds(SHAPE, 0.9, count_unused=False)
        assert self.weights(labeller, [0, 1], rows((0, 0.95), (0, 0.5))) == [1, 1]
        assert self.weights(labeller, [1], rows((0, 0.5))) == [0]

    def test_a_text_counts_once_in_its_latest_class(self) -> None:
        labeller = FlexibleThresholds(SHAPE, 0.9, count_unused=False)
        self.weights(labeller, [0], rows((0, 0.95)))
        self.weights(labeller, [0], rows((2, 0.95)))
        assert labeller.passed.tolist() == [2, -1, -1, -1, -1, -1] and labeller.status.tolist() == [0.0, 0.0, 1.0]


class TestSoftMatch:
    def test_statistics_over_five_steps_by_hand(self) -> None:
        torch.manual_seed(1)
        labeller, mean, variance, marginal = SoftWeights(SHAPE, 0.9, 2.0), 1 / 3, 1.0, None
        for _ in range(5):
            p = torch.randn(8, 3).softmax(dim=1)
            labeller.update(p)
            marginal = p.mean(dim=0) if marginal is None else 0.9 * marginal + 0.1 * p.mean(dim=0)
            q = p * (1 / 3 + 1e-6) / (marginal + 1e-6)
            confidence = (q / q.sum(dim=1, keepdim=True)).max(dim=1).values
            mean, variance = 0.9 * mean + 0.1 * float(confidence.mean()), 0.9 * variance + 0.1 * float(confidence.var())
        assert float(labeller.mean) == pytest.approx(mean) and float(labeller.variance) == pytest.approx(variance)
        below = (confidence - mean).clamp_max(0)
        expected = torch.exp(-(below**2) / (2 * variance / 4))
        assert torch.allclose(labeller.label(p).weight, expected, atol=1e-6)

    def test_the_weight_is_one_above_the_mean(self) -> None:
        labeller = SoftWeights(SHAPE, 0.9, 2.0)
        labeller.mean.fill_(0.6)
        labeller.variance.fill_(0.01)
        weight = labeller.label(rows((0, 0.6), (1, 0.9), (2, 0.5), (2, 0.4))).weight
        assert weight[:2].tolist() == [1, 1] and 1 > weight[2] > weight[3] > 0
        assert float(weight[2]) == pytest.approx(math.exp(-0.01 / (2 * 0.01 / 4)), rel=1e-4)

    def test_alignment_affects_the_weight_but_not_the_label(self) -> None:
        labeller = SoftWeights(SHAPE, 0.0, 2.0)
        labeller.update(rows((0, 0.9), (0, 0.9), (0, 0.8)))
        p = torch.tensor([[0.6, 0.4, 0.0]])
        assert labeller.aligned(p).argmax() == 1 and labeller.label(p).y.argmax() == 0

    def test_a_single_text_has_no_variance(self) -> None:
        labeller = SoftWeights(SHAPE, 0.9, 2.0)
        labeller.update(rows((0, 0.9)))
        assert float(labeller.variance) == 1.0


class TestFreeMatch:
    def test_state_over_five_steps_by_hand(self) -> None:
        torch.manual_seed(0)
        labeller, tau = FairThresholds(SHAPE, 0.9), 1 / 3
        marginal = chosen = torch.full((3,), 1 / 3)
        for _ in range(5):
            p = torch.randn(8, 3).softmax(dim=1)
            labeller.update(p)
            tau = 0.9 * tau + 0.1 * float(p.max(dim=1).values.mean())
            marginal = 0.9 * marginal + 0.1 * p.mean(dim=0)
            chosen = 0.9 * chosen + 0.1 * torch.bincount(p.argmax(dim=1), minlength=3) / 8
        assert torch.allclose(labeller.thresholds(), tau * marginal / marginal.max())
        assert torch.allclose(labeller.expected_shares(), (marginal / chosen) / (marginal / chosen).sum())

    def test_fairness_by_hand(self) -> None:
        expected_shares = torch.tensor([0.5, 0.3, 0.2])
        scores = torch.tensor([[9.0, 9.0, 9.0], [2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 5.0]])
        target = Target(torch.zeros(3, 3), torch.tensor([1.0, 1.0, 0.0]))
        p = scores[1:3].softmax(dim=1)
        share = p.mean(dim=0) / torch.tensor([0.5, 0.5, torch.inf])
        share = share / share.sum()
        expected = 2.0 * (expected_shares * (share + 1e-12).log()).sum()
        assert torch.allclose(Fairness(2.0, lambda: expected_shares)(scores, HEAD, target), expected)

    def test_minimising_the_fairness_makes_predictions_more_diverse(self) -> None:
        scores = torch.tensor([[1.0, 0.4, 0.0], [0.8, 0.0, 0.5], [0.2, 1.0, 0.0], [0.1, 0.2, 0.9]], requires_grad=True)
        target = Target(torch.zeros(4, 3), torch.ones(4))
        Fairness(1.0, lambda: torch.full((3,), 1 / 3))(scores, HEAD, target).backward()
        moved = (scores - scores.grad).softmax(dim=1)
        assert moved.max(dim=1).values.mean() < scores.softmax(dim=1).max(dim=1).values.mean()

    def test_without_accepted_texts_there_is_no_penalty(self) -> None:
        term = Fairness(1.0, lambda: torch.ones(3))
        scores = torch.randn(4, 3)
        assert float(term(scores, HEAD)) == 0.0
        assert float(term(scores, HEAD, Target(torch.zeros(2, 3), torch.zeros(2)))) == 0.0


class TestUda:
    @pytest.mark.parametrize("schedule", ["linear", "exp", "log"])
    def test_annealing_ends_at_one_and_rises(self, schedule: str) -> None:
        trace = [annealing_threshold(schedule, 4, t / 10) for t in range(11)]
        assert trace == sorted(trace) and trace[0] == pytest.approx(0.25, abs=0.01)
        assert trace[-1] == pytest.approx(1.0, abs=0.01)

    def test_linear_annealing_in_the_middle(self) -> None:
        assert annealing_threshold("linear", 4, 0.5) == 0.625
        assert annealing_threshold("exp", 4, 0.5) < 0.35 < 0.9 < annealing_threshold("log", 4, 0.5)

    def test_confident_labelled_texts_are_excluded(self) -> None:
        scores = torch.tensor([[3.0, 0.0, 0.0], [0.0, 1.0, 0.9], [0.0, 0.0, -1.0]])
        y = torch.eye(3)
        losses = cross_entropy(scores, y)
        assert torch.allclose(annealed_mean("linear")(losses, scores, y, 0.3), losses[1:].mean())
        assert torch.allclose(annealed_mean("linear")(losses, scores, y, 1.0), losses.mean())

    def test_the_loss_is_zero_if_all_texts_are_excluded(self) -> None:
        scores = torch.tensor([[9.0, 0.0, 0.0]], requires_grad=True)
        y = torch.tensor([[1.0, 0.0, 0.0]])
        loss = annealed_mean("linear")(cross_entropy(scores, y), scores, y, 0.0)
        loss.backward()
        assert float(loss.detach()) == 0.0 and scores.grad is not None and not scores.grad.any()

    def test_consistency_is_zero_for_equal_predictions(self) -> None:
        logits = torch.randn(5, 3)
        assert divergence(logits, logits.softmax(dim=1)).abs().max() < 1e-6
        assert torch.equal(divergence(logits, torch.eye(3)[[0, 1, 2, 0, 1]]),
                           cross_entropy(logits, torch.eye(3)[[0, 1, 2, 0, 1]]))

    def test_cutoff_masks_soft_labels(self) -> None:
        target = Sharpen(1.0, 0.5).label(rows((0, 0.5), (1, 0.51)))
        assert target.weight.tolist() == [0.0, 1.0] and torch.allclose(target.y, rows((0, 0.5), (1, 0.51)))
