"""Samples: which training texts are labelled, unlabelled or dev texts; a function of corpus, sizes and seed alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from halflabel.bench.corpora import CorpusParts
from halflabel.bench.paper import statistics
from halflabel.bench.runs import Run
from halflabel.data.corpus import Corpus
from halflabel.errors import DataError

DEV_LIMIT = 500  # dev texts of a corpus that is not the paper's, at most,
DEV_SHARE = 0.1  # and as a share of its training texts
PROTOCOL_SETTINGS = ("dev_texts", "test_texts")  # settings of a run that are not the method's


@dataclass(frozen=True)
class Sample:
    """Labelled texts and a pool; `truth` holds the labels of the pool, for evaluation only."""

    labelled: Corpus
    pool: Corpus
    truth: list[Any]
    rest: Corpus  # training texts in neither


@dataclass(frozen=True)
class RunData:
    """What one run trains on, selects its epoch by and is evaluated on."""

    sample: Sample
    dev: Corpus | None
    test: Corpus


def sample_per_class(train: Corpus, per_class: int, unlabelled: int, seed: int) -> Sample:
    """`per_class` labelled texts of each class, then `unlabelled` others."""
    counts: dict[Any, int] = {}
    labelled, others = [], []
    for row in shuffled_rows(train, seed):
        label = train.labels[row]
        if counts.get(label, 0) < per_class:
            counts[label] = counts.get(label, 0) + 1
            labelled.append(row)
        else:
            others.append(row)
    return _sample(train, labelled, others, unlabelled)


def sample_texts(train: Corpus, labelled: int, unlabelled: int, seed: int) -> Sample:
    """`labelled` texts at random, whatever their labels, then `unlabelled` others."""
    order = shuffled_rows(train, seed)
    return _sample(train, order[:labelled], order[labelled:], unlabelled)


def shuffled_rows(train: Corpus, seed: int) -> list[int]:
    """Rows in the order of the seed: a sample with more labels contains those of the same seed with fewer."""
    return [int(row) for row in np.random.default_rng([17, seed]).permutation(len(train))]


def _sample(train: Corpus, labelled: list[int], others: list[int], unlabelled: int) -> Sample:
    pool = train.take(others[:unlabelled])
    return Sample(train.take(labelled), pool.without_labels(), list(pool.labels), train.take(others[unlabelled:]))


def run_data(run: Run, parts: CorpusParts) -> RunData:
    """The texts of a run; dev texts never change which texts are labelled or in the pool."""
    protocol = {name: int(value) for name, value in run.settings if name in PROTOCOL_SETTINGS}
    if run.per_class and parts.train.task == "multi-label":
        raise DataError(f"{run.set} has several labels per text; give labelled texts in total (200), not per class")
    if not run.per_class and run.labelled > len(parts.train):
        raise DataError(f"{run.set} has {len(parts.train):,} training texts, not {run.labelled:,}; ask for fewer")
    sample = (sample_per_class if run.per_class else sample_texts)(parts.train, run.labelled, run.unlabelled, run.seed)
    dev_texts = 0 if run.protocol == "none" else protocol.get("dev_texts", dev_size(run.set, len(parts.train)))
    sampled_dev = dev_texts if parts.dev is None else 0
    _check_sizes(run, sample, parts.train, sampled_dev)
    dev = None if not dev_texts else sample.rest.take(range(sampled_dev)) if parts.dev is None else parts.dev
    test = parts.test
    if (limit := protocol.get("test_texts", len(test))) < len(test):
        test = test.take(np.random.default_rng(0).permutation(len(test))[:limit].tolist())
    return RunData(sample, dev, test)


def _check_sizes(run: Run, sample: Sample, train: Corpus, dev: int) -> None:
    """A sample that is smaller than asked for is an error: its scores would be reported under the wrong size."""
    for label in dict.fromkeys(train.labels) if run.per_class else ():
        if (count := sample.labelled.labels.count(label)) < run.labelled:
            raise DataError(f"{train.source} has {count} texts of {label!r}, not {run.labelled}; ask for fewer")
    if len(sample.pool) < run.unlabelled or len(sample.rest) < dev:
        left = len(sample.pool) + len(sample.rest)
        wanted = f"{run.unlabelled:,} unlabelled" + (f" and {dev:,} dev texts" if dev else " texts")
        raise DataError(f"{train.source} has {left:,} training texts beside the labelled ones, too few for {wanted}; "
                        "ask for fewer")


def dev_size(name: str, train: int) -> int:
    """Dev texts to sample from the training texts: the paper's number, or a tenth up to 500."""
    paper = statistics().get(name)
    if paper is not None and train >= paper.train:
        return paper.dev
    return max(1, min(DEV_LIMIT, int(DEV_SHARE * train)))
