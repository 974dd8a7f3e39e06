"""The train, dev and test parts of a corpus: files in a folder, a cache of large parts, the counts of Table 1."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import overload

from halflabel.atomic import cache_folder, write_folder
from halflabel.bench.paper import statistics
from halflabel.cache_limit import in_use
from halflabel.data.columns import TextColumn, write_arrow
from halflabel.data.corpus import Corpus, Label
from halflabel.data.readers.files import File
from halflabel.errors import DataError

PUBLISHED_SIZES = {"yahoo": 1_400_000}  # training texts of the published file where Table 1 has another number
CACHE_VERSION = 1  # of the cached file and of how corpora are parsed
CACHED_FILE = "texts.arrow"
BATCH = 8192  # rows that are written at a time
Rows = Callable[[], Iterable[tuple[str, str]]]  # texts, and labels as strings


@dataclass(frozen=True)
class CorpusParts:
    """The parts of a corpus; without a dev part, dev texts are sampled from the training texts."""

    train: Corpus
    dev: Corpus | None
    test: Corpus
    notices: tuple[str, ...] = ()


def find_file(folder: Path, name: str) -> File | None:
    """A file of the folder, plain or compressed by gzip."""
    paths = (folder / f"{name}{suffix}" for suffix in ("", ".gz"))
    return next((File(str(path)) for path in paths if path.is_file()), None)


def require_files(folder: Path, names: Sequence[str]) -> list[File]:
    """The files of these names; an error if one is missing."""
    files = [find_file(folder, name) for name in names]
    if missing := [name for name, file in zip(names, files, strict=True) if file is None]:
        raise DataError(f"{folder} lacks {', '.join(missing)}; put {'it' if len(missing) == 1 else 'them'} next to the "
                        "other files of the corpus")
    return [file for file in files if file is not None]


def compare_with_paper(name: str, parts: CorpusParts) -> CorpusParts:
    """The parts, with a notice if their counts differ from Table 1."""
    expected = statistics().get(name)
    if expected is None:
        return parts
    labels = [*parts.train.labels, *parts.test.labels]
    classes = {k for label in labels for k in (label if isinstance(label, tuple) else (label,)) if k is not None}
    counts = [("training texts", len(parts.train), expected.train), ("test texts", len(parts.test), expected.test),
              ("classes", len(classes), expected.classes)]
    differences = [f"{count:,} {what} (the paper: {wanted:,})" for what, count, wanted in counts if count != wanted]
    if expected.labels_per_text is not None:
        sizes = [len(label) for label in labels if isinstance(label, tuple)]
        mean = sum(sizes) / max(1, len(sizes))
        if f"{mean:.2f}" != f"{expected.labels_per_text:.2f}":
            differences.append(f"{mean:.2f} labels per text (the paper: {expected.labels_per_text:.2f})")
    if not differences:
        return parts
    if len(parts.train) == PUBLISHED_SIZES.get(name):
        differences.append("as many training texts as the published file")
    notice = f"{name} differs from the paper's corpus: it has {', '.join(differences)}"
    return replace(parts, notices=(*parts.notices, notice))


class SampledTexts(Sequence[str]):
    """Texts on disk whose subsets are lists in memory, so that a run encodes only its own sample."""

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


def cached_corpus(name: str, files: Sequence[File], rows: Rows, parse_label: Callable[[str], Label | tuple[Label, ...]],
                  *, sampled: bool) -> Corpus:
    """The rows as a corpus in the cache, keyed by the content of the files and parsed once.

    `sampled` marks a part that runs take subsets of.
    """
    key = hashlib.blake2b(json.dumps([CACHE_VERSION, name, [file.digest() for file in files]]).encode(),
                          digest_size=16).hexdigest()
    folder = cache_folder() / "corpora" / key
    lock = in_use(folder, lambda: write_folder(folder, lambda new: _write(new / CACHED_FILE, rows()), shared=True))
    texts = TextColumn(folder / CACHED_FILE, key, lock=lock)
    parsed: dict[str, Label | tuple[Label, ...]] = {}
    labels: list[Label | tuple[Label, ...] | None] = []
    for label in TextColumn(folder / CACHED_FILE, key, "label"):
        if label not in parsed:
            parsed[label] = parse_label(label)
        labels.append(parsed[label])
    return Corpus(SampledTexts(texts) if sampled else texts, labels, source=", ".join(file.name for file in files))


def _write(file: Path, rows: Iterable[tuple[str, str]]) -> None:
    import pyarrow as pa

    schema = pa.schema([("text", pa.large_string()), ("label", pa.large_string())])

    def batches() -> Iterator[pa.RecordBatch]:
        rest = iter(rows)
        while batch := list(islice(rest, BATCH)):
            yield pa.RecordBatch.from_arrays([pa.array(column, pa.large_string())
                                              for column in zip(*batch, strict=True)], schema=schema)

    write_arrow(file, batches(), schema)
