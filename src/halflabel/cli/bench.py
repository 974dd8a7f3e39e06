"""`halflabel bench`: the paper's tables, a quick check, or any grid, as a queue that can be resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from halflabel.cli import options
from halflabel.cli.bench_queue import WorkOptions, parse_seeds, requested_runs, resume, show_runs, split_names, start
from halflabel.cli.options import parse_settings
from halflabel.cli.outputs import check_apart
from halflabel.errors import SettingError
from halflabel.output_folders import QUEUE

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
    from halflabel.cli.bench_queue import show_status

    show_status(queue, json=json)


@app.command()
def report(queue: Queued, *, json: options.Json = False, config: options.Config = None) -> None:
    """Write the report on a queue again: report.html, report.md and results.jsonl."""
    from halflabel.cli.bench_queue import write

    write(queue, json=json)
