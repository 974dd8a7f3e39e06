"""`halflabel split`: splits labelled texts into labelled, unlabelled, dev and test sets."""

from __future__ import annotations

import json as jsonlib
import re
from pathlib import Path
from typing import Annotated, Any

from halflabel.cli import console, options
from halflabel.cli.outputs import check_apart
from halflabel.data.corpus import Corpus
from halflabel.errors import OutputError, SettingError
from halflabel.output_folders import SPLIT, filled, locked, replacing

DESCRIPTION = "split.json"
FORMATS = ("csv", "jsonl", "parquet")


def split(
    file: Annotated[list[str], options.argument(metavar="FILE", help="Files or globs of labelled texts.")],
    *,
    out: Annotated[Path, options.plain(metavar="DIR", help="New folder for the sets.")],
    labelled: Annotated[str, options.option(metavar="N|N/class", help="Labelled set size, in total or per class.")],
    unlabelled: Annotated[int | None, options.option(metavar="N", help="Unlabelled set size.",
                                                   show_default="all remaining texts")] = None,
    dev: Annotated[str, options.option(metavar="N|FRACTION", help="Dev set size or fraction.")] = "0",
    test: Annotated[str, options.option(metavar="N|FRACTION", help="Test set size or fraction.")] = "0",
    seed: options.Seed = None,
    format: Annotated[str, options.option(metavar="|".join(FORMATS), help="Output format.")] = "jsonl",
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    label_column: options.LabelColumn = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Split texts into labelled, unlabelled, dev and test sets.

    The split is stratified (iterative stratification for several labels per text) and the same for the same seed.

    \b
    halflabel split all.csv --labelled 25/class --dev 200 --test 0.2 --seed 0 --out parts
    """
    per_class, total = parse_labelled(labelled)
    dev_size, test_size = parse_size("--dev", dev), parse_size("--test", test)
    if format not in FORMATS:
        raise SettingError(f"the format '{format}' is not known; use one of {', '.join(FORMATS)} (--format)")
    from halflabel.data.cleaning import clean
    from halflabel.data.readers.files import as_files
    from halflabel.data.readers.read import read
    from halflabel.data.splitting import split_corpus

    sources = as_files(file)
    check_apart(out, [source.path for source in sources], SPLIT)
    with locked(out, SPLIT):
        if filled(out):
            raise OutputError(f"{out} exists already and is not an empty folder; choose another --out")
        corpus, notices = clean(read(sources, text=text_column, label=label_column), role="labelled")
        drawn = split_corpus(corpus, per_class=per_class, labelled=total, unlabelled=unlabelled, dev=dev_size,
                             test=test_size, seed=seed or 0)
        sets = {"labelled": drawn.labelled, "unlabelled": drawn.unlabelled, "dev": drawn.dev, "test": drawn.test}
        description: dict[str, Any] = {"seed": drawn.seed, "fingerprint": drawn.fingerprint, "from": file,
                                       **{name: len(corpus) for name, corpus in sets.items()}}
        write_sets(out, sets, format, description)
    console.note(*notices)
    if json:
        console.say_json(description | {"notices": notices})
    else:
        console.facts(description | {"from": ", ".join(file)})


def write_sets(out: Path, sets: dict[str, Corpus], format: str, description: dict[str, Any]) -> None:
    """Writes a file for each set that is not empty, and split.json; all of them or none."""
    from halflabel.data.writers import write

    with replacing(out, SPLIT):
        for name, corpus in sets.items():
            if len(corpus):
                write(corpus, out / f"{name}.{format}")
        (out / DESCRIPTION).write_text(jsonlib.dumps(description, indent=1), encoding="utf-8")


def parse_labelled(value: str) -> tuple[int | None, int | None]:
    """Texts per class and texts in total, one of them None: `25/class` is (25, None), `100` is (None, 100)."""
    match = re.fullmatch(r"(\d+)(/class)?", value.strip())
    if not match:
        raise SettingError(f"--labelled {value} is not understood; write 100 (texts in total) or 25/class")
    return (int(match[1]), None) if match[2] else (None, int(match[1]))


def parse_size(flag: str, value: str) -> float | int:
    """A number of texts, or with a decimal point a fraction of them."""
    try:
        return float(value) if "." in value else int(value)
    except ValueError:
        raise SettingError(f"{flag} {value} is not understood; write a number (200) or a fraction (0.2)") from None
