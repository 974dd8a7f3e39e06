"""`halflabel export-to`: texts with suggested labels, for people who correct them in an annotation tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from halflabel.cli import console, options
from halflabel.cli.outputs import check_apart, check_file, model_files
from halflabel.cli.predict import chunks, rows, rule_of, texts_in
from halflabel.errors import BadInput

TOOLS = ("label-studio", "doccano", "prodigy", "csv")


def export_to(
    tool: Annotated[str, options.argument(metavar="|".join(TOOLS), help="Who shall read it.")],
    model: options.Model,
    file: Annotated[list[str], options.argument(metavar="FILE", help="Files or globs of texts.")],
    *,
    out: Annotated[Path, options.plain(metavar="FILE", help="Write there.")],
    decision: options.Decision = None,
    text_column: options.TextColumn = None,
    force: options.ForceFile = False,
    config: options.Config = None,
) -> None:
    """Write suggested labels for an annotation tool.

    What the tool exports after a person has corrected the labels is read by `halflabel train` as it is.

    \b
    halflabel export-to label-studio model pool.csv --out tasks.json
    halflabel export-to doccano model pool.csv --out suggestions.jsonl
    """
    if tool not in TOOLS:
        raise BadInput(f"the tool '{tool}' is not known; use one of {', '.join(TOOLS)}")
    from halflabel.data.readers.files import as_files

    sources = as_files(file)
    check_apart(out, [*(source.path for source in sources), *model_files(model)])
    check_file(out, force=force)
    from halflabel.cli.models import open_model
    from halflabel.data.writers import annotation_writer

    texts = texts_in(sources, text_column)
    fitted = open_model(model, None)
    rule = rule_of(fitted, decision)
    count = 0
    with annotation_writer(out, tool, fitted.classes.names) as write:
        for chunk in chunks(texts):
            write(rows(fitted, chunk, rule, everything=False))
            count += len(chunk)
    console.say(f"{count:,} texts with suggested labels are in {out}")
