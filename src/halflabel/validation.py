"""Validates what `TextClassifier` is given, and turns it into corpora."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from halflabel.data.columns import matching_rows
from halflabel.data.corpus import Corpus
from halflabel.data.labels import Labels, from_matrix, is_matrix, label_of
from halflabel.data.readers.read import listed, usual_columns, view_columns
from halflabel.data.sequences import LazySequence, Repeated, origin_of, parts_of
from halflabel.errors import BadInput


def as_texts(texts: Any, name: str) -> Sequence[str]:
    """A list of strings, of any iterable or of the text column of a frame; stored texts stay where they lie."""
    if isinstance(texts, LazySequence):
        return texts
    found = list(one_column(texts, name))
    for i, text in enumerate(found):
        if not isinstance(text, str):
            raise BadInput(f"{name}: text {i + 1} is {repr(text)[:40]} ({type(text).__name__}), not a string; give a "
                           "list of strings.")
    return [str(text) for text in found]


def one_column(texts: Any, name: str) -> Iterable[Any]:
    """The texts of an iterable, a frame or an array; what is no list of texts, or several, is refused."""
    if (columns := columns_in(texts)) is not None:
        return one_column(texts[text_column(columns, name, texts)], name)
    if isinstance(texts, Corpus):
        raise BadInput(f"{name}: a Corpus was given where a list of texts is wanted; give its texts: corpus.texts.")
    if isinstance(texts, Mapping):
        raise BadInput(f"{name}: a {type(texts).__name__} was given where a list of texts is wanted; give the texts "
                       "in it, for example data['text'].")
    shape = getattr(texts, "shape", (0,))
    if isinstance(texts, (str, bytes, bytearray)) or not hasattr(texts, "__iter__") or not shape:
        raise BadInput(f"{name}: one {type(texts).__name__} was given where a list of texts is wanted; give a list of "
                       "texts.")
    if len(shape) > 1:
        if shape[1:] != (1,):
            raise BadInput(f"{name}: an array of shape {tuple(shape)} was given where a list of texts is wanted; give "
                           "one of its columns: array[:, 0].")
        texts = texts[:, 0]
    return texts.to_pylist() if hasattr(texts, "to_pylist") else texts


def columns_in(value: Any) -> list[Any] | None:
    """The names of the columns of a frame, an Arrow table or a dataset; None of anything else."""
    kind = type(value)  # of a Series an attribute may be a row of that name
    names = next((getattr(value, key) for key in ("column_names", "columns") if hasattr(kind, key)), None)
    return None if names is None else list(names)


def text_column(columns: list[Any], name: str, frame: Any) -> Any:
    """The column that holds the texts: by its name, as in files, or because it is the only one."""
    found = usual_columns([column for column in columns if isinstance(column, str)], "text")
    if len(found) != 1:
        found = columns
    if len(found) == 1:
        return found[0]
    raise BadInput(f"{name}: which of the columns {listed([*map(str, columns)])} of the {type(frame).__name__} holds "
                   "the texts is not known; give one column: frame['column'].")


def as_corpus(texts: Any, labels: Any, name: str) -> Corpus:
    """Texts and labels of the same number."""
    found, given = as_texts(texts, name), as_labels(labels, name)
    if len(found) != len(given):
        raise BadInput(f"{name}: there are {len(found)} texts and {len(given)} labels; give one label for each text.")
    return Corpus(found, given, source=name)


def texts_and_labels(given: Any, name: str) -> tuple[Any, Any]:
    """Texts and labels that came as one."""
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise BadInput(f"{name}: a {type(given).__name__} was given; give a pair of texts and labels: (X, y).")
    return given[0], given[1]


def as_labels(labels: Any, name: str) -> Labels:
    """A label, a tuple of labels or None for each text, from a sequence of them or from a matrix."""
    if is_matrix(labels):
        return from_matrix(labels, name)[0]
    return [label_of(label) for label in (labels.to_pylist() if hasattr(labels, "to_pylist") else labels)]


def as_objects(values: Sequence[Any]) -> np.ndarray:
    """An array (N,) of labels as they are; tuples stay tuples."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def as_pool(texts: Any, views: Any) -> Corpus:
    """Unlabelled texts with the views that came with them; stored texts stay where they lie."""
    found = as_texts(texts, "unlabelled")
    ready = [] if views is None else as_views(views)
    if ready and len(ready) != len(found):
        raise BadInput(f"views: there are {len(found)} unlabelled texts and views of {len(ready)}; give views of each "
                       "text.")
    none: Sequence[None] = Repeated(None, len(found)) if isinstance(found, LazySequence) else [None] * len(found)
    return Corpus(found, none, ready, "unlabelled")


