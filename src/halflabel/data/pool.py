"""A pool of any size: unlabelled texts are read once into an Arrow file and looked at where they lie.

A pool is named by the content of its files, so that every run over the same files finds it, whatever they are called.
It is built beside its place and renamed: two runs that build the same pool at once do the work twice and no harm.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from halflabel.atomic import cache_folder, write_folder
from halflabel.data.columns import TextColumn, strings, write_arrow
from halflabel.data.corpus import Corpus
from halflabel.data.readers.files import File, as_files
from halflabel.data.readers.formats import SourceTable, detect_format
from halflabel.data.readers.read import find_column, header_names, no_text, read, view_columns
from halflabel.data.sequences import Repeated, Zipped, columns_of, prefetch
from halflabel.errors import BadInput
from halflabel.notices import Notice, dropped

VERSION = 1  # of what stands in the folder
FILE = "texts.arrow"
ABOUT = "pool.json"
# Anything but white space, as far as Arrow can tell; what it cannot tell is asked of Python.
SOLID = r"[^\s\p{Z}\x00-\x20\x{85}]"
SPREAD = 1 << 15  # texts in a batch of the file
PARTS = 64  # of the hashes, which are sorted one after the other


@dataclass(frozen=True)
class PoolSource:
    """Where texts come from: a file that is read in pieces, or a corpus in memory."""

    name: str
    views: list[str]
    file: File | None = None
    text: str = "text"
    corpus: Corpus | None = None
    labels: bool = False  # whether there are labels that nobody looks at

    def digest(self) -> str:
        """What names the content."""
        if self.file is not None:
            return self.file.digest()
        assert self.corpus is not None, "a file or a corpus"
        return _digest(json.dumps([list(self.corpus.texts), list(self.corpus.views)]).encode("ascii"))

    def batches(self) -> Iterator[list[Any]]:
        """Texts and views as Arrow strings, a batch of each at a time."""
        if self.file is None:
            assert self.corpus is not None, "a file or a corpus"
            columns = [self.corpus.texts, *(columns_of(self.corpus.views) if self.corpus.views else [])]
            for at in range(0, len(self.corpus), SPREAD):
                yield [strings(column[at : at + SPREAD]) for column in columns]
            return
        wanted = header_names(self.text)
        form = detect_format(self.file, wanted)
        assert form.stream is not None, "only files that are read in pieces"
        yield from form.stream(self.file, wanted, [self.text, *self.views])


def open_source(source: Any, text: str | None = None) -> PoolSource:
    """What is read in pieces is only looked into; the rest is read."""
    if isinstance(source, Corpus):
        width = len(source.views[0]) if source.views else 0
        return PoolSource(source.source, [f"aug_{i}" for i in range(width)], corpus=source)
    if not isinstance(source, File) or Path(source.path).is_dir():
        return open_source(read(source, text=text, labels=False))
    file, wanted = source, header_names(text)
    form = detect_format(file, wanted)
    if form.stream is None:
        return open_source(read(source, text=text, labels=False))
    table: SourceTable = (form.head or form.read)(file, wanted)
    if not table.rows:
        raise BadInput(f"{file.name} has no rows; give at least one text")
    column = find_column(table, file.name, text, "text")
    if column is None:
        raise BadInput(no_text(table, file.name))
    return PoolSource(file.name, view_columns(table.names), file, column,
                  labels=_labels(table, file.name, column))


def _labels(table: SourceTable, shown: str, text: str) -> bool:
    """Whether the first rows have labels."""
    try:
        found = find_column(table, shown, None, "label")
    except BadInput:  # two columns could be the labels: nobody looks at them, so it does not matter
        return False
    return found not in (None, text) and any(cell not in (None, "", -1) for cell in table.column(str(found)))


def open_pool(sources: Any, *, text: str | None = None, folder: Path | None = None) -> tuple[Corpus, list[Notice]]:
    """The different, not empty texts of files, globs, frames or corpora, and what is worth knowing about them."""
    given = sources if isinstance(sources, (list, tuple)) else [sources]
    origins = [open_source(one, text) for one in as_files(given)]
    views = origins[0].views if len({tuple(one.views) for one in origins}) == 1 else []
    shown = ", ".join(dict.fromkeys(one.name for one in origins))
    key = _digest(json.dumps([VERSION, views, [[one.digest(), one.text] for one in origins]]).encode())
    place = (folder or cache_folder() / "pools") / key
    if not (place / ABOUT).is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        write_folder(place, lambda new: _build(new, origins, views), shared=True)
    about = json.loads((place / ABOUT).read_text(encoding="utf-8"))
    notices = [Notice(f"the labels in {one.name} are not used; --truth uses them for measuring only")
               for one in origins if one.labels]
    notices += dropped(about["empty"], "empty text", shown)
    notices += dropped(about["duplicates"], "duplicate text", shown)
    texts = TextColumn(place / FILE, key)
    ready = Zipped([TextColumn(place / FILE, f"{key}-{name}", name) for name in views]) if views else []
    return Corpus(texts, Repeated(None, len(texts)), ready, shown), notices


def _build(folder: Path, origins: Sequence[PoolSource], views: list[str]) -> None:
    import pyarrow as pa

    names = ["text", *views]
    schema = pa.schema([(name, pa.large_string()) for name in names])
    empty = 0

    def batches(seen: Seen) -> Iterator[Any]:
        nonlocal empty
        for one in origins:
            for columns in prefetch(one.batches()):
                kept = _solid(columns[: len(names)])
                empty += len(columns[0]) - len(kept[0])
                seen.add(np.fromiter(map(hash, kept[0].cast(pa.large_binary()).to_pylist()), np.int64, len(kept[0])))
                yield from _spread(pa.RecordBatch.from_arrays(kept, schema=schema))

    with Seen(folder) as seen:
        write_arrow(folder / FILE, batches(seen), schema)
        again = seen.again()
    if len(again):
        _leave_out(folder / FILE, again, schema)
    about = {"version": VERSION, "texts": seen.number - len(again), "empty": empty, "duplicates": len(again),
             "from": [one.name for one in origins]}
    (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")


def _solid(columns: list[Any]) -> list[Any]:
    """The columns without rows whose text is empty; an empty view is the text itself."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def solid(column: Any) -> Any:
        found = pc.match_substring_regex(column, SOLID)
        if found.null_count:  # else there is nothing to fill, and no need for Arrow to import pandas
            found = found.fill_null(False)
        if pc.all(found).as_py():
            return found
        unsure = np.flatnonzero(~np.asarray(found))
        mask = np.array(found)
        mask[unsure] = [bool((column[int(i)].as_py() or "").strip()) for i in unsure]
        return pa.array(mask)

    mask = solid(columns[0])
    if not pc.all(mask).as_py():
        columns = [column.filter(mask) for column in columns]
    return [columns[0], *(pc.if_else(solid(view), view, columns[0]) for view in columns[1:])]


