"""Everything that a person sees: results on standard output, progress, notices and errors on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.text import Text

from halflabel.events import EncodingProgress, EpochReport, Event, StepProgress, TimeEstimate
from halflabel.notices import Notice

EVERY = 10.0  # seconds between two lines of progress where there is no terminal
FRAME = 0.1  # seconds between two updates of a bar

_out = Console(highlight=False)
_err = Console(stderr=True, highlight=False)


def say(text: str = "") -> None:
    """Prints a line of the result."""
    _out.print(text, markup=False, soft_wrap=True)


def say_json(value: Any) -> None:
    """Prints one JSON object and nothing else."""
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def note(text: str) -> None:
    """Prints a notice: worth knowing, nothing to mend."""
    _line("notice:", "yellow", text)


def fail(text: str) -> None:
    """Prints an error, always as one line."""
    _line("error:", "bold red", text)


def hint(text: str) -> None:
    """Prints a plain line beside the result."""
    _err.print(text, markup=False, soft_wrap=True)


def _line(mark: str, style: str, text: str) -> None:
    _err.print(Text.assemble((mark, style), " ", " ".join(text.split())), soft_wrap=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: int = 0) -> None:
    """Prints a table; its last `numbers` columns hold figures."""
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(columns):
        shown.add_column(Text(name), justify="right" if i >= len(columns) - numbers else "left")
    for row in rows:
        shown.add_row(*(Text(_cell(value)) for value in row))
    _out.print(shown)


def facts(rows: dict[str, object]) -> None:
    """Prints names and values below each other."""
    width = max(map(len, rows))
    for name, value in rows.items():
        say(f"{name:<{width}}  {_cell(value)}")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


class Meter(Protocol):
    """Shows how far something is."""

    def show(self, what: str, done: int, total: int, details: str = "", *, now: bool = False) -> None: ...


@contextmanager
def meter() -> Iterator[Meter]:
    """A bar on a terminal, a line now and then elsewhere."""
    if not _err.is_terminal:
        yield Lines()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(),
               TextColumn("{task.fields[details]}"), TimeRemainingColumn())
    with Progress(*columns, console=_err, transient=True, refresh_per_second=4) as progress:
        yield Bar(progress)


class Bar:
    """A bar for each kind of work."""

    def __init__(self, progress: Any) -> None:
        self.progress = progress
        self.tasks: dict[str, Any] = {}
        self.done: dict[str, int] = {}
        self.last = 0.0

    def show(self, what: str, done: int, total: int, details: str = "", *, now: bool = False) -> None:
        """Moves the bar; most calls are too close to the one before to matter."""
        if what not in self.tasks:
            self.tasks[what] = self.progress.add_task(what, total=total, details=details)
        elif not now and done < total and time.monotonic() - self.last < FRAME:
            return
        self.last = time.monotonic()
        if done < self.done.get(what, 0):  # it began anew
            self.progress.reset(self.tasks[what])
        self.done[what] = done
        self.progress.update(self.tasks[what], completed=done, total=total, details=details)


class Lines:
    """Plain lines, for files and pipes."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self.starts: dict[str, tuple[float, int]] = {}
        self.done: dict[str, int] = {}

    def show(self, what: str, done: int, total: int, details: str = "", *, now: bool = False) -> None:
        """Prints a line if it is time for one."""
        moment = time.monotonic()
        if done < self.done.get(what, done + 1):  # it begins, perhaps anew
            self.starts[what] = moment, done
        self.done[what] = done
        began, first = self.starts[what]
        if not now and moment - self.last < EVERY:
            return
        self.last = moment
        parts = [f"{what} {done}/{total}", *([details] if details else [])]
        if done > first:
            left = (moment - began) / (done - first) * (total - done)
            parts.append(f"{int(left // 60)}:{int(left % 60):02d} left")
        hint(", ".join(parts))


class TrainingProgress:
    """Shows what training reports."""

    def __init__(self, shown: Meter) -> None:
        self.meter = shown
        self.steps = 0
        self.loss = ""

    def __call__(self, event: Event) -> None:
        match event:
            case Notice():
                note(str(event))
            case EncodingProgress():
                self.meter.show("encoding texts", event.done, event.total)
            case TimeEstimate():
                minutes = max(1, round(event.seconds / 60))
                hint(f"about {minutes} min for {event.steps:,} steps and {event.evaluation_passes} evaluation passes")
            case StepProgress():
                self.steps, self.loss = event.steps, f"loss {event.loss:.3f}"
                self.meter.show("step", event.step, event.steps, self._details({"accepted": event.accepted}))
            case EpochReport() if self.steps:
                place = "end" if event.end else f"epoch {event.epoch + 1}"
                self.meter.show("step", event.step, self.steps, f"{place}, {self._details(event.figures)}", now=True)

    def _details(self, figures: dict[str, Any]) -> str:
        shown = {"accepted": "accepted {:.0%}", "pseudo_accuracy": "pseudo-label accuracy {:.0%}",
                 "pseudo_f1": "micro F1 of pseudo-labels {:.2f}", "dev": "dev {:.3f}"}
        parts = [text.format(figures[name]) for name, text in shown.items() if figures.get(name) is not None]
        return ", ".join([self.loss, *parts])
