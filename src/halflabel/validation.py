"""Validates the inputs of `TextClassifier`, and traces pseudo-labels back to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from halflabel.data.columns import matching_rows
from halflabel.data.corpus import Corpus, LazySequence, Repeated, TextLabel, origin_of, parts_of
from halflabel.data.labels import from_matrix, is_matrix, parse_label
from halflabel.data.readers.read import quoted_names, usual_columns, view_columns
from halflabel.errors import DataError


def as_texts(texts: Any, name: str) -> Sequence[str]:
    """A list of strings, from any iterable or from the text column of a frame; lazy sequences stay lazy."""
    if isinstance(texts, LazySequence):
        return texts
    values = list(_one_column(texts, name))
    for i, text in enumerate(values):
        if not isinstance(text, str):
            raise DataError(f"{name}: text {i + 1} is {repr(text)[:40]} ({type(text).__name__}), not a string; give a "
                            "list of strings.")
    return [str(text) for text in values]


def _one_column(texts: Any, name: str) -> Iterable[Any]:
    """The texts of an iterable, a frame or an array; anything else is refused."""
    if (columns := column_names(texts)) is not None:
        return _one_column(texts[_text_column(columns, name, texts)], name)
    kind = type(texts).__name__
    if isinstance(texts, Corpus):
        raise DataError(f"{name}: a Corpus was given instead of a list of texts; give its texts: corpus.texts.")
    if isinstance(texts, Mapping):
        raise DataError(f"{name}: a {kind} was given instead of a list of texts; give the texts in it, for example "
                        "data['text'].")
    shape = getattr(texts, "shape", (0,))
    if isinstance(texts, (str, bytes, bytearray)) or not hasattr(texts, "__iter__") or not shape:
        raise DataError(f"{name}: one {kind} was given instead of a list of texts; give a list of texts.")
    if len(shape) > 1:
        if shape[1:] != (1,):
            raise DataError(f"{name}: an array of shape {tuple(shape)} was given instead of a list of texts; give one "
                            "of its columns: array[:, 0].")
        texts = texts[:, 0]
    return texts.to_pylist() if hasattr(texts, "to_pylist") else texts


def column_names(value: Any) -> list[Any] | None:
    """The column names of a frame, an Arrow table or a dataset; None for anything else."""
    kind = type(value)  # the attribute of a Series itself may be a row of that name
    names = next((getattr(value, key) for key in ("column_names", "columns") if hasattr(kind, key)), None)
    return None if names is None else list(names)


def _text_column(columns: list[Any], name: str, frame: Any) -> Any:
    """The text column: by its name, as in files, or because it is the only column."""
    candidates = usual_columns([column for column in columns if isinstance(column, str)], "text")
    if len(candidates) != 1:
        candidates = columns
    if len(candidates) == 1:
        return candidates[0]
    raise DataError(f"{name}: it is unclear which of the columns {quoted_names([*map(str, columns)])} of the "
                    f"{type(frame).__name__} contains the texts; give one column: frame['column'].")


def as_corpus(texts: Any, labels: Any, name: str) -> Corpus:
    """Texts with one label each."""
    checked, parsed = as_texts(texts, name), as_labels(labels, name)
    if len(checked) != len(parsed):
        raise DataError(f"{name}: there are {len(checked)} texts and {len(parsed)} labels; give one label for each "
                        "text.")
    return Corpus(checked, parsed, source=name)


def texts_and_labels(pair: Any, name: str) -> tuple[Any, Any]:
    """The two members of a pair (X, y)."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise DataError(f"{name}: a {type(pair).__name__} was given; give a pair of texts and labels: (X, y).")
    return pair[0], pair[1]


def as_labels(labels: Any, name: str) -> list[TextLabel]:
    """The label of each text, from a sequence of labels or from a label matrix."""
    if is_matrix(labels):
        return from_matrix(labels, name)[0]
    return [parse_label(label) for label in (labels.to_pylist() if hasattr(labels, "to_pylist") else labels)]


