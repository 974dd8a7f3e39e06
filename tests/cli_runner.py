"""Runs the command as a shell would, in this process or in one of its own."""

from __future__ import annotations

import csv
import functools
import io
import json
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import typer.main

get_command = functools.cache(typer.main.get_command)  # which takes longer than most commands, and has no state
FAST = ("--plan", "frozen", "--set", "epochs=2", "--set", "epoch_steps=4", "--set", "warmup=4")


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> int:
        return len(self.err.splitlines())


class Ran(Protocol):
    def __call__(self, *arguments: object, stdin: str | bytes = b"") -> Done: ...


def write_csv(file: Path, texts: Sequence[str], labels: Sequence[object] | None = None) -> None:
    with open(file, "w", encoding="utf-8", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(["text"] if labels is None else ["text", "label"])
        lines.writerows([[text] for text in texts] if labels is None else zip(texts, labels, strict=True))


def write_jsonl(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def runner(capsys: Any, monkeypatch: Any) -> Ran:
    """A function that calls main() with arguments and gives what came of it."""
    from halflabel.cli.app import main

    monkeypatch.setattr("typer.main.get_command", get_command)

    def run(*arguments: object, stdin: str | bytes = b"") -> Done:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "argv", ["halflabel", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data)), encoding="utf-8"))  # type: ignore[arg-type]
        code: Any = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        return Done(int(code or 0), out, err)
    return run


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([
    "halflabel.bench.execute", "halflabel.cli.app", "pydantic.main", "sklearn.feature_extraction.text",
    "sklearn.linear_model", "transformers.models.auto.tokenization_auto", "transformers.models.bert.modeling_bert"])


class Forked:
    """The command in a process of its own, forked from one that has imported the heavy libraries.

    Its streams are files. `code` may stand for the command; it finds the arguments in `sys.argv`.
    """

    def __init__(self, *arguments: object, code: str = "from halflabel.cli import main; main()", stdin: str | Path = "",
                 env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        self.streams = tempfile.TemporaryDirectory()
        self.input, self.output, self.errors = (Path(self.streams.name, name) for name in ("in", "out", "err"))
        if isinstance(stdin, str):
            self.input.write_text(stdin, encoding="utf-8")
        else:
            self.input = stdin.absolute()
        self.output.touch()
        self.errors.touch()
        self.process = FORKS.Process(target=_child, args=(
            code, ["halflabel", *map(str, arguments)], (self.input, self.output, self.errors), cwd or Path.cwd(),
            dict(env or os.environ)))
        self.process.start()
        self.pid, self.kill = self.process.pid or 0, self.process.kill
        self.done: Done | None = None

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def wait(self, seconds: float = 120) -> Done:
        """What the process left behind when it has ended."""
        if self.done is None:
            self.process.join(seconds)
            if self.process.exitcode is None:
                self.kill()
                self.process.join()
            said = (file.read_text(encoding="utf-8") for file in (self.output, self.errors))
            self.done = Done(self.process.exitcode or 0, *said)
            self.streams.cleanup()
        return self.done


def forked(*arguments: object, **options: Any) -> Done:
    """What the command leaves behind in a process of its own; see `Forked`."""
    return Forked(*arguments, **options).wait()


def killed(when: str, sign: int = signal.SIGKILL) -> str:
    """Code for `Forked`: the command, which sends itself a signal after the first checkpoint for which `when` holds."""
    return f"""
import os
from pathlib import Path
from halflabel.cli import main
from halflabel.fitting import fit
from halflabel.training.checkpoint import FolderStore
write, signals = FolderStore.checkpoint, [{int(sign)}]
def checkpoint(self, step, *state):
    write(self, step, *state)
    if signals and {when}:
        os.kill(os.getpid(), signals.pop())
FolderStore.checkpoint = checkpoint
fit.__kwdefaults__["checkpoint_seconds"] = 0.0
main()
"""


def _child(code: str, argv: list[str], streams: tuple[Path, ...], cwd: Path, environment: dict[str, str]) -> None:
    for number, (file, mode) in enumerate(zip(streams, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        os.dup2(os.open(file, mode | os.O_APPEND), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (multiprocessing gives its processes an empty one)
    sys.argv = argv
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    exec(code, {"__name__": "__main__"})
