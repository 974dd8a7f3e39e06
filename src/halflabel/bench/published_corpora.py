"""The paper's six corpora as their authors publish them, and the parts of a corpus: files in a folder, a cache of large
parts, the counts of Table 1. AG News, Yelp and Yahoo (Zhang, Zhao and LeCun, 2015) are CSV of class index and fields.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np

from halflabel.atomic import cache_folder, write_folder
from halflabel.bench.paper import statistics
from halflabel.cache_limit import in_use
from halflabel.data.columns import TextColumn, write_arrow
from halflabel.data.corpus import Corpus, Label
from halflabel.data.readers.files import File, decode, line_blocks, split_lines
from halflabel.errors import DataError

PUBLISHED_SIZES = {"yahoo": 1_400_000}  # training texts of the published file where Table 1 has another number
CACHE_VERSION = 1  # of the cached file and of how corpora are parsed
CACHED_FILE = "texts.arrow"
BATCH = 8192  # rows that are written at a time
Rows = Callable[[], Iterable[tuple[str, str]]]  # texts, and labels as strings
CSV_FILES = ("train.csv", "test.csv")
HEADER = "class index"  # the first cell of a header that some copies have
# Ohsumed (Moschitti): a folder for each of 23 disease categories with a file for each abstract. An abstract of several
# categories is in each of their folders under the same name.
OHSUMED_CATEGORIES = tuple(f"C{k:02d}" for k in range(1, 24))
OHSUMED_HALVES = ("training", "test")  # folders of another edition, the first 20,000 documents
SPLIT_SEED = 0  # all runs share one split
# AAPD (Yang et al., SGM, 2018): a file of texts and a file of labels for each part, with a line for each abstract.
AAPD_FILES = tuple(f"{kind}_{part}" for part in ("train", "val", "test") for kind in ("text", "label"))
# RCV1-v2 (Lewis et al., 2004): token files, and a file of topics by document number.
RCV1_TOPICS = "rcv1-v2.topics.qrels"
RCV1_TRAIN = "lyrl2004_tokens_train.dat"
RCV1_TEST = tuple(f"lyrl2004_tokens_test_pt{i}.dat" for i in range(4))


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


@dataclass(frozen=True)
class CsvLayout:
    """The cells of a row: a class index from 1, then fields, some of which are joined to the text."""

    classes: tuple[Label, ...]
    fields: tuple[str, ...]
    text_fields: tuple[int, ...]
    escaped_break: re.Pattern[str] = re.compile(r"\\n")
    line_break: str = "\n"

    def parse(self, cells: list[str], where: str) -> tuple[str, str]:
        """Text and class index of a row."""
        if len(cells) != 1 + len(self.fields):
            raise DataError(f"{where}: {len(cells)} cells where class index, {', '.join(self.fields)} are expected; "
                            "use the CSV as published")
        if not (cells[0].isdecimal() and 1 <= int(cells[0]) <= len(self.classes)):
            raise DataError(f"{where}: {cells[0][:40]!r} is not a class index from 1 to {len(self.classes)}; use the "
                            "CSV as published")
        return self.join([cells[1 + i] for i in self.text_fields]), cells[0]

    def join(self, cells: Iterable[str]) -> str:
        """The text of some fields, unescaped."""
        plain = (self.escaped_break.sub(self.line_break, cell).replace('\\"', '"').strip() for cell in cells)
        return " ".join(filter(None, plain))

    def label(self, index: str) -> Label:
        return self.classes[int(index) - 1]


LAYOUTS = {
    "ag_news": CsvLayout(("World", "Sports", "Business", "Sci/Tech"), ("title", "description"), (1,),
                         re.compile(r"\\+"), " "),
    "yelp": CsvLayout((1, 2, 3, 4, 5), ("review",), (0,)),
    "yahoo": CsvLayout(("Society & Culture", "Science & Mathematics", "Health", "Education & Reference",
                        "Computers & Internet", "Sports", "Business & Finance", "Entertainment & Music",
                        "Family & Relationships", "Politics & Government"),
                       ("question title", "question content", "best answer"), (0, 1, 2)),
}


def read_class_csv(name: str, folder: Path) -> CorpusParts | None:
    """train.csv and test.csv; None if their headers are not those of the published files."""
    layout = LAYOUTS[name]
    if not all(_starts_with_class_index(file) for file in (find_file(folder, title) for title in CSV_FILES) if file):
        return None
    train, test = (cached_corpus(name, [file], partial(parse_rows, file, layout), layout.label, sampled=i == 0)
                   for i, file in enumerate(require_files(folder, CSV_FILES)))
    return CorpusParts(train, None, test)


def parse_rows(file: File, layout: CsvLayout) -> Iterator[tuple[str, str]]:
    """Texts and class indices, row by row."""
    limit = csv.field_size_limit(sys.maxsize)
    try:
        reader = csv.reader(_lines(file), strict=True)
        line = 1
        for cells in reader:
            if cells and not (line == 1 and cells[0].lower() == HEADER):
                yield layout.parse(cells, f"{file.name}, line {line}")
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{file.name}, line {line}: invalid CSV ({error}), the file may be truncated; unpack it "
                        "again") from None
    finally:
        csv.field_size_limit(limit)


def _lines(file: File) -> Iterator[str]:
    first = 1
    for block in line_blocks(file):
        yield from io.StringIO(decode(block, file.name, first=first), newline="\n")
        first += block.count(b"\n")


def _starts_with_class_index(file: File) -> bool:
    """Whether the first cell is a class index, or the header of one."""
    start = decode(file.head[: file.head.find(b"\n") + 1] or file.head, file.name).lstrip().lstrip('"')
    return start.lower().startswith(HEADER) or start[:1].isdecimal()


def read_ohsumed(name: str, folder: Path) -> CorpusParts:
    """All abstracts, of which a random 30 % are the test set (Sec. IV-A)."""
    roots = [folder / half for half in OHSUMED_HALVES if (folder / half).is_dir()] or [folder]
    for root in roots:
        if missing := [category for category in OHSUMED_CATEGORIES if not (root / category).is_dir()]:
            raise DataError(f"{root} has no folder {missing[0]}; unpack ohsumed-all-docs.tar.gz again, it holds C01 to "
                            "C23")
    categories: dict[str, list[str]] = {}
    files: dict[str, Path] = {}
    for category in OHSUMED_CATEGORIES:
        for file in sorted(path for root in roots for path in (root / category).iterdir() if path.is_file()):
            categories.setdefault(file.name, []).append(category)
            files.setdefault(file.name, file)
    documents = sorted(files)
    corpus = Corpus([_ohsumed_text(files[document]) for document in documents],
                    [tuple(categories[document]) for document in documents], source=str(folder))
    order = np.random.default_rng(SPLIT_SEED).permutation(len(corpus)).tolist()
    paper = statistics()[name]
    test = paper.test if len(corpus) == paper.train + paper.test else round(0.3 * len(corpus))
    return CorpusParts(corpus.take(sorted(order[test:])), None, corpus.take(sorted(order[:test])))


def _ohsumed_text(file: Path) -> str:
    text = File(str(file)).text().strip()
    if not text:
        raise DataError(f"{file} is empty; unpack the archive again")
    return text


def read_aapd(name: str, folder: Path) -> CorpusParts:
    """Training and validation part as one, as in the paper, and the test part."""
    files = require_files(folder, AAPD_FILES)
    train, val, test = (_aapd_part(*files[i : i + 2]) for i in (0, 2, 4))
    return CorpusParts(train + val, None, test)


def _aapd_part(texts: File, labels: File) -> Corpus:
    """A line of each file for each abstract; labels are separated by spaces."""
    text_lines, label_lines = split_lines(texts.text()), split_lines(labels.text())
    if len(text_lines) != len(label_lines):
        raise DataError(f"{texts.name} has {len(text_lines):,} lines and {labels.name} has {len(label_lines):,}; one "
                        "of them is truncated, unpack it again")
    for i, pair in enumerate(zip(text_lines, label_lines, strict=True), 1):
        for file, line in zip((texts, labels), pair, strict=True):
            if not line.strip():
                raise DataError(f"{file.name}, line {i} is empty; unpack the file again")
    return Corpus([line.strip() for line in text_lines], [tuple(dict.fromkeys(line.split())) for line in label_lines],
                  source=texts.name)


def read_rcv1(name: str, folder: Path) -> CorpusParts:
    """The training file, and the four test files as one."""
    topics, train, *test = require_files(folder, (RCV1_TOPICS, RCV1_TRAIN, *RCV1_TEST))
    assigned: dict[int, list[str]] = {}

    def rows(files: list[File]) -> Iterator[tuple[str, str]]:
        if not assigned:
            assigned.update(_rcv1_topics(topics))
        for file in files:
            for document, text in _rcv1_documents(file):
                if document not in assigned:
                    raise DataError(f"{topics.name} has no topic for document {document} of {file.name}; one of the "
                                    "files is truncated, unpack them again")
                yield text, " ".join(assigned[document])

    return CorpusParts(cached_corpus(name, [train, topics], partial(rows, [train]), _rcv1_label, sampled=True), None,
                       cached_corpus(name, [*test, topics], partial(rows, test), _rcv1_label, sampled=False))


def _rcv1_label(topics: str) -> tuple[Label, ...]:
    return tuple(topics.split())


def _rcv1_topics(file: File) -> dict[int, list[str]]:
    """The topics of each document, from lines such as `E11 2286 1`."""
    topics: dict[int, list[str]] = {}
    for number, line in _numbered_lines(file):
        cells = line.split()
        if not cells:
            continue
        if len(cells) != 3 or not cells[1].isdecimal() or cells[2] != "1":
            raise DataError(f"{file.name}, line {number}: {line[:40]!r} is not TOPIC DOCUMENT 1, the file may be "
                            "truncated; unpack it again")
        topics.setdefault(int(cells[1]), []).append(sys.intern(cells[0]))
    return topics


def _rcv1_documents(file: File) -> Iterator[tuple[int, str]]:
    """Numbers and tokens of documents, each of which starts with `.I NUMBER` and `.W`."""
    document, start, words = -1, 0, list[str]()

    def finished() -> tuple[int, str]:
        if not words or words[0] != ".W" or len(words) == 1:
            raise DataError(f"{file.name}, line {start}: document {document} has no words after .W, the file may be "
                            "truncated; unpack it again")
        return document, " ".join(words[1:])

    for number, line in _numbered_lines(file):
        cells = line.split()
        if line.startswith(".I"):
            if document >= 0:
                yield finished()
            if len(cells) != 2 or not cells[1].isdecimal():
                raise DataError(f"{file.name}, line {number}: {line[:40]!r} is not .I NUMBER; use a token file")
            document, start, words = int(cells[1]), number, []
        elif cells and document < 0:
            raise DataError(f"{file.name}, line {number}: {line[:40]!r} comes before the first .I; use a token file "
                            "(lyrl2004_tokens_*.dat)")
        else:
            words += cells
    if document < 0:
        raise DataError(f"{file.name} has no documents; unpack it again")
    yield finished()


def _numbered_lines(file: File) -> Iterable[tuple[int, str]]:
    """Lines with their numbers from 1, read block by block."""
    number = 0
    for block in line_blocks(file):
        for line in decode(block, file.name, first=number + 1).removesuffix("\n").split("\n"):
            number += 1
            yield number, line


class CorpusSource(NamedTuple):
    """Who publishes a corpus, and the files that it consists of."""

    title: str
    publisher: str  # who, and where
    archive: str  # what to download there
    files: tuple[str, ...]
    folder: str  # that unpacking creates
    read: Callable[[str, Path], CorpusParts | None]  # None: files of another layout


ZHANG = "Zhang, Zhao and LeCun (2015; github.com/zhangxiangxiao/Crepe links to it)"
SOURCES = {
    "ag_news": CorpusSource("AG News", ZHANG, "ag_news_csv.tar.gz", CSV_FILES, "ag_news_csv", read_class_csv),
    "yelp": CorpusSource("Yelp", ZHANG, "yelp_review_full_csv.tar.gz", CSV_FILES, "yelp_review_full_csv",
                         read_class_csv),
    "yahoo": CorpusSource("Yahoo", ZHANG, "yahoo_answers_csv.tar.gz", CSV_FILES, "yahoo_answers_csv", read_class_csv),
    "ohsumed": CorpusSource("Ohsumed", "Moschitti (disi.unitn.it/moschitti/corpora.htm)", "ohsumed-all-docs.tar.gz",
                            OHSUMED_CATEGORIES, "ohsumed-all", read_ohsumed),
    "aapd": CorpusSource("AAPD", "Yang et al. (SGM, 2018; github.com/lancopku/SGM links to it)", "the data set",
                         AAPD_FILES, "aapd", read_aapd),
    "rcv1": CorpusSource(
        "RCV1-v2", "Lewis et al. (2004; jmlr.org/papers/volume5/lewis04a, on-line appendices 8 and 12)",
        "the topic assignments and token files", (RCV1_TOPICS, RCV1_TRAIN, *RCV1_TEST), "rcv1", read_rcv1),
}
