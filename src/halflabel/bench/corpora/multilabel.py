"""Ohsumed, AAPD and RCV1-v2 as their authors publish them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from halflabel.bench.corpora.parts import CorpusParts, cached_corpus, require_files
from halflabel.bench.paper import statistics
from halflabel.data.corpus import Corpus, Label
from halflabel.data.readers.files import File, decode, line_blocks
from halflabel.data.readers.lines import split_lines
from halflabel.errors import DataError

# Ohsumed (Moschitti): a folder for each of 23 disease categories with a file for each abstract. An abstract of several
# categories is in each of their folders under the same name.
CATEGORIES = tuple(f"C{k:02d}" for k in range(1, 24))
HALVES = ("training", "test")  # folders of another edition, the first 20,000 documents
SPLIT_SEED = 0  # all runs share one split
# AAPD (Yang et al., SGM, 2018): a file of texts and a file of labels for each part, with a line for each abstract.
AAPD_FILES = tuple(f"{kind}_{part}" for part in ("train", "val", "test") for kind in ("text", "label"))
# RCV1-v2 (Lewis et al., 2004): token files, and a file of topics by document number.
RCV1_TOPICS = "rcv1-v2.topics.qrels"
RCV1_TRAIN = "lyrl2004_tokens_train.dat"
RCV1_TEST = tuple(f"lyrl2004_tokens_test_pt{i}.dat" for i in range(4))


def read_ohsumed(name: str, folder: Path) -> CorpusParts:
    """All abstracts, of which a random 30 % are the test set (Sec. IV-A)."""
    roots = [folder / half for half in HALVES if (folder / half).is_dir()] or [folder]
    for root in roots:
        if missing := [category for category in CATEGORIES if not (root / category).is_dir()]:
            raise DataError(f"{root} has no folder {missing[0]}; unpack ohsumed-all-docs.tar.gz again, it holds C01 to "
                            "C23")
    categories: dict[str, list[str]] = {}
    files: dict[str, Path] = {}
    for category in CATEGORIES:
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
