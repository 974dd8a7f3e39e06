"""Reads and cleans the files of a training run: labelled texts, unlabelled texts and a dev set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from halflabel.class_names import LABELS, NONE, Names, choose_names, classes_with_names, read_names
from halflabel.data.annotators import merge_annotators
from halflabel.data.cleaning import clean, drop_labelled
from halflabel.data.columns import matching_rows
from halflabel.data.corpus import Corpus
from halflabel.data.labels import Classes
from halflabel.data.pool import open_pool
from halflabel.data.readers.files import File, as_files, check_streams
from halflabel.data.readers.formats import read_table
from halflabel.data.readers.read import concat_corpora, find_column, read, read_options
from halflabel.errors import DataError, HalflabelError
from halflabel.notices import Notice, dropped
from halflabel.output_folders import DEMO, SPLIT


@dataclass(frozen=True)
class InputFiles:
    """The files that the options of a training run name; each is opened once, so that it may be a stream."""

    labelled: list[File]
    pool: list[File]
    dev: File | None
    views: File | None
    text_column: str | None
    label_column: str | None
    annotator_column: str | None = None

    @classmethod
    def named(cls, labelled: Sequence[Path], *, unlabelled: Sequence[Path] | None, dev: Path | None,
              views: Path | None = None, text_column: str | None, label_column: str | None,
              annotator_column: str | None = None) -> InputFiles:
        """Files by path, with globs expanded; a stream that two options name is refused."""
        dev_file, views_file = (None if path is None else File(str(path)) for path in (dev, views))
        files = cls(as_files(labelled), as_files(unlabelled or []), dev_file, views_file, text_column, label_column,
                    annotator_column)
        check_streams(files.together)
        return files

    @property
    def together(self) -> list[File]:
        return [*self.labelled, *self.pool, *(file for file in (self.dev, self.views) if file is not None)]


@dataclass(frozen=True)
class TrainingTexts:
    """Clean texts for a training run, and notices about them."""

    labelled: Corpus
    pool: Corpus
    truth: list[Any] | None  # labels of the pool, for measuring pseudo-labels only
    dev: Corpus | None
    notices: list[Notice]
    overlap: int = 0  # unlabelled texts that were left out, since they are labelled as well


def read_labelled(files: InputFiles) -> tuple[Corpus, list[Notice]]:
    """All rows of the labelled files, with and without a label; labels of several annotators are merged."""
    if not files.labelled:
        return Corpus([], [], source="no labelled file"), []
    rows = read(files.labelled, text=files.text_column, label=files.label_column)
    if files.annotator_column is None:
        return rows, []
    annotators: list[Any] = []
    for file in files.labelled:
        table = read_table(file, read_options(files.text_column, files.label_column))
        annotators += table.column(str(find_column(table, file.name, files.annotator_column, "annotator")))
    return merge_annotators(rows, annotators)


def class_names(option: str | None, rows: Corpus) -> tuple[Names, list[Notice]]:
    """The class names that --names asks for: a file, the labels themselves, or none."""
    names = read_names(Path(option)) if option not in (None, LABELS, NONE) else option
    return choose_names(names, rows.labels)


def gather(rows: Corpus, files: InputFiles, *, truth: bool = False, names: Names | None = None) -> TrainingTexts:
    """Clean texts from the rows of the labelled files, of which those without a label join the pool, and other files.

    Raises DataError for whatever would stop training: `train` and `check` both rely on it.
    """
    labelled, notices = clean(rows.labelled(), role="labelled")
    classes, name_notices = classes_of(labelled, notices, names or {})
    pool, pool_notices = (read_pool_with_labels if truth else read_pool)(rows.unlabelled(), files)
    unlabelled = drop_labelled(pool, labelled)
    overlap = len(pool) - len(unlabelled)
    pool_labels = true_labels(unlabelled, classes) if truth else None
    notices = [*held_out_notices([*files.labelled, *files.pool]), *notices, *name_notices, *pool_notices,
               *dropped(overlap, "unlabelled text", pool.source, "the same text is labelled")]
    dev = None
    if files.dev is not None:
        dev, dev_notices = labelled_rows(files.dev, files.text_column, files.label_column, classes, role="dev")
        notices += dev_notices
    return TrainingTexts(labelled, unlabelled.without_labels(), pool_labels, dev, notices, overlap)


def held_out_notices(files: Sequence[File]) -> list[Notice]:
    """Notices about dev and test files of `halflabel split` or `demo` among the training files, as a glob may match."""
    return [Notice(f"{path} is the {path.stem} set of a split and is used for training, so it can no longer be used "
                   "for evaluation; name the training files one by one")
            for path in (Path(file.path) for file in files) if path.stem in ("dev", "test")
            and any((path.parent / name).is_file() for name in (*SPLIT.results, *DEMO.results))]


def classes_of(corpus: Corpus, notices: Sequence[Notice], names: Names) -> tuple[Classes, list[Notice]]:
    """The classes of a corpus and of class names; an error names the files, and the texts that cleaning left out."""
    try:
        return classes_with_names(corpus.labels, names) if names else (Classes.of(corpus.labels), [])
    except HalflabelError as error:
        raise DataError("; ".join([f"{corpus.source}: {error}", *notices])) from None


def read_pool(unlabelled: Corpus, files: InputFiles) -> tuple[Corpus, list[Notice]]:
    """The pool on disk; unlabelled rows of the labelled files alone stay in memory."""
    if not files.pool:
        return clean(unlabelled, role="unlabelled")
    return open_pool([*([unlabelled] if len(unlabelled) else []), *files.pool], text=files.text_column)


def read_pool_with_labels(unlabelled: Corpus, files: InputFiles) -> tuple[Corpus, list[Notice]]:
    """The pool in memory, with its labels."""
    corpora = [read(file, text=files.text_column, label=files.label_column) for file in files.pool]
    return clean(concat_corpora([unlabelled, *corpora]), role="unlabelled")


def true_labels(pool: Corpus, classes: Classes) -> list[Any]:
    """The labels of the pool; each text needs one that training knows."""
    missing = sum(label is None for label in pool.labels)
    if missing:
        raise DataError(f"--truth: {missing} of {len(pool)} unlabelled texts in {pool.source} have no label to compare "
                        "pseudo-labels with; add the missing labels, or leave out --truth")
    check_known(pool, classes)
    return list(pool.labels)


def labelled_rows(file: File | Path, text_column: str | None, label_column: str | None, classes: Classes, *, role: str,
                  unseen: bool = False) -> tuple[Corpus, list[Notice]]:
    """The rows of a dev or test file that have a text and a label; with `unseen`, labels may be new to `classes`."""
    corpus = read(file, text=text_column, label=label_column)
    if unseen:
        classes.extended(corpus.labels, source=corpus.source)
    else:
        check_known(corpus, classes)
    labelled = corpus.labelled()
    rows, notices = clean(labelled, role=role)
    notices += dropped(len(corpus) - len(labelled), "row", corpus.source, "the label is missing")
    if not len(rows):
        raise DataError(f"{corpus.source}: no text has a label; name the column with --label-column, or add labels")
    return rows, notices


def check_known(corpus: Corpus, classes: Classes) -> None:
    """Refuses a label that the classes do not contain."""
    for i, label in enumerate(corpus.labels):
        for name in label if isinstance(label, tuple) else (label,):
            if name is not None:
                classes.index(name, row=i + 1, source=corpus.source)


def dev_overlap(texts: TrainingTexts) -> list[Notice]:
    """A notice about dev texts that are also training texts, if there are any."""
    if texts.dev is None:
        return []
    count = sum(len(matching_rows(corpus.texts, texts.dev.texts)) for corpus in (texts.labelled, texts.pool))
    subject = "1 text of {} is also a training text" if count == 1 else f"{count} texts of {{}} are also training texts"
    return [Notice(f"{subject.format(texts.dev.source)}; the dev score may be too high")] if count else []


def with_views(pool: Corpus, file: File, text_column: str | None) -> tuple[Corpus, list[Notice]]:
    """The pool with the strong views from a file, matched by text."""
    source = read(file, text=text_column, labels=False)
    if not source.views:
        raise DataError(f"{source.source} has no columns aug_0, aug_1, ... with views; add them or leave out --views")
    views = dict(zip(source.texts, source.views, strict=True))
    missing = sum(text not in views for text in pool.texts)
    if missing == len(pool):
        raise DataError(f"{source.source} contains none of the unlabelled texts; its texts have to be exactly the same")
    width = len(source.views[0])
    pool = replace(pool, views=[views.get(text, (text,) * width) for text in pool.texts])
    have = "1 unlabelled text has" if missing == 1 else f"{missing} unlabelled texts have"
    return pool, [Notice(f"{have} no views in {source.source}; the text itself is used")] if missing else []
