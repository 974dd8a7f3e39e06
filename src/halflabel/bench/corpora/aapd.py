"""AAPD as Yang et al. (SGM, 2018) publish it: a file of texts and a file of labels, a line of each for each abstract.

The paper's training texts are those of training and validation together; a dev set is drawn from them.
"""

from __future__ import annotations

from pathlib import Path

from halflabel.bench.corpora.parts import Parts, needed
from halflabel.data.corpus import Corpus
from halflabel.data.readers.files import File
from halflabel.data.readers.lines import split_lines
from halflabel.errors import BadInput

PARTS = ("train", "val", "test")
FILES = tuple(f"{kind}_{part}" for part in PARTS for kind in ("text", "label"))


def read(name: str, folder: Path) -> Parts:
    """Training and validation as one, and test."""
    files = needed(folder, FILES)
    train, val, test = (part(*files[i : i + 2]) for i in (0, 2, 4))
    return Parts(train + val, None, test)


def part(texts: File, labels: File) -> Corpus:
    """A line of each file for each abstract; labels are parted by spaces."""
    lines, names = split_lines(texts.text()), split_lines(labels.text())
    if len(lines) != len(names):
        raise BadInput(f"{texts.name} has {len(lines):,} lines and {labels.name} has {len(names):,}; one of them is "
                       "cut, unpack it again")
    for i, (text, name) in enumerate(zip(lines, names, strict=True), 1):
        for file, line in ((texts, text), (labels, name)):
            if not line.strip():
                raise BadInput(f"{file.name}, line {i} is empty; unpack the file again")
    return Corpus([line.strip() for line in lines], [tuple(dict.fromkeys(name.split())) for name in names],
                  source=texts.name)
