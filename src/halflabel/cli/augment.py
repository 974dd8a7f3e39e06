"""`halflabel augment`: strong views of texts as a file that can be looked at, mended and reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from halflabel.cli import console, options
from halflabel.cli.outputs import check_apart, check_output
from halflabel.errors import BadInput

if TYPE_CHECKING:
    from halflabel.data.corpus import Corpus

HOW = ("words", "backtranslate")


def augment(
    file: Annotated[list[str], options.argument(metavar="FILE", help="Files or globs of texts.")],
    *,
    out: Annotated[Path, options.plain(metavar="FILE", help="csv, tsv, jsonl or parquet, by its name.")],
    how: Annotated[str, options.option(metavar="|".join(HOW), help="Word edits, or there and back.")] = "words",
    views: Annotated[int, options.option(min=1, max=100, help="Views of each text.")] = 1,
    share: Annotated[float, options.option(help="Share of the words that an edit changes.")] = 0.3,
    keep: Annotated[list[str] | None, options.plain(
        metavar="WORDS", help="Words that no edit touches, beside labels, numbers and negations.")] = None,
    there: options.There = None,
    back: options.Back = None,
    seed: options.Seed = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    force: options.ForceFile = False,
    config: options.Config = None,
) -> None:
    """Write texts with strong views of them.

    The views stand in the columns aug_0, aug_1, ... The file is a pool that brings its views along, or goes to
    `train --views`.

    \b
    halflabel augment pool.csv --how words --out views.csv
    halflabel augment pool.csv --how backtranslate --views 2 --out views.jsonl
    """
    if how not in HOW:
        raise BadInput(f"--how {how} is not known; use {' or '.join(HOW)}")
    from halflabel.data.readers.files import as_files

    check_apart(out, [*(source.path for source in as_files(file)), there, back])
    kind = check_output(out, None, force=force)
    from halflabel.data.readers.read import read
    from halflabel.data.writers import write

    corpus = read(file, text=text_column, label=label_column)
    seeds = [(seed or 0) + i for i in range(views)]
    columns = (edited(corpus, seeds, keep or [], share) if how == "words" else
               [translated(corpus.texts, there, back, one) for one in seeds])
    write(replace(corpus, views=list(zip(*columns, strict=True))), out, kind)
    changed = sum(view != text for column in columns for view, text in zip(column, corpus.texts, strict=True))
    console.say(f"{len(corpus):,} texts with {views} views each are in {out}; {changed:,} views differ from their text")


def edited(corpus: Corpus, seeds: Sequence[int], keep: Sequence[str], share: float) -> list[Sequence[str]]:
    """Word edits that leave the words of labels alone."""
    from halflabel.data.augmentation import WordEdits

    labels = {str(name) for label in corpus.labels if label is not None
              for name in (label if isinstance(label, tuple) else (label,))}
    edits = WordEdits.fit(corpus.texts, seed=seeds[0], keep=[*sorted(labels), *keep], p=share)
    return [edits.views(corpus.texts, seed) for seed in seeds]


def translated(texts: Sequence[str], there: str | None, back: str | None, seed: int) -> list[str]:
    """Each text there and back, kept in the cache."""
    from halflabel.atomic import cache_folder
    from halflabel.data.translation import back_translate

    models: dict[str, Any] = {name: value for name, value in (("there", there), ("back", back)) if value}
    with console.meter() as meter:
        return back_translate(texts, cache=cache_folder() / "translations", seed=seed, **models,
                              progress=lambda done, total: meter.show("translating texts", done, total))
