"""The corpora that runs are made on: the one inside the package, those of the paper, and anything people have."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from halflabel.bench.runs import Run
from halflabel.bench.sampling import Sample, check_enough, draw, draw_any
from halflabel.data.corpus import Corpus
from halflabel.errors import BadInput

SAMPLES = {"sample": "queue", "sample:tags": "tags"}
DEV = 500  # dev texts of any other set, at most,
DEV_SHARE = 0.1  # and as a share of its training texts
OURS = ("dev_texts", "test_texts")  # settings of a run that are the protocol's, not the method's


class Parts(NamedTuple):
    """What a corpus is measured with; without a dev part, dev texts are drawn from the training texts."""

    train: Corpus
    dev: Corpus | None
    test: Corpus
    notices: tuple[str, ...] = ()  # what is worth knowing about it


@lru_cache(maxsize=4)  # a queue goes over its sets for each seed
def parts_of(name: str, data: Path | None) -> Parts:
    """The parts of the corpus of that name: from the package, from a path, or from the data folder."""
    if name in SAMPLES:
        from halflabel.data.sample import sample

        kind: Literal["queue", "tags"] = "tags" if SAMPLES[name] == "tags" else "queue"
        return Parts(sample("train", kind), None, sample("test", kind))
    from halflabel.bench.corpora import load
    from halflabel.bench.corpora.sources import SOURCES

    places = [Path(name), *([data / name] if data else [])]
    place = next((place for place in places if place.exists()), data if name in SOURCES else None)
    if place is None and name in SOURCES:
        raise BadInput(f"the corpus {name} is not part of halflabel; say with --data FOLDER where its files are")
    if place is None:
        raise BadInput(f"there is no corpus '{name}': give {', '.join(SAMPLES)}, one of {', '.join(SOURCES)} (with "
                       "--data), a file with labels, or a folder with train and test files")
    found = load(name, place)
    return Parts(found.train.labelled(), found.dev, found.test, found.notices)


class Drawn(NamedTuple):
    """What one run learns from, chooses by and is measured on."""

    draw: Sample
    dev: Corpus | None
    test: Corpus


def drawn(run: Run, parts: Parts) -> Drawn:
    """The draw of a run; dev texts never change which texts are labelled or in the pool."""
    ours = {name: int(value) for name, value in run.settings if name in OURS}
    if run.per_class and parts.train.task == "multi-label":
        raise BadInput(f"{run.set}: texts have several labels, so labelled texts are counted in all, not per class")
    if not run.per_class and run.labelled > len(parts.train):
        raise BadInput(f"{run.set} has {len(parts.train):,} training texts, not {run.labelled:,}; ask for fewer")
    found = (draw if run.per_class else draw_any)(parts.train, run.labelled, run.unlabelled, run.seed)
    wanted = 0 if run.protocol == "none" else ours.get("dev_texts", dev_size(run.set, len(parts.train)))
    fresh = wanted if parts.dev is None else 0
    check_enough(found, parts.train, per_class=run.labelled if run.per_class else 0, unlabelled=run.unlabelled,
                 dev=fresh)
    dev = None if not wanted else found.rest.take(range(fresh)) if parts.dev is None else parts.dev
    test = parts.test
    if (limit := ours.get("test_texts", len(test))) < len(test):
        test = test.take(np.random.default_rng(0).permutation(len(test))[:limit].tolist())
    return Drawn(found, dev, test)


def dev_size(name: str, train: int) -> int:
    """Dev texts that are drawn where a corpus brings none: the paper's number, or a tenth up to 500."""
    from halflabel.bench.paper import statistics

    said = statistics().get(name)
    usual = max(1, min(DEV, int(DEV_SHARE * train)))
    return said.dev if said is not None and train >= said.train else usual
