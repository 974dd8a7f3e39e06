"""The files of a training run become labelled texts, a pool, dev texts and notices about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from halflabel.data.labels import Classes
from halflabel.data.read import clean, read
from halflabel.types import BadInput, Corpus


@dataclass(frozen=True)
class Columns:
    """Names of columns that flags gave."""

    text: str | None
    label: str | None


@dataclass(frozen=True)
class Texts:
    """What a run learns from, and what is worth knowing about it."""

    labelled: Corpus
    pool: Corpus
    truth: list[Any] | None
    dev: Corpus | None
    notices: list[str]


def gather(labelled: Sequence[Path], pool: Sequence[Path], dev: Path | None, columns: Columns, *, truth: bool) -> Texts:
    """Reads and cleans all files; rows without a label in the labelled files belong to the pool."""
    given = joined([read(file, text=columns.text, label=columns.label) for file in labelled])
    known, notices = clean(given.labelled(), role="labelled")
    classes = classes_of(known)
    read_pools = [read_pool(file, columns, truth=truth) for file in pool]
    notices += [notice for _, notice in read_pools if notice]
    rest, more = clean(joined([given.unlabelled(), *(corpus for corpus, _ in read_pools)]), role="unlabelled")
    rest, overlap = without_known(rest, known)
    hidden = true_labels(rest, classes) if truth else None
    judged = read_dev(dev, columns, classes, known.texts + rest.texts) if dev is not None else (None, [])
    return Texts(known, rest.without_labels(), hidden, judged[0], [*notices, *more, *overlap, *judged[1]])


def joined(corpora: Sequence[Corpus]) -> Corpus:
    """Corpora one after the other, under all of their names."""
    parts = [corpus for corpus in corpora if len(corpus)] or list(corpora[:1])
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    return replace(whole, source=", ".join(dict.fromkeys(part.source for part in parts)))


def classes_of(corpus: Corpus) -> Classes:
    """The classes of a file, or a sentence that names the file."""
    try:
        return Classes.of(corpus.labels)
    except BadInput as error:
        raise BadInput(f"{corpus.source}: {error}") from None


def read_pool(file: Path, columns: Columns, *, truth: bool) -> tuple[Corpus, str]:
    """A file of unlabelled texts; its labels stay only if they are wanted as truth."""
    if truth:
        return read(file, text=columns.text, label=columns.label), ""
    try:
        corpus = read(file, text=columns.text)
    except BadInput:
        # labels that nobody will use must not stop a run; if the texts are at fault, this fails again
        return read(file, text=columns.text, labels=False), ""
    count = sum(label is not None for label in corpus.labels)
    notice = f"{count} labels in {corpus.source} are not looked at; --truth uses them for measuring only"
    return corpus.without_labels(), notice if count else ""


def without_known(pool: Corpus, labelled: Corpus) -> tuple[Corpus, list[str]]:
    """The pool less the texts whose label is known."""
    known = set(labelled.texts)
    rows = [i for i, text in enumerate(pool.texts) if text not in known]
    both = len(pool) - len(rows)
    notices = [f"{both} of the unlabelled texts are also labelled and count as labelled"] if both else []
    return pool.take(rows), notices


def true_labels(pool: Corpus, classes: Classes) -> list[Any]:
    """The labels of the pool, all of them known."""
    missing = sum(label is None for label in pool.labels)
    if missing:
        raise BadInput(f"--truth: {missing} of {len(pool)} unlabelled texts in {pool.source} have no label to measure "
                       "by; give the labels of all, or leave out --truth")
    check_known(pool, classes)
    return list(pool.labels)


def read_dev(file: Path, columns: Columns, classes: Classes, training: list[str]) -> tuple[Corpus, list[str]]:
    """Labelled texts that choose the best model, all with labels that training knows."""
    corpus, notices = labelled_rows(file, columns, classes, role="dev")
    both = len(set(corpus.texts) & set(training))
    if both:
        notices.append(f"{both} texts of {corpus.source} are also among the training texts; its score may be too good")
    return corpus, notices


def labelled_rows(file: Path, columns: Columns, classes: Classes, *, role: str) -> tuple[Corpus, list[str]]:
    """The rows of a file that have a text and a label, every label a known one."""
    corpus = read(file, text=columns.text, label=columns.label)
    check_known(corpus, classes)
    rows, notices = clean(corpus.labelled(), role=role)
    missing = len(corpus) - len(corpus.labelled())
    if missing:
        notices.append(f"{missing} rows of {corpus.source} have no label and were left out")
    if not len(rows):
        raise BadInput(f"{corpus.source}: no text has a label; name the column with --label-column, or add labels")
    return rows, notices


def check_known(corpus: Corpus, classes: Classes) -> None:
    """Refuses a label that the classes do not hold."""
    for i, label in enumerate(corpus.labels):
        for name in label if isinstance(label, tuple) else (label,):
            if name is not None:
                classes.index(name, row=i + 1, source=corpus.source)


def with_views(pool: Corpus, file: Path, text_column: str | None) -> tuple[Corpus, list[str]]:
    """The pool with the strong views that a file has for its texts."""
    source = read(file, text=text_column, labels=False)
    if not source.views:
        raise BadInput(f"{source.source} has no columns aug_0, aug_1, ... with views; add them or leave out --views")
    by_text = dict(zip(source.texts, source.views, strict=True))
    missing = sum(text not in by_text for text in pool.texts)
    if missing == len(pool):
        raise BadInput(f"{source.source} holds none of the unlabelled texts; its texts have to be exactly the same")
    width = len(source.views[0])
    notice = f"{missing} unlabelled texts have no views in {source.source}; the text itself is used"
    views = [by_text.get(text, (text,) * width) for text in pool.texts]
    return replace(pool, views=views), [notice] if missing else []
