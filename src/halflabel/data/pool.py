"""Pools of any size: unlabelled texts are read once into an Arrow file in the cache and accessed there.

A pool is identified by the content of its files, so that every run over the same files finds it, whatever their names.
It is built in a temporary folder that is then renamed: two runs that build the same pool at once do the work twice,
without harm.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from halflabel.atomic import cache_folder, write_folder
from halflabel.cache_limit import in_use
from halflabel.data.columns import TextColumn, arrow_strings, write_arrow
from halflabel.data.corpus import Corpus, Repeated, Zipped, columns_of, prefetch
from halflabel.data.labels import text_cells
from halflabel.data.readers.files import File, as_files, reading_as, within_memory
from halflabel.data.readers.formats import Row, SourceTable, detect_format
from halflabel.data.readers.read import (
    find_column,
    find_text,
    join_texts,
    no_text_column,
    read,
    read_options,
    view_columns,
)
from halflabel.errors import DataError
from halflabel.notices import Notice, dropped

VERSION = 1  # of the content of the folder
TEXTS_FILE = "texts.arrow"
INFO_FILE = "pool.json"
# Matches a character that is surely not whitespace; for texts without one Python decides.
NOT_BLANK = r"[^\s\p{Z}\x00-\x20\x{85}]"
BATCH = 1 << 15  # texts in a record batch
BATCH_BYTES = 1 << 24  # beyond which record batches get smaller
PARTITIONS = 64  # of the hashes, of which one is in memory at a time


@dataclass(frozen=True)
class PoolSource:
    """A source of pool texts: a file that is read in batches, or a corpus in memory."""

    name: str
    views: list[str]
    file: File | None = None
    texts: tuple[str, ...] = ("text",)  # columns, whose texts are joined
    corpus: Corpus | None = None
    has_labels: bool = False  # which are ignored

    def digest(self) -> str:
        """A hash of the content."""
        if self.file is not None:
            return self.file.digest()
        assert self.corpus is not None, "a file or a corpus"
        return _hash(json.dumps([list(self.corpus.texts), list(self.corpus.views)]).encode("ascii"))

    def batches(self) -> Iterator[list[Any]]:
        """Batches of texts and views, each column as Arrow strings."""
        if self.file is None:
            assert self.corpus is not None, "a file or a corpus"
            columns = [self.corpus.texts, *(columns_of(self.corpus.views) if self.corpus.views else [])]
            for start in range(0, len(self.corpus), BATCH):
                yield [arrow_strings(column[start : start + BATCH]) for column in columns]
            return
        options = read_options(*self.texts)
        stream = detect_format(self.file, options).stream
        assert stream is not None, "only files that are read in batches"
        number = len(self.texts)
        for columns in stream(self.file, options, [*self.texts, *self.views]):
            yield [self._joined(columns[:number]), *columns[number:]]

    def _joined(self, columns: list[Any]) -> Any:
        if len(columns) == 1:
            return columns[0]
        return arrow_strings(join_texts([[cell or "" for cell in column.to_pylist()] for column in columns]))

    def rows(self, part: tuple[int, int] | None = None) -> Iterator[list[Row]]:
        """Batches of rows, or of those from start to stop: the text as `text`, and all other columns as they are."""
        options = read_options(*self.texts)
        form = None if self.file is None else detect_format(self.file, options)
        with within_memory(self.name):
            if self.file is None or form is None or form.rows is None:
                yield from ([{"text": text or ""} for text in columns[0].to_pylist()] for columns in self.batches())
                return
            batches = form.rows(self.file, options) if part is None or not form.part else form.part(self.file, *part)
            yield from (self._with_text(rows, position) for rows, position in batches)

    def _with_text(self, rows: list[Row], position: Callable[[int], str]) -> list[Row]:
        texts = join_texts([text_cells([row.pop(name, None) for row in rows], column=name,
                                       where=lambda i: f"{self.name}, {position(i)}") for name in self.texts])
        return [row | {"text": text} for row, text in zip(rows, texts, strict=True)]


def open_source(source: Any, text: str | None = None) -> PoolSource:
    """A file whose format can be streamed, of which only the head is read now; anything else is read into memory."""
    if isinstance(source, Corpus):
        number = len(source.views[0]) if source.views else 0
        return PoolSource(source.source, [f"aug_{i}" for i in range(number)], corpus=source)
    options = read_options(text)
    form = detect_format(source, options) if isinstance(source, File) and not Path(source.path).is_dir() else None
    if form is None or form.stream is None:
        return open_source(read(source, text=text, labels=False))
    with within_memory(source.name):
        table = (form.head or form.read)(source, options)
    if not table.rows:
        raise DataError(f"{source.name} has no rows; give at least one text")
    columns = find_text(table, source.name, text)
    if not columns:
        raise no_text_column(table, source.name)
    return PoolSource(source.name, view_columns(table.names), source, tuple(columns),
                      has_labels=_has_labels(table, source.name, columns))


def _has_labels(table: SourceTable, source: str, texts: list[str]) -> bool:
    """Whether the first rows have labels."""
    try:
        column = find_column(table, source, None, "label")
    except DataError:  # two columns could be the labels, which does not matter for ignoring them
        return False
    return column not in (None, *texts) and any(cell not in (None, "", -1) for cell in table.column(str(column)))


def open_pool(sources: Any, *, text: str | None = None, encoding: str | None = None, header: bool | None = None,
              sheet: str | None = None, folder: Path | None = None) -> tuple[Corpus, list[Notice]]:
    """The distinct, non-empty texts of files, globs, frames or corpora as a lazy corpus, and notices about them."""
    given = sources if isinstance(sources, (list, tuple)) else [sources]
    with reading_as(encoding, header, sheet):
        opened = [open_source(source, text) for source in as_files(given)]
    views = opened[0].views if len({tuple(source.views) for source in opened}) == 1 else []
    name = ", ".join(dict.fromkeys(source.name for source in opened))
    key = _hash(json.dumps([VERSION, views, [[source.digest(), *source.texts] for source in opened]]).encode())
    path = (folder or cache_folder() / "pools") / key
    with within_memory(name):
        lock = in_use(path, lambda: write_folder(path, lambda new: _build(new, opened, views), shared=True))
    info = json.loads((path / INFO_FILE).read_text(encoding="utf-8"))
    notices = [Notice(f"the labels in {source.name} are not used for training; --truth measures pseudo-labels by them")
               for source in opened if source.has_labels]
    notices += dropped(info["empty"], "empty text", name)
    notices += dropped(info["duplicates"], "duplicate text", name)
    texts = TextColumn(path / TEXTS_FILE, key, lock=lock)
    rows = Zipped([TextColumn(path / TEXTS_FILE, f"{key}-{view}", view, lock) for view in views]) if views else []
    return Corpus(texts, Repeated(None, len(texts)), rows, name), notices


def _build(folder: Path, sources: Sequence[PoolSource], views: list[str]) -> None:
    """Writes the texts and views without empty and duplicate texts, and pool.json about them."""
    import pyarrow as pa

    names = ["text", *views]
    schema = pa.schema([(name, pa.large_string()) for name in names])
    empty = 0

    def batches(hashes: RowHashes) -> Iterator[Any]:
        nonlocal empty
        for source in sources:
            for columns in prefetch(source.batches()):
                kept = _drop_blank(columns[: len(names)])
                empty += len(columns[0]) - len(kept[0])
                texts = kept[0].cast(pa.large_binary()).to_pylist()
                hashes.add(np.fromiter(map(hash, texts), np.int64, len(texts)))
                yield from _smaller(pa.RecordBatch.from_arrays(kept, schema=schema))

    with RowHashes(folder) as hashes:
        write_arrow(folder / TEXTS_FILE, batches(hashes), schema)
        duplicates = hashes.duplicates()
    if len(duplicates):
        _remove_rows(folder / TEXTS_FILE, duplicates, schema)
    info = {"version": VERSION, "texts": hashes.rows - len(duplicates), "empty": empty, "duplicates": len(duplicates),
            "from": [source.name for source in sources]}
    (folder / INFO_FILE).write_text(json.dumps(info), encoding="utf-8")


def _drop_blank(columns: list[Any]) -> list[Any]:
    """The columns without rows whose text is blank; a blank view is replaced by the text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def not_blank(column: Any) -> Any:
        matches = pc.match_substring_regex(column, NOT_BLANK)
        if matches.null_count:  # fill_null makes Arrow import pandas, so only if it is needed
            matches = matches.fill_null(False)
        if pc.all(matches).as_py():
            return matches
        mask = np.array(matches)
        unsure = np.flatnonzero(~mask)
        mask[unsure] = [bool((column[int(i)].as_py() or "").strip()) for i in unsure]
        return pa.array(mask)

    mask = not_blank(columns[0])
    if not pc.all(mask).as_py():
        columns = [column.filter(mask) for column in columns]
    return [columns[0], *(pc.if_else(not_blank(view), view, columns[0]) for view in columns[1:])]


