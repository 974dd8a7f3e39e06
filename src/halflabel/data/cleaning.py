"""Removes empty and duplicate texts, with a notice about each kind."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from halflabel.data.columns import matching_rows
from halflabel.data.corpus import Corpus, TextLabel
from halflabel.data.sequences import LazySequence, parts_of
from halflabel.notices import Notice, dropped

ROLES = ("labelled", "unlabelled", "dev", "test")


def clean(corpus: Corpus, *, role: str) -> tuple[Corpus, list[Notice]]:
    """The corpus without empty and duplicate texts, and notices about what was left out.

    Of duplicates one is kept, a labelled one if there is any; labelled duplicates with different labels are all left
    out. In dev and test sets only empty texts are left out, since metrics must count what the file contains.
    """
    assert role in ROLES, f"role is one of {ROLES}"
    if isinstance(corpus.texts, LazySequence):
        return _clean_lazy(corpus), []
    rows = [i for i, text in enumerate(corpus.texts) if text.strip()]
    notices = dropped(len(corpus) - len(rows), "empty text", corpus.source)
    if role in ("dev", "test"):
        return corpus.take(rows), notices
    if role == "unlabelled":
        kept = _first_occurrences(corpus.texts, rows)
        notices += dropped(len(rows) - len(kept), "duplicate text", corpus.source)
        return corpus.take(kept), notices
    return _without_conflicts(corpus, rows, notices)


def _first_occurrences(texts: Sequence[str], rows: Sequence[int]) -> list[int]:
    return sorted({texts[i]: i for i in reversed(rows)}.values())


def _clean_lazy(pool: Corpus) -> Corpus:
    """Each part on disk is clean by itself, so only texts of an earlier part and parts in memory need checking."""
    keep = np.ones(len(pool), dtype=bool)
    parts = parts_of(pool.texts)
    starts = [0, *accumulate(map(len, parts))]
    for k, part in enumerate(parts):
        for later, start in zip(parts[k + 1 :], starts[k + 1 :], strict=False):
            if len(part):
                keep[start + matching_rows(later, part)] = False
        if not isinstance(part, LazySequence):
            first = _first_occurrences(part, [i for i, text in enumerate(part) if text.strip()])
            keep[starts[k] + np.setdiff1d(np.arange(len(part)), first)] = False
    return _take(pool, keep)


def drop_labelled(pool: Corpus, labelled: Corpus) -> Corpus:
    """The pool without the texts that are also labelled."""
    keep = np.ones(len(pool), dtype=bool)
    keep[matching_rows(pool.texts, labelled.texts)] = False
    return _take(pool, keep)


def _take(pool: Corpus, keep: np.ndarray) -> Corpus:
    return pool if keep.all() else pool.take(np.flatnonzero(keep))  # type: ignore[arg-type]


def _without_conflicts(corpus: Corpus, rows: list[int], notices: list[Notice]) -> tuple[Corpus, list[Notice]]:
    """Labelled texts once each, without those that occur with different labels."""
    groups: dict[str, list[int]] = {}
    for i in rows:
        groups.setdefault(corpus.texts[i], []).append(i)
    kept: list[int] = []
    conflicts: list[list[int]] = []
    for group in groups.values():
        labelled = [i for i in group if corpus.labels[i] is not None]
        if len({_unordered(corpus.labels[i]) for i in labelled}) > 1:
            conflicts.append(group)
        else:
            kept.append((labelled or group)[0])
    in_conflict = sum(map(len, conflicts))
    notices = notices + dropped(len(rows) - len(kept) - in_conflict, "duplicate text", corpus.source)
    if conflicts:
        first = conflicts[0][0]
        notices += dropped(in_conflict, "text", corpus.source, "the same text has different labels (the first is text "
                           f"{first + 1}, {corpus.texts[first][:40]!r})")
    return corpus.take(sorted(kept)), notices


def _unordered(label: TextLabel) -> object:
    return frozenset(label) if isinstance(label, tuple) else label
