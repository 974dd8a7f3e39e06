"""The command line: `halflabel train`, `predict`, `evaluate`, `check`, `split`, `export` and the other commands.

Nothing heavy is imported before a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextvars import copy_context
from typing import Annotated, TextIO

import typer

from halflabel import __version__
from halflabel.atomic import remedy
from halflabel.cli import bench, console
from halflabel.cli.check import check
from halflabel.cli.choices import encoders_app, methods
from halflabel.cli.data import augment, split
from halflabel.cli.demo import demo
from halflabel.cli.evaluate import evaluate, tune
from halflabel.cli.export import distill, export
from halflabel.cli.info import cache, info
from halflabel.cli.label import label, suggest
from halflabel.cli.predict import export_to, predict
from halflabel.cli.report import push, report
from halflabel.cli.serve import serve
from halflabel.cli.train import train
from halflabel.cli.update import update
from halflabel.errors import HalflabelError
from halflabel.notices import NoticeWarning

USER_ERROR = 2  # exit code for what the user can fix

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, context_settings={
    "auto_envvar_prefix": "HALFLABEL", "help_option_names": ["-h", "--help"]})
for command in (train, update, predict, evaluate, report, push, tune, suggest, label, distill, export, serve, check,
                split, augment, export_to, cache, methods, info, demo):
    app.command()(command)
app.add_typer(bench.app, name="bench")
app.add_typer(encoders_app, name="encoders")


def _version(wanted: bool) -> None:
    if wanted:
        console.say(f"halflabel {__version__}")
        raise typer.Exit


@app.callback()
def halflabel(
    version: Annotated[bool, typer.Option("--version", show_envvar=False, is_eager=True, callback=_version,
                                          help="Print the version and exit.")] = False,
) -> None:
    """Semi-supervised text classification: few labelled texts, many unlabelled ones."""


def show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int,
                 file: TextIO | None = None, line: str | None = None) -> None:
    """Prints our own warnings as notices, all others as Python does."""
    if issubclass(category, NoticeWarning):
        console.note(str(message))
        console.detail(f"noticed by {filename}:{lineno}")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def main() -> None:
    """Runs the command; an error that the user can fix is printed as one sentence, with exit code 2."""
    warnings.showwarning = show_warning
    context = copy_context()  # what options set (--quiet, --encoding) ends with the command
    try:
        context.run(app, args=sys.argv[1:] or ["--help"], prog_name="halflabel")
    except SystemExit as end:
        context.run(console.detail, f"the command ends with exit code {end.code or 0}")
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        # the reader of our output has closed it; at exit Python must not try to flush the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except HalflabelError as error:
        context.run(console.trace)
        console.fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        context.run(console.trace)
        console.fail(f"{where}{error.strerror or error}; {remedy(error, error.filename)}")
    sys.exit(USER_ERROR)
