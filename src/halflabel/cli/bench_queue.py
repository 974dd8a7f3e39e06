"""What the commands of `halflabel bench` do with a queue: start it, go on with it, show it, report on it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from halflabel.cli import console
from halflabel.cli.train import STOPPED
from halflabel.errors import BadInput
from halflabel.events import EncodingProgress, Event, StepProgress
from halflabel.training.interrupt import request_stop

if TYPE_CHECKING:
    from halflabel.bench.queue import Queue
    from halflabel.bench.runs import Run
    from halflabel.bench.worker import Counts

FAILED = 1  # exit code if some run failed
COLUMNS = ("set", "method", "plan", "labelled", "unlabelled", "protocol", "seed", "settings", "run")


@dataclass(frozen=True)
class Work:
    """How a queue is worked on."""

    budget: str | None
    processes: int
    retry: bool


def start(runs: Sequence[Run], out: Path, about: dict[str, Any], data: Path | None, how: Work) -> None:
    """Queues runs and does them; what could not be run at all is refused before anything is written."""
    from halflabel.bench.check import check
    from halflabel.bench.queue import Queue

    seconds_of(how.budget)
    for notice in check(runs, data):
        console.note(notice)
    Queue(out).add(runs, about | ({"data": str(data.absolute())} if data else {}))
    go_on(out, data, how)


def go_on(out: Path | None, data: Path | None, how: Work) -> None:
    """Does what a queue still holds, and writes the report."""
    from halflabel.bench.processes import company, for_company, orphaned
    from halflabel.bench.queue import Queue
    from halflabel.bench.worker import forgive, work

    if out is None:
        raise BadInput("name the folder of a queue with --out, or give a grid, or --sets, --methods and --labelled")
    queue = Queue(out)
    kept = queue.about().get("data")
    if how.retry and (count := forgive(queue)):
        console.hint(f"{count} failed runs are tried again")
    again = ["bench", "run", "--out", str(out), *(["--budget", how.budget] if how.budget else [])]
    place = data or (Path(kept) if kept else None)
    with company(how.processes, again, out / "processes.log"), console.meter() as meter:
        counts = work(queue, place, Shown(meter, orphaned), budget=seconds_of(how.budget))
        if counts.stopped:
            console.hint(f"stopped; {counts.done} of {counts.total} runs are done; go on with: "
                         f"{shlex.join(['halflabel', 'bench', 'run', '--out', str(out)])}")
            raise typer.Exit(STOPPED)
    if not for_company():
        finish(out, queue, late=counts.late > 0)


def asked_for(file: Path | None, asked: dict[str, list[str]], data: Path | None, rest: dict[str, Any]) -> list[Run]:
    """The runs of a grid in a file, or of the one that the flags describe."""
    from halflabel.bench.grids import Grid, expanded, read_grid

    if file is not None and any(asked.values()):
        raise BadInput("give a file with a grid, or --sets, --methods and --labelled; not both")
    return expanded(read_grid(file) if file is not None else [Grid.from_json(asked | rest)], data)


class Shown:
    """Shows the whole grid, and the run that is going on."""

    def __init__(self, meter: console.Meter, orphaned: Any) -> None:
        self.meter, self.orphaned = meter, orphaned

    def begin(self, run: Run, counts: Counts) -> None:
        self.meter.show("runs", counts.done, counts.total, f"{title(run)}{failures(counts.failed)}", now=True)

    def show(self, event: Event) -> None:
        if isinstance(event, EncodingProgress):
            self.meter.show("encoding texts", event.done, event.total)
        elif isinstance(event, StepProgress):
            self.meter.show("step", event.step, event.steps, f"loss {event.loss:.3f}")
        if self.orphaned():
            request_stop()

    def end(self, run: Run, result: dict[str, Any] | None, failure: str) -> None:
        if result is None:
            console.note(f"{title(run)} failed: {failure}")
            return
        rule, figures = next(iter(result["figures"].items()))
        fallen = ", collapsed" if result["collapse"]["collapsed"] else ""
        console.hint(f"{title(run)}: micro F1 {figures['micro_f1']:.3f} ({rule}), {result['seconds']:.0f} s{fallen}")


def title(run: Run) -> str:
    """A run in a few words."""
    count = f"{run.labelled}/class" if run.per_class else str(run.labelled)
    dev = " with dev" if run.protocol == "dev" else ""
    return f"{run.set}, {run.method}, {run.plan}, {count} + {run.unlabelled}{dev}, seed {run.seed}"


def failures(number: int) -> str:
    return f", {number} failed" if number else ""


def finish(out: Path, queue: Queue, *, late: bool) -> None:
    """Writes the report and says what there is, once all processes are done."""
    from halflabel.bench.worker import Ledger

    ledger = Ledger(queue)
    ledger.look()
    counts, left = ledger.counts, len(ledger.open)
    write(out, json=False)
    rest = f", {left} left {'for later (--budget)' if late else 'to other processes'}" if left else ""
    console.say(f"{counts.done} of {counts.total} runs done{failures(counts.failed)}{rest}")
    if counts.failed:
        console.hint("failed runs are named in the report; --retry tries them again")
        raise typer.Exit(FAILED)


def write(source: Path, *, json: bool) -> None:
    """Writes report.html, report.md and results.jsonl beside the runs, and shows what became of the claims."""
    from halflabel.bench.report import write_report

    found = write_report(source)
    if json:
        console.say_json(found)
        return
    counts: dict[str, list[str]] = {}
    for one in found["claims"]:
        counts.setdefault(one["claim"], []).append(one["verdict"].partition(",")[0])
    if counts:
        kinds = ("holds", "higher", "equal", "lower", "contradicted")
        console.table(("claim of the paper", *kinds),
                      [(claim, *(said.count(kind) for kind in kinds)) for claim, said in counts.items()], numbers=5)
        console.hint("numbers of comparisons; holds and contradicted: p < 0.05 over the splits, the others: not")
    console.say(f"the report is in {found['html']}")


def show_runs(runs: Sequence[Run], *, json: bool) -> None:
    """Prints every run, and how many there are."""
    if json:
        console.say_json([run.to_json() | {"run": run.key} for run in runs])
        return
    rows = [(run.set, run.method, run.plan, f"{run.labelled}/class" if run.per_class else str(run.labelled),
             str(run.unlabelled), run.protocol, str(run.seed),
             " ".join(f"{key}={value:g}" for key, value in run.settings) or "-", run.key) for run in runs]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    for row in (COLUMNS, *rows):
        console.say("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    sets = ", ".join(dict.fromkeys(run.set for run in runs))
    console.say(f"{len(runs):,} runs: {len({run.method for run in runs})} methods on {sets}, "
                f"{len({run.seed for run in runs})} seeds")


def show_status(folder: Path, *, json: bool) -> None:
    """How far each cell of the grid is, and what is going on now."""
    from halflabel.bench.queue import Queue
    from halflabel.bench.status import status

    queue = Queue(folder)
    found = status(queue, str(queue.about().get("title", folder.name)))
    if json:
        console.say_json(found)
        return
    console.table(("set", "labelled", "plan", "protocol", "method", "done", "running", "failed", "micro F1"),
                  found["cells"], numbers=4)
    for run in found["running"]:
        console.say(f"running: {run}")
    for run, sentence in found["failures"].items():
        console.say(f"failed: {run}: {sentence}")
    for name in found["unreadable"]:
        console.say(f"unreadable: {name}; give the grid again to queue it anew")
    console.say(", ".join(f"{number} {state}" for state, number in found["states"].items() if number)
                + (f"; about {found['left']} left for one process" if found["left"] else ""))


def whole_numbers(asked: str) -> list[int]:
    """`0,1,5-7` as numbers."""
    found: list[int] = []
    for part in asked.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise BadInput(f"--seeds {asked} is not understood; write numbers and ranges, for example 0,1,2 or 0-4")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return list(dict.fromkeys(found))


def words(given: Sequence[str] | None) -> list[str]:
    """Names that were given again or joined by commas."""
    return [word.strip() for entry in given or [] for word in entry.split(",") if word.strip()]


def seconds_of(budget: str | None) -> float | None:
    """`2h`, `90m`, `1h30m` or `45s` in seconds."""
    if budget is None:
        return None
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", budget.strip())
    parts = zip(match.groups(), (3600, 60, 1), strict=True) if match else ()
    total = sum(float(number or 0) * unit for number, unit in parts)
    if not total:
        raise BadInput(f"--budget {budget} is not understood; write 2h, 90m, 1h30m or 45s")
    return total
