"""`halflabel split`: splits labelled texts into sets; `halflabel augment`: writes augmented versions of texts."""

from __future__ import annotations

import json as jsonlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from halflabel.cli import console, options
from halflabel.cli.folders import check_apart, check_output
from halflabel.data.corpus import Corpus
from halflabel.errors import OutputError, SettingError
from halflabel.output_folders import SPLIT, filled, locked, replacing

if TYPE_CHECKING:
    from halflabel.data.corpus import Corpus

DESCRIPTION = "split.json"
FORMATS = ("csv", "jsonl", "parquet")
HOW = ("words", "backtranslate")


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
    from halflabel.data.readers.formats import write

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


def augment(
    file: options.Texts,
    *,
    out: Annotated[Path, options.plain(metavar="FILE", help="Output file: csv, tsv, jsonl or parquet by its suffix.")],
    how: Annotated[str, options.option(metavar="|".join(HOW), help="Word edits or back-translation.")] = "words",
    views: Annotated[int, options.option(metavar="N", min=1, max=100, help="Number of views for each text.")] = 1,
    share: Annotated[float, options.option(metavar="FRACTION", help="Fraction of the words that are edited.")] = 0.3,
    keep: Annotated[list[str] | None, options.plain(
        metavar="WORD", help="Word that is never edited, as labels, numbers and negations are not; may be repeated.")
    ] = None,
    there: options.There = None,
    back: options.Back = None,
    seed: options.Seed = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    label_column: options.LabelColumn = None,
    force: options.ForceFile = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Write augmented versions of texts (strong views).

    The views are in the columns aug_0, aug_1, ... of the output, which can be the pool itself (`train --unlabelled`) or
    provide the views of another file's texts (`train --views`).

    \b
    halflabel augment pool.csv --how words --out views.csv
    halflabel augment pool.csv --how backtranslate --views 2 --out views.jsonl
    """
    if how not in HOW:
        raise SettingError(f"--how {how} is not known; use {' or '.join(HOW)}")
    from halflabel.data.readers.files import as_files

    sources = as_files(file)
    check_apart(out, [*(source.path for source in sources), there, back])
    kind = check_output(out, None, force=force)
    from halflabel.data.readers.formats import write
    from halflabel.data.readers.read import read

    corpus = read(sources, text=text_column, label=label_column)
    seeds = [(seed or 0) + i for i in range(views)]
    columns = (word_edits(corpus, seeds, keep or [], share) if how == "words" else
               [back_translations(corpus.texts, there, back, view_seed) for view_seed in seeds])
    write(replace(corpus, views=list(zip(*columns, strict=True))), out, kind)
    changed = sum(view != text for column in columns for view, text in zip(column, corpus.texts, strict=True))
    console.say(f"{len(corpus):,} texts with {views} view{'s' * (views > 1)} each written to {out}; "
                f"{changed:,} of {len(corpus) * views:,} views differ from their text")


def word_edits(corpus: Corpus, seeds: Sequence[int], keep: Sequence[str], share: float) -> list[Sequence[str]]:
    """A view of all texts for each seed, by word edits that spare the words of labels."""
    from halflabel.data.augmentation import WordEdits

    labels = {str(name) for label in corpus.labels if label is not None
              for name in (label if isinstance(label, tuple) else (label,))}
    edits = WordEdits.fit(corpus.texts, seed=seeds[0], keep=[*sorted(labels), *keep], p=share)
    return [edits.views(corpus.texts, seed) for seed in seeds]


def back_translations(texts: Sequence[str], there: str | None, back: str | None, seed: int) -> list[str]:
    """The back-translation of each text; translations are cached."""
    from halflabel.atomic import cache_folder
    from halflabel.data.augmentation import back_translate

    models: dict[str, Any] = {name: value for name, value in (("there", there), ("back", back)) if value}
    with console.meter() as meter:
        return back_translate(texts, cache=cache_folder() / "translations", seed=seed, **models,
                              progress=lambda done, total: meter.show("translating texts", done, total))
