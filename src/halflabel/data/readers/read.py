"""Files, folders and frames become a `Corpus`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from halflabel.data.corpus import Corpus, Label
from halflabel.data.readers.cells import label_cells, text_cells
from halflabel.data.readers.columnar import dataset_folder, frame
from halflabel.data.readers.files import File, as_files
from halflabel.data.readers.formats import SourceTable, read_table
from halflabel.errors import BadInput

TEXT_NAMES = (
    "text", "texts", "sentence", "sentences", "content", "body", "message", "review", "comment", "utterance",
    "document", "title",
)  # fmt: skip
LABEL_NAMES = ("label", "labels", "class", "category", "target", "tag", "tags", "topic", "intent", "queue")
USUAL = {"text": (TEXT_NAMES[:1], TEXT_NAMES), "label": (LABEL_NAMES[:2], LABEL_NAMES)}  # best first
UNLABELLED = ("unlabelled", "unlabeled", "unsup")  # names of a sub-folder


def read(source: Any, *, text: str | None = None, label: str | None = None, labels: bool = True) -> Corpus:
    """Texts and labels of a file, of standard input ("-"), of several files or globs, or of a frame in memory.

    Files are csv, tsv, jsonl, json, parquet, arrow or txt (one text per line), the text ones also packed by gzip or
    zstd, and the exports of Label Studio, doccano and Prodigy. A folder has a sub-folder of text files for each label,
    or is a Hugging Face dataset on disk. Content and suffix tell the format. Columns are found by name
    (`TEXT_NAMES`, `LABEL_NAMES`, in any case, `text` and `label`/`labels` first) unless `text` and `label`
    name them; no label column means that nothing is labelled, and with `labels=False` none is looked for.
    Columns `aug_0`, `aug_1`, ... become views; an empty view is the text itself.

    Not labelled: null, a missing key, an empty cell, NaN, the number -1. The string "-1" is refused. Whole
    floats become ints, other floats are refused. Lists become tuples (`[]`: known to have no label).
    A csv column whose cells are all whole numbers is read as ints; cells like `["a", "b"]` are lists; cells
    like `a;b` or `a|b` are several labels only if the column is named `labels` or `tags`. Null texts are "".

    Raises BadInput: one sentence that names the file and the line, record or row (from 1, header included).
    """
    given = as_files(source if isinstance(source, (list, tuple)) else [source])
    return concat_corpora([_read(one, text, label, labels=labels) for one in given])


def _read(source: Any, text: str | None, label: str | None, *, labels: bool) -> Corpus:
    """Texts and labels of one file or frame."""
    if isinstance(source, File):
        shown, folder = source.name, Path(source.path)
        table = folder_table(folder) if folder.is_dir() else read_table(source, header_names(text, label))
    else:
        shown = f"the {type(source).__name__}"
        table = frame(source, shown)
    if not table.rows:
        raise BadInput(f"{shown} has no rows; give at least one text")
    column = find_column(table, shown, text, "text")
    if column is None and not isinstance(source, File) and len(table.names) == 1:
        column = table.names[0]
    return _corpus(table, shown, column, find_column(table, shown, label, "label") if labels else None)


def header_names(*given: str | None) -> set[str]:
    """Names, in lower case, by which a header is known."""
    return {name.strip().lower() for name in (*TEXT_NAMES, *filter(None, given))}


def _corpus(table: SourceTable, shown: str, text_column: str | None, label_column: str | None) -> Corpus:
    if text_column is None:
        raise BadInput(no_text(table, shown))
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
    for name in view_columns(table.names):
        column = text_cells(table.column(name), column=name, where=where)
        views.append([view if view.strip() else text for view, text in zip(column, texts, strict=True)])
    return Corpus(texts, found, list(zip(*views, strict=True)), shown)


def concat_corpora(corpora: Sequence[Corpus]) -> Corpus:
    """Corpora one after the other, under all of their names."""
    parts = [corpus for corpus in corpora if len(corpus)] or list(corpora[:1])
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    return replace(whole, source=", ".join(dict.fromkeys(part.source for part in parts)))


def folder_table(folder: Path) -> SourceTable:
    """A dataset on disk, or one sub-folder of text files for each label; `unlabelled` and `unsup` hold the others."""
    if (dataset := dataset_folder(folder)) is not None:
        return dataset
    files = sorted(file for file in folder.glob("*/*") if file.is_file() and not file.name.startswith("."))
    if not files:
        raise BadInput(f"{folder} is a folder; give one file inside it, or a folder with one sub-folder of text files "
                       "for each label")
    texts = [File(str(file)).text() for file in files]
    names = [None if file.parent.name.lower() in UNLABELLED else file.parent.name for file in files]
    columns: dict[str, list[Any]] = {"text": texts, "label": names}
    return SourceTable(["text", "label"], len(files), columns.__getitem__, lambda i: f"file {files[i].relative_to(folder)}",
                 typed=True)


def find_column(table: SourceTable, shown: str, given: str | None, role: str) -> str | None:
    """The column for a role: the one given, or named exactly so, or the only one with a usual name."""
    if given is not None:
        found = [name for name in table.names if name == given]
        found = found or [name for name in table.names if name.strip().lower() == given.strip().lower()]
        if not found:
            there = f"its columns are {listed(table.names)}"
            raise BadInput(f"{shown} has no column {given!r}; {there}: name one with --{role}-column")
    elif role in table.roles:
        return table.roles[role]
    else:
        found = usual_columns(table.names, role)
    if len(found) > 1:
        raise BadInput(f"{shown}: {listed(found)} could each be the {role}s; name one with --{role}-column")
    return found[0] if found else None


def no_text(table: SourceTable, shown: str) -> str:
    remedy = (
        "name the text column with --text-column, or put a first line such as 'text,label' above the data"
    )
    return f"{shown}: none of the columns {listed(table.names)} is known to hold texts; {remedy}"


def usual_columns(names: Sequence[str], role: str) -> list[str]:
    """The columns that hold the texts or labels by their names: the one named exactly so, or those with usual names."""
    found = [name for name in names if name == role]
    for wanted in USUAL[role]:
        found = found or [name for name in names if name.strip().lower() in wanted]
    return found


def listed(names: Sequence[str]) -> str:
    """Names of columns, as many as fit into a sentence."""
    short = [repr(name if len(name) <= 40 else name[:37] + "...") for name in names[:12]]
    return ", ".join(short) + (", ..." if len(names) > 12 else "")


def view_columns(names: Sequence[str]) -> list[str]:
    """The columns that hold strong views, in the order of their numbers."""
    matches = [re.fullmatch(r"aug_(\d{1,4})", name) for name in names]
    return sorted((match[0] for match in matches if match), key=lambda name: int(name[4:]))
