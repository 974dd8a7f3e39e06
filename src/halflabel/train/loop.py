"""The loop: warm-up on labelled texts, then epochs of self-training; any step can be the last before a kill."""

from __future__ import annotations

import time
from collections.abc import Callable

from halflabel.train.checkpoint import Kept
from halflabel.train.interrupt import Interrupted, stop_requested
from halflabel.train.objective import Objective, Problem
from halflabel.train.run import Outcome, Report, Run
from halflabel.types import Plan

CHECKPOINT_SECONDS = 60.0


def train(objective: Objective, problem: Problem, plan: Plan, *, seed: int, keeper: Kept, report: Report,
          judge: Callable[[], float] | None = None) -> Outcome:
    """Trains the objective in place and leaves the averaged (with a judge: the best) weights in it."""
    run = Run(objective, problem, plan, seed)
    if (kept := keeper.latest()) is not None:
        run.load(*kept)
    else:
        run.begin(keeper, report)
    saved = time.monotonic()
    with stop_requested() as stop:
        while True:
            while run.at < plan.steps:
                if run.at_epoch_start:
                    run.begin_epoch(keeper, report, judge)
                step = run.learn()
                report(run.progress(step))
                if stop.is_set() or time.monotonic() - saved > CHECKPOINT_SECONDS:
                    keeper.checkpoint(run.step, run.tensors(), run.notes())
                    saved = time.monotonic()
                if stop.is_set():
                    raise Interrupted(f"stopped after step {run.step} of {run.steps}")
            if (outcome := run.end(keeper, report, judge)) is not None:
                return outcome
