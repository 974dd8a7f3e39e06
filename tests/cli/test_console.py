"""Progress: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import io
from contextvars import copy_context
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from cli_runner import runner
from halflabel.cli import console
from halflabel.notices import EncodingProgress, EpochReport, Notice, StepProgress, TimeEstimate

NOTICED = 19  # the line of the notice below
EVENTS = [EncodingProgress(3, 9), TimeEstimate(150.0, steps=4, evaluation_passes=2),
          StepProgress(1, 4, loss=0.5, accepted=None), Notice("the pool is small", step=2),
          EpochReport(2, 0, {"accepted": 0.25, "pseudo_accuracy": 0.5, "dev": 0.75}),
          StepProgress(4, 4, loss=0.25, accepted=0.5), EpochReport(4, 1, end=True)]


def output_of_a_run(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> str:
    stream = io.StringIO()
    monkeypatch.setattr(console, "_err", Console(file=stream, force_terminal=terminal, width=150, highlight=False))
    with console.meter() as meter:
        report = console.TrainingProgress(meter)
        for event in EVENTS:
            report(event)
    return stream.getvalue()


def test_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert output_of_a_run(monkeypatch, terminal=False).splitlines() == [
        "about 2 min for 4 steps and 2 evaluation passes", "notice: step 2: the pool is small",
        "step 2/4, epoch 1, loss 0.500, accepted 25%, pseudo-label accuracy 50%, dev 0.750, 0:00 left",
        "step 4/4, end, loss 0.250, 0:00 left"]


def test_the_interval_between_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "LINE_SECONDS", 0.0)
    assert len(output_of_a_run(monkeypatch, terminal=False).splitlines()) == len(EVENTS)


def test_the_time_left_of_a_task_that_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
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
    text = output_of_a_run(monkeypatch, terminal=True)
    assert "4/4" in text and "loss 0.250" in text and "the pool is small" in text and "encoding texts" in text


def test_markup_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    console.table(("a", "[b]"), [("[red]x[/red]", 0.5)], numbers=1)
    console.say("[bold]as it is")
    console.fail("two\nlines")
    out, err = capsys.readouterr()
    assert "[red]x[/red]" in out and "0.500" in out and "[bold]as it is" in out and err == "error: two lines\n"


def test_details_are_printed_only_when_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    def details() -> list[str]:
        console.set_verbose(True)
        return output_of_a_run(monkeypatch, terminal=False).splitlines()

    lines = copy_context().run(details)
    stamped = [line.split("s] ", 1)[1] for line in lines if line.startswith("[0.")]
    assert stamped[0].startswith("halflabel ")
    assert stamped[2:] == ["texts are encoded", "steps begin", f"noticed by {__name__}:{NOTICED}",
                           'step 2: {"accepted": 0.25, "pseudo_accuracy": 0.5, "dev": 0.75}', "step 4: {}"]
    assert [line for line in lines if not line.startswith("[0.")][1] == "notice: step 2: the pool is small"
    assert not any(line.startswith("[") for line in output_of_a_run(monkeypatch, terminal=False).splitlines())


def test_an_error_has_a_traceback_with_verbose_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    cli = runner(capsys, monkeypatch)
    done = cli("split", tmp_path / "none.csv", "--labelled", "1", "--out", tmp_path / "out", "--verbose")
    assert done.code == 2 and "halflabel 0" in done.err and "Traceback" in done.err
    assert done.err.splitlines()[-1].startswith("error: ") and done.out == ""
    assert "Traceback" not in cli("split", tmp_path / "none.csv", "--labelled", "1", "--out", tmp_path / "out").err
    (tmp_path / "a.csv").write_text("text,label\nsecret words,a\nother words,b\nsecret words,a\n")
    done = cli("split", tmp_path / "a.csv", "--labelled", "2", "--out", tmp_path / "out", "-v")
    assert "noticed by halflabel.data.cleaning:" in done.err and "secret" not in done.err
    assert cli("split", tmp_path / "a.csv", "--labelled", "2", "--out", tmp_path / "two", "-v", "-q").err == ""


def test_every_command_that_reads_texts_takes_the_same_options() -> None:
    from cli_runner import get_command
    from halflabel.cli.app import app

    flags = {name: {flag for parameter in command.params for flag in parameter.opts}
             for name, command in get_command(app).commands.items()}
    readers = {name for name, found in flags.items() if "--text-column" in found}
    assert {"train", "predict", "suggest", "distill", "push"} <= readers
    for name in readers:
        assert {"--encoding", "--no-header", "--sheet", "--quiet", "--verbose"} <= flags[name], name
