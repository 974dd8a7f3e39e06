"""Workers: each run once, by however many processes; killed, stopped and out of time; failures are kept."""

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
from halflabel.bench.queue import Queue
from halflabel.bench.runs import Run
from halflabel.bench.worker import Counts, Ledger, forgive, work
from halflabel.errors import BadInput
from made import RUN, result

HERE = Path(__file__).parent.parent
RUNS = [replace(RUN, seed=seed) for seed in range(8)]
# A worker whose runs take a moment and write a line when they begin and when they end; without torch, so it is quick.
WORKER = """
import sys, time, types
sys.path.insert(0, {here!r})
from pathlib import Path
from made import result
def execute(run, data, folder, report, spent):
    with open({log!r}, "a") as log:
        log.write(f"begin {{run.seed}}\\n")
    for step in range(10):
        time.sleep({pause})
        report({{"step": step, "steps": 10, "loss": 1.0}})
    with open({log!r}, "a") as log:
        log.write(f"end {{run.seed}}\\n")
    return result(run, 0.5), []
module = types.ModuleType("halflabel.bench.execute")
module.execute = execute
sys.modules["halflabel.bench.execute"] = module
from halflabel.bench.queue import Queue
from halflabel.bench.work import work
class View:
    begin = line = end = lambda self, *a: None
print(work(Queue(Path({folder!r})), None, View()))
"""


class Seen:
    """A view that remembers."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[tuple[int, str]] = []

    def begin(self, run: Run, counts: Counts) -> None:
        self.begun.append(run.seed)

    def line(self, line: dict[str, Any]) -> None:
        pass

    def end(self, run: Run, result: dict[str, Any] | None, failure: str) -> None:
        self.ended.append((run.seed, failure))


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    found = Queue(tmp_path / "queue")
    found.add(RUNS, {"title": "eight"})
    return found


def worker(queue: Queue, log: Path, pause: float) -> subprocess.Popen[str]:
    code = WORKER.format(here=str(HERE), log=str(log), folder=str(queue.folder), pause=pause)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=os.environ)


def lines(log: Path) -> Counter[str]:
    return Counter(log.read_text(encoding="utf-8").splitlines()) if log.exists() else Counter()


def test_two_processes_do_each_run_once(queue: Queue, tmp_path: Path) -> None:
    log = tmp_path / "log"
    both = [worker(queue, log, 0.01) for _ in range(2)]
    ends = [one.communicate(timeout=120) for one in both]
    assert [one.returncode for one in both] == [0, 0], ends
    assert lines(log) == Counter(f"{word} {seed}" for seed in range(8) for word in ("begin", "end"))
    assert [one.state for one in queue] == ["done"] * 8


def test_a_killed_worker_is_taken_over_without_repeating_what_is_done(queue: Queue, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = worker(queue, log, 0.03)
    limit = time.monotonic() + 60
    while lines(log)["begin 2"] == 0 and time.monotonic() < limit:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert [one.state for one in queue] == ["done"] * 2 + ["waiting"] * 6
    kept = [(one.folder / "result.json").stat().st_mtime_ns for one in list(queue)[:2]]
    again = worker(queue, log, 0.001)
    out, err = again.communicate(timeout=120)
    assert "done=8, failed=0, total=8" in out, err
    assert lines(log)["begin 2"] == 2 and lines(log)["end 2"] == 1
    assert all(lines(log)[f"{word} {seed}"] == 1 for seed in (0, 1, 3, 4, 5, 6, 7) for word in ("begin", "end"))
    assert [(one.folder / "result.json").stat().st_mtime_ns for one in list(queue)[:2]] == kept


def fake(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    def execute(run: Run, data: Path | None, folder: Path, report: Any, spent: float) -> Any:
        act(run, report)
        return result(run, 0.5), [{"step": 1}]

    monkeypatch.setattr(real, "execute", execute)


def test_failed_runs_are_kept_with_their_sentence_and_tried_again_when_asked(
        queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def act(run: Run, report: Any) -> None:
        if run.seed == 1:
            raise BadInput("the corpus is torn; mend it")
        if run.seed == 2:
            raise ZeroDivisionError("division by zero")

    fake(monkeypatch, act)
    seen = Seen()
    assert work(queue, None, seen) == Counts(6, 2, 8)
    failures = {one.run.seed: one.failure for one in queue if one.run and one.failure}
    assert failures[1]["sentence"] == "the corpus is torn; mend it"
    assert failures[2]["sentence"] == "ZeroDivisionError: division by zero" and "act" in failures[2]["trace"]
    assert work(queue, None, seen) == Counts(6, 2, 8) and len(seen.begun) == 8
    fake(monkeypatch, lambda run, report: None)
    assert forgive(queue) == 2 and work(queue, None, seen) == Counts(8, 0, 8)
    assert seen.begun[8:] == [1, 2]


def test_a_run_that_would_not_end_in_time_is_not_begun(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, lambda run, report: None)
    first = next(iter(queue))
    first.finish(result(RUNS[0], 0.5) | {"wall_seconds": 100.0}, [])
    seen = Seen()
    assert work(queue, None, seen, budget=60.0) == Counts(1, 0, 8, late=7) and seen.begun == []
    assert work(queue, None, seen, budget=600.0) == Counts(8, 0, 8)


def slow(run: Run, report: Any) -> None:
    for step in range(1000):
        time.sleep(0.01)
        report({"step": step, "steps": 1000})


def test_a_run_is_stopped_when_the_time_is_over(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, slow)
    began = time.monotonic()
    counts = work(queue, None, Seen(), budget=0.2)
    assert counts == Counts(0, 0, 8, late=8) and time.monotonic() - began < 8
    first = next(iter(queue))
    assert first.state == "waiting" and first.progress["seconds"] >= 0.1 and first.progress["steps"] == 1000


def test_ctrl_c_leaves_the_run_open(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def act(run: Run, report: Any) -> None:
        if run.seed == 3:
            raise KeyboardInterrupt

    fake(monkeypatch, act)
    assert work(queue, None, Seen()) == Counts(3, 0, 8, stopped=True)
    assert [one.state for one in queue] == ["done"] * 3 + ["waiting"] * 5


def test_the_time_of_a_run_is_that_of_those_most_like_it(queue: Queue) -> None:
    ledger = Ledger(queue)
    assert ledger.expected(RUNS[1]) is None
    next(iter(queue)).finish(result(RUNS[0], 0.5) | {"wall_seconds": 10.0}, [])
    ledger.look()
    assert ledger.expected(RUNS[1]) == pytest.approx(11.5)
    assert ledger.expected(replace(RUN, set="other", method="ce")) == pytest.approx(11.5)
    assert ledger.expected(replace(RUN, plan="laptop")) is None


def test_a_process_for_company_ends_with_the_one_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from halflabel.bench.processes import PARENT, for_company, orphaned
    from halflabel.cli.bench_queue import Shown
    from halflabel.cli.console import Lines

    assert not for_company() and not orphaned()
    monkeypatch.setenv(PARENT, str(os.getppid()))
    Shown(Lines(), orphaned).line({"epoch": 1})
    assert for_company() and not orphaned()
    monkeypatch.setenv(PARENT, "999999999")
    with pytest.raises(KeyboardInterrupt):
        Shown(Lines(), orphaned).line({"epoch": 1})


def test_a_budget_ends_a_run_that_cannot_hear_ctrl_c(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, slow)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does with `halflabel bench ... &`
    try:
        assert work(queue, None, Seen(), budget=0.2).done == 0
    finally:
        signal.signal(signal.SIGINT, before)
