"""`halflabel augment`: writes augmented versions of texts to a file that can be inspected, edited and reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from halflabel.cli import console, options
from halflabel.cli.outputs import check_apart, check_output
from halflabel.errors import SettingError

if TYPE_CHECKING:
    from halflabel.data.corpus import Corpus

HOW = ("words", "backtranslate")


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
    from halflabel.data.readers.read import read
    from halflabel.data.writers import write

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
    from halflabel.data.translation import back_translate

    models: dict[str, Any] = {name: value for name, value in (("there", there), ("back", back)) if value}
    with console.meter() as meter:
        return back_translate(texts, cache=cache_folder() / "translations", seed=seed, **models,
                              progress=lambda done, total: meter.show("translating texts", done, total))
