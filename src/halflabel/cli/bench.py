"""`halflabel bench`: the paper's tables, a quick check, or any grid, as a queue that can be resumed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halflabel.cli import console, options
from halflabel.cli.folders import check_apart
from halflabel.cli.options import parse_settings
from halflabel.cli.train import STOPPED
from halflabel.errors import SettingError
from halflabel.notices import EncodingProgress, Event, StepProgress
from halflabel.output_folders import QUEUE
from halflabel.processes import request_stop

if TYPE_CHECKING:
    from halflabel.bench.queue import Queue, QueueCounts
    from halflabel.bench.runs import Run

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, no_args_is_help=True,
                  help="Evaluate methods on corpora: the paper's tables, a quick check, or any grid.")

Out = Annotated[Path | None, options.plain(metavar="DIR", help="Folder of the queue; an existing one is resumed.")]
Queued = Annotated[Path, options.argument(metavar="DIR", help="Folder of a queue (report: or its results.jsonl).")]
Data = Annotated[Path | None, options.plain(metavar="FOLDER", help="Where the corpora are.")]
Seeds = Annotated[str, options.option(metavar="0,1,2|0-4", help="Seeds of sampling and training.")]
Budget = Annotated[str | None, options.plain(metavar="2h|30m", help="Time limit; the same command resumes.")]
Processes = Annotated[int, options.option(min=1, max=256, help="Processes that execute runs.")]
Retry = Annotated[bool, options.option("--retry", help="Try failed runs again.")]
DryRun = Annotated[bool, options.option("--dry-run", help="Only print the runs.")]
Sets = Annotated[list[str] | None, options.plain(
    metavar="NAME,...", help="sample, sample:tags, a corpus of the paper, a labelled file (a fifth is held out), or a "
                             "folder with train and test files; here or in --data.")]
Methods = Annotated[list[str] | None, options.plain(
    metavar="NAME,...", help="Names, ablations such as 'bdd-f -unlabelled', paper (its methods, ablations), or all.")]
Labelled = Annotated[list[str] | None, options.plain(
    metavar="25/class,100,all", help="Labelled texts: per class, in total, or every training text.")]

FAILED = 1  # exit code if some run failed
COLUMNS = ("set", "method", "plan", "labelled", "unlabelled", "protocol", "seed", "settings", "run")


@app.command()
def paper(
    *,
    table: Annotated[int | None, options.plain(min=1, help="Table of the paper, 2 to 8.")] = None,
    figure: Annotated[int | None, options.plain(min=1, help="Figure of the paper, 1 or 4.")] = None,
    dry_run: DryRun = False,
    data: Data = None,
    seeds: Seeds = "0-4",
    plan: Annotated[str | None, options.option(metavar="frozen|laptop|paper", show_default="paper")] = None,
    encoder: options.Encoder = None,
    set: options.Set = None,
    out: Out = None,
    budget: Budget = None,
    processes: Processes = 1,
    retry: Retry = False,
    device: options.Device = None,
    precision: options.Precision = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Reproduce a table or figure of the paper.

    \b
    halflabel bench paper --table 2 --dry-run
    halflabel bench paper --table 2 --data corpora --out table2 --budget 8h
    """
    from halflabel.bench.paper import figure_runs, table_runs
    from halflabel.bench.runs import validate

    if (table is None) == (figure is None):
        raise SettingError("give either --table or --figure; --table 2 is the paper's first table of results")
    numbers = parse_seeds(seeds)
    runs = table_runs(table, numbers) if table is not None else figure_runs(figure or 0, numbers)
    changes: dict[str, Any] = parse_settings(set or [])
    runs = [validate(replace(run, plan=plan or run.plan, encoder=encoder or run.encoder,
                             settings=tuple(sorted((dict(run.settings) | changes).items()))))
            for run in sorted(runs, key=lambda run: run.seed)]
    title = f"Table {table}" if table is not None else f"Figure {figure}"
    if dry_run:
        show_runs(runs, json=json)
        return
    about = {"title": f"{title} of the paper", "tables": [table] if table is not None else []}
    start(runs, out or Path(f"bench-{title.lower().replace(' ', '')}"), about, data,
          WorkOptions(budget, processes, retry=retry, device=device, precision=precision))


