"""All output of the commands: results on standard output; progress, notices and errors on standard error."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from rich.console import Console
from rich.text import Text

from halflabel import __version__
from halflabel.notices import (
    ContrastProgress,
    EncodingProgress,
    EpochReport,
    Event,
    Notice,
    StepProgress,
    TimeEstimate,
)
from halflabel.processes import this_process

LINE_SECONDS = 10.0  # between two lines of progress where there is no terminal
STAGES: dict[type[Event], str] = {EncodingProgress: "texts are encoded", StepProgress: "steps begin"}
BAR_SECONDS = 0.1  # between two updates of a progress bar

_out = Console(highlight=False)
_err = Console(stderr=True, highlight=False)
# only results and errors are printed; of several processes the first alone prints
_quiet: ContextVar[bool] = ContextVar("quiet", default=not this_process().first)


# the moment at which a command began whose details are printed
_verbose: ContextVar[float | None] = ContextVar("verbose", default=None)
_introduced: ContextVar[bool] = ContextVar("introduced", default=False)  # whether versions were printed


def set_quiet(quiet: bool) -> bool:
    """Switches notices, hints and progress off or on."""
    _quiet.set(quiet or not this_process().first)
    return quiet


def is_quiet() -> bool:
    """Whether only results and errors are printed."""
    return _quiet.get()


def set_verbose(verbose: bool) -> bool:
    """Switches details for support on or off: versions, choices, the moment of each stage, and tracebacks."""
    _verbose.set(time.monotonic() if verbose else None)
    _introduced.set(False)
    return verbose


def detail(text: str) -> None:
    """Prints a line for support, after the seconds since the command began; never a text of the user."""
    if (began := _verbose.get()) is None or _quiet.get():
        return
    if not _introduced.get():
        from halflabel.cli.info import package_versions

        _introduced.set(True)
        versions = {"halflabel": __version__, "python": platform.python_version(), **package_versions()}
        detail(", ".join(f"{name} {version}" for name, version in versions.items() if version is not None))
        detail(platform.platform())
    _line(f"[{time.monotonic() - began:.1f} s]", "dim", text)


def trace() -> None:
    """Prints the traceback of the error that is being handled, if details are wanted."""
    detail("the command ends with an error")
    if _verbose.get() is not None:
        import traceback

        sys.stderr.write(traceback.format_exc())


def say(text: str = "") -> None:
    """Prints a line of the result."""
    _out.print(text, markup=False, soft_wrap=True)


def say_json(value: Any) -> None:
    """Prints the result as JSON."""
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def log(entry: dict[str, Any]) -> None:
    """Prints an entry of a log as a line of JSON on standard error."""
    sys.stderr.write(json.dumps(entry) + "\n")


def note(*notices: str) -> None:
    """Prints notices, each as one line."""
    for notice in () if _quiet.get() else notices:
        _line("notice:", "yellow", notice)
        if isinstance(notice, Notice):
            detail(f"noticed by {notice.origin}")


def fail(message: str) -> None:
    """Prints an error as one line; of several processes one on each machine does."""
    if not this_process().local_rank:
        _line("error:", "bold red", message)


def hint(text: str) -> None:
    """Prints a plain line on standard error, beside the result."""
    if not _quiet.get():
        _err.print(text, markup=False, soft_wrap=True)


def _line(prefix: str, style: str, text: str) -> None:
    _err.print(Text.assemble((prefix, style), " ", " ".join(text.split())), soft_wrap=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: int = 0) -> None:
    """Prints a table; its last `numbers` columns are numeric."""
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(columns):
        grid.add_column(Text(name), justify="right" if i >= len(columns) - numbers else "left")
    for row in rows:
        grid.add_row(*(Text(_cell(value)) for value in row))
    _out.print(grid)


def facts(rows: dict[str, object]) -> None:
    """Prints names and values in two columns."""
    width = max(map(len, rows))
    for name, value in rows.items():
        say(f"{name:<{width}}  {_cell(value)}")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


class Meter(Protocol):
    """Shows the progress of one or more tasks; `now` shows it even if the last update was a moment ago."""

    def show(self, task: str, done: int, total: int, details: str = "", *, now: bool = False) -> None: ...


@contextmanager
def meter() -> Iterator[Meter]:
    """Progress bars on a terminal, a line every LINE_SECONDS elsewhere."""
    if _quiet.get() or not _err.is_terminal:
        yield Silent() if _quiet.get() else Lines()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(),
               TextColumn("{task.fields[details]}"), TimeRemainingColumn())
    with Progress(*columns, console=_err, transient=True, refresh_per_second=4) as progress:
        yield Bar(progress)


class Silent:
    """Shows nothing."""

    def show(self, task: str, done: int, total: int, details: str = "", *, now: bool = False) -> None:
        """Nothing."""


class Bar:
    """A progress bar for each task."""

    def __init__(self, progress: Any) -> None:
        self.progress = progress
        self.tasks: dict[str, Any] = {}
        self.done: dict[str, int] = {}
        self.last = 0.0

    def show(self, task: str, done: int, total: int, details: str = "", *, now: bool = False) -> None:
        """Updates the bar, at most every BAR_SECONDS."""
        if task not in self.tasks:
            self.tasks[task] = self.progress.add_task(task, total=total, details=details)
        elif not now and done < total and time.monotonic() - self.last < BAR_SECONDS:
            return
        self.last = time.monotonic()
        if done < self.done.get(task, 0):  # the task has started again
            self.progress.reset(self.tasks[task])
        self.done[task] = done
        self.progress.update(self.tasks[task], completed=done, total=total, details=details)


class Lines:
    """Plain lines, for files and pipes."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self.starts: dict[str, tuple[float, int]] = {}
        self.done: dict[str, int] = {}

    def show(self, task: str, done: int, total: int, details: str = "", *, now: bool = False) -> None:
        """Prints a line, at most every LINE_SECONDS."""
        moment = time.monotonic()
        if done < self.done.get(task, done + 1):  # the task starts, or starts again
            self.starts[task] = moment, done
        self.done[task] = done
        began, first = self.starts[task]
        if not now and moment - self.last < LINE_SECONDS:
            return
        self.last = moment
        parts = [f"{task} {done}/{total}", *([details] if details else [])]
        if done > first:
            left = (moment - began) / (done - first) * (total - done)
            parts.append(f"{int(left // 60)}:{int(left % 60):02d} left")
        hint(", ".join(parts))