def as_objects(values: Sequence[Any]) -> np.ndarray:
    """An object array (N,), in which tuples stay tuples."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def as_pool(texts: Any, views: Any) -> Corpus:
    """Unlabelled texts with their views; lazy sequences stay lazy."""
    checked = as_texts(texts, "unlabelled")
    checked_views = [] if views is None else as_views(views)
    if checked_views and len(checked_views) != len(checked):
        raise DataError(f"views: there are {len(checked)} unlabelled texts and views of {len(checked_views)}; give "
                        "views of each text.")
    none: Sequence[None] = Repeated(None, len(checked)) if isinstance(checked, LazySequence) else [None] * len(checked)
    return Corpus(checked, none, checked_views, "unlabelled")


def as_views(views: Any) -> Sequence[tuple[str, ...]]:
    """The views of each text: of a frame its columns aug_0, aug_1, ..., or all columns if it has none of these."""
    if isinstance(views, LazySequence):
        return views
    if (columns := column_names(views)) is not None:
        chosen = view_columns([column for column in columns if isinstance(column, str)]) or columns
        views = zip(*(as_texts(views[column], "views") for column in chosen), strict=True)
    elif isinstance(views, (str, bytes, Mapping)):
        raise DataError(f"views: a {type(views).__name__} was given; give a list of views for each text.")
    rows = [tuple(as_texts(row, f"views of text {i + 1}")) for i, row in enumerate(views)]
    for i, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise DataError(f"views: text {i + 1} has {len(row)} views and text 1 has {len(rows[0])}; give the same "
                            "number of views for each text.")
    return rows


@dataclass(frozen=True, eq=False)
class LabelTrace:
    """The M of N training texts that got a label or pseudo-label; expanded to all texts on access."""

    texts: int  # N
    rows: np.ndarray  # (M,)
    row_labels: np.ndarray  # (M,)
    row_steps: np.ndarray  # (M,)

    @cached_property
    def labels(self) -> np.ndarray:
        """The label of each text, None without one, (N,)."""
        labels = np.full(self.texts, None, object)
        labels[self.rows] = self.row_labels
        return labels

    @cached_property
    def steps(self) -> np.ndarray:
        """The step at which each text got its label, -1 without one, (N,)."""
        steps = np.full(self.texts, -1)
        steps[self.rows] = self.row_steps
        return steps


def trace_labels(texts: Sequence[str], labelled: Corpus, pool: Corpus, rows: np.ndarray, labels: np.ndarray,
                 steps: np.ndarray) -> LabelTrace:
    """The labels of all training texts: the labelled ones at step 0, and M pseudo-labels of the pool.

    `rows` (M,), increasing, are rows of the pool, with their labels (M,) and steps (M,). Texts in memory are matched by
    content, texts on disk by their row in the file, so that a large pool is never read.
    """
    by_text: dict[str, tuple[Any, int]] = {text: (label, 0) for text, label in zip(labelled.texts, labelled.labels,
                                                                                  strict=True)}
    by_column: dict[int, list[np.ndarray]] = {}  # for each sequence on disk: labelled rows, and their indices in `rows`
    start = 0
    for part in parts_of(pool.texts):
        base, selected = origin_of(part)
        numbers = np.arange(*np.searchsorted(rows, [start, start + len(part)]))
        part_rows = rows[numbers] - start
        start += len(part)
        if isinstance(base, LazySequence):
            base_rows = part_rows if isinstance(selected, slice) else selected[part_rows]
            by_column.setdefault(id(base), []).append(np.stack([base_rows, numbers]))
        else:
            by_text.update({part[i]: (labels[k], int(steps[k])) for i, k in zip(part_rows, numbers, strict=True)})
    traces = [(np.empty(0, np.int64), as_objects([]), np.empty(0, np.int64))]  # rows, labels, steps
    start = 0
    for part in parts_of(texts):
        base, selected = origin_of(part)
        if id(base) in by_column:
            part_rows, numbers = np.concatenate(by_column[id(base)], axis=1)
            if not isinstance(selected, slice):
                found, order = np.flatnonzero(np.isin(selected, part_rows)), np.argsort(part_rows)
                numbers = numbers[order[np.searchsorted(part_rows, selected[found], sorter=order)]]
                part_rows = found
            traces.append((start + part_rows, labels[numbers], steps[numbers]))
        matches = matching_rows(part, by_text)
        known = [by_text[part[i]] for i in matches.tolist()]
        traces.append((start + matches, as_objects([label for label, _ in known]),
                       np.array([step for _, step in known], np.int64)))
        start += len(part)
    return LabelTrace(len(texts), *map(np.concatenate, zip(*traces, strict=True)))


def align_truth(truth: Any, unlabelled: Sequence[str], pool: Corpus) -> list[Any] | None:
    """True labels in the order of the pool, for evaluation only."""
    if truth is None:
        return None
    labels = as_labels(truth, "truth")
    if len(labels) != len(unlabelled):
        raise DataError(f"truth: there are {len(unlabelled)} unlabelled texts and {len(labels)} labels; give one label "
                        "for each text.")
    by_text = dict(zip(unlabelled, labels, strict=True))
    if any(text not in by_text for text in pool.texts):
        raise DataError("truth: it must contain the label of every unlabelled text; leave it out otherwise.")
    return [by_text[text] for text in pool.texts]
