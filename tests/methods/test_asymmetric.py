"""The asymmetric loss by hand, and CAP: exact counts, an averaged teacher, masked entries."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from halflabel import TextClassifier
from halflabel.cli.inputs import TrainingTexts
from halflabel.cli.train import check_wants_views
from halflabel.data.corpus import Corpus
from halflabel.encoders.inputs import VectorInputs
from halflabel.equations import cap_counts, cap_labels
from halflabel.errors import HalflabelError
from halflabel.methods import find
from halflabel.nn.losses import Asymmetric, binary_cross_entropy
from halflabel.nn.network import PrecomputedVectors
from halflabel.nn.pseudo_labels import ClassAware
from halflabel.notices import silent
from halflabel.plans import plan_named
from halflabel.training.checkpoint import NoStore
from halflabel.training.loop import Trainer
from halflabel.training.objective import Objective, Problem, StepBatch
from halflabel.types import Shape

SHAPE = Shape(labels=4, width=6, labelled=10, unlabelled=21)
Y = torch.tensor([[1.0, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]).repeat(2, 1)
LOGITS = torch.tensor([[2.0, -1.0, 0.3, -4.0], [-0.5, 3.0, -2.0, 0.0]])
TRUTH = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0]])


def make_trainer(name: str = "cap", **settings: object) -> Trainer:
    torch.manual_seed(0)
    objective = Objective(PrecomputedVectors(), find(name)(SHAPE, **settings))
    objective.pseudo_labels.set_labelled(Y)
    problem = Problem(VectorInputs([torch.randn(31, 6)]), Y, 21, task="multi-label")
    return Trainer(objective, problem, plan_named("frozen", warmup=2, epoch_steps=3), 0)


def gradient_of(loss: Asymmetric, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    logits = logits.clone().requires_grad_()
    loss(logits, y).sum().backward()
    assert logits.grad is not None
    return logits.grad


def test_without_powers_and_shift_it_is_binary_cross_entropy() -> None:
    plain, y = Asymmetric(0.0, 0.0, 0.0), TRUTH
    wide = torch.cat([LOGITS, 30.0 * LOGITS])
    both = torch.cat([y, y])
    assert torch.allclose(plain(wide, both), binary_cross_entropy(wide, both))
    logits = wide.clone().requires_grad_()
    binary_cross_entropy(logits, both).sum().backward()
    assert torch.allclose(gradient_of(plain, wide, both), logits.grad)


def test_values_by_hand() -> None:
    p = 1 / (1 + np.exp(-LOGITS.double().numpy()))
    q, y = np.maximum(p - 0.05, 0), TRUTH.numpy()
    expected = -(y * (1 - p) ** 1.5 * np.log(p) + (1 - y) * q**4 * np.log(1 - q))
    assert Asymmetric(4.0, 1.5, 0.05).labels(LOGITS, TRUTH).numpy() == pytest.approx(expected, abs=1e-6)
    assert Asymmetric(4.0, 1.5, 0.05)(LOGITS, TRUTH).numpy() == pytest.approx(expected.sum(axis=1), abs=1e-5)


def test_the_shift_removes_the_gradient_of_easy_negatives_only() -> None:
    logits = torch.tensor([[-3.0, -2.9, 0.0, -3.0]])  # p = 0.0474, 0.0522, 0.5, 0.0474
    y = torch.tensor([[0.0, 0.0, 0.0, 1.0]])
    gradient = gradient_of(Asymmetric(4.0, 0.0, 0.05), logits, y)[0]
    assert gradient[0] == 0 and gradient[1] > 0 and gradient[2] > gradient[1] and gradient[3] < -0.9
    assert gradient_of(Asymmetric(4.0, 0.0, 0.0), logits, y)[0, 0] > 0


def test_easy_negatives_are_down_weighted_and_positives_are_not() -> None:
    sure = torch.tensor([[2.0]])
    easy = Asymmetric(4.0, 0.0, 0.05)
    ratio = [float(easy(z, torch.zeros(1, 1)) / binary_cross_entropy(z, torch.zeros(1, 1))) for z in (-sure, sure)]
    assert ratio[0] < 1e-3 < 0.3 < ratio[1]  # an easy negative nearly vanishes, a hard one stays
    assert torch.allclose(easy(-sure, torch.ones(1, 1)), binary_cross_entropy(-sure, torch.ones(1, 1)))


def test_a_probability_of_one_half_means_a_frequency_of_an_eighth() -> None:
    p = torch.linspace(0.01, 0.99, 981)
    logits, loss = (p / (1 - p)).log()[:, None], Asymmetric(4.0, 0.0, 0.05)
    yes, no = loss(logits, torch.ones_like(logits)), loss(logits, torch.zeros_like(logits))
    best = {share: float(p[(share * yes + (1 - share) * no).argmin()]) for share in (0.05, 0.1276, 0.333)}
    assert best[0.1276] == pytest.approx(0.5, abs=0.005) and best[0.05] < 0.45 and best[0.333] > 0.6


def test_detached_powers_give_the_same_loss_and_another_gradient() -> None:
    attached, detached = Asymmetric(2.0, 1.0, 0.05), Asymmetric(2.0, 1.0, 0.05, detach_focus=True)
    assert torch.allclose(attached(LOGITS, TRUTH), detached(LOGITS, TRUTH))
    p = LOGITS.sigmoid()
    q = (p - 0.05).clamp_min(0)
    expected = -TRUTH * (1 - p) ** 2 + (1 - TRUTH) * q**2 * torch.where(q > 0, p * (1 - p) / (1 - q), 0.0)
    assert torch.allclose(gradient_of(detached, LOGITS, TRUTH), expected, atol=1e-6)
    assert not torch.allclose(gradient_of(attached, LOGITS, TRUTH), expected, atol=1e-3)
    assert find("asl")(SHAPE, follow="code").loss == Asymmetric(4.0, 0.0, 0.05, detach_focus=True)


@pytest.mark.parametrize("powers", [(4.0, 0.0), (0.5, 0.5), (0.0, 1.0)])
def test_extreme_logits_stay_finite(powers: tuple[float, float]) -> None:
    logits = torch.tensor([[1e4, -1e4, 80.0, -80.0, 0.0]])
    for y in (torch.zeros_like(logits), torch.ones_like(logits)):
        loss = Asymmetric(*powers, 0.05)
        assert torch.isfinite(loss(logits, y)).all() and torch.isfinite(gradient_of(loss, logits, y)).all()


def test_cap_gives_every_label_exactly_its_share_of_the_pool() -> None:
    run = make_trainer()
    run.step = 2
    run.start_epoch(NoStore(), silent, None)
    wanted = [13, 8, 4, 0]  # 0.6, 0.4, 0.2 and 0 of 21
    assert run.objective.pseudo_labels.table.sum(dim=0).tolist() == wanted == cap_counts(Y.mean(dim=0), 21).tolist()


def test_cap_is_taught_by_the_averaged_weights() -> None:
    run = make_trainer()
    network = run.objective.network
    with torch.no_grad():
        for parameter in run.average.module.parameters():
            parameter.copy_(torch.randn_like(parameter))
        x = run.problem.inputs(np.arange(10, 31), np.zeros(21, dtype=int))[0]
        student = cap_labels(network.classify(x).scores, cap_counts(Y.mean(dim=0), 21))
        with run.averaged_weights():
            teacher = cap_labels(network.classify(x).scores, cap_counts(Y.mean(dim=0), 21))
    run.step = 5  # at the start of the second epoch: at that of the first the average begins anew
    run.start_epoch(NoStore(), silent, None)
    table = run.objective.pseudo_labels.table.float()
    assert torch.equal(table, teacher) and not torch.equal(table, student)


def test_cap_is_the_asymmetric_loss_on_labels_and_pseudo_labels() -> None:
    run = make_trainer(lambda1=0.5)
    objective, rows = run.objective.eval(), torch.arange(21)
    objective.pseudo_labels.update_epoch(rows, torch.rand(21, 4), torch.empty(0), Y)
    result = objective(run.problem, StepBatch(np.arange(10), np.arange(21), np.random.default_rng(0)), 0.5)
    scores = objective.outputs(run.problem, np.arange(31)).scores
    loss = Asymmetric(4.0, 0.0, 0.05)
    pool = loss(scores[10:], objective.pseudo_labels.table.float()).mean()
    assert torch.allclose(result.loss, loss(scores[:10], Y).mean() + 0.5 * pool)
    assert objective.method.weight(0.3) == 0.5 and objective.method.averaged_teacher


def test_only_the_most_confident_shares_count_and_the_others_are_masked() -> None:
    labeller = ClassAware(SHAPE, positives=0.5, negatives=0.75)
    labeller.set_labelled(torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]]))
    p = torch.linspace(1.0, 0.0, 20)[:, None].expand(20, 4)
    target = labeller.label(p)
    assert target.y.sum(dim=0).tolist() == [10, 0, 10, 20]
    assert (target.weight * target.y).sum(dim=0).tolist() == [5, 0, 5, 10]
    assert (target.weight * (1 - target.y)).sum(dim=0).tolist() == [8, 15, 8, 0]
    assert target.weight[:, 0].tolist() == [1.0] * 5 + [0.0] * 7 + [1.0] * 8  # the uncertain are in between
    labeller.update_epoch(torch.arange(20), p, torch.empty(0), torch.empty(0))
    stored = labeller(torch.arange(20), lambda: p)
    assert torch.equal(stored.y, target.y) and torch.equal(stored.weight, target.weight)


def test_masked_entries_do_not_enter_the_loss() -> None:
    run = make_trainer(positives=0.0, negatives=0.0)
    objective = run.objective.eval()
    objective.pseudo_labels.update_epoch(torch.arange(21), torch.rand(21, 4), torch.empty(0), Y)
    result = objective(run.problem, StepBatch(np.arange(10), np.arange(21), np.random.default_rng(0)), 1.0)
    assert result.unlabelled == 0.0 and result.target is not None and not result.target.accepted.any()
    run.pool.record(np.arange(21), result.target, 3)
    assert (run.pool.since == -1).all()


def test_strong_views_are_optional() -> None:
    assert not find("cap")(SHAPE).strong_views and find("cap")(SHAPE, views="strong").strong_views
    texts = TrainingTexts(Corpus([], []), Corpus(["a"], [None]), None, None, [])
    with pytest.raises(HalflabelError, match="cap uses no strong views; set views=strong, or leave out --views"):
        check_wants_views(TextClassifier("cap", plan="frozen").chosen_settings("multi-label"), texts)
    strong = TextClassifier("cap", plan="frozen", settings={"views": "strong"}).chosen_settings("multi-label")
    assert check_wants_views(strong, texts) is None