def _smaller(batch: Any) -> Iterator[Any]:
    """A record batch in slices of limited size, since a pass over the pool maps one at a time."""
    size = max(1, min(BATCH, int(BATCH * BATCH_BYTES / max(batch.nbytes, 1))))
    return (batch.slice(start, size) for start in range(0, batch.num_rows, size))


class RowHashes(ExitStack):
    """64-bit hashes of rows on disk, partitioned so that only one partition is in memory at a time.

    In a pool of a million texts, two different ones share a hash, and the second counts as a duplicate, with a
    probability of one in 30 million.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.rows = 0
        self.files = [self.enter_context(TemporaryFile(dir=folder)) for _ in range(PARTITIONS)]  # noqa: SIM115

    def add(self, hashes: np.ndarray) -> None:
        """Appends the hashes of the next rows, (N,)."""
        pairs = np.stack([hashes, np.arange(self.rows, self.rows + len(hashes))], axis=1)
        self.rows += len(hashes)
        partition = (hashes % PARTITIONS).astype(np.uint8)
        order = np.argsort(partition, kind="stable")
        ends = np.cumsum(np.bincount(partition, minlength=PARTITIONS))
        for file, members in zip(self.files, np.split(pairs[order], ends[:-1]), strict=True):
            file.write(members.tobytes())

    def duplicates(self) -> np.ndarray:
        """The rows that have the hash of an earlier row, in order."""
        rows = [np.empty(0, np.int64)]
        for file in self.files:
            file.seek(0)
            hashes, numbers = np.frombuffer(file.read(), np.int64).reshape(-1, 2).T
            rows.append(np.delete(numbers, np.unique(hashes, return_index=True)[1]))
        return np.sort(np.concatenate(rows))


def _remove_rows(file: Path, rows: np.ndarray, schema: Any) -> None:
    """Rewrites an Arrow file without the given rows, which are increasing."""
    import pyarrow as pa

    original = file.with_name("all.arrow")
    file.rename(original)
    with pa.memory_map(str(original)) as source:
        reader = pa.ipc.open_file(source)

        def kept() -> Iterator[Any]:
            start = 0
            for i in range(reader.num_record_batches):
                batch = reader.get_batch(i)
                mask = np.ones(batch.num_rows, dtype=bool)
                mask[rows[slice(*np.searchsorted(rows, [start, start + batch.num_rows]))] - start] = False
                yield batch.filter(pa.array(mask))
                start += batch.num_rows

        write_arrow(file, kept(), schema)
    original.unlink()


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