def _spread(batch: Any) -> Iterator[Any]:
    """A batch in parts that are small enough to be held in memory one at a time."""
    size = max(1, min(SPREAD, int(SPREAD * (1 << 24) / max(batch.nbytes, 1))))
    return (batch.slice(at, size) for at in range(0, batch.num_rows, size))


class Seen(ExitStack):
    """Hashes of 64 bits on disk, dealt out by their last bits, so that a part of them is in memory at a time.

    Two different texts of a million share a hash, and the second is taken for a duplicate, once in 30 million pools.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.number = 0
        self.parts = [self.enter_context(TemporaryFile(dir=folder)) for _ in range(PARTS)]  # noqa: SIM115

    def add(self, hashes: np.ndarray) -> None:
        """Notes the hashes of the next rows, (N,)."""
        pairs = np.stack([hashes, np.arange(self.number, self.number + len(hashes))], axis=1)
        self.number += len(hashes)
        number = (hashes % PARTS).astype(np.uint8)
        order = np.argsort(number, kind="stable")
        for part, some in zip(self.parts, np.split(pairs[order], np.cumsum(np.bincount(number, minlength=PARTS))[:-1]),
                              strict=True):
            part.write(some.tobytes())

    def again(self) -> np.ndarray:
        """Rows whose hash an earlier row has, in order."""
        found = [np.empty(0, np.int64)]
        for part in self.parts:
            part.seek(0)
            hashes, rows = np.frombuffer(part.read(), np.int64).reshape(-1, 2).T
            found.append(np.delete(rows, np.unique(hashes, return_index=True)[1]))
        return np.sort(np.concatenate(found))


def _leave_out(file: Path, rows: np.ndarray, schema: Any) -> None:
    """The file anew, without those rows, which rise."""
    import pyarrow as pa

    raw = file.with_name("all.arrow")
    file.rename(raw)
    with pa.memory_map(str(raw)) as source:
        opened = pa.ipc.open_file(source)

        def kept() -> Iterator[Any]:
            at = 0
            for i in range(opened.num_record_batches):
                batch = opened.get_batch(i)
                mask = np.ones(batch.num_rows, dtype=bool)
                mask[rows[slice(*np.searchsorted(rows, [at, at + batch.num_rows]))] - at] = False
                yield batch.filter(pa.array(mask))
                at += batch.num_rows

        write_arrow(file, kept(), schema)
    raw.unlink()


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
