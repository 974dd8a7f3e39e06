"""`halflabel predict`: labels for new texts."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from halflabel import console
from halflabel.commands import options
from halflabel.commands.writers import FORMATS, check_output, output
from halflabel.types import BadInput

if TYPE_CHECKING:
    from halflabel.commands.model import Model

CHUNK = 4096  # texts that are predicted and written at a time
STDIN = "-"


def predict(
    model: options.Model,
    files: Annotated[list[str] | None, options.argument(
        metavar="FILE",
        help="Files of texts. Standard input (- or nothing) is one text per line, or JSON lines.")] = None,
    *,
    out: Annotated[Path | None, options.option(metavar="FILE", help="Write there.",
                                             show_default="standard output")] = None,
    all: Annotated[bool, options.option("--all", help="Add the probability of every label.")] = False,
    format: Annotated[str | None, options.option(metavar="|".join(FORMATS),
                                               show_default="by the name of --out, else jsonl")] = None,
    backend: options.Backend = None,
    text_column: options.TextColumn = None,
    force: options.ForceFile = False,
    config: options.Config = None,
) -> None:
    """Predict labels for texts, in their order."""
    kind = check_output(out, format, force=force)
    texts = itertools.chain.from_iterable([texts_of(file, text_column) for file in files or [STDIN]])
    from halflabel.commands.model import open_model

    fitted = open_model(model, backend)
    count = empty = 0
    with output(out, kind, fitted.classes.names if all else ()) as write:
        for chunk in chunks(texts):
            write(rows(fitted, chunk, everything=all))
            count += len(chunk)
            empty += sum(not text.strip() for text in chunk)
    if empty:
        console.note(f"{empty} of {count} texts were empty; their labels mean nothing")
    if out is not None:
        console.say(f"{count:,} predictions are in {out}")


def texts_of(file: str, text_column: str | None) -> Iterable[str]:
    """The texts of a file; standard input is read as it comes unless it is a table."""
    if file == STDIN and text_column is None and not looks_like_json():
        return stdin_lines()
    from halflabel.data.read import read

    return read(file, text=text_column, labels=False).texts


def looks_like_json() -> bool:
    if sys.stdin.isatty():
        console.hint("type texts, one per line; end with Ctrl-D")
        return False
    waiting: bytes = sys.stdin.buffer.peek(1)  # type: ignore[union-attr]
    return waiting.lstrip().startswith(b"{")


def stdin_lines() -> Iterator[str]:
    """Lines of standard input as they come."""
    count = 0
    for count, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8-sig" if count == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise BadInput(f"standard input, line {count}: not UTF-8; save or convert it as UTF-8") from None
    if not count:
        raise BadInput("standard input is empty; give at least one text")


def chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts, CHUNK at a time."""
    source = iter(texts)
    while chunk := list(itertools.islice(source, CHUNK)):
        yield chunk


def rows(fitted: Model, texts: list[str], *, everything: bool) -> list[dict[str, Any]]:
    """Text, label and score of each text, and on request all probabilities in the order of the classes."""
    p = fitted.probabilities(texts)
    best = p.argmax(axis=1)
    found = [{"text": text, "label": label, "score": round(float(p[i, best[i]]), 6)}
             for i, (text, label) in enumerate(zip(texts, fitted.classes.names_of(best), strict=True))]
    if everything:
        for row, shares in zip(found, p.round(6).tolist(), strict=True):
            row["probabilities"] = shares
    return found
