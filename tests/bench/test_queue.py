"""A queue is a folder; damaged files are repaired by queueing or executing again, and finished runs stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from halflabel.bench.queue import Entry, Queue
from halflabel.errors import OutputError
from made import RUN, result

RUNS = [replace(RUN, seed=seed) for seed in range(3)]


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    queue = Queue(tmp_path / "queue")
    queue.add(RUNS, {"title": "three", "tables": [2]})
    return queue


def test_runs_come_in_their_order_and_once(queue: Queue) -> None:
    queue.add([RUNS[1], replace(RUN, seed=9), RUNS[1]], {"title": "four", "tables": [8]})
    assert [entry.run and entry.run.seed for entry in queue] == [0, 1, 2, 9]
    assert queue.about()["title"] == "four" and queue.about()["tables"] == [2, 8]
    assert all(entry.state == "waiting" for entry in queue)


def test_a_run_is_done_when_its_result_is_there(queue: Queue) -> None:
    first = next(iter(queue))
    first.finish(result(RUNS[0], 0.5), [{"step": 1}, {"step": 2}])
    again = Entry.read(first.folder)
    assert again.state == "done" and again.result == result(RUNS[0], 0.5)
    assert again.epochs == [{"step": 1}, {"step": 2}]
    first.fail("a sentence", "a trace")
    assert Entry.read(first.folder).state == "done"


@pytest.mark.parametrize("damaged", ["", "{", '{"figures": {}}', "[]"])
def test_a_damaged_result_does_not_count(queue: Queue, damaged: str) -> None:
    first = next(iter(queue))
    (first.folder / "result.json").write_text(damaged, encoding="utf-8")
    assert first.state == "waiting"


def test_a_result_of_another_run_does_not_count(queue: Queue) -> None:
    first = next(iter(queue))
    first.finish(result(RUNS[1], 0.5), [])
    assert first.state == "waiting"


@pytest.mark.parametrize("damaged", ["", "{", '{"run": {}, "place": 0}', '{"run": 3, "place": 0}'])
def test_a_damaged_entry_is_shown_and_repaired_by_queueing_again(queue: Queue, damaged: str) -> None:
    first = next(iter(queue))
    (first.folder / "run.json").write_text(damaged, encoding="utf-8")
    assert sorted(entry.state for entry in queue) == ["unreadable", "waiting", "waiting"]
    queue.add(RUNS, {})
    assert [entry.state for entry in queue] == ["waiting"] * 3 and len(list(queue)) == 3


def test_a_run_under_another_key_is_not_trusted(queue: Queue) -> None:
    first, second = list(queue)[:2]
    (first.folder / "run.json").write_text((second.folder / "run.json").read_text(encoding="utf-8"), encoding="utf-8")
    assert Entry.read(first.folder).run is None


def test_a_lock_has_one_holder_and_ends_with_its_block(queue: Queue) -> None:
    entry = next(iter(queue))
    with entry.lock() as first, Entry.read(entry.folder).lock() as second:
        assert first and not second and entry.state == "running"
    with entry.lock() as again:
        assert again


def test_a_lock_is_released_when_its_process_dies(queue: Queue) -> None:
    entry = next(iter(queue))
    code = ("import time; from pathlib import Path; from halflabel.bench.queue import Entry\n"
            f"with Entry.read(Path({str(entry.folder)!r})).lock() as acquired:\n"
            "    print(acquired, flush=True); time.sleep(60)")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None and process.stdout.readline().strip() == "True"
    assert entry.state == "running"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert entry.state == "waiting"


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match="is not empty and is not a queue of runs; choose another --out"):
        Queue(tmp_path).add(RUNS, {})
    with pytest.raises(OutputError, match="is a file; name a folder"):
        Queue(tmp_path / "notes.txt").add(RUNS, {})
    with pytest.raises(OutputError, match="is not a queue of runs"):
        Queue(tmp_path).about()
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
