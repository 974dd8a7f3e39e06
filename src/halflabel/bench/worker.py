"""Workers: any number of processes execute the runs of a queue, each run once, within a time budget."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from halflabel.atomic import write_text
from halflabel.bench.queue import Entry, Line, Progress, Queue, QueueCounts
from halflabel.bench.runs import Run
from halflabel.errors import HalflabelError, OutputError
from halflabel.notices import Event, StepProgress
from halflabel.processes import Interrupted, request_stop

if TYPE_CHECKING:
    from halflabel.devices import Compute

SAVE_SECONDS = 5.0  # between two updates of progress.json
ATTEMPTS = 3  # to find a run that is not locked, before the rest is left to the other processes
PAUSE = 0.5  # seconds between them
PARENT = "HALFLABEL_BENCH_PARENT"  # environment variable of the processes that `helper_processes` starts


class View(Protocol):
    """Displays what happens."""

    def begin(self, run: Run, counts: QueueCounts) -> None: ...
    def show(self, event: Event) -> None: ...
    def end(self, run: Run, result: Line | None, failure: str) -> None: ...


class Deadline:
    """When the work has to be over."""

    def __init__(self, budget: float | None) -> None:
        self.end = None if budget is None else time.monotonic() + budget

    def allows(self, seconds: float | None) -> bool:
        """Whether a run of that length would end in time; one of unknown length may start while there is any time."""
        return self.end is None or time.monotonic() + (seconds or 0.0) < self.end

    @property
    def passed(self) -> bool:
        return not self.allows(None)


def work(queue: Queue, data: Path | None, view: View, *, budget: float | None = None,
         compute: Compute | None = None) -> QueueCounts:
    """Executes runs until none is left, none would end in time, or Ctrl-C."""
    deadline, progress, tried, attempts = Deadline(budget), Progress(queue), set[str](), 0
    while attempts < ATTEMPTS:
        progress.update()
        waiting = [entry for entry in progress.open if entry.folder.name not in tried]
        fitting = [entry for entry in waiting if entry.run and deadline.allows(progress.expected_seconds(entry.run))]
        if not fitting:
            return replace(progress.counts, late=len(waiting))
        executed, stopped = execute_first(fitting, data, view, deadline, progress.counts, compute)
        if stopped:
            progress.update()
            late = len(progress.open) if deadline.passed else 0
            return replace(progress.counts, stopped=not deadline.passed, late=late)
        attempts = 0 if executed else attempts + 1
        tried.add(executed)
        if not executed and attempts < ATTEMPTS:
            time.sleep(PAUSE)  # a process that only looked at the status has released the lock by then
    return progress.counts


def execute_first(entries: Sequence[Entry], data: Path | None, view: View, deadline: Deadline,
                  counts: QueueCounts, compute: Compute | None) -> tuple[str, bool]:
    """Executes the first run that no other process has; its key, and whether it was stopped."""
    for entry in entries:
        with entry.lock() as acquired:
            if acquired and entry.result is None and entry.failure is None:
                return entry.folder.name, execute_entry(entry, data, view, deadline, counts, compute)
    return "", False


def execute_entry(entry: Entry, data: Path | None, view: View, deadline: Deadline, counts: QueueCounts,
                  compute: Compute | None) -> bool:
    """Executes one run and writes its outcome; returns whether it was stopped, to be resumed later."""
    from halflabel.bench.execute import execute

    assert entry.run is not None, "unreadable runs are not open"
    view.begin(entry.run, counts)
    monitor = Monitor(entry, view, deadline)
    result, failure = None, ""
    try:
        result, epochs = execute(entry.run, data, entry.folder, monitor, monitor.earlier, compute=compute)
        entry.finish(result | {"wall_seconds": round(monitor.seconds, 2)}, epochs)
    except (Interrupted, KeyboardInterrupt):
        monitor.save()
        return True
    except OutputError:
        raise  # nothing can be written, so all other runs would fail as well
    except Exception as error:
        kind = "" if isinstance(error, HalflabelError) else f"{type(error).__name__}: "
        failure = " ".join(f"{kind}{error}".split())
        entry.fail(failure, traceback.format_exc())
    view.end(entry.run, result, failure)
    return False


class Monitor:
    """Receives the events of a run: displays them, saves the progress, and stops the run at the deadline."""

    def __init__(self, entry: Entry, view: View, deadline: Deadline) -> None:
        self.entry, self.view, self.deadline = entry, view, deadline
        self.earlier = float(entry.progress.get("seconds", 0.0))  # of earlier attempts
        self.began = self.saved = time.monotonic()
        self.step: Line = {}

    @property
    def seconds(self) -> float:
        return self.earlier + time.monotonic() - self.began

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepProgress):
            self.step = {"step": event.step, "steps": event.steps}
        self.view.show(event)
        if time.monotonic() - self.saved > SAVE_SECONDS:
            self.save()
        if self.deadline.passed:
            request_stop()  # takes effect between two steps, so that the checkpoint is complete

    def save(self) -> None:
        self.saved = time.monotonic()
        progress = self.step | {"seconds": round(self.seconds, 1), "process": os.getpid()}
        write_text(self.entry.folder / "progress.json", json.dumps(progress))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def helper_processes(number: int, arguments: list[str], log: Path) -> Iterator[None]:
    """Runs the same command in `number` - 1 further processes, which end with this one.

    They are separate commands rather than a pool, since the locks of the queue already share the work, also with
    commands on other machines. Each process gets its share of the cores: small steps gain nothing from more threads.
    """
    if number <= 1:
        yield
        return
    import torch

    threads = max(1, cores() // number)
    torch.set_num_threads(threads)
    env = os.environ | {PARENT: str(os.getpid()), "OMP_NUM_THREADS": str(threads)}
    with open(log, "ab") as output:
        helpers = [subprocess.Popen([sys.executable, "-m", "halflabel", *arguments], env=env, stdin=subprocess.DEVNULL,
                                    stdout=output, stderr=output) for _ in range(number - 1)]
        try:
            yield
        except BaseException:
            for helper in helpers:
                helper.send_signal(signal.SIGINT)
            raise
        finally:
            for helper in helpers:
                helper.wait()


def is_helper() -> bool:
    """Whether this process was started by `helper_processes`."""
    return PARENT in os.environ


def orphaned() -> bool:
    """Whether the process that started this helper is gone."""
    return is_helper() and os.getppid() != int(os.environ[PARENT])
