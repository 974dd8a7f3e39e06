"""SDRL: what learns in which turn, classifiers that part and meet, and texts that become labelled for good."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from halflabel.encoders.inputs import VectorInputs
from halflabel.errors import BadInput
from halflabel.methods.registry import find
from halflabel.methods.sdrl import AgreementLabels, RelationHead, choose
from halflabel.nn.network import PrecomputedVectors
from halflabel.plans import plan_named
from halflabel.training.loop import Trainer
from halflabel.training.objective import Objective, OptimizerPhase, Problem, StepBatch
from halflabel.types import Shape

SHAPE = Shape(labels=3, width=6, labelled=8, unlabelled=20)
Y = torch.tensor([[1.0, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1]]).repeat(2, 1)
PARTS = ("hidden", "first", "second", "relation")


def made(**settings: object) -> Trainer:
    torch.manual_seed(0)
    objective = Objective(PrecomputedVectors(), find("sdrl")(SHAPE, **settings))
    problem = Problem(VectorInputs([torch.randn(28, 6)]), Y, 20, task="multi-label")
    return Trainer(objective, problem, plan_named("frozen", warmup=0), 0)


def draw(pool: int = 20, progress: float = 0.0) -> StepBatch:
    return StepBatch(np.arange(8), np.arange(pool), np.random.default_rng(0), progress)


def turn(run: Trainer, name: str) -> OptimizerPhase:
    return next(one for one in run.objective.turns if one.name == name)


def state(run: Trainer) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in run.objective.network.head.named_parameters()}


def moved(run: Trainer, name: str, drawn: StepBatch, weight: float = 1e-5) -> set[str]:
    """The networks that a turn changes; the first turn goes before any other, since it chooses the texts."""
    if name != "learn":
        run.move(turn(run, "learn"), drawn, weight)
    before = state(run)
    run.move(turn(run, name), drawn, weight)
    changed = {key for key, tensor in state(run).items() if not torch.equal(tensor, before[key])}
    return {part for part in PARTS for key in changed if key.startswith(part)}


@pytest.mark.parametrize(("name", "parts"), [
    ("learn", {"hidden", "first", "second"}), ("part", {"first", "second"}), ("meet", {"hidden"}),
    ("relate", {"relation"})])
def test_each_turn_moves_its_own_networks_alone(name: str, parts: set[str]) -> None:
    assert moved(made(), name, draw()) == parts


def test_the_relation_network_receives_gradient_only_in_its_turn() -> None:
    run = made()
    for one in run.objective.turns:
        run.move(one, draw(), 1e-5)
        grads = [p.grad for p in run.objective.network.head.relation.parameters()]
        assert all((grad is not None) == (one.name == "relate") for grad in grads), one.name


def test_classifiers_hear_the_relation_network_while_they_learn() -> None:
    def gradient(relation: float) -> torch.Tensor:
        run = made(relation=relation)
        run.objective(run.problem, draw()._replace(turn="learn"), 1e-5).loss.backward()
        return run.objective.network.head.first[-1].weight.grad
    assert not torch.allclose(gradient(0.0), gradient(5.0))


def test_parting_raises_the_discrepancy_and_meeting_lowers_it() -> None:
    run = made()
    network = run.objective.network
    pool = run.problem.source(np.arange(8, 28), np.zeros(20, dtype=int))[0]

    def apart() -> float:
        with torch.no_grad():
            return float(network.head.apart(network.head.features(pool)).abs().sum())

    run.move(turn(run, "learn"), draw(), 1.0)
    start = apart()
    for _ in range(15):
        run.move(turn(run, "part"), draw(), 1.0)
    parted = apart()
    for _ in range(60):
        run.move(turn(run, "meet"), draw(), 1.0)
    assert parted > 1.5 * start and apart() < 0.98 * parted


def test_losses_of_the_turns_by_hand() -> None:
    run = made(relation=0.2)
    objective, head = run.objective.eval(), run.objective.network.head
    first, second, related = (z.sigmoid() for z in head.answers(objective.outputs(run.problem, np.arange(8)).f))
    fit = sum(w * (p - Y).square().mean() for w, p in ((1.0, first), (1.0, second), (0.2, related)))
    apart = head.apart(objective.outputs(run.problem, np.arange(8, 28)).f).abs().sum()
    found = {one.name: objective(run.problem, draw()._replace(turn=one.name), 0.01).loss for one in objective.turns}
    assert torch.allclose(found["learn"], fit) and torch.allclose(found["relate"], fit)
    assert torch.allclose(found["part"], fit - 0.01 * apart) and torch.allclose(found["meet"], apart)
    pairs = first[:, :, None] * second[:, None, :]
    assert torch.allclose(related, head.relation(pairs.reshape(8, 9)).sigmoid())


def test_turns_have_optimizers_and_rates_of_their_own() -> None:
    run = made()
    rates = {name: {group["peak"] for group in one.param_groups if group["params"]}
             for name, one in run.descent.optimizers.items()}
    assert rates == {"learn": {1e-3}, "part": {1e-4}, "meet": {1e-4}, "relate": {1e-3}}
    run.learn()
    places = {place.rsplit("/", 1)[0] for place in run.descent.moments()}
    assert {"learn/exp_avg", "part/exp_avg", "meet/exp_avg", "relate/exp_avg"} <= places


def test_without_a_pool_two_turns_are_left() -> None:
    run, alone = made(), draw(pool=0)
    assert [moved(run, one.name, alone) for one in run.objective.turns] == [
        {"hidden", "first", "second"}, set(), set(), {"relation"}]
    assert moved(made(), "meet", draw(), weight=0.0) == set()


def test_texts_on_which_the_classifiers_agree_are_taken_for_good() -> None:
    apart = torch.tensor([[0.1, 0.0], [0.6, 0.6], [0.8, 0.7], [-0.6, 0.5]])  # 0.01, 0.72, 1.13, 0.61 squared
    labeller = AgreementLabels(Shape(2, 4, 1, 6), lambda f: apart[f[:, 0].long()], distance=0.7, after=0.5)
    y, rows, p = torch.zeros(1, 2), torch.tensor([0, 2, 3, 5]), torch.rand(4, 2)
    f = torch.tensor([0.0, 0, 1, 2, 3])[:, None]  # the labelled text first
    labeller.progress.fill_(0.4)
    labeller.refresh(rows, p, f, y)
    assert labeller.count() == 0
    labeller.progress.fill_(0.6)
    labeller.refresh(rows, p, f, y)
    assert labeller.taken.tolist() == [True, False, False, False, False, True]
    assert torch.equal(labeller.table[[0, 5]], p[[0, 3]])
    labeller.distance = 100.0
    labeller.refresh(rows, torch.zeros(4, 2), f, y)
    assert labeller.count() == 4 and torch.equal(labeller.table[[0, 5]], p[[0, 3]])  # their labels stay
    target = labeller(torch.arange(6), lambda: p)
    assert target.kept.tolist() == [True, False, True, True, False, True]


def test_taken_texts_are_drawn_as_labelled_and_no_longer_as_unlabelled() -> None:
    run = made()
    pseudo = run.objective.pseudo
    pseudo.taken[:12], pseudo.table[:12] = True, 0.25
    swapped, n = 0, 300
    for i in range(n):
        chosen = choose(run.problem, draw()._replace(rng=np.random.default_rng(i)), pseudo)
        assert len(chosen.known) == 8 and sorted(chosen.pool) == list(range(20, 28))
        theirs = chosen.known >= 8
        assert (chosen.known[theirs] < 20).all()
        expected = torch.where(torch.from_numpy(theirs)[:, None], torch.tensor(0.25), Y)
        assert torch.equal(chosen.target.y, expected)
        swapped += theirs.sum()
    assert swapped / (8 * n) == pytest.approx(12 / 20, abs=0.03)  # 12 taken beside 8 labelled
    pseudo.taken[:] = True
    assert len(choose(run.problem, draw(), pseudo).pool) == 0
    assert moved(run, "meet", draw()) == set()


def test_unknown_entries_stay_unknown_beside_taken_texts() -> None:
    run = made()
    holes = Y.clone()
    holes[:, 2] = float("nan")
    problem = Problem(run.problem.source, holes, 20, task="multi-label")
    run.objective.pseudo.taken[:4] = True
    chosen = choose(problem, draw(), run.objective.pseudo)
    theirs = torch.from_numpy(chosen.known >= 8)
    assert theirs.any() and not theirs.all() and not chosen.target.y.isnan().any()
    assert torch.equal(chosen.target.weight[:, 2], theirs.float()) and (chosen.target.weight[:, :2] == 1).all()


def test_too_many_labels_are_refused() -> None:
    with pytest.raises(BadInput, match="sdrl relates every label to every other, and 5,000 labels are more"):
        RelationHead(Shape(labels=5000, width=4, labelled=2, unlabelled=2))
