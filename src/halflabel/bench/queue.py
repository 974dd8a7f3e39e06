"""A queue of runs is a folder: finished runs stay, and what a killed process left unfinished is resumed.

    DIR/bench.json               the title of the queue, and the tables of the paper that it reproduces
    DIR/runs/KEY/run.json        a run; KEY is the hash of its content
    DIR/runs/KEY/lock            held by the process that executes it, released by the system when that process ends
    DIR/runs/KEY/progress.json   its current step
    DIR/runs/KEY/metrics.jsonl   a line for each epoch
    DIR/runs/KEY/result.json     renamed into place last: the run is done
    DIR/runs/KEY/failure.json    or the reason why it failed
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from halflabel import output_folders as outputs
from halflabel.atomic import write_folder, write_text
from halflabel.bench.runs import Run
from halflabel.errors import OutputError

FORMAT = 1
ABOUT = "bench.json"
State = Literal["done", "running", "waiting", "failed", "unreadable"]
STATES: tuple[State, ...] = ("done", "running", "waiting", "failed", "unreadable")
MARGIN = 1.15  # a run may take that much longer than the longest comparable one
# What makes the times of runs comparable, the closest first.
SIMILARITY: tuple[Callable[[Run], object], ...] = (
    lambda run: (run.set, run.method, run.plan, run.labelled, run.unlabelled, run.protocol),
    lambda run: (run.set, run.method, run.plan), lambda run: (run.method, run.plan), lambda run: (run.set, run.plan),
    lambda run: run.plan)
Line = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A run of the queue and its folder."""

    position: int  # in the order of the queue
    folder: Path
    run: Run | None  # None: run.json cannot be read, or does not match the name of the folder

    @classmethod
    def read(cls, folder: Path) -> Entry:
        """The entry in a folder."""
        content = _read_json(folder / "run.json") or {}
        try:
            run = Run.from_json(content["run"])
            position = int(content["place"])
        except (KeyError, TypeError, ValueError):
            return cls(0, folder, None)
        return cls(position, folder, run if run.key == folder.name else None)

    @property
    def result(self) -> Line | None:
        """The result; None if the run is not done, or if the file is damaged and the run has to be repeated."""
        result = _read_json(self.folder / "result.json")
        if result is None or self.run is None or result.get("run") != self.run.to_json():
            return None
        return result if "figures" in result else None

    @property
    def failure(self) -> Line | None:
        return _read_json(self.folder / "failure.json")

    @property
    def progress(self) -> Line:
        return _read_json(self.folder / "progress.json") or {}

    @property
    def epochs(self) -> list[Line]:
        try:
            lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            return [json.loads(line) for line in lines]
        except (OSError, ValueError):
            return []

    @property
    def state(self) -> State:
        if self.run is None:
            return "unreadable"
        if self.result is not None:
            return "done"
        if self.failure is not None:
            return "failed"
        with self.lock() as acquired:
            return "waiting" if acquired else "running"

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Whether this process holds the lock of the run, until the block ends; it is released if the process dies."""
        with outputs.try_lock(self.folder / "lock") as acquired:
            yield acquired

    def finish(self, result: Line, epochs: Iterable[Line]) -> None:
        """Writes the outcome of the run, the result last."""
        write_text(self.folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in epochs))
        write_text(self.folder / "result.json", json.dumps(result, indent=1))
        (self.folder / "failure.json").unlink(missing_ok=True)
        self._clean_up()

    def fail(self, sentence: str, trace: str) -> None:
        """Writes the reason of a failure."""
        write_text(self.folder / "failure.json", json.dumps({"sentence": sentence, "trace": trace}, indent=1))
        self._clean_up()

    def _clean_up(self) -> None:
        (self.folder / "progress.json").unlink(missing_ok=True)
        shutil.rmtree(self.folder / "model", ignore_errors=True)


class Queue:
    """The folder of all runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, runs: Sequence[Run], about: Line) -> None:
        """Adds runs that the queue does not have yet; an error for a folder with other content."""
        if self.folder.exists() and not self.folder.is_dir():
            raise OutputError(f"{self.folder} is a file; name a folder with --out")
        if self.folder.is_dir() and any(self.folder.iterdir()) and not (self.folder / ABOUT).is_file():
            raise OutputError(f"{self.folder} is not empty and is not a queue of runs; choose another --out")
        (self.folder / "runs").mkdir(parents=True, exist_ok=True)
        earlier = self.about() if (self.folder / ABOUT).is_file() else {}
        tables = sorted({*earlier.get("tables", []), *about.get("tables", [])})
        write_text(self.folder / ABOUT, json.dumps({"format": FORMAT, **earlier, **about, "tables": tables}, indent=1))
        entries = list(self)
        queued = {entry.run for entry in entries}
        position = max((entry.position for entry in entries), default=-1) + 1
        for run in dict.fromkeys(Run.from_json(run.to_json()) for run in runs):
            if run not in queued:
                self._put(run, position)
                position += 1

    def _put(self, run: Run, position: int) -> None:
        folder = self.folder / "runs" / run.key
        text = json.dumps({"place": position, "run": run.to_json()}, indent=1)
        if folder.is_dir():  # half-written, or another process was first
            write_text(folder / "run.json", text)
            return
        write_folder(folder, lambda new: write_text(new / "run.json", text), shared=True)

    def about(self) -> Line:
        """The contents of bench.json."""
        about = _read_json(self.folder / ABOUT)
        if about is None:
            raise OutputError(f"{self.folder} is not a queue of runs (it has no readable {ABOUT}); name a folder that "
                              "`halflabel bench` wrote")
        return about

    def __iter__(self) -> Iterator[Entry]:
        folders = [folder for folder in (self.folder / "runs").glob("*") if not folder.name.startswith(".")]
        yield from sorted((Entry.read(folder) for folder in folders if folder.is_dir()),
                          key=lambda entry: (entry.position, entry.folder.name))

    def retry_failed(self) -> int:
        """Removes the failures, so that these runs are executed again; returns their number."""
        count = 0
        for entry in self:
            with entry.lock() as acquired:
                if acquired and entry.result is None and entry.failure is not None:
                    (entry.folder / "failure.json").unlink()
                    count += 1
        return count


