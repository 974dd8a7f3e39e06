"""How far a queue is, cell by cell."""

from __future__ import annotations

from statistics import mean
from typing import Any

from halflabel.bench.queue import Entry, Queue
from halflabel.bench.runs import Run
from halflabel.bench.worker import Ledger

STATES = ("done", "running", "waiting", "failed", "unreadable")


def status(queue: Queue, title: str) -> dict[str, Any]:
    """Counts of states, a row for each cell, what is running and how far, what failed and why, and the time left."""
    entries = list(queue)
    states: dict[str, str] = {entry.folder.name: entry.state for entry in entries}
    cells: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        if entry.run is not None:
            cells.setdefault(cell(entry.run), []).append(entry)
    ledger = Ledger(queue)
    ledger.look()
    waits = [ledger.expected(entry.run) for entry in ledger.open if entry.run is not None]
    return {
        "title": title, "states": {name: list(states.values()).count(name) for name in STATES},
        "cells": [(*key, *row([(one, states[one.folder.name]) for one in some])) for key, some in cells.items()],
        "running": [f"{' '.join(cell(one.run))}, seed {one.run.seed}{far(one)}" for one in entries
                    if one.run is not None and states[one.folder.name] == "running"],
        "failures": {f"{' '.join(cell(one.run))}, seed {one.run.seed}": (one.failure or {}).get("sentence", "")
                     for one in entries if one.run is not None and states[one.folder.name] == "failed"},
        "unreadable": [one.folder.name for one in entries if one.run is None],
        "left": None if not waits or None in waits else duration(sum(wait for wait in waits if wait is not None))}


def cell(run: Run) -> tuple[str, ...]:
    """What runs share that differ in their seed alone."""
    count = f"{run.labelled}/class" if run.per_class else str(run.labelled)
    return run.set, f"{count} + {run.unlabelled}", run.plan, run.protocol, run.method


def row(found: list[tuple[Entry, str]]) -> tuple[str, str, str, str]:
    """done of all, running, failed, and the mean score so far."""
    scores = [next(iter(result["figures"].values()))["micro_f1"] for entry, state in found
              if state == "done" and (result := entry.result) is not None]
    count = [state for _, state in found].count
    return (f"{count('done')}/{len(found)}", str(count("running") or ""), str(count("failed") or ""),
            f"{mean(scores):.3f}" if scores else "")


def far(entry: Entry) -> str:
    """How far a run is by its last note."""
    said = entry.progress
    return f", step {said['step']} of {said['steps']}" if "steps" in said else ""


def duration(seconds: float) -> str:
    """Hours and minutes, or seconds."""
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{seconds:.0f} s"
