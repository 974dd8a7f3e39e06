"""`halflabel export-to`: predicted labels for an annotation tool, in which people correct them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from halflabel.cli import console, options
from halflabel.cli.outputs import check_apart, check_file, model_files
from halflabel.cli.predict import chunks, rows_in
from halflabel.errors import SettingError

TOOLS = ("label-studio", "doccano", "prodigy", "csv")


def export_to(
    tool: Annotated[str, options.argument(metavar="|".join(TOOLS), help="Target tool.")],
    model: options.Model,
    file: options.Texts,
    *,
    out: Annotated[Path, options.plain(metavar="FILE", help="Output file, in the import format of the tool.")],
    decision: options.Decision = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    force: options.ForceFile = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Write predicted labels for correction in an annotation tool.

    `halflabel train` reads what the tool exports after people have corrected the labels.

    \b
    halflabel export-to label-studio model pool.csv --out tasks.json
    halflabel export-to doccano model pool.csv --out suggestions.jsonl
    """
    if tool not in TOOLS:
        raise SettingError(f"the tool '{tool}' is not known; use one of {', '.join(TOOLS)}")
    from halflabel.data.readers.files import as_files

    sources = as_files(file)
    check_apart(out, [*(source.path for source in sources), *model_files(model)])
    check_file(out, force=force)
    from halflabel.cli.models import open_model
    from halflabel.data.writers import annotation_writer
    from halflabel.scoring.predictions import decision_rule, predicted_rows

    inputs = rows_in(sources, text_column)
    opened = open_model(model)
    rule = decision_rule(opened, decision)
    count = 0
    with annotation_writer(out, tool, opened.classes.names) as write:
        for chunk in chunks(inputs):
            write(predicted_rows(opened, chunk, rule, everything=False))
            count += len(chunk)
    console.say(f"{count:,} text{'s' * (count != 1)} with predicted labels written to {out}")