@app.command()
def quick(
    *,
    dry_run: DryRun = False,
    seeds: Seeds = "0-2",
    encoder: options.Encoder = None,
    set: options.Set = None,
    out: Out = None,
    budget: Budget = None,
    processes: Annotated[int | None, options.option(min=1, max=256, show_default="2, if there are as many cores",
                                                    help="Processes that execute runs.")] = None,
    retry: Retry = False,
    device: options.Device = None,
    precision: options.Precision = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Test the paper's claims on the corpus inside the package, in minutes."""
    from halflabel.bench.grids import expand, quick_grids
    from halflabel.bench.worker import cores

    runs = expand(quick_grids(parse_seeds(seeds), encoder, parse_settings(set or [])), None)
    if dry_run:
        show_runs(runs, json=json)
        return
    about = {"title": "Quick check: helpdesk messages in 8 queues, with 12 tags"}
    start(runs, out or Path("bench-quick"), about, None,
          WorkOptions(budget, processes or min(2, cores()), retry=retry, device=device, precision=precision))


@app.command()
def run(
    grid: Annotated[Path | None, options.argument(metavar="GRID.json", help="A grid, or a list of them.")] = None,
    *,
    sets: Sets = None,
    methods: Methods = None,
    labelled: Labelled = None,
    unlabelled: Annotated[int | None, options.plain(min=0, help="Texts in the pool.")] = None,
    plans: Annotated[str, options.option(metavar="frozen,laptop,paper")] = "frozen",
    protocols: Annotated[str, options.option(metavar="none,dev", help="Without a dev set, or with one.")] = "none",
    seeds: Seeds = "0-4",
    set: options.Set = None,
    encoder: options.Encoder = None,
    title: Annotated[str | None, options.plain(help="Title of the report.")] = None,
    data: Data = None,
    dry_run: DryRun = False,
    out: Out = None,
    budget: Budget = None,
    processes: Processes = 1,
    retry: Retry = False,
    device: options.Device = None,
    precision: options.Precision = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Run a grid on any texts, or resume the queue in --out.

    \b
    halflabel bench run --sets mine.csv --methods bdd-f,am-f,ce --labelled 10/class,25/class --out mine
    halflabel bench run grid.json --data corpora --out grid --budget 2h
    halflabel bench run --out grid
    """
    if out is not None:
        check_apart(out, [grid, *split_names(sets)], QUEUE)
    required = {"sets": split_names(sets), "methods": split_names(methods), "labelled": split_names(labelled)}
    if grid is None and not any(required.values()):
        resume(out, data, WorkOptions(budget, processes, retry=retry, device=device, precision=precision))
        return
    runs = requested_runs(grid, required, data, {
        "unlabelled": unlabelled, "plans": split_names([plans]), "protocols": split_names([protocols]),
        "seeds": parse_seeds(seeds), "settings": parse_settings(set or []), "encoder": encoder})
    if dry_run:
        show_runs(runs, json=json)
        return
    if out is None:
        raise SettingError("name a folder for the queue with --out")
    about = {"title": title or (grid.stem if grid else ", ".join(required["sets"]))}
    start(runs, out, about, data, WorkOptions(budget, processes, retry=retry, device=device, precision=precision))


@app.command()
def status(queue: Queued, *, json: options.Json = False, config: options.Config = None) -> None:
    """Show the progress of a queue."""
    show_status(queue, json=json)


@app.command()
def report(queue: Queued, *, json: options.Json = False, config: options.Config = None) -> None:
    """Write the report on a queue again: report.html, report.md and results.jsonl."""
    write(queue, json=json)


@dataclass(frozen=True)
class WorkOptions:
    """How the runs of a queue are executed."""

    budget: str | None
    processes: int
    retry: bool
    device: str | None = None
    precision: str | None = None


def start(runs: Sequence[Run], out: Path, about: dict[str, Any], data: Path | None, options: WorkOptions) -> None:
    """Queues runs and executes them; invalid runs are an error before anything is written."""
    from halflabel.bench.document import require_extra
    from halflabel.bench.grids import validate_runs
    from halflabel.bench.queue import Queue

    require_extra()
    parse_duration(options.budget)
    for notice in validate_runs(runs, data):
        console.note(notice)
    Queue(out).add(runs, about | ({"data": str(data.absolute())} if data else {}))
    resume(out, data, options)


def resume(out: Path | None, data: Path | None, options: WorkOptions) -> None:
    """Executes the open runs of a queue, and writes the report."""
    from halflabel.bench.document import require_extra
    from halflabel.bench.queue import Queue
    from halflabel.bench.worker import helper_processes, is_helper, orphaned, work
    from halflabel.devices import choose_compute

    if out is None:
        raise SettingError("give the folder of a queue with --out, or a grid, or --sets, --methods and --labelled")
    require_extra()
    compute = choose_compute(options.device or "auto", options.precision or "auto")
    queue = Queue(out)
    saved_data = queue.about().get("data")
    if options.retry and (count := queue.retry_failed()):
        console.hint(f"retrying {count} failed runs")
    given = {"--budget": options.budget, "--device": options.device, "--precision": options.precision}
    command = ["bench", "run", "--out", str(out), *(word for name, value in given.items() if value
                                                    for word in (name, value))]
    folder = data or (Path(saved_data) if saved_data else None)
    with helper_processes(options.processes, command, out / "processes.log"), console.meter() as meter:
        counts = work(queue, folder, QueueView(meter, orphaned), budget=parse_duration(options.budget),
                      compute=compute)
        if counts.stopped:
            console.hint(f"stopped; {counts.done} of {counts.total} runs are done; resume with: "
                         f"{shlex.join(['halflabel', 'bench', 'run', '--out', str(out)])}")
            raise typer.Exit(STOPPED)
    if not is_helper():
        finish(out, queue, late=counts.late > 0)


def requested_runs(file: Path | None, required: dict[str, list[str]], data: Path | None,
                   rest: dict[str, Any]) -> list[Run]:
    """The runs of the grids in a file, or of the grid that the options describe."""
    from halflabel.bench.grids import Grid, expand, read_grids

    if file is not None and any(required.values()):
        raise SettingError("give a file with a grid, or --sets, --methods and --labelled; not both")
    return expand(read_grids(file) if file is not None else [Grid.from_json(required | rest)], data)


class QueueView:
    """Shows the progress of the queue and of the current run."""

    def __init__(self, meter: console.Meter, orphaned: Callable[[], bool]) -> None:
        self.meter, self.orphaned = meter, orphaned

    def begin(self, run: Run, counts: QueueCounts) -> None:
        self.meter.show("runs", counts.done, counts.total, f"{describe(run)}{failures(counts.failed)}", now=True)

    def show(self, event: Event) -> None:
        if isinstance(event, EncodingProgress):
            self.meter.show("encoding texts", event.done, event.total)
        elif isinstance(event, StepProgress):
            self.meter.show("step", event.step, event.steps, f"loss {event.loss:.3f}")
        if self.orphaned():
            request_stop()

    def end(self, run: Run, result: dict[str, Any] | None, failure: str) -> None:
        if result is None:
            console.note(f"{describe(run)} failed: {failure}")
            return
        rule, figures = next(iter(result["figures"].items()))
        collapsed = ", collapsed" if result["collapse"]["collapsed"] else ""
        console.hint(f"{describe(run)}: micro F1 {figures['micro_f1']:.3f} ({rule}), {result['seconds']:.0f} s"
                     f"{collapsed}")


def describe(run: Run) -> str:
    """A run in a few words."""
    dev = " with dev" if run.protocol == "dev" else ""
    return f"{run.set}, {run.method}, {run.plan}, {run.label_budget} + {run.unlabelled}{dev}, seed {run.seed}"


def failures(number: int) -> str:
    return f", {number} failed" if number else ""


def finish(out: Path, queue: Queue, *, late: bool) -> None:
    """Writes the report and prints the progress, once all processes are done."""
    from halflabel.bench.queue import Progress

    progress = Progress(queue)
    counts, left = progress.counts, len(progress.open)
    write(out, json=False)
    rest = f", {left} left {'for later (--budget)' if late else 'to other processes'}" if left else ""
    console.say(f"{counts.done} of {counts.total} runs done{failures(counts.failed)}{rest}")
    if counts.failed:
        console.hint("the report lists the failed runs; --retry executes them again")
        raise typer.Exit(FAILED)


def write(source: Path, *, json: bool) -> None:
    """Writes report.html, report.md and results.jsonl next to the runs, and prints the verdicts on the claims."""
    from halflabel.bench.report import write_report

    report = write_report(source)
    if json:
        console.say_json(report)
        return
    verdicts: dict[str, list[str]] = {}
    for claim in report["claims"]:
        verdicts.setdefault(claim["claim"], []).append(claim["verdict"].partition(",")[0])
    if verdicts:
        kinds = ("holds", "higher", "equal", "lower", "contradicted")
        console.table(("claim of the paper", *kinds),
                      [(claim, *(values.count(kind) for kind in kinds)) for claim, values in verdicts.items()],
                      numbers=5)
        console.hint("numbers of comparisons; holds and contradicted: corrected p < 0.05 and an interval without zero")
    console.say(f"the report is in {report['html']}")


def show_runs(runs: Sequence[Run], *, json: bool) -> None:
    """Prints every run, and how many there are."""
    if json:
        console.say_json([run.to_json() | {"run": run.key} for run in runs])
        return
    rows = [(run.set, run.method, run.plan, run.label_budget, str(run.unlabelled), run.protocol, str(run.seed),
             run.changes or "-", run.key) for run in runs]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    for row in (COLUMNS, *rows):
        console.say("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    sets = ", ".join(dict.fromkeys(run.set for run in runs))
    console.say(f"{len(runs):,} runs: {len({run.method for run in runs})} methods on {sets}, "
                f"{len({run.seed for run in runs})} seeds")


def show_status(folder: Path, *, json: bool) -> None:
    """Prints the progress of each cell of the grid, and what is running now."""
    from halflabel.bench.queue import Queue, status

    queue = Queue(folder)
    current = status(queue, str(queue.about().get("title", folder.name)))
    if json:
        console.say_json(current)
        return
    console.table(("set", "labelled", "plan", "protocol", "method", "done", "running", "failed", "micro F1"),
                  current["cells"], numbers=4)
    for run in current["running"]:
        console.say(f"running: {run}")
    for run, reason in current["failures"].items():
        console.say(f"failed: {run}: {reason}")
    for name in current["unreadable"]:
        console.say(f"unreadable: {name}; give the grid again to queue it once more")
    console.say(", ".join(f"{number} {state}" for state, number in current["states"].items() if number)
                + (f"; about {current['left']} left for one process" if current["left"] else ""))


def parse_seeds(text: str) -> list[int]:
    """`0,1,5-7` as numbers."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise SettingError(f"--seeds {text} is invalid; write numbers and ranges, for example 0,1,2 or 0-4")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return list(dict.fromkeys(seeds))


def split_names(values: Sequence[str] | None) -> list[str]:
    """Names from a repeated option whose values may be joined by commas."""
    return [name.strip() for value in values or [] for name in value.split(",") if name.strip()]


def parse_duration(text: str | None) -> float | None:
    """`2h`, `90m`, `1h30m` or `45s` in seconds."""
    if text is None:
        return None
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    parts = zip(match.groups(), (3600, 60, 1), strict=True) if match else ()
    total = sum(float(number or 0) * unit for number, unit in parts)
    if not total:
        raise SettingError(f"--budget {text} is invalid; write 2h, 90m, 1h30m or 45s")
    return total
