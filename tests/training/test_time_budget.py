"""The time budget shortens a plan, never lengthens it."""

from __future__ import annotations

import json

import pytest

from halflabel.plans import PLANS, plan_named
from halflabel.training.time_budget import rounded_down, shortened, within_passes
from halflabel.types import Plan

PLAN = plan_named("laptop", epochs=4, epoch_steps=100, warmup=100, minutes=10)


def test_a_plan_that_fits_stays_as_it_is() -> None:
    assert shortened(PLAN, step=0.1, evaluation_pass=1.0) == PLAN


def test_a_plan_that_does_not_fit_is_shortened_until_it_does() -> None:
    for step, evaluation_pass in ((3.0, 5.0), (10.0, 60.0), (1.0, 400.0)):
        short = shortened(PLAN, step, evaluation_pass)
        taken = short.steps * step + (short.epochs + 1) * evaluation_pass
        assert short.steps < PLAN.steps and short.epochs >= 1 and short.epoch_steps >= 1
        assert taken <= 60 * PLAN.minutes or short.epochs == 1


def test_an_evaluation_after_training_leaves_less_time_for_steps() -> None:
    short, shorter = (shortened(PLAN, 3.0, 5.0, afterwards) for afterwards in (0.0, 300.0))
    assert shorter.steps * 3.0 + (shorter.epochs + 1) * 5.0 + 300.0 <= 60 * PLAN.minutes
    assert 0 < shorter.steps < short.steps
    assert shortened(PLAN, 3.0, 5.0, 10_000.0).epochs == 1


def test_small_noise_rarely_changes_the_outcome() -> None:
    assert rounded_down(0.61) == rounded_down(0.55) == pytest.approx(0.5)
    assert rounded_down(1.7) == 1.0


def test_a_small_pool_shortens_an_epoch() -> None:
    plan = plan_named("laptop", epoch_steps=100, unlabelled_batch=10, passes=2.0)
    assert within_passes(plan, 100).epoch_steps == 20
    assert within_passes(plan, 100_000).epoch_steps == 100
    assert within_passes(PLANS["paper"], 10) == PLANS["paper"]


def test_the_paper_plan_is_the_paper() -> None:
    paper = PLANS["paper"]
    assert (paper.epochs, paper.epoch_steps, paper.labelled_batch, paper.unlabelled_batch) == (50, 1000, 4, 8)
    assert (paper.encoder_rate, paper.head_rate, paper.ema, paper.max_tokens) == (1e-5, 1e-3, 0.999, 256)
    assert paper.encoder == "bert-base-uncased" and paper.minutes == float("inf") and paper.steps == 50_000


@pytest.mark.parametrize("name", sorted(PLANS))
def test_plans_survive_json(name: str) -> None:
    text = json.dumps(PLANS[name].to_json(), allow_nan=False)
    assert Plan.from_json(json.loads(text)) == PLANS[name]
