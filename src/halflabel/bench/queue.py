"""A queue of runs is a folder: what is done stays done, what a killed process left is taken up again.

    DIR/bench.json               what the queue is for
    DIR/runs/KEY/run.json        a run that is to be done; KEY is the hash of its content
    DIR/runs/KEY/lock            held by the process that does it; the system lets go of it when that process ends
    DIR/runs/KEY/progress.json   how far it is
    DIR/runs/KEY/metrics.jsonl   a line for each epoch
    DIR/runs/KEY/result.json     renamed into place as the last of all: the run is done
    DIR/runs/KEY/failure.json    or it failed, and why
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from halflabel import output_folders as outputs
from halflabel.atomic import write_folder, write_text
from halflabel.bench.runs import Run
from halflabel.errors import BadInput

FORMAT = 1
ABOUT = "bench.json"
State = Literal["waiting", "running", "done", "failed", "unreadable"]
Line = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A run of the queue and its folder."""

    place: int  # in which order runs are taken
    folder: Path
    run: Run | None  # None: run.json cannot be read, or is not what the folder is named after

    @property
    def result(self) -> Line | None:
        """What came of the run; None if it is not done, or if the file is torn and it has to be done again."""
        found = _json(self.folder / "result.json")
        whole = found is not None and self.run is not None and found.get("run") == self.run.to_json()
        return found if whole and "figures" in (found or {}) else None

    @property
    def failure(self) -> Line | None:
        return _json(self.folder / "failure.json")

    @property
    def progress(self) -> Line:
        return _json(self.folder / "progress.json") or {}

    @property
    def metrics(self) -> list[Line]:
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
        with claimed(self.folder) as free:
            return "waiting" if free else "running"

    def finish(self, result: Line, metrics: Iterable[Line]) -> None:
        """Writes what came of the run, the result last."""
        write_text(self.folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in metrics))
        write_text(self.folder / "result.json", json.dumps(result, indent=1))
        for file in ("failure.json", "progress.json"):
            (self.folder / file).unlink(missing_ok=True)
        shutil.rmtree(self.folder / "model", ignore_errors=True)

    def fail(self, sentence: str, trace: str) -> None:
        write_text(self.folder / "failure.json", json.dumps({"sentence": sentence, "trace": trace}, indent=1))
        (self.folder / "progress.json").unlink(missing_ok=True)
        shutil.rmtree(self.folder / "model", ignore_errors=True)


class Queue:
    """The folder as a whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, runs: Sequence[Run], about: Line) -> None:
        """Puts runs into the queue that are not in it; a folder that is something else is refused."""
        if self.folder.exists() and not self.folder.is_dir():
            raise BadInput(f"{self.folder} is a file; name a folder with --out")
        if self.folder.is_dir() and any(self.folder.iterdir()) and not (self.folder / ABOUT).is_file():
            raise BadInput(f"{self.folder} is not empty and holds no queue of runs; choose another --out")
        (self.folder / "runs").mkdir(parents=True, exist_ok=True)
        old = self.about() if (self.folder / ABOUT).is_file() else {}
        tables = sorted({*old.get("tables", []), *about.get("tables", [])})
        write_text(self.folder / ABOUT, json.dumps({"format": FORMAT, **old, **about, "tables": tables}, indent=1))
        entries = list(self)
        there = {entry.run for entry in entries}
        place = max((entry.place for entry in entries), default=-1) + 1
        for run in dict.fromkeys(Run.from_json(run.to_json()) for run in runs):
            if run not in there:
                self._put(run, place)
                place += 1

    def _put(self, run: Run, place: int) -> None:
        folder = self.folder / "runs" / run.key
        text = json.dumps({"place": place, "run": run.to_json()}, indent=1)
        if folder.is_dir():  # half-written by somebody, or another process was first
            write_text(folder / "run.json", text)
            return
        write_folder(folder, lambda new: write_text(new / "run.json", text), shared=True)

    def about(self) -> Line:
        """What the queue is for."""
        found = _json(self.folder / ABOUT)
        if found is None:
            raise BadInput(f"{self.folder} holds no queue of runs (there is no readable {ABOUT} in it); name a folder "
                           "that `halflabel bench` wrote")
        return found

    def __iter__(self) -> Iterator[Entry]:
        folders = [folder for folder in (self.folder / "runs").glob("*") if not folder.name.startswith(".")]
        yield from sorted((entry(folder) for folder in folders if folder.is_dir()),
                          key=lambda found: (found.place, found.folder.name))


def entry(folder: Path) -> Entry:
    """What a folder of the queue holds."""
    found = _json(folder / "run.json") or {}
    try:
        run = Run.from_json(found["run"])
        place = int(found["place"])
    except (KeyError, TypeError, ValueError):
        return Entry(0, folder, None)
    return Entry(place, folder, run if run.key == folder.name else None)


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Whether this process holds the run, until the block ends; the lock dies with the process that has it."""
    with outputs.try_lock(folder / "lock") as mine:
        yield mine


def _json(file: Path) -> Line | None:
    """The object in a file; None if there is no such file, or if it is torn."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
