"""Ohsumed as Moschitti publishes it: a folder for each of 23 disease categories with a file for each abstract.

An abstract of several categories lies in each of their folders under the same name.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from halflabel.bench.corpora.parts import Parts
from halflabel.bench.paper import statistics
from halflabel.data.corpus import Corpus
from halflabel.data.readers.files import File
from halflabel.errors import BadInput

CATEGORIES = tuple(f"C{k:02d}" for k in range(1, 24))
SEED = 0  # of the split, which is the same for every run
HALVES = ("training", "test")  # of another edition, the first 20,000 documents


def read(name: str, folder: Path) -> Parts:
    """All abstracts, of which 30 % at random are for testing (Sec. IV-A)."""
    places = [folder / half for half in HALVES if (folder / half).is_dir()] or [folder]
    for place in places:
        if missing := [one for one in CATEGORIES if not (place / one).is_dir()]:
            raise BadInput(f"{place} has no folder {missing[0]}; unpack ohsumed-all-docs.tar.gz again, it holds C01 to "
                           "C23")
    categories: dict[str, list[str]] = {}
    first: dict[str, Path] = {}
    for category in CATEGORIES:
        for file in sorted(one for place in places for one in (place / category).iterdir() if one.is_file()):
            categories.setdefault(file.name, []).append(category)
            first.setdefault(file.name, file)
    whole = Corpus([_text(first[one]) for one in sorted(first)], [tuple(categories[one]) for one in sorted(first)],
                   source=str(folder))
    order = np.random.default_rng(SEED).permutation(len(whole)).tolist()
    held = _held(len(whole), name)
    return Parts(whole.take(sorted(order[held:])), None, whole.take(sorted(order[:held])))


def _held(number: int, name: str) -> int:
    """Texts for testing: as many as the paper has if all its texts are there."""
    said = statistics()[name]
    return said.test if number == said.train + said.test else round(0.3 * number)


def _text(file: Path) -> str:
    text = File(str(file)).text().strip()
    if not text:
        raise BadInput(f"{file} is empty; unpack the archive again")
    return text
