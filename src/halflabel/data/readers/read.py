"""Reads files, folders and frames as a `Corpus`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from halflabel.data.corpus import Corpus, TextLabel
from halflabel.data.labels import label_cells, text_cells
from halflabel.data.readers.columnar import dataset_folder, frame_table
from halflabel.data.readers.files import File, as_files, reading_as, within_memory
from halflabel.data.readers.formats import ReadOptions, SourceTable, numbered, read_table
from halflabel.errors import DataError

TEXT_NAMES = (
    "text", "texts", "sentence", "sentences", "content", "body", "message", "review", "comment", "utterance",
    "document", "title",
)  # fmt: skip
LABEL_NAMES = ("label", "labels", "class", "category", "target", "tag", "tags", "topic", "intent", "queue")
USUAL_NAMES = {"text": (TEXT_NAMES[:1], TEXT_NAMES), "label": (LABEL_NAMES[:2], LABEL_NAMES)}  # the best first
UNLABELLED_FOLDERS = ("unlabelled", "unlabeled", "unsup")


def read(source: Any, *, text: str | None = None, label: str | None = None, labels: bool = True,
         encoding: str | None = None, header: bool | None = None, sheet: str | None = None) -> Corpus:
    """Texts and labels of a file, of standard input ("-"), of several files or globs, or of a frame in memory.

    Files are csv, tsv, xlsx, jsonl, json, parquet, arrow or txt (one text per line), optionally compressed by gzip or
    zstd, and exports of Label Studio, doccano and Prodigy. A folder has one subfolder of text files for each label, or
    is a Hugging Face dataset on disk. The format is detected by content and suffix. Columns are found by name
    (`TEXT_NAMES`, `LABEL_NAMES`, in any case, `text` and `label`/`labels` first) unless `text` and `label` name them;
    `text="title,body"` joins two columns. Without a label column nothing is labelled, and `labels=False` ignores
    labels. The columns `aug_0`, `aug_1`, ... become views; an empty view is replaced by the text itself.

    Text files are UTF-8 unless `encoding` names another encoding of Python, such as cp1252. With `header=False` the
    first line of a csv, tsv or Excel file is data, and columns are named by their numbers: `text="1", label="2"`. Of an
    Excel workbook the first sheet is read unless `sheet` names another.

    Not labelled: null, a missing key, an empty cell, NaN, the number -1. The string "-1" is refused. Whitespace around
    the name of a label is removed. Whole floats become ints, other floats are refused. Lists become tuples (`[]`: known
    to have no label). A csv column whose cells are all whole numbers is read as ints; cells like `["a", "b"]` are
    lists; cells like `a;b` or `a|b` are several labels only in a column named `labels` or `tags`. Null texts are "".

    Raises DataError: one sentence that names the file and the line, record or row (from 1, including the header).
    """
    with reading_as(encoding, header, sheet):
        sources = as_files(source if isinstance(source, (list, tuple)) else [source])
        return concat_corpora([_read(file, text, label, labels=labels) for file in sources])


def _read(source: Any, text: str | None, label: str | None, *, labels: bool) -> Corpus:
    """Texts and labels of one file or frame."""
    name = source.name if isinstance(source, File) else f"the {type(source).__name__}"
    with within_memory(name):
        if isinstance(source, File):
            folder = Path(source.path)
            table = folder_table(folder) if folder.is_dir() else read_table(source, read_options(text, label))
        else:
            table = frame_table(source, name)
        if not table.rows:
            raise DataError(f"{name} has no rows; give at least one text")
        columns = find_text(table, name, text)
        if not columns and not isinstance(source, File) and len(table.names) == 1:
            columns = table.names
        return _corpus(table, name, columns, find_column(table, name, label, "label") if labels else None)


def read_options(*columns: str | None) -> ReadOptions:
    """Options to read files in which the usual text columns and the given columns indicate a header."""
    names = [part for name in filter(None, columns) for part in (name, *name.split(","))]
    return ReadOptions(frozenset(name.strip().lower() for name in (*TEXT_NAMES, *names)))


def _corpus(table: SourceTable, source: str, text_columns: list[str], label_column: str | None) -> Corpus:
    if not text_columns:
        raise no_text_column(table, source)
    if label_column in text_columns:
        raise DataError(f"{source}: the column {label_column!r} is named for both texts and labels; name two different "
                        "columns")

    def where(i: int) -> str:
        return f"{source}, {table.position(i)}"

    texts = join_texts([text_cells(table.column(name), column=name, where=where) for name in text_columns])
    labels: list[TextLabel] = [None] * table.rows
    if label_column is not None:
        labels = label_cells(table.column(label_column), typed=table.typed, column=label_column, where=where)
    views = []
    for name in view_columns(table.names):
        column = text_cells(table.column(name), column=name, where=where)
        views.append([view if view.strip() else text for view, text in zip(column, texts, strict=True)])
    return Corpus(texts, labels, list(zip(*views, strict=True)), source)


def concat_corpora(corpora: Sequence[Corpus]) -> Corpus:
    """Corpora one after the other; the source lists all of them."""
    parts = [corpus for corpus in corpora if len(corpus)] or list(corpora[:1])
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    return replace(whole, source=", ".join(dict.fromkeys(part.source for part in parts)))


def folder_table(folder: Path) -> SourceTable:
    """A dataset on disk, or one subfolder of text files for each label and for unlabelled texts."""
    if (dataset := dataset_folder(folder)) is not None:
        return dataset
    files = sorted(file for file in folder.glob("*/*") if file.is_file() and not file.name.startswith("."))
    if not files:
        raise DataError(f"{folder} is a folder; give one file inside it, or a folder with one subfolder of text files "
                        "for each label")
    columns: dict[str, list[Any]] = {
        "text": [File(str(file)).text() for file in files],
        "label": [None if file.parent.name.lower() in UNLABELLED_FOLDERS else file.parent.name for file in files]}
    return SourceTable(["text", "label"], len(files), columns.__getitem__,
                       lambda i: f"file {files[i].relative_to(folder)}", typed=True)


def find_column(table: SourceTable, source: str, name: str | None, role: str) -> str | None:
    """The text or label column: the named one, that of the format, or the only one with a usual name."""
    if name is not None:
        columns = [column for column in table.names if column == name]
        columns = columns or [column for column in table.names if column.strip().lower() == name.strip().lower()]
        if not columns:
            remedy = f"name one with --{role}-column"
            if name.strip().isdigit() and not table.typed:
                remedy += ", or add --no-header if its first line is data, which makes numbers the names of columns"
            raise DataError(f"{source} has no column {name!r}; its columns are {quoted_names(table.names)}: {remedy}")
    elif role in table.roles:
        return table.roles[role]
    else:
        columns = usual_columns(table.names, role)
    if len(columns) > 1:
        raise DataError(f"{source}: {quoted_names(columns)} could each be the {role} column; name one with "
                        f"--{role}-column")
    return columns[0] if columns else None


def find_text(table: SourceTable, source: str, name: str | None) -> list[str]:
    """The text column, if there is one; or those that a name like `title,body` lists, whose texts are joined."""
    if name is not None and "," in name and name not in table.names:
        return [str(find_column(table, source, part.strip(), "text")) for part in name.split(",")]
    column = find_column(table, source, name, "text")
    return [] if column is None else [column]


def join_texts(columns: Sequence[list[str]]) -> list[str]:
    """The texts of each row in one, a line for each column that is not blank."""
    if len(columns) == 1:
        return columns[0]
    return ["\n".join(cell for cell in cells if cell.strip()) for cells in zip(*columns, strict=True)]


def no_text_column(table: SourceTable, source: str) -> DataError:
    """The error about a table without a recognised text column."""
    remedy = "name the text column with --text-column"
    if table.names == numbered(len(table.names)):
        remedy = "give the numbers of its columns, such as --text-column 1 --label-column 2"
    elif not table.typed:
        remedy += ", or if the first line is no header, give --no-header --text-column 1 --label-column 2"
    return DataError(f"{source}: none of the columns {quoted_names(table.names)} is known to contain texts; {remedy}")


def usual_columns(names: Sequence[str], role: str) -> list[str]:
    """The columns that are texts or labels by their names: the one named exactly so, or those with usual names."""
    columns = [name for name in names if name == role]
    for usual in USUAL_NAMES[role]:
        columns = columns or [name for name in names if name.strip().lower() in usual]
    return columns


def quoted_names(names: Sequence[str]) -> str:
    """Names of columns for a message, shortened if there are many."""
    short = [repr(name if len(name) <= 40 else name[:37] + "...") for name in names[:12]]
    return ", ".join(short) + (", ..." if len(names) > 12 else "")


def view_columns(names: Sequence[str]) -> list[str]:
    """The columns of augmented views, in the order of their numbers."""
    matches = [re.fullmatch(r"aug_(\d{1,4})", name) for name in names]
    return sorted((match[0] for match in matches if match), key=lambda name: int(name[4:]))
