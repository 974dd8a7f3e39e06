"""Minutes become steps: a short measurement at the start, written into the run."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import torch

from halflabel.train.checkpoint import snapshot
from halflabel.train.objective import Objective, Problem
from halflabel.train.run import Report, Run
from halflabel.train.survey import outputs
from halflabel.types import Plan

TRIAL = 6  # steps that are timed, after two that warm the machine up
RESERVE = 0.8  # share of the time that the steps may take; the rest is for saving and noise


def fitted_to_minutes(plan: Plan, objective: Objective, problem: Problem, seed: int,
                      report: Report = lambda line: None) -> Plan:
    """The plan, shortened until it fits into its minutes, never lengthened; reports how long it will take."""
    plan = within_passes(plan, problem.unlabelled)
    if plan.frozen or plan.steps == 0:
        return plan
    step, look = measure(plan, objective, problem, seed)
    plan = shortened(plan, step, look) if plan.minutes < float("inf") else plan
    report({"estimate": seconds(plan, step, look), "planned": plan.steps, "looks": plan.epochs + 1})
    return plan


def seconds(plan: Plan, step: float, look: float) -> float:
    """How long the steps of a plan and its looks at the texts take."""
    return plan.steps * step + (plan.epochs + 1) * look


def within_passes(plan: Plan, unlabelled: int) -> Plan:
    """Epochs of as many passes over the pool as the plan allows."""
    if plan.passes == float("inf") or not unlabelled:
        return plan
    steps = max(1, int(plan.passes * unlabelled / plan.unlabelled_batch))
    return replace(plan, epoch_steps=min(plan.epoch_steps, steps))


def measure(plan: Plan, objective: Objective, problem: Problem, seed: int) -> tuple[float, float]:
    """Seconds of a training step and of one look at the texts; leaves the objective as it was."""
    before = snapshot(objective)
    run = Run(objective, problem, replace(plan, warmup=0), seed)
    for _ in range(2):
        run.learn()
    began = time.perf_counter()
    for _ in range(TRIAL):
        run.learn()
    step = (time.perf_counter() - began) / TRIAL
    texts = problem.labelled + len(run.sample())
    rows = np.arange(min(64, texts))
    outputs(objective, problem.source, rows)  # the first look prepares the weights
    began = time.perf_counter()
    outputs(objective, problem.source, rows)
    look = (time.perf_counter() - began) / len(rows) * texts
    objective.load_state_dict(before)
    torch.manual_seed(seed)
    return step, look


def shortened(plan: Plan, step: float, look: float) -> Plan:
    """Fewer looks until they take a third of the time at most, then fewer steps."""
    budget = RESERVE * 60.0 * plan.minutes
    epochs = min(plan.epochs, max(1, int(budget / 3 / look)))
    share = coarse((budget - (epochs + 1) * look) / (plan.steps * step))
    steps = max(epochs, int(plan.epochs * plan.epoch_steps * share))
    return replace(plan, epochs=epochs, epoch_steps=steps // epochs, warmup=int(plan.warmup * share))


def coarse(share: float) -> float:
    """At most 1, and down to the next power of sqrt(2): noise in a measurement then rarely changes a run."""
    return float(min(1.0, 2.0 ** (np.floor(2.0 * np.log2(max(share, 1e-6))) / 2.0)))
