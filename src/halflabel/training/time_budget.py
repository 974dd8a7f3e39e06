"""The time budget: a short measurement turns minutes into a number of steps."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from halflabel.events import Report, TimeEstimate
from halflabel.training.loop import Trainer
from halflabel.training.statistics import outputs
from halflabel.types import Plan

TIMED_STEPS = 6  # after two that warm the machine up
RESERVE = 0.8  # share of the time that steps and evaluation passes may take; the rest is for saving and noise


def fit_to_minutes(trainer: Trainer, report: Report) -> None:
    """Shortens the trainer's plan until it fits into its minutes, never lengthens it; reports the estimated time."""
    plan = trainer.plan
    if plan.frozen or plan.steps == 0:
        return
    measured = measure(trainer)
    step, evaluation_pass = trainer.objective.ranks.from_first(lambda: measured)
    trainer.plan = trainer.optimizers.plan = plan = shortened(plan, step, evaluation_pass)
    passes = plan.epochs + 1
    report(TimeEstimate(plan.steps * step + passes * evaluation_pass, plan.steps, passes))


def within_passes(plan: Plan, unlabelled: int) -> Plan:
    """The plan with epochs of at most `plan.passes` passes over the pool."""
    if plan.passes == float("inf") or not unlabelled:
        return plan
    steps = max(1, int(plan.passes * unlabelled / plan.unlabelled_batch))
    return replace(plan, epoch_steps=min(plan.epoch_steps, steps))


def measure(trainer: Trainer) -> tuple[float, float]:
    """Seconds of a step with a pool and of one evaluation pass; leaves the trainer as it was."""
    before = trainer.tensors(), trainer.position()
    trainer.step = trainer.plan.warmup
    for _ in range(2):
        trainer.train_step()
    began = time.perf_counter()
    for _ in range(TIMED_STEPS):
        trainer.train_step()
    step = (time.perf_counter() - began) / TIMED_STEPS
    texts = trainer.problem.labelled + len(trainer.epoch_sample())
    rows = np.arange(min(64, texts))
    outputs(trainer.objective, trainer.problem.inputs, rows)  # the first pass prepares the weights
    began = time.perf_counter()
    outputs(trainer.objective, trainer.problem.inputs, rows)
    evaluation_pass = (time.perf_counter() - began) / len(rows) * texts
    trainer.optimizers.reset()
    trainer.load(*before)
    return step, evaluation_pass


def shortened(plan: Plan, step: float, evaluation_pass: float) -> Plan:
    """Fewer epochs until evaluation passes take at most a third of the time, then fewer steps."""
    if plan.minutes == float("inf"):
        return plan
    budget = RESERVE * 60.0 * plan.minutes
    epochs = min(plan.epochs, max(1, int(budget / 3 / evaluation_pass)))
    share = rounded_down((budget - (epochs + 1) * evaluation_pass) / (plan.steps * step))
    steps = max(epochs, int(plan.epochs * plan.epoch_steps * share))
    return replace(plan, epochs=epochs, epoch_steps=steps // epochs, warmup=int(plan.warmup * share))


def rounded_down(share: float) -> float:
    """At most 1, and down to the next power of sqrt(2): noise in a measurement then rarely changes a run."""
    return float(min(1.0, 2.0 ** (np.floor(2.0 * np.log2(max(share, 1e-6))) / 2.0)))
