"""What all benchmarks share: data folders, splits, and results that a killed script can go on from.

A data folder holds `train.parquet` and `test.parquet` with columns `text` and `label`.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halflabel.data.read import read
from halflabel.types import Corpus

RESULTS = Path(__file__).parent / "results"
SETS = {"ag_news": (6000, 2000), "sst5": (6000, None), "arxiv_topics10": (6000, 2000)}  # train and test texts


@dataclass(frozen=True)
class Draw:
    """A labelled part and a pool; `truth` is for measuring alone."""

    labelled: Corpus
    pool: Corpus
    truth: list[Any]
    rest: Corpus  # training texts in neither: for choosing settings, never the test set


def load(data: Path, name: str, part: str, limit: int | None = None) -> Corpus:
    """One part of a data set; `limit` takes that many rows, the same for every caller."""
    corpus = read(data / name / f"{part}.parquet")
    if limit is None or limit >= len(corpus):
        return corpus
    return corpus.take(np.random.default_rng(0).permutation(len(corpus))[:limit].tolist())


def draw(train: Corpus, per_class: int, unlabelled: int, seed: int) -> Draw:
    """`per_class` labelled texts of each class, then `unlabelled` others; nothing else depends on the seed."""
    order = np.random.default_rng([17, seed]).permutation(len(train)).tolist()
    taken: dict[Any, int] = {}
    labelled, others = [], []
    for row in order:
        label = train.labels[row]
        if taken.get(label, 0) < per_class:
            taken[label] = taken.get(label, 0) + 1
            labelled.append(row)
        else:
            others.append(row)
    pool = train.take(others[:unlabelled])
    return Draw(train.take(labelled), pool.without_labels(), pool.labels, train.take(others[unlabelled:]))


def draw_any(train: Corpus, labelled: int, unlabelled: int, seed: int) -> Draw:
    """`labelled` texts at random, whatever their labels, then `unlabelled` others, or all that are left."""
    order = np.random.default_rng([17, seed]).permutation(len(train)).tolist()
    pool = train.take(order[labelled : labelled + unlabelled])
    return Draw(train.take(order[:labelled]), pool.without_labels(), pool.labels,
                train.take(order[labelled + unlabelled :]))


class Results:
    """Lines of JSON, one for each finished run; a run that is there already is not done again."""

    def __init__(self, name: str) -> None:
        self.file = RESULTS / f"{name}.jsonl"
        RESULTS.mkdir(exist_ok=True)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self.file.exists():
            yield from map(json.loads, self.file.read_text(encoding="utf-8").splitlines())

    def has(self, **key: Any) -> bool:
        return any(all(line.get(k) == v for k, v in key.items()) for line in self)

    def add(self, **line: Any) -> None:
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(json.dumps(line | {"machine": machine()}) + "\n")


def setting(pair: str) -> tuple[str, float]:
    """KEY=NUMBER of a command line; a whole number stays one."""
    key, _, number = pair.partition("=")
    value = float(number)
    return key, int(value) if value == int(value) else value


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import sklearn
    import torch
    import transformers

    import halflabel

    names = [line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")]
    return {"cpu": (names or [platform.processor()])[0], "cores": os.cpu_count(), "threads": torch.get_num_threads(),
            "python": platform.python_version(), "torch": torch.__version__,
            "transformers": transformers.__version__, "scikit-learn": sklearn.__version__,
            "halflabel": halflabel.__version__}


def _cpuinfo() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text().splitlines() if file.exists() else []
