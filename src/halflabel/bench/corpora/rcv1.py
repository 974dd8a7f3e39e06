"""RCV1-v2 as Lewis et al. (2004) publish it: token files, and a file of topics by number of the document."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from halflabel.bench.corpora.parts import Parts, needed
from halflabel.bench.corpora.store import stored
from halflabel.data.corpus import Label
from halflabel.data.readers.files import File, decode, line_blocks
from halflabel.errors import BadInput

TOPICS = "rcv1-v2.topics.qrels"
TRAIN = "lyrl2004_tokens_train.dat"
TEST = tuple(f"lyrl2004_tokens_test_pt{i}.dat" for i in range(4))


def read(name: str, folder: Path) -> Parts:
    """The training file, and the four files for testing as one."""
    topics, train, *test = needed(folder, (TOPICS, TRAIN, *TEST))
    known: dict[int, list[str]] = {}

    def rows(files: list[File]) -> Iterator[tuple[str, str]]:
        if not known:
            known.update(assignments(topics))
        for file in files:
            yield from labelled(file, known, topics)

    return Parts(stored(name, [train, topics], partial(rows, [train]), label, drawn=True), None,
                 stored(name, [*test, topics], partial(rows, test), label, drawn=False))


def label(topics: str) -> tuple[Label, ...]:
    return tuple(topics.split())


def assignments(file: File) -> dict[int, list[str]]:
    """The topics of each document, from lines such as `E11 2286 1`."""
    found: dict[int, list[str]] = {}
    for number, line in lines(file):
        cells = line.split()
        if not cells:
            continue
        if len(cells) != 3 or not cells[1].isdecimal() or cells[2] != "1":
            raise BadInput(f"{file.name}, line {number}: {line[:40]!r} is not TOPIC DOCUMENT 1, the file may be cut; "
                           "unpack it again")
        found.setdefault(int(cells[1]), []).append(sys.intern(cells[0]))
    return found


def labelled(file: File, topics: dict[int, list[str]], source: File) -> Iterator[tuple[str, str]]:
    """The tokens of each document with its topics."""
    for number, text in documents(file):
        if number not in topics:
            raise BadInput(f"{source.name} has no topic for document {number} of {file.name}; one of the files is "
                           "cut, unpack them again")
        yield text, " ".join(topics[number])


def documents(file: File) -> Iterator[tuple[int, str]]:
    """Numbers and tokens of blocks that start with `.I NUMBER` and `.W`."""
    document, begun, words, line = -1, 0, list[str](), 0

    def whole() -> tuple[int, str]:
        if not words or words[0] != ".W" or len(words) == 1:
            raise BadInput(f"{file.name}, line {begun}: document {document} has no words after .W, the file may be "
                           "cut; unpack it again")
        return document, " ".join(words[1:])

    for line, text in lines(file):
        cells = text.split()
        if text.startswith(".I"):
            if document >= 0:
                yield whole()
            if len(cells) != 2 or not cells[1].isdecimal():
                raise BadInput(f"{file.name}, line {line}: {text[:40]!r} is not .I NUMBER; take a token file")
            document, begun, words = int(cells[1]), line, []
        elif cells and document < 0:
            raise BadInput(f"{file.name}, line {line}: {text[:40]!r} comes before the first .I; take a token file "
                           "(lyrl2004_tokens_*.dat)")
        else:
            words += cells
    if document < 0:
        raise BadInput(f"{file.name} has no documents; unpack it again")
    yield whole()


def lines(file: File) -> Iterable[tuple[int, str]]:
    """Lines with their numbers from 1, a block at a time."""
    number = 0
    for block in line_blocks(file):
        for line in decode(block, file.name, first=number + 1).removesuffix("\n").split("\n"):
            number += 1
            yield number, line
