"""SDRL: the phases of a step, the discrepancy of the classifiers, and texts that are labelled for good."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from halflabel.encoders.inputs import VectorInputs
from halflabel.errors import SettingError
from halflabel.methods import find
from halflabel.methods.sdrl import AgreementLabels, RelationHead, step_rows
from halflabel.nn.network import PrecomputedVectors
from halflabel.plans import plan_named
from halflabel.training.loop import Trainer
from halflabel.training.objective import Objective, OptimizerPhase, Problem, StepBatch
from halflabel.types import Shape

SHAPE = Shape(labels=3, width=6, labelled=8, unlabelled=20)
Y = torch.tensor([[1.0, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1]]).repeat(2, 1)
PARTS = ("hidden", "first", "second", "relation")


def make_trainer(**settings: object) -> Trainer:
    torch.manual_seed(0)
    objective = Objective(PrecomputedVectors(), find("sdrl")(SHAPE, **settings))
    problem = Problem(VectorInputs([torch.randn(28, 6)]), Y, 20, task="multi-label")
    return Trainer(objective, problem, plan_named("frozen", warmup=0), 0)


def make_batch(pool: int = 20, progress: float = 0.0) -> StepBatch:
    return StepBatch(np.arange(8), np.arange(pool), np.random.default_rng(0), progress)


def phase(run: Trainer, name: str) -> OptimizerPhase:
    return next(phase for phase in run.objective.phases if phase.name == name)


def state(run: Trainer) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in run.objective.network.head.named_parameters()}


def trained_parts(run: Trainer, name: str, batch: StepBatch, weight: float = 1e-5) -> set[str]:
    """The networks that a phase changes; the first phase precedes any other, since it chooses the texts."""
    if name != "fit":
        run.optimize(phase(run, "fit"), batch, weight)
    before = state(run)
    run.optimize(phase(run, name), batch, weight)
    changed = {key for key, tensor in state(run).items() if not torch.equal(tensor, before[key])}
    return {part for part in PARTS for key in changed if key.startswith(part)}


@pytest.mark.parametrize(("name", "parts"), [
    ("fit", {"hidden", "first", "second"}), ("maximise", {"first", "second"}), ("minimise", {"hidden"}),
    ("relate", {"relation"})])
def test_each_phase_trains_its_own_networks_only(name: str, parts: set[str]) -> None:
    assert trained_parts(make_trainer(), name, make_batch()) == parts


def test_the_relation_network_receives_gradient_only_in_its_phase() -> None:
    run = make_trainer()
    for each in run.objective.phases:
        run.optimize(each, make_batch(), 1e-5)
        grads = [p.grad for p in run.objective.network.head.relation.parameters()]
        assert all((grad is not None) == (each.name == "relate") for grad in grads), each.name


def test_classifiers_are_also_trained_through_the_relation_network() -> None:
    def gradient(relation: float) -> torch.Tensor:
        run = make_trainer(relation=relation)
        run.objective(run.problem, make_batch()._replace(phase="fit"), 1e-5).loss.backward()
        return run.objective.network.head.first[-1].weight.grad
    assert not torch.allclose(gradient(0.0), gradient(5.0))


def test_the_discrepancy_is_maximised_then_minimised() -> None:
    run = make_trainer()
    network = run.objective.network
    pool = run.problem.inputs(np.arange(8, 28), np.zeros(20, dtype=int))[0]

    def discrepancy() -> float:
        with torch.no_grad():
            return float(network.head.difference(network.head.features(pool)).abs().sum())

    run.optimize(phase(run, "fit"), make_batch(), 1.0)
    before = discrepancy()
    for _ in range(15):
        run.optimize(phase(run, "maximise"), make_batch(), 1.0)
    largest = discrepancy()
    for _ in range(60):
        run.optimize(phase(run, "minimise"), make_batch(), 1.0)
    assert largest > 1.5 * before and discrepancy() < 0.98 * largest


def test_losses_of_the_phases_by_hand() -> None:
    run = make_trainer(relation=0.2)
    objective, head = run.objective.eval(), run.objective.network.head
    first, second, related = (z.sigmoid() for z in head.all_logits(objective.outputs(run.problem, np.arange(8)).f))
    fit = sum(w * (p - Y).square().mean() for w, p in ((1.0, first), (1.0, second), (0.2, related)))
    discrepancy = head.difference(objective.outputs(run.problem, np.arange(8, 28)).f).abs().sum()
    losses = {each.name: objective(run.problem, make_batch()._replace(phase=each.name), 0.01).loss
              for each in objective.phases}
    assert torch.allclose(losses["fit"], fit) and torch.allclose(losses["relate"], fit)
    assert torch.allclose(losses["maximise"], fit - 0.01 * discrepancy)
    assert torch.allclose(losses["minimise"], discrepancy)
    pairs = first[:, :, None] * second[:, None, :]
    assert torch.allclose(related, head.relation(pairs.reshape(8, 9)).sigmoid())


def test_each_phase_has_its_own_optimizer_and_rate() -> None:
    run = make_trainer()
    rates = {name: {group["peak"] for group in optimizer.param_groups if group["params"]}
             for name, optimizer in run.optimizers.by_phase.items()}
    assert rates == {"fit": {1e-3}, "maximise": {1e-4}, "minimise": {1e-4}, "relate": {1e-3}}
    run.train_step()
    moments = {path.rsplit("/", 1)[0] for path in run.optimizers.moments()}
    assert {"fit/exp_avg", "maximise/exp_avg", "minimise/exp_avg", "relate/exp_avg"} <= moments


def test_without_a_pool_two_phases_remain() -> None:
    run, labelled_only = make_trainer(), make_batch(pool=0)
    assert [trained_parts(run, each.name, labelled_only) for each in run.objective.phases] == [
        {"hidden", "first", "second"}, set(), set(), {"relation"}]
    assert trained_parts(make_trainer(), "minimise", make_batch(), weight=0.0) == set()


def test_texts_on_which_the_classifiers_agree_are_labelled_for_good() -> None:
    difference = torch.tensor([[0.1, 0.0], [0.6, 0.6], [0.8, 0.7], [-0.6, 0.5]])  # 0.01, 0.72, 1.13, 0.61 squared
    labeller = AgreementLabels(Shape(2, 4, 1, 6), lambda f: difference[f[:, 0].long()], distance=0.7, after=0.5)
    y, rows, p = torch.zeros(1, 2), torch.tensor([0, 2, 3, 5]), torch.rand(4, 2)
    f = torch.tensor([0.0, 0, 1, 2, 3])[:, None]  # the labelled text first
    labeller.progress.fill_(0.4)
    labeller.update_epoch(rows, p, f, y)
    assert labeller.count() == 0
    labeller.progress.fill_(0.6)
    labeller.update_epoch(rows, p, f, y)
    assert labeller.taken.tolist() == [True, False, False, False, False, True]
    assert torch.equal(labeller.table[[0, 5]], p[[0, 3]])
    labeller.distance = 100.0
    labeller.update_epoch(rows, torch.zeros(4, 2), f, y)
    assert labeller.count() == 4 and torch.equal(labeller.table[[0, 5]], p[[0, 3]])  # their labels stay
    target = labeller(torch.arange(6), lambda: p)
    assert target.accepted.tolist() == [True, False, True, True, False, True]


def test_pseudo_labelled_texts_are_sampled_as_labelled_ones() -> None:
    run = make_trainer()
    pseudo_labels = run.objective.pseudo_labels
    pseudo_labels.taken[:12], pseudo_labels.table[:12] = True, 0.25
    replaced_total, n = 0, 300
    for i in range(n):
        rows = step_rows(run.problem, make_batch()._replace(rng=np.random.default_rng(i)), pseudo_labels)
        assert len(rows.known) == 8 and sorted(rows.pool) == list(range(20, 28))
        replaced = rows.known >= 8
        assert (rows.known[replaced] < 20).all()
        expected = torch.where(torch.from_numpy(replaced)[:, None], torch.tensor(0.25), Y)
        assert torch.equal(rows.target.y, expected)
        replaced_total += replaced.sum()
    assert replaced_total / (8 * n) == pytest.approx(12 / 20, abs=0.03)  # 12 pseudo-labelled beside 8 labelled
    pseudo_labels.taken[:] = True
    assert len(step_rows(run.problem, make_batch(), pseudo_labels).pool) == 0
    assert trained_parts(run, "minimise", make_batch()) == set()


def test_unknown_entries_stay_unknown_beside_pseudo_labelled_texts() -> None:
    run = make_trainer()
    incomplete = Y.clone()
    incomplete[:, 2] = float("nan")
    problem = Problem(run.problem.inputs, incomplete, 20, task="multi-label")
    run.objective.pseudo_labels.taken[:4] = True
    rows = step_rows(problem, make_batch(), run.objective.pseudo_labels)
    replaced = torch.from_numpy(rows.known >= 8)
    assert replaced.any() and not replaced.all() and not rows.target.y.isnan().any()
    assert torch.equal(rows.target.weight[:, 2], replaced.float()) and (rows.target.weight[:, :2] == 1).all()


def test_too_many_labels_are_refused() -> None:
    with pytest.raises(SettingError, match="at most 300 labels, not 5,000"):
        RelationHead(Shape(labels=5000, width=4, labelled=2, unlabelled=2))
