"""The learning-rate schedule, the averaged weights, and that training executes the paper's equations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from golden import numbers
from torch import Tensor, nn

from conftest import tiny_texts
from halflabel import equations as eq
from halflabel.data.corpus import Corpus
from halflabel.data.labels import Classes
from halflabel.encoders.loading import load_encoder
from halflabel.fitting import make_problem
from halflabel.methods import find
from halflabel.nn.network import PrecomputedVectors
from halflabel.plans import plan_named
from halflabel.randomness import Stream, generator
from halflabel.settings import choose_settings
from halflabel.training.loop import Trainer, averaged_model
from halflabel.training.objective import Objective
from halflabel.training.optimizers import rate_factor
from halflabel.training.time_budget import measure
from halflabel.types import Shape

SHORT = {"epochs": 2, "epoch_steps": 4, "warmup": 2, "labelled_batch": 4, "unlabelled_batch": 6}


def make_trainer(encoder: str, method: str = "bdd-f", plan: str = "frozen", **changes: Any) -> Trainer:
    texts, labels = tiny_texts(4)
    pool, _ = tiny_texts(8, seed=1)
    labelled = Corpus(texts, labels)
    settings = choose_settings("multi-class", method=method, encoder=encoder, plan=plan, changes=SHORT | changes)
    loaded = load_encoder(encoder)
    torch.manual_seed(0)
    recipe = find(method)(Shape(3, loaded.width, len(texts), len(pool)))
    objective = Objective(PrecomputedVectors() if settings.plan.frozen else loaded, recipe)
    problem = make_problem(loaded, objective, labelled, Corpus(pool, [None] * len(pool)), Classes.of(labels), settings)
    return Trainer(objective, problem, settings.plan, settings.seed)


class TestSchedule:
    def test_constant(self) -> None:
        plan = plan_named("frozen")
        assert [rate_factor(plan, step) for step in (0, 1, plan.steps - 1)] == [1.0, 1.0, 1.0]

    def test_linear_by_hand(self) -> None:
        plan = plan_named("laptop", warmup=0, epochs=4, epoch_steps=10)  # 40 steps, of which 2 warm up
        assert [rate_factor(plan, step) for step in (0, 1)] == [0.5, 1.0]
        assert rate_factor(plan, 2) == pytest.approx(1.0) and rate_factor(plan, 21) == pytest.approx(0.5)
        assert rate_factor(plan, 39) == pytest.approx(1 / 38)

    def test_linear_rises_once_and_then_falls_to_almost_zero(self) -> None:
        plan = plan_named("laptop")
        rates = np.array([rate_factor(plan, step) for step in range(plan.steps)])
        peak = int(rates.argmax())
        assert (np.diff(rates[: peak + 1]) > 0).all() and (np.diff(rates[peak + 1 :]) < 0).all()
        assert rates.max() == 1.0 and 0 < rates[-1] < 0.01 and peak < plan.steps / 19

    def test_a_run_of_one_step_has_a_rate(self) -> None:
        assert rate_factor(plan_named("laptop", warmup=0, epochs=1, epoch_steps=1), 0) == 1.0

    def test_encoder_and_head_have_their_own_rates(self, tiny_encoder: str) -> None:
        trainer = make_trainer(tiny_encoder, plan="laptop", encoder_rate=1e-5, head_rate=1e-3)
        trainer.optimizers.set_rates(0)
        (optimizer,) = trainer.optimizers.by_phase.values()
        head, encoder = optimizer.param_groups
        factor = rate_factor(trainer.plan, 0)
        assert (head["lr"], encoder["lr"]) == (pytest.approx(1e-3 * factor), pytest.approx(1e-5 * factor))
        assert len(encoder["params"]) > len(head["params"]) == 3


class TestAveragedWeights:
    def test_by_hand(self) -> None:
        network = nn.BatchNorm1d(1)
        average = averaged_model(network, 0.9)
        for weight, mean in ((2.0, 5.0), (3.0, 7.0)):
            nn.init.constant_(network.weight, weight)
            network.running_mean.fill_(mean)
            average.update_parameters(network)
        # 1 -> 0.9 * 1 + 0.1 * 2 = 1.1 -> 0.9 * 1.1 + 0.1 * 3 = 1.29; buffers are copied
        assert float(average.module.weight.detach()) == pytest.approx(1.29)
        assert float(average.module.running_mean) == 7.0

    def test_training_averages_every_step_and_evaluates_the_average(self, tiny_encoder: str) -> None:
        trainer = make_trainer(tiny_encoder, ema=0.5, warmup=0)
        head = trainer.objective.network.head
        expected = head.weight.detach().clone()
        for _ in range(3):
            trainer.train_step()
            expected = 0.5 * expected + 0.5 * head.weight.detach()
        current = head.weight.detach().clone()
        with trainer.averaged_weights():
            assert torch.allclose(head.weight, expected, atol=1e-7)
        assert torch.equal(head.weight, current) and not torch.allclose(current, expected, atol=1e-5)

    def test_averaging_restarts_after_warmup(self, tiny_encoder: str) -> None:
        trainer = make_trainer(tiny_encoder, ema=0.999)
        for _ in range(trainer.plan.warmup):
            trainer.train_step()
        trainer.reset_average()
        weights = trainer.objective.network.state_dict()
        assert all(torch.equal(weights[name], tensor) for name, tensor in trainer.average.module.state_dict().items())


def test_measuring_the_time_leaves_the_trainer_as_it_was(tiny_encoder: str) -> None:
    trainer = make_trainer(tiny_encoder, plan="laptop")
    tensors, position = trainer.tensors(), trainer.position()
    step, text = measure(trainer)
    assert step > 0 and text > 0 and trainer.position() == position
    assert trainer.tensors().keys() == tensors.keys()
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in trainer.tensors().items())


def test_a_loaded_trainer_continues_exactly(tiny_encoder: str) -> None:
    first, second = make_trainer(tiny_encoder), make_trainer(tiny_encoder)
    for _ in range(4):
        first.train_step()
    second.load(first.tensors(), first.position())
    assert [first.train_step() for _ in range(3)] == [second.train_step() for _ in range(3)]


def test_random_streams_are_distinct_and_reproducible() -> None:
    draws = {stream: tuple(generator(7, stream, 3).integers(0, 1000, 8)) for stream in Stream}
    assert len(set(draws.values())) == len(Stream)
    assert draws[Stream.STEP] == tuple(generator(7, Stream.STEP, 3).integers(0, 1000, 8))


class TestEquationsAreExecuted:
    """Changing any equation changes training, or what a run logs."""

    USERS: ClassVar[dict[str, str]] = {
        "sharpen": "bdd-s", "entropy": "bdd-s", "blend": "bdd-s", "cap_counts": "bdd-ml", "cap_labels": "bdd-ml",
        "nuclear_norm": "bdd-ml", "singular_value_threshold": "bdd-ml", "lagrangian_penalty": "bdd-ml",
        "dual_ascent": "bdd-ml"}

    @pytest.mark.parametrize("name", [name for name, function in vars(eq).items() if inspect.isfunction(function)
                                      and function.__module__ == eq.__name__ and not name.startswith("_")])
    def test_a_changed_equation_changes_training(self, name: str, tiny_encoder: str,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
        method = self.USERS.get(name, "bdd-f")
        before = self.unchanged(method, tiny_encoder)
        monkeypatch.setattr(eq, name, changed(getattr(eq, name)))
        assert self.run(method, tiny_encoder) != before

    @staticmethod
    def run(method: str, encoder: str) -> object:
        return numbers(method, "frozen", encoder, warmup=4, epochs=3, epoch_steps=6, with_log=True)

    unchanged = staticmethod(cache(run))


def changed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a result that is a little off."""
    def off(value: Tensor) -> Tensor:
        return value + 1 if value.dtype == torch.long else 0.9 * value + 0.01

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return tuple(map(off, result)) if isinstance(result, tuple) else off(result)
    return wrapper


def test_bounds_are_passed_by_the_methods(tiny_encoder: str) -> None:
    trainer = make_trainer(tiny_encoder)
    angles: Any = trainer.objective.network.angles
    angles.mean.fill_(1.0)
    angles.mass.fill_(5.0)
    angles.variance.copy_(torch.tensor([0.0, 0.1, 0.5]))
    assert eq.slopes(angles.variance, seen=angles.seen)[0] == torch.inf  # the paper's, without bounds
    assert angles.slopes()[0] == angles.bounds.limit == 3.0
