"""Who scores the shards of a job: this process, or the actors of Ray; for Spark see `halflabel.spark`."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from halflabel.data.readers.files import first_line
from halflabel.data.readers.formats import Row
from halflabel.errors import HalflabelError, MissingExtra, OutputError
from halflabel.scoring.shards import ScoringJob, Shard, Task, run_task, score, unfinished

MAX_BLOCKS = 1000  # of a Ray dataset, each with some of the tasks
Outcome = dict[str, Any]  # of a task: its shards, or the error that the user can fix


def score_here(job: ScoringJob, inputs: Iterable[Iterable[Row]]) -> Iterator[Shard]:
    """Scores the rows of each input in this process."""
    for number, rows in enumerate(inputs):
        yield from score(job, number, rows)


def attempt(job: ScoringJob, task: Task) -> Outcome:
    """Runs a task; errors that the user can fix are returned, since engines would bury them in their own."""
    try:
        return {"shards": [asdict(shard) for shard in run_task(job, task)]}
    except HalflabelError as error:
        return {"error": str(error)}


def shards_of(outcome: Outcome) -> list[Shard]:
    """The shards of a task, or its error."""
    if "error" in outcome:
        raise HalflabelError(outcome["error"])
    return [Shard(**shard) for shard in outcome["shards"]]


class Actor:
    """Holds the model in a process of Ray, and scores one task after the other."""

    def __init__(self, job: ScoringJob, per_machine: int) -> None:
        # Ray allows one thread per CPU that it reserves; the reads of these actors are their own
        os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // per_machine))
        self.job = job

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        return {"outcome": [json.dumps(attempt(self.job, Task(*json.loads(task)))) for task in batch["task"]]}


def require_ray() -> Any:
    """The module `ray`, or an error that says how to install it."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it warns about the arguments of any Ray Data actor
    try:
        import ray.data
    except ImportError:
        raise MissingExtra("Ray is not installed; pip install 'halflabel[ray]'") from None
    return ray


def score_with_ray(job: ScoringJob, work: Sequence[Task], workers: int | None = None) -> Iterator[Shard]:
    """Scores tasks by actors of Ray: those of the cluster at RAY_ADDRESS, else of this machine."""
    left = unfinished(job, work)
    if not left:
        return
    ray = require_ray()
    here = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": max(2, os.cpu_count() or 1), "include_dashboard": False}
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.init(log_to_driver=False, logging_level="error", ignore_reinit_error=True, **here)
    try:
        machines = len(ray.nodes())
        gpus = int(ray.cluster_resources().get("GPU", 0))
        number = min(workers or gpus or machines, len(left))
        ray.data.DataContext.get_current().enable_progress_bars = False
        items = [{"task": json.dumps(task)} for task in left]
        outcomes = ray.data.from_items(items, override_num_blocks=min(len(items), MAX_BLOCKS)).map_batches(
            Actor, fn_constructor_args=(job, math.ceil(number / machines)), batch_size=1, num_cpus=1,
            num_gpus=1 if gpus else None, compute=ray.data.ActorPoolStrategy(size=number))
        for row in outcomes.iter_rows():
            yield from shards_of(json.loads(row["outcome"]))
    except ray.exceptions.RayError as error:
        raise OutputError(f"Ray could not go on ({first_line(error)}); finished shards are kept, so run the command "
                          "again with --resume") from error
    finally:
        ray.shutdown()
