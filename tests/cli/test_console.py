"""Progress as a person sees it: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from halflabel.cli import console

RUN = [{"encoded": 3, "texts": 9}, {"step": 1, "steps": 4, "loss": 0.5, "accepted": None},
       {"step": 2, "epoch": 0, "accepted": 0.25, "pseudo_accuracy": 0.5, "dev": 0.75, "notice": "look"},
       {"step": 4, "steps": 4, "loss": 0.25, "accepted": 0.5}, {"step": 4, "epoch": 1, "end": True}, {"other": 1}]


def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> str:
    stream = io.StringIO()
    monkeypatch.setattr(console, "_err", Console(file=stream, force_terminal=terminal, width=150, highlight=False))
    with console.meter() as meter:
        report = console.Training(meter)
        for line in RUN:
            report(line)
    return stream.getvalue()


def test_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, terminal=False).splitlines()
    assert lines == ["notice: step 2: look",
                     "step 2/4, epoch 1, loss 0.500, accepted 25%, pseudo-labels right 50%, dev 0.750, 0:00 left",
                     "step 4/4, end, loss 0.250, 0:00 left"]


def test_lines_come_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "EVERY", 0.0)
    assert len(shown(monkeypatch, terminal=False).splitlines()) == 6


def test_work_that_begins_anew_has_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = [0.0], io.StringIO()
    monkeypatch.setattr(console.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(console, "_err", Console(file=stream, width=150, highlight=False))
    progress = Progress(console=Console(file=io.StringIO()), get_time=lambda: clock[0])
    for meter in console.Lines(), console.Bar(progress):
        for moment, done in [(0, 0), (1000, 5), (2000, 10), (2001, 0), (2011, 1), (2021, 2)]:
            clock[0] = moment
            meter.show("step", done, 10, now=True)
    assert stream.getvalue().splitlines()[-1] == "step 2/10, 1:20 left"
    assert progress.tasks[0].time_remaining == 80


def test_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, terminal=True)
    assert "4/4" in text and "loss 0.250" in text and "look" in text and "encoding texts" in text


def test_brackets_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    console.table(("a", "[b]"), [("[red]x[/red]", 0.5)], numbers=1)
    console.say("[bold]as it is")
    console.fail("two\nlines")
    out, err = capsys.readouterr()
    assert "[red]x[/red]" in out and "0.500" in out and "[bold]as it is" in out and err == "error: two lines\n"