def as_views(views: Any) -> Sequence[tuple[str, ...]]:
    """The strong views of each text: of a frame its columns aug_0, aug_1, ..., or all columns if none is named so."""
    if isinstance(views, LazySequence):
        return views
    if (columns := columns_in(views)) is not None:
        chosen = view_columns([column for column in columns if isinstance(column, str)]) or columns
        views = zip(*(as_texts(views[column], "views") for column in chosen), strict=True)
    elif isinstance(views, (str, bytes, Mapping)):
        raise BadInput(f"views: a {type(views).__name__} was given; give a list of views for each text.")
    found = [tuple(as_texts(view, f"views of text {i + 1}")) for i, view in enumerate(views)]
    for i, view in enumerate(found):
        if len(view) != len(found[0]):
            raise BadInput(f"views: text {i + 1} has {len(view)} views and text 1 has {len(found[0])}; give each as "
                           "many.")
    return found


@dataclass(frozen=True, eq=False)
class LabelTrace:
    """Which of N texts were taken to have a label, which, and at which step; laid out for all texts when looked at."""

    number: int
    rows: np.ndarray
    found: np.ndarray
    since: np.ndarray

    @cached_property
    def labels(self) -> np.ndarray:
        """The label of each text, None without one, (N,)."""
        labels = np.full(self.number, None, object)
        labels[self.rows] = self.found
        return labels

    @cached_property
    def steps(self) -> np.ndarray:
        """The step of each text, -1 without a label, (N,)."""
        steps = np.full(self.number, -1)
        steps[self.rows] = self.since
        return steps


def trace_labels(everything: Sequence[str], labelled: Corpus, pool: Corpus, taken: np.ndarray, found: np.ndarray,
           steps: np.ndarray) -> LabelTrace:
    """The labels of all texts: of labelled ones, at step 0, and of those rows of the pool (rising) that were taken to
    have a label (found) at a step."""
    known: dict[str, tuple[Any, int]] = {text: (label, 0) for text, label in zip(labelled.texts, labelled.labels,
                                                                                strict=True)}
    stored: dict[int, list[np.ndarray]] = {}  # of each stored sequence: rows that were taken, and which those are
    start = 0
    for part in parts_of(pool.texts):
        base, rows = origin_of(part)
        mine = np.arange(*np.searchsorted(taken, [start, start + len(part)]))
        places = taken[mine] - start
        start += len(part)
        if isinstance(base, LazySequence):
            places = places if isinstance(rows, slice) else rows[places]
            stored.setdefault(id(base), []).append(np.stack([places, mine]))
        else:
            known.update({part[i]: (found[k], int(steps[k])) for i, k in zip(places, mine, strict=True)})
    notes = [(np.empty(0, np.int64), as_objects([]), np.empty(0, np.int64))]  # rows, labels, steps
    start = 0
    for part in parts_of(everything):
        base, rows = origin_of(part)
        if id(base) in stored:
            places, mine = np.concatenate(stored[id(base)], axis=1)
            if not isinstance(rows, slice):
                there, order = np.flatnonzero(np.isin(rows, places)), np.argsort(places)
                places, mine = there, mine[order[np.searchsorted(places, rows[there], sorter=order)]]
            notes.append((start + places, found[mine], steps[mine]))
        same = matching_rows(part, known)
        pairs = [known[part[i]] for i in same.tolist()]
        notes.append((start + same, as_objects([label for label, _ in pairs]),
                      np.array([step for _, step in pairs], np.int64)))
        start += len(part)
    return LabelTrace(len(everything), *map(np.concatenate, zip(*notes, strict=True)))


def align_truth(truth: Any, unlabelled: Sequence[str], pool: Corpus) -> list[Any] | None:
    """True labels in the order of the pool, for measuring alone."""
    if truth is None:
        return None
    given = as_labels(truth, "truth")
    if len(given) != len(unlabelled):
        raise BadInput(f"truth: there are {len(unlabelled)} unlabelled texts and {len(given)} labels; give one label "
                       "for each text.")
    by_text = dict(zip(unlabelled, given, strict=True))
    if any(text not in by_text for text in pool.texts):
        raise BadInput("truth: it has to hold the label of every unlabelled text; leave it out otherwise.")
    return [by_text[text] for text in pool.texts]
