"""Files become a `Corpus`, and a corpus loses its empty and duplicate texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from halflabel.data.cells import label_cells, text_cells
from halflabel.data.formats import Table, load
from halflabel.types import BadInput, Corpus, Label

TEXT_NAMES = (
    "text", "texts", "sentence", "sentences", "content", "body", "message", "review", "comment", "utterance",
    "document", "title",
)  # fmt: skip
LABEL_NAMES = ("label", "labels", "class", "category", "target", "tag", "tags", "topic", "intent", "queue")
USUAL = {"text": (TEXT_NAMES[:1], TEXT_NAMES), "label": (LABEL_NAMES[:2], LABEL_NAMES)}  # best first
ROLES = ("labelled", "unlabelled", "dev", "test")


def read(path: str | Path, *, text: str | None = None, label: str | None = None, labels: bool = True) -> Corpus:
    """Texts and labels of a csv, tsv, jsonl, json, parquet or txt file, or of standard input ("-").

    The suffix tells the format, and the content does when the suffix is unknown. Columns are found by name
    (`TEXT_NAMES`, `LABEL_NAMES`, in any case, `text` and `label`/`labels` first) unless `text` and `label`
    name them; no label column means that nothing is labelled, and with `labels=False` none is looked for.
    Columns `aug_0`, `aug_1`, ... become views; an empty view is the text itself.

    Not labelled: null, a missing key, an empty cell, NaN, the number -1. The string "-1" is refused. Whole
    floats become ints, other floats are refused. Lists become tuples (`[]`: known to have no label).
    A csv column whose cells are all whole numbers is read as ints; cells like `["a", "b"]` are lists; cells
    like `a;b` or `a|b` are several labels only if the column is named `labels` or `tags`. Null texts are "".

    Raises BadInput: one sentence that names the file and the line, record or row (from 1, header included).
    """
    shown = "standard input" if str(path) == "-" else str(path)
    wanted = {name.strip().lower() for name in (*TEXT_NAMES, *filter(None, (text, label)))}
    table = load(path, shown=shown, wanted=wanted)
    if not table.rows:
        raise BadInput(f"{shown} has no rows; give at least one text")
    text_column = _column(table, shown, text, "text")
    label_column = _column(table, shown, label, "label") if labels else None
    if text_column is None:
        raise BadInput(_no_text(table, shown))
    if text_column == label_column:
        raise BadInput(f"{shown}: the column {label_column!r} is named for both texts and labels; name two")

    def where(i: int) -> str:
        return f"{shown}, {table.place(i)}"

    texts = text_cells(table.column(text_column), column=text_column, where=where)
    found: list[Label | tuple[Label, ...] | None] = [None] * table.rows
    if label_column is not None:
        cells = table.column(label_column)
        found = label_cells(cells, typed=table.typed, column=label_column, where=where)
    views = []
    for name in _view_columns(table):
        column = text_cells(table.column(name), column=name, where=where)
        views.append([view if view.strip() else text for view, text in zip(column, texts, strict=True)])
    return Corpus(texts, found, list(zip(*views, strict=True)), shown)


def _column(table: Table, shown: str, given: str | None, role: str) -> str | None:
    """The column for a role: the one given, or named exactly so, or the only one with a usual name."""
    if given is not None:
        found = [name for name in table.names if name == given]
        found = found or [name for name in table.names if name.strip().lower() == given.strip().lower()]
        if not found:
            there = f"its columns are {_listed(table.names)}"
            raise BadInput(f"{shown} has no column {given!r}; {there}: name one with --{role}-column")
    else:
        found = [name for name in table.names if name == role]
        for wanted in USUAL[role]:
            found = found or [name for name in table.names if name.strip().lower() in wanted]
    if len(found) > 1:
        raise BadInput(f"{shown}: {_listed(found)} could each be the {role}s; name one with --{role}-column")
    return found[0] if found else None


def _no_text(table: Table, shown: str) -> str:
    remedy = (
        "name the text column with --text-column, or put a first line such as 'text,label' above the data"
    )
    return f"{shown}: none of the columns {_listed(table.names)} is known to hold texts; {remedy}"


def _listed(names: Sequence[str]) -> str:
    short = [repr(name if len(name) <= 40 else name[:37] + "...") for name in names[:12]]
    return ", ".join(short) + (", ..." if len(names) > 12 else "")


def _view_columns(table: Table) -> list[str]:
    matches = [re.fullmatch(r"aug_(\d{1,4})", name) for name in table.names]
    return sorted((match[0] for match in matches if match), key=lambda name: int(name[4:]))


def clean(corpus: Corpus, *, role: str) -> tuple[Corpus, list[str]]:
    """The corpus without empty and duplicate texts, and a sentence about each kind that was left out.

    `role` is "labelled", "unlabelled", "dev" or "test". A text that occurs twice is kept once, with its label
    if one of the two has one; a labelled text that occurs with different labels is left out altogether. For
    dev and test only empty texts go, since figures must count what the file holds.
    """
    assert role in ROLES, f"role is one of {ROLES}"
    rows = [i for i, text in enumerate(corpus.texts) if text.strip()]
    notices = _notice(len(corpus) - len(rows), "empty text", corpus.source, "left out")
    if role in ("dev", "test"):
        return corpus.take(rows), notices
    if role == "unlabelled":
        kept = sorted({corpus.texts[i]: i for i in reversed(rows)}.values())
        notices += _notice(len(rows) - len(kept), "duplicate text", corpus.source, "left out")
        return corpus.take(kept), notices
    return _without_conflicts(corpus, rows, notices)


def _without_conflicts(corpus: Corpus, rows: list[int], notices: list[str]) -> tuple[Corpus, list[str]]:
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
    notices = notices + _notice(merged, "duplicate text", corpus.source, "left out")
    if conflicts:
        i = conflicts[0][0]
        count = sum(map(len, conflicts))
        first = f"the first is text {i + 1}, {corpus.texts[i][:40]!r}"
        why = f"left out because of different labels for one text ({first})"
        notices += _notice(count, "text", corpus.source, why)
    return corpus.take(sorted(kept)), notices


def _meaning(label: object) -> object:
    return frozenset(label) if isinstance(label, tuple) else label


def _notice(count: int, what: str, source: str, fate: str) -> list[str]:
    if not count:
        return []
    return [f"{count} {what}{'s' * (count > 1)} in {source} {'were' if count > 1 else 'was'} {fate}"]