@dataclass(frozen=True)
class QueueCounts:
    """The progress of a queue."""

    done: int
    failed: int
    total: int
    late: int = 0  # not started, since they would not end in time
    stopped: bool = False  # by Ctrl-C


class Progress:
    """The open runs of a queue and the times of the finished ones; a result is read once."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.seconds: dict[str, tuple[Run, float]] = {}
        self.open: list[Entry] = []
        self.counts = QueueCounts(0, 0, 0)
        self.update()

    def update(self) -> None:
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
        self.counts = QueueCounts(len(self.seconds), failed, total)

    def expected_seconds(self, run: Run) -> float | None:
        """An upper estimate: the time of the longest finished run among the most similar ones."""
        for feature in SIMILARITY:
            if times := [seconds for other, seconds in self.seconds.values() if feature(other) == feature(run)]:
                return MARGIN * max(times)
        return None


def status(queue: Queue, title: str) -> Line:
    """Numbers of runs by state, a row for each cell, the running and failed runs, and the time left."""
    entries = [(entry, entry.state) for entry in queue]
    states = [state for _, state in entries]
    cells: dict[tuple[str, ...], list[tuple[Entry, State]]] = {}
    for entry, state in entries:
        if entry.run is not None:
            cells.setdefault(_cell(entry.run), []).append((entry, state))
    progress = Progress(queue)
    times = [progress.expected_seconds(entry.run) for entry in progress.open if entry.run is not None]
    return {
        "title": title, "states": {state: states.count(state) for state in STATES},
        "cells": [(*cell, *_cell_status(members)) for cell, members in cells.items()],
        "running": [_describe(entry.run) + _step(entry) for entry, state in entries
                    if entry.run is not None and state == "running"],
        "failures": {_describe(entry.run): (entry.failure or {}).get("sentence", "") for entry, state in entries
                     if entry.run is not None and state == "failed"},
        "unreadable": [entry.folder.name for entry, _ in entries if entry.run is None],
        "left": None if not times or None in times else _duration(sum(time for time in times if time is not None))}


def _cell(run: Run) -> tuple[str, ...]:
    """What runs share that differ in their seed alone."""
    return run.set, f"{run.label_budget} + {run.unlabelled}", run.plan, run.protocol, run.method


def _describe(run: Run) -> str:
    return f"{' '.join(_cell(run))}, seed {run.seed}"


def _cell_status(members: list[tuple[Entry, State]]) -> tuple[str, str, str, str]:
    """Done of all, running, failed, and the mean score so far."""
    scores = [next(iter(result["figures"].values()))["micro_f1"] for entry, state in members
              if state == "done" and (result := entry.result) is not None]
    states = [state for _, state in members]
    return (f"{states.count('done')}/{len(states)}", str(states.count("running") or ""),
            str(states.count("failed") or ""), f"{mean(scores):.3f}" if scores else "")


def _step(entry: Entry) -> str:
    progress = entry.progress
    return f", step {progress['step']} of {progress['steps']}" if "steps" in progress else ""


def _duration(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{seconds:.0f} s"


def _read_json(file: Path) -> Line | None:
    """The object in a file; None if there is no such file, or if it is damaged."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
