"""Large parts are read once into an Arrow file of the cache, named by the content of their files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import overload

from halflabel.atomic import cache_folder, write_folder
from halflabel.data.columns import TextColumn, write_arrow
from halflabel.data.corpus import Corpus, Label
from halflabel.data.readers.files import File

VERSION = 1  # of what stands in the folder and of how files are read
FILE = "texts.arrow"
BATCH = 8192
Rows = Callable[[], Iterable[tuple[str, str]]]  # texts, and labels as the store keeps them


class Kept(Sequence[str]):
    """Stored texts to draw from: what is drawn is a list, so that a run encodes no more than its own texts."""

    def __init__(self, texts: TextColumn) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        return self.texts[i]


def stored(name: str, files: Sequence[File], rows: Rows, label: Callable[[str], Label | tuple[Label, ...]], *,
           drawn: bool) -> Corpus:
    """The rows as a corpus on disk, read only if no run did so before; `drawn`: parts of it will be taken."""
    key = hashlib.blake2b(json.dumps([VERSION, name, [file.digest() for file in files]]).encode(),
                          digest_size=16).hexdigest()
    place = cache_folder() / "corpora" / key
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        write_folder(place, lambda folder: _write(folder / FILE, rows()), shared=True)
    texts = TextColumn(place / FILE, key)
    known: dict[str, Label | tuple[Label, ...]] = {}
    labels: list[Label | tuple[Label, ...] | None] = []
    for one in TextColumn(place / FILE, key, "label"):
        if one not in known:
            known[one] = label(one)
        labels.append(known[one])
    return Corpus(Kept(texts) if drawn else texts, labels, source=", ".join(file.name for file in files))


def _write(file: Path, rows: Iterable[tuple[str, str]]) -> None:
    import pyarrow as pa

    schema = pa.schema([("text", pa.large_string()), ("label", pa.large_string())])

    def batches() -> Iterator[pa.RecordBatch]:
        left = iter(rows)
        while some := list(islice(left, BATCH)):
            yield pa.RecordBatch.from_arrays([pa.array(column, pa.large_string())
                                              for column in zip(*some, strict=True)], schema=schema)

    write_arrow(file, batches(), schema)