class TrainingProgress:
    """Shows the events that training reports."""

    def __init__(self, progress: Meter) -> None:
        self.meter = progress
        self.steps = 0
        self.loss = ""
        self.stage: type[Event] | None = None

    def __call__(self, event: Event) -> None:
        if type(event) is not self.stage and type(event) in STAGES:
            self.stage = type(event)
            detail(STAGES[self.stage])
        if isinstance(event, EpochReport):
            detail(f"step {event.step}: {json.dumps(event.figures, default=str)}")
        match event:
            case Notice():
                note(event)
            case EncodingProgress():
                self.meter.show("encoding texts", event.done, event.total)
            case ContrastProgress():
                self.meter.show("contrast, step", event.done, event.total)
            case TimeEstimate():
                minutes = max(1, round(event.seconds / 60))
                hint(f"about {minutes} min for {event.steps:,} steps and {event.evaluation_passes} evaluation passes")
            case StepProgress():
                self.steps, self.loss = event.steps, f"loss {event.loss:.3f}"
                self.meter.show("step", event.step, event.steps, self._details({"accepted": event.accepted}))
            case EpochReport() if self.steps:
                epoch = "end" if event.end else f"epoch {event.epoch + 1}"
                self.meter.show("step", event.step, self.steps, f"{epoch}, {self._details(event.figures)}", now=True)

    def _details(self, figures: dict[str, Any]) -> str:
        formats = {"accepted": "accepted {:.0%}", "pseudo_accuracy": "pseudo-label accuracy {:.0%}",
                   "pseudo_f1": "pseudo-label micro F1 {:.2f}", "dev": "dev {:.3f}"}
        parts = [form.format(figures[name]) for name, form in formats.items() if figures.get(name) is not None]
        return ", ".join([self.loss, *parts])
