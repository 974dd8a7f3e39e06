"""Workers: each run once, by any number of processes; killed, stopped and out of time; failures are kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halflabel.bench import execute as real
from halflabel.bench.queue import Progress, Queue, QueueCounts
from halflabel.bench.runs import Run
from halflabel.bench.worker import work
from halflabel.errors import DataError, OutputError
from halflabel.notices import EpochReport, Event, StepProgress
from made import RUN, result

HERE = Path(__file__).parent.parent
RUNS = [replace(RUN, seed=seed) for seed in range(8)]
# A worker whose runs take a moment and log a line at their start and end; without torch, so that it starts quickly.
WORKER = """
import sys, time, types
sys.path.insert(0, {here!r})
from pathlib import Path
from halflabel.notices import StepProgress
from made import result
def execute(run, data, folder, report, spent, *, compute):
    with open({log!r}, "a") as log:
        log.write(f"begin {{run.seed}}\\n")
    for step in range(10):
        time.sleep({pause})
        report(StepProgress(step, 10, 1.0, None))
    with open({log!r}, "a") as log:
        log.write(f"end {{run.seed}}\\n")
    return result(run, 0.5), []
module = types.ModuleType("halflabel.bench.execute")
module.execute = execute
sys.modules["halflabel.bench.execute"] = module
from halflabel.bench.queue import Queue
from halflabel.bench.worker import work
class View:
    begin = show = end = lambda self, *a: None
print(work(Queue(Path({folder!r})), None, View()))
"""


class RecordingView:
    """Records which runs began and ended."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[tuple[int, str]] = []

    def begin(self, run: Run, counts: QueueCounts) -> None:
        self.begun.append(run.seed)

    def show(self, event: Event) -> None:
        pass

    def end(self, run: Run, result: dict[str, Any] | None, failure: str) -> None:
        self.ended.append((run.seed, failure))


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    queue = Queue(tmp_path / "queue")
    queue.add(RUNS, {"title": "eight"})
    return queue


def worker(queue: Queue, log: Path, pause: float) -> subprocess.Popen[str]:
    code = WORKER.format(here=str(HERE), log=str(log), folder=str(queue.folder), pause=pause)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=os.environ)


def lines(log: Path) -> Counter[str]:
    return Counter(log.read_text(encoding="utf-8").splitlines()) if log.exists() else Counter()


def test_two_processes_do_each_run_once(queue: Queue, tmp_path: Path) -> None:
    log = tmp_path / "log"
    workers = [worker(queue, log, 0.01) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in workers]
    assert [process.returncode for process in workers] == [0, 0], outputs
    assert lines(log) == Counter(f"{word} {seed}" for seed in range(8) for word in ("begin", "end"))
    assert [entry.state for entry in queue] == ["done"] * 8


