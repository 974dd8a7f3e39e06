"""Runs the command in this process, as a shell would."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

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
