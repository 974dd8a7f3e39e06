"""The files of a training run become labelled texts, a pool, dev texts and notices about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from halflabel.data.cleaning import clean, drop_labelled
from halflabel.data.columns import matching_rows
from halflabel.data.corpus import Corpus
from halflabel.data.labels import Classes
from halflabel.data.pool import open_pool
from halflabel.data.readers.files import as_files
from halflabel.data.readers.read import concat_corpora, read
from halflabel.errors import BadInput
from halflabel.notices import Notice
from halflabel.output_folders import DEMO, SPLIT


@dataclass(frozen=True)
class ColumnNames:
    """Names of columns that flags gave."""

    text: str | None
    label: str | None


@dataclass(frozen=True)
class TrainingTexts:
    """What a run learns from, and what is worth knowing about it."""

    labelled: Corpus
    pool: Corpus
    truth: list[Any] | None
    dev: Corpus | None
    notices: list[Notice]


def gather(labelled: Sequence[Path], pool: Sequence[Path], dev: Path | None, columns: ColumnNames, *, truth: bool) -> TrainingTexts:
    """Reads and cleans all files; rows without a label in the labelled files belong to the pool."""
    given = read([str(file) for file in labelled], text=columns.text, label=columns.label)
    known, notices = clean(given.labelled(), role="labelled")
    classes = classes_of(known)
    rest, more = (with_truth if truth else stored)(given.unlabelled(), pool, columns)
    alone = drop_labelled(rest, known)
    both = len(rest) - len(alone)
    overlap = [Notice(f"{both} of the unlabelled texts are also labelled and count as labelled")] if both else []
    hidden = true_labels(alone, classes) if truth else None
    judged = (read_dev(dev, columns, classes, [known.texts, alone.texts]) if dev is not None else (None, []))
    return TrainingTexts(known, alone.without_labels(), hidden, judged[0],
                         [*held_out_notices([*labelled, *pool]), *notices, *more, *overlap, *judged[1]])


def held_out_notices(training: Sequence[Path]) -> list[Notice]:
    """Notices about dev and test files of `halflabel split` or `demo` among the training files, as a glob may match."""
    files = (Path(file.path) for file in as_files(training))
    return [Notice(f"{file} is the {file.stem} set of a split and is used for training, so it can no longer be used "
                   "for evaluation; name the training files one by one")
            for file in files if file.stem in ("dev", "test")
            and any((file.parent / name).is_file() for name in (*SPLIT.results, *DEMO.results))]


def stored(rest: Corpus, pool: Sequence[Path], columns: ColumnNames) -> tuple[Corpus, list[Notice]]:
    """The pool on disk, read once; a few texts from the labelled files alone stay in memory."""
    if not pool:
        return clean(rest, role="unlabelled")
    return open_pool([*([rest] if len(rest) else []), *map(str, pool)], text=columns.text)


def with_truth(rest: Corpus, pool: Sequence[Path], columns: ColumnNames) -> tuple[Corpus, list[Notice]]:
    """The pool in memory, with its labels."""
    files = [read(str(file), text=columns.text, label=columns.label) for file in pool]
    return clean(concat_corpora([rest, *files]), role="unlabelled")


def classes_of(corpus: Corpus) -> Classes:
    """The classes of a file, or a sentence that names the file."""
    try:
        return Classes.of(corpus.labels)
    except BadInput as error:
        raise BadInput(f"{corpus.source}: {error}") from None


def true_labels(pool: Corpus, classes: Classes) -> list[Any]:
    """The labels of the pool, all of them known."""
    missing = sum(label is None for label in pool.labels)
    if missing:
        raise BadInput(f"--truth: {missing} of {len(pool)} unlabelled texts in {pool.source} have no label to measure "
                       "by; give the labels of all, or leave out --truth")
    check_known(pool, classes)
    return list(pool.labels)


def read_dev(file: Path, columns: ColumnNames, classes: Classes, training: Sequence[Sequence[str]]
             ) -> tuple[Corpus, list[Notice]]:
    """Labelled texts that choose the best model, all with labels that training knows."""
    corpus, notices = labelled_rows(file, columns, classes, role="dev")
    both = sum(len(matching_rows(texts, corpus.texts)) for texts in training)
    if both:
        notices.append(Notice(f"{both} texts of {corpus.source} are also training texts; its score may be too high"))
    return corpus, notices


def labelled_rows(file: Path, columns: ColumnNames, classes: Classes, *, role: str,
                  unseen: bool = False) -> tuple[Corpus, list[Notice]]:
    """The rows of a file that have a text and a label, every label a known one, unless some may be `unseen`."""
    corpus = read(file, text=columns.text, label=columns.label)
    if unseen:
        classes.extended(corpus.labels, source=corpus.source)
    else:
        check_known(corpus, classes)
    rows, notices = clean(corpus.labelled(), role=role)
    missing = len(corpus) - len(corpus.labelled())
    if missing:
        notices.append(Notice(f"{missing} rows of {corpus.source} have no label and were left out"))
    if not len(rows):
        raise BadInput(f"{corpus.source}: no text has a label; name the column with --label-column, or add labels")
    return rows, notices


def check_known(corpus: Corpus, classes: Classes) -> None:
    """Refuses a label that the classes do not hold."""
    for i, label in enumerate(corpus.labels):
        for name in label if isinstance(label, tuple) else (label,):
            if name is not None:
                classes.index(name, row=i + 1, source=corpus.source)


def with_views(pool: Corpus, file: Path, text_column: str | None) -> tuple[Corpus, list[Notice]]:
    """The pool with the strong views that a file has for its texts."""
    source = read(file, text=text_column, labels=False)
    if not source.views:
        raise BadInput(f"{source.source} has no columns aug_0, aug_1, ... with views; add them or leave out --views")
    by_text = dict(zip(source.texts, source.views, strict=True))
    missing = sum(text not in by_text for text in pool.texts)
    if missing == len(pool):
        raise BadInput(f"{source.source} holds none of the unlabelled texts; its texts have to be exactly the same")
    width = len(source.views[0])
    notice = Notice(f"{missing} unlabelled texts have no views in {source.source}; the text itself is used")
    views = [by_text.get(text, (text,) * width) for text in pool.texts]
    return replace(pool, views=views), [notice] if missing else []
