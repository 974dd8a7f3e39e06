"""A corpus loses its empty and duplicate texts, and says so."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from halflabel.data.columns import matching_rows
from halflabel.data.corpus import Corpus
from halflabel.data.sequences import LazySequence, parts_of
from halflabel.notices import Notice, dropped

ROLES = ("labelled", "unlabelled", "dev", "test")


def clean(corpus: Corpus, *, role: str) -> tuple[Corpus, list[Notice]]:
    """The corpus without empty and duplicate texts, and a sentence about each kind that was left out.

    `role` is "labelled", "unlabelled", "dev" or "test". A text that occurs twice is kept once, with its label
    if one of the two has one; a labelled text that occurs with different labels is left out altogether. For
    dev and test only empty texts go, since figures must count what the file holds.
    """
    assert role in ROLES, f"role is one of {ROLES}"
    if isinstance(corpus.texts, LazySequence):
        return _with_stored(corpus), []
    rows = [i for i, text in enumerate(corpus.texts) if text.strip()]
    notices = dropped(len(corpus) - len(rows), "empty text", corpus.source)
    if role in ("dev", "test"):
        return corpus.take(rows), notices
    if role == "unlabelled":
        kept = sorted({corpus.texts[i]: i for i in reversed(rows)}.values())
        notices += dropped(len(rows) - len(kept), "duplicate text", corpus.source)
        return corpus.take(kept), notices
    return _without_conflicts(corpus, rows, notices)


def _with_stored(pool: Corpus) -> Corpus:
    """Stored texts are clean already; they go where a text before them, in memory or stored, is the same."""
    kept = np.ones(len(pool), dtype=bool)
    parts, start = parts_of(pool.texts), 0
    for part in parts:
        start += len(part)
        for later, at in zip(parts[1:], accumulate(map(len, parts)), strict=False):
            if at >= start and len(part):
                kept[at + matching_rows(later, part)] = False
        if not isinstance(part, LazySequence):
            mine = range(start - len(part), start)
            first = set({part[i - mine.start]: i for i in reversed(mine) if part[i - mine.start].strip()}.values())
            kept[[i for i in mine if i not in first]] = False
    return pool if kept.all() else pool.take(np.flatnonzero(kept))  # type: ignore[arg-type]


def drop_labelled(pool: Corpus, labelled: Corpus) -> Corpus:
    """The pool less the texts whose label is known."""
    known = matching_rows(pool.texts, labelled.texts)
    if not len(known):
        return pool
    mask = np.ones(len(pool), dtype=bool)
    mask[known] = False
    return pool.take(np.flatnonzero(mask))  # type: ignore[arg-type]


def _without_conflicts(corpus: Corpus, rows: list[int], notices: list[Notice]) -> tuple[Corpus, list[Notice]]:
    groups: dict[str, list[int]] = {}
    for i in rows:
        groups.setdefault(corpus.texts[i], []).append(i)
    kept, conflicts, merged = [], [], 0
    for group in groups.values():
        named = [i for i in group if corpus.labels[i] is not None]
        if len({_meaning(corpus.labels[i]) for i in named}) > 1:
            conflicts.append(group)
            continue
        kept.append((named or group)[0])
        merged += len(group) - 1
    notices = notices + dropped(merged, "duplicate text", corpus.source)
    if conflicts:
        i = conflicts[0][0]
        count = sum(map(len, conflicts))
        first = f"the first is text {i + 1}, {corpus.texts[i][:40]!r}"
        notices += dropped(count, "text", corpus.source, f"of different labels for one text ({first})")
    return corpus.take(sorted(kept)), notices


def _meaning(label: object) -> object:
    return frozenset(label) if isinstance(label, tuple) else label
