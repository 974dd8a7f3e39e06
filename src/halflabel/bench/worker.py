"""Doing what a queue holds: any number of processes, each run once, stopping in time."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from halflabel.atomic import write_text
from halflabel.bench.queue import Entry, Line, Queue, claimed
from halflabel.bench.runs import Run
from halflabel.errors import BadInput
from halflabel.events import Event, StepProgress
from halflabel.training.interrupt import Interrupted, request_stop

NOTED = 5.0  # seconds between two notes of how far a run is
SURE = 1.15  # a run may take that much longer than the longest one like it
LOOKS = 3  # at a queue of which nothing could be had, before it is left to others
PAUSE = 0.5  # seconds between them
# What makes runs take alike, the nearest first.
LIKENESS: tuple[Callable[[Run], object], ...] = (
    lambda run: (run.set, run.method, run.plan, run.labelled, run.unlabelled, run.protocol),
    lambda run: (run.set, run.method, run.plan), lambda run: (run.method, run.plan), lambda run: (run.set, run.plan),
    lambda run: run.plan)


class Counts(NamedTuple):
    """How far the queue is."""

    done: int
    failed: int
    total: int
    late: int = 0  # not begun, since they would not end in time
    stopped: bool = False  # somebody asked to stop


class View(Protocol):
    """Who shows what happens."""

    def begin(self, run: Run, counts: Counts) -> None: ...
    def show(self, event: Event) -> None: ...
    def end(self, run: Run, result: Line | None, failure: str) -> None: ...


class Ledger:
    """What is known of a queue; a result that was read once is not read again."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.seconds = queue, dict[str, tuple[Run, float]]()
        self.open: list[Entry] = []
        self.counts = Counts(0, 0, 0)

    def look(self) -> None:
        """Reads what has changed."""
        self.open, failed, total = [], 0, 0
        for entry in self.queue:
            total += 1
            if entry.folder.name in self.seconds or entry.run is None:
                continue
            if (result := entry.result) is not None:
                self.seconds[entry.folder.name] = entry.run, float(result.get("wall_seconds", 0.0))
            elif entry.failure is not None:
                failed += 1
            else:
                self.open.append(entry)
        self.counts = Counts(len(self.seconds), failed, total)

    def expected(self, run: Run) -> float | None:
        """Seconds that a run will take at most: as long as the longest finished one that is most like it."""
        for alike in LIKENESS:
            if found := [seconds for other, seconds in self.seconds.values() if alike(other) == alike(run)]:
                return SURE * max(found)
        return None


class Clock:
    """When the work has to be over."""

    def __init__(self, budget: float | None) -> None:
        self.end = None if budget is None else time.monotonic() + budget

    def allows(self, seconds: float | None) -> bool:
        """Whether a run that takes so long would end in time; one of unknown length may begin while there is any."""
        return self.end is None or time.monotonic() + (seconds or 0.0) < self.end

    @property
    def over(self) -> bool:
        return not self.allows(None)


def work(queue: Queue, data: Path | None, view: View, *, budget: float | None = None) -> Counts:
    """Does runs until none is left, none would end in time, or somebody says stop."""
    clock, ledger, tried, looks = Clock(budget), Ledger(queue), set[str](), 0
    while looks < LOOKS:
        ledger.look()
        waiting = [one for one in ledger.open if one.folder.name not in tried]
        fitting = [one for one in waiting if one.run and clock.allows(ledger.expected(one.run))]
        if not fitting:
            return ledger.counts._replace(late=len(waiting))
        taken, stopped = take(fitting, data, view, clock, ledger.counts)
        if stopped:
            ledger.look()
            return ledger.counts._replace(stopped=not clock.over, late=len(ledger.open) if clock.over else 0)
        looks = 0 if taken else looks + 1
        tried.add(taken)
        if not taken and looks < LOOKS:
            time.sleep(PAUSE)  # whoever only looked at its lock has let go of it by then
    return ledger.counts


def take(fitting: Sequence[Entry], data: Path | None, view: View, clock: Clock, counts: Counts) -> tuple[str, bool]:
    """Does the first run that no other process has; its name, and whether that was stopped."""
    for entry in fitting:
        with claimed(entry.folder) as mine:
            if mine and entry.result is None and entry.failure is None:
                return entry.folder.name, attempt(entry, data, view, clock, counts)
    return "", False


def attempt(entry: Entry, data: Path | None, view: View, clock: Clock, counts: Counts) -> bool:
    """One run, and what came of it; says whether it was stopped, to be gone on with later."""
    from halflabel.bench.execute import execute

    assert entry.run is not None, "only runs that can be read are open"
    view.begin(entry.run, counts)
    note = Note(entry, view, clock)
    result, failure = None, ""
    try:
        result, metrics = execute(entry.run, data, entry.folder, note, note.before)
        entry.finish(result | {"wall_seconds": round(note.seconds, 2)}, metrics)
    except (Interrupted, KeyboardInterrupt):
        note.write()
        return True
    except Exception as error:
        failure = " ".join(f"{'' if isinstance(error, BadInput) else type(error).__name__ + ': '}{error}".split())
        entry.fail(failure, traceback.format_exc())
    view.end(entry.run, result, failure)
    return False


class Note:
    """Hears the lines of a run: shows them, notes how far it is, and asks it to stop when the time is over."""

    def __init__(self, entry: Entry, view: View, clock: Clock) -> None:
        self.entry, self.view, self.clock = entry, view, clock
        self.before = float(entry.progress.get("seconds", 0.0))  # of earlier attempts
        self.began = self.last = time.monotonic()
        self.said: Line = {}

    @property
    def seconds(self) -> float:
        return self.before + time.monotonic() - self.began

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepProgress):
            self.said = {"step": event.step, "steps": event.steps}
        self.view.show(event)
        if time.monotonic() - self.last > NOTED:
            self.write()
        if self.clock.over:
            request_stop()  # heard between two steps, so that what is saved is whole

    def write(self) -> None:
        self.last = time.monotonic()
        note = self.said | {"seconds": round(self.seconds, 1), "process": os.getpid()}
        write_text(self.entry.folder / "progress.json", json.dumps(note))


def forgive(queue: Queue) -> int:
    """Lets failed runs be tried again; says how many."""
    count = 0
    for entry in queue:
        with claimed(entry.folder) as mine:
            if mine and entry.result is None and entry.failure is not None:
                (entry.folder / "failure.json").unlink()
                count += 1
    return count