def test_another_worker_continues_after_a_kill_without_repeating_finished_runs(queue: Queue, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = worker(queue, log, 0.03)
    limit = time.monotonic() + 60
    while lines(log)["begin 2"] == 0 and time.monotonic() < limit:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert [entry.state for entry in queue] == ["done"] * 2 + ["waiting"] * 6
    kept = [(entry.folder / "result.json").stat().st_mtime_ns for entry in list(queue)[:2]]
    again = worker(queue, log, 0.001)
    out, err = again.communicate(timeout=120)
    assert "done=8, failed=0, total=8" in out, err
    assert lines(log)["begin 2"] == 2 and lines(log)["end 2"] == 1
    assert all(lines(log)[f"{word} {seed}"] == 1 for seed in (0, 1, 3, 4, 5, 6, 7) for word in ("begin", "end"))
    assert [(entry.folder / "result.json").stat().st_mtime_ns for entry in list(queue)[:2]] == kept


def fake(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    def execute(run: Run, data: Path | None, folder: Path, report: Any, spent: float, *, compute: Any) -> Any:
        act(run, report)
        return result(run, 0.5), [{"step": 1}]

    monkeypatch.setattr(real, "execute", execute)


def test_failures_are_kept_and_retried_on_request(
        queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def act(run: Run, report: Any) -> None:
        if run.seed == 1:
            raise DataError("the corpus is damaged; unpack it again")
        if run.seed == 2:
            raise ZeroDivisionError("division by zero")

    fake(monkeypatch, act)
    view = RecordingView()
    assert work(queue, None, view) == QueueCounts(6, 2, 8)
    failures = {entry.run.seed: entry.failure for entry in queue if entry.run and entry.failure}
    assert failures[1]["sentence"] == "the corpus is damaged; unpack it again"
    assert failures[2]["sentence"] == "ZeroDivisionError: division by zero" and "act" in failures[2]["trace"]
    assert work(queue, None, view) == QueueCounts(6, 2, 8) and len(view.begun) == 8
    fake(monkeypatch, lambda run, report: None)
    assert queue.retry_failed() == 2 and work(queue, None, view) == QueueCounts(8, 0, 8)
    assert view.begun[8:] == [1, 2]


def test_where_nothing_can_be_written_the_queue_stops_and_no_run_has_failed(
        queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def act(run: Run, report: Any) -> None:
        raise OutputError("the cache could not be written; set HALFLABEL_CACHE")

    fake(monkeypatch, act)
    view = RecordingView()
    with pytest.raises(OutputError, match="HALFLABEL_CACHE"):
        work(queue, None, view)
    assert len(view.begun) == 1 and not any(entry.failure for entry in queue)
    fake(monkeypatch, lambda run, report: None)
    assert work(queue, None, view) == QueueCounts(8, 0, 8)


def test_a_run_that_would_not_end_in_time_is_not_started(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, lambda run, report: None)
    first = next(iter(queue))
    first.finish(result(RUNS[0], 0.5) | {"wall_seconds": 100.0}, [])
    view = RecordingView()
    assert work(queue, None, view, budget=60.0) == QueueCounts(1, 0, 8, late=7) and view.begun == []
    assert work(queue, None, view, budget=600.0) == QueueCounts(8, 0, 8)


def slow(run: Run, report: Any) -> None:
    for step in range(1000):
        time.sleep(0.01)
        report(StepProgress(step, 1000, 1.0, None))


def test_a_run_is_stopped_at_the_deadline(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, slow)
    began = time.monotonic()
    counts = work(queue, None, RecordingView(), budget=0.2)
    assert counts == QueueCounts(0, 0, 8, late=8) and time.monotonic() - began < 8
    first = next(iter(queue))
    assert first.state == "waiting" and first.progress["seconds"] >= 0.1 and first.progress["steps"] == 1000


def test_ctrl_c_leaves_the_run_open(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def act(run: Run, report: Any) -> None:
        if run.seed == 3:
            raise KeyboardInterrupt

    fake(monkeypatch, act)
    assert work(queue, None, RecordingView()) == QueueCounts(3, 0, 8, stopped=True)
    assert [entry.state for entry in queue] == ["done"] * 3 + ["waiting"] * 5


def test_the_time_of_a_run_is_estimated_from_the_most_similar_ones(queue: Queue) -> None:
    progress = Progress(queue)
    assert progress.expected_seconds(RUNS[1]) is None
    next(iter(queue)).finish(result(RUNS[0], 0.5) | {"wall_seconds": 10.0}, [])
    progress.update()
    assert progress.expected_seconds(RUNS[1]) == pytest.approx(11.5)
    assert progress.expected_seconds(replace(RUN, set="other", method="ce")) == pytest.approx(11.5)
    assert progress.expected_seconds(replace(RUN, plan="laptop")) is None


def test_a_helper_ends_with_the_process_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from halflabel.bench.worker import PARENT, is_helper, orphaned
    from halflabel.cli.bench import QueueView
    from halflabel.cli.console import Lines

    assert not is_helper() and not orphaned()
    monkeypatch.setenv(PARENT, str(os.getppid()))
    QueueView(Lines(), orphaned).show(EpochReport(1, 1))
    assert is_helper() and not orphaned()
    monkeypatch.setenv(PARENT, "999999999")
    with pytest.raises(KeyboardInterrupt):
        QueueView(Lines(), orphaned).show(EpochReport(1, 1))


def test_a_deadline_stops_a_run_that_ignores_ctrl_c(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, slow)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does with `halflabel bench ... &`
    try:
        assert work(queue, None, RecordingView(), budget=0.2).done == 0
    finally:
        signal.signal(signal.SIGINT, before)
