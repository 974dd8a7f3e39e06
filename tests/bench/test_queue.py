"""A queue is a folder; what is torn in it is done again and nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from halflabel.bench.queue import Queue, claimed, entry
from halflabel.errors import BadInput
from made import RUN, result

RUNS = [replace(RUN, seed=seed) for seed in range(3)]


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    found = Queue(tmp_path / "queue")
    found.add(RUNS, {"title": "three", "tables": [2]})
    return found


def test_runs_come_in_their_order_and_once(queue: Queue) -> None:
    queue.add([RUNS[1], replace(RUN, seed=9), RUNS[1]], {"title": "four", "tables": [8]})
    assert [one.run and one.run.seed for one in queue] == [0, 1, 2, 9]
    assert queue.about()["title"] == "four" and queue.about()["tables"] == [2, 8]
    assert all(one.state == "waiting" for one in queue)


def test_a_run_is_done_when_its_result_is_there(queue: Queue) -> None:
    first = next(iter(queue))
    first.finish(result(RUNS[0], 0.5), [{"step": 1}, {"step": 2}])
    again = entry(first.folder)
    assert again.state == "done" and again.result == result(RUNS[0], 0.5)
    assert again.metrics == [{"step": 1}, {"step": 2}]
    first.fail("a sentence", "a trace")
    assert entry(first.folder).state == "done"


@pytest.mark.parametrize("torn", ["", "{", '{"figures": {}}', "[]"])
def test_a_torn_result_does_not_count(queue: Queue, torn: str) -> None:
    first = next(iter(queue))
    (first.folder / "result.json").write_text(torn, encoding="utf-8")
    assert first.state == "waiting"


def test_a_result_of_another_run_does_not_count(queue: Queue) -> None:
    first = next(iter(queue))
    first.finish(result(RUNS[1], 0.5), [])
    assert first.state == "waiting"


@pytest.mark.parametrize("torn", ["", "{", '{"run": {}, "place": 0}', '{"run": 3, "place": 0}'])
def test_a_torn_folder_is_shown_and_healed_by_queueing_again(queue: Queue, torn: str) -> None:
    first = next(iter(queue))
    (first.folder / "run.json").write_text(torn, encoding="utf-8")
    assert sorted(one.state for one in queue) == ["unreadable", "waiting", "waiting"]
    queue.add(RUNS, {})
    assert [one.state for one in queue] == ["waiting"] * 3 and len(list(queue)) == 3


def test_a_run_under_another_key_is_not_trusted(queue: Queue) -> None:
    first, second = list(queue)[:2]
    (first.folder / "run.json").write_text((second.folder / "run.json").read_text(encoding="utf-8"), encoding="utf-8")
    assert entry(first.folder).run is None


def test_a_claim_is_for_one_and_ends_with_its_block(queue: Queue) -> None:
    folder = next(iter(queue)).folder
    with claimed(folder) as mine, claimed(folder) as theirs:
        assert mine and not theirs and entry(folder).state == "running"
    with claimed(folder) as mine:
        assert mine


def test_a_claim_dies_with_its_process(queue: Queue) -> None:
    folder = next(iter(queue)).folder
    code = ("import sys, time; from pathlib import Path; from halflabel.bench.queue import claimed\n"
            f"with claimed(Path({str(folder)!r})) as mine:\n    print(mine, flush=True); time.sleep(60)")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None and process.stdout.readline().strip() == "True"
    assert entry(folder).state == "running"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert entry(folder).state == "waiting"


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(BadInput, match="is not empty and holds no queue of runs; choose another --out"):
        Queue(tmp_path).add(RUNS, {})
    with pytest.raises(BadInput, match="is a file; name a folder"):
        Queue(tmp_path / "notes.txt").add(RUNS, {})
    with pytest.raises(BadInput, match="holds no queue of runs"):
        Queue(tmp_path).about()
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
