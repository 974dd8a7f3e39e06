"""The time of a run: measured at its start and fitted to the minutes of the plan, or estimated before training."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from halflabel.data.corpus import Corpus
from halflabel.encoders.inference import SMALL, encode
from halflabel.encoders.text_encoder import TextEncoder
from halflabel.notices import Report, TimeEstimate
from halflabel.plans import POOL_LIMIT
from halflabel.training.loop import Trainer
from halflabel.training.statistics import outputs
from halflabel.types import Plan

TIMED_STEPS = 6  # after two that warm the machine up
RESERVE = 0.8  # share of the time that steps and evaluation passes may take; the rest is for saving and noise
TRIAL = 64  # texts that are encoded
BACKWARD = 3.0  # a step with gradients, in forward passes
BASE = 0.6  # gigabytes that Python, torch and Arrow take by themselves


def fit_to_minutes(trainer: Trainer, report: Report, *, afterwards: int = 0, spent: float = 0.0) -> None:
    """Shortens the trainer's plan until it fits into its minutes, never lengthens it; reports the estimated time.

    `afterwards` is the number of texts that are evaluated once more after training, `spent` are seconds before it.
    """
    plan = trainer.plan
    if plan.frozen or plan.steps == 0:
        return
    measured = measure(trainer)
    step, text = trainer.objective.ranks.from_first(lambda: measured)
    evaluation_pass = text * (trainer.problem.labelled + len(trainer.epoch_sample()))
    trainer.plan = trainer.optimizers.plan = plan = shortened(plan, step, evaluation_pass, afterwards * text + spent)
    passes = plan.epochs + 1
    report(TimeEstimate(plan.steps * step + passes * evaluation_pass + afterwards * text, plan.steps, passes))


def within_passes(plan: Plan, unlabelled: int) -> Plan:
    """The plan with epochs of at most `plan.passes` passes over the pool."""
    if plan.passes == float("inf") or not unlabelled:
        return plan
    steps = max(1, int(plan.passes * unlabelled / plan.unlabelled_batch))
    return replace(plan, epoch_steps=min(plan.epoch_steps, steps))


def measure(trainer: Trainer) -> tuple[float, float]:
    """Seconds of a step with a pool and of the evaluation of a text; leaves the trainer as it was."""
    before = trainer.tensors(), trainer.position()
    trainer.step = trainer.plan.warmup
    for _ in range(2):
        trainer.train_step()
    began = time.perf_counter()
    for _ in range(TIMED_STEPS):
        trainer.train_step()
    step = (time.perf_counter() - began) / TIMED_STEPS
    rows = np.arange(min(64, trainer.problem.labelled + trainer.problem.unlabelled))
    outputs(trainer.objective, trainer.problem.inputs, rows)  # the first pass prepares the weights
    began = time.perf_counter()
    outputs(trainer.objective, trainer.problem.inputs, rows)
    text = (time.perf_counter() - began) / len(rows)
    trainer.optimizers.reset()
    trainer.load(*before)
    return step, text


def shortened(plan: Plan, step: float, evaluation_pass: float, afterwards: float = 0.0) -> Plan:
    """Fewer epochs until evaluation passes take at most a third of the time, then fewer steps.

    All times are in seconds; `afterwards` is all that steps and evaluation passes leave to other work.
    """
    if plan.minutes == float("inf"):
        return plan
    budget = RESERVE * 60.0 * plan.minutes - afterwards
    epochs = min(plan.epochs, max(1, int(budget / 3 / evaluation_pass)))
    share = rounded_down((budget - (epochs + 1) * evaluation_pass) / (plan.steps * step))
    steps = max(epochs, int(plan.epochs * plan.epoch_steps * share))
    return replace(plan, epochs=epochs, epoch_steps=steps // epochs, warmup=int(plan.warmup * share))


def rounded_down(share: float) -> float:
    """At most 1, and down to the next power of sqrt(2): noise in a measurement then rarely changes a run."""
    return float(min(1.0, 2.0 ** (np.floor(2.0 * np.log2(max(share, 1e-6))) / 2.0)))


def token_lengths(encoder: TextEncoder, texts: list[str]) -> np.ndarray:
    """Tokens of each text, as if there were no limit, (N,)."""
    encoder = encoder.parts[0]
    limit = encoder.max_tokens
    encoder.max_tokens = 10 * limit
    try:
        return np.array([len(ids) for ids in encoder.tokens(texts)], dtype=np.int64)
    finally:
        encoder.max_tokens = limit


def estimate(encoder: TextEncoder, plan: Plan, labelled: Corpus, pool: Corpus, *,
             bounded: bool = True) -> dict[str, Any]:
    """Minutes and gigabytes of a run of the default method: encoding once, then the steps and looks of the plan."""
    texts = [*labelled.texts[: TRIAL // 2], *pool.texts[: TRIAL // 2]]
    encode(encoder, texts[:SMALL])  # as many as prepare the weights
    began = time.perf_counter()
    encode(encoder, texts)
    per_text = (time.perf_counter() - began) / max(1, len(texts))
    part = min(len(pool), POOL_LIMIT) if bounded else len(pool)
    once = per_text * (len(labelled) + part)
    plan = within_passes(plan, part)
    steps = 0.0
    if not plan.frozen:
        step = BACKWARD * per_text * (plan.labelled_batch + plan.unlabelled_batch)
        looks = (plan.epochs + 1) * per_text * (len(labelled) + min(part, plan.survey))
        steps = min(60 * plan.minutes, plan.steps * step + looks)
    weights = sum(parameter.numel() for parameter in encoder.parameters()) * 4 / 1e9
    vectors = (len(labelled) + part) * encoder.width * (4 + 8 + 8) / 1e9  # as floats, as doubles, and centred
    return {"minutes": round((once + steps) / 60, 2), "encoding_minutes": round(once / 60, 2),
            "gigabytes": round(BASE + weights * (1 if plan.frozen else 5) + vectors, 2),
            "texts_that_take_part": len(labelled) + part, "texts_per_second": round(1 / per_text, 1)}
