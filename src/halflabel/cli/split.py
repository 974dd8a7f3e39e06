"""`halflabel split`: a file of labelled texts becomes labelled, unlabelled, dev and test parts."""

from __future__ import annotations

import json as jsonlib
import re
from pathlib import Path
from typing import Annotated, Any

from halflabel.cli import console, options
from halflabel.cli.outputs import check_apart
from halflabel.data.corpus import Corpus
from halflabel.errors import BadInput
from halflabel.output_folders import SPLIT, filled, locked, replacing

MARK = "split.json"
FORMATS = ("csv", "jsonl", "parquet")


def split(
    file: Annotated[list[str], options.argument(metavar="FILE", help="Labelled texts; globs are fine.")],
    *,
    out: Annotated[Path, options.plain(metavar="DIR", help="Folder for the parts.")],
    labelled: Annotated[str, options.option(metavar="N|N/class", help="Labelled texts in all, or of each class.")],
    unlabelled: Annotated[int | None, options.option(help="Texts in the pool.", show_default="all others")] = None,
    dev: Annotated[str, options.option(metavar="N|SHARE", help="Texts, or a share of them, for choosing.")] = "0",
    test: Annotated[str, options.option(metavar="N|SHARE", help="Texts, or a share of them, for measuring.")] = "0",
    seed: options.Seed = None,
    format: Annotated[str, options.option(metavar="|".join(FORMATS))] = "jsonl",
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Draw labelled, unlabelled, dev and test parts.

    Draws are stratified (iterative-stratified where texts have several labels) and the same for the same seed.

    \b
    halflabel split all.csv --labelled 25/class --dev 200 --test 0.2 --seed 0 --out parts
    """
    per_class, whole = amount(labelled)
    if format not in FORMATS:
        raise BadInput(f"the format '{format}' is not known; use one of {', '.join(FORMATS)} (--format)")
    from halflabel.data.cleaning import clean
    from halflabel.data.readers.files import as_files
    from halflabel.data.readers.read import read
    from halflabel.data.splitting import split_corpus

    check_apart(out, [source.path for source in as_files(file)], SPLIT)
    with locked(out, SPLIT):
        if filled(out):
            raise BadInput(f"{out} exists already and is not an empty folder; choose another --out")
        corpus, notices = clean(read(file, text=text_column, label=label_column), role="labelled")
        drawn = split_corpus(corpus, per_class=per_class, labelled=whole, unlabelled=unlabelled, dev=number("--dev", dev),
                     test=number("--test", test), seed=seed or 0)
        parts = {"labelled": drawn.labelled, "unlabelled": drawn.unlabelled, "dev": drawn.dev, "test": drawn.test}
        said: dict[str, Any] = {"seed": drawn.seed, "fingerprint": drawn.fingerprint, "from": file,
                                **{name: len(part) for name, part in parts.items()}}
        write_parts(out, parts, format, said)
    for notice in notices:
        console.note(notice)
    console.say_json(said | {"notices": notices}) if json else console.facts(said | {"from": ", ".join(file)})


def write_parts(out: Path, parts: dict[str, Corpus], format: str, about: dict[str, Any]) -> None:
    """A file for each part that has texts, and one that says how they were drawn; all of them or none."""
    from halflabel.data.writers import write

    with replacing(out, SPLIT):
        for name, part in parts.items():
            if len(part):
                write(part, out / f"{name}.{format}")
        (out / MARK).write_text(jsonlib.dumps(about, indent=1), encoding="utf-8")


def amount(asked: str) -> tuple[int | None, int | None]:
    """`25/class` as 25 of each class, `100` as 100 in all."""
    match = re.fullmatch(r"(\d+)(/class)?", asked.strip())
    if not match:
        raise BadInput(f"--labelled {asked} is not understood; write 100 (texts in all) or 25/class")
    return (int(match[1]), None) if match[2] else (None, int(match[1]))


def number(flag: str, asked: str) -> float | int:
    """A number of texts, or a share of them."""
    try:
        return float(asked) if "." in asked else int(asked)
    except ValueError:
        raise BadInput(f"{flag} {asked} is not understood; write a number (200) or a share (0.2)") from None
