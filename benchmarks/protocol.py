"""What all benchmarks share: data folders, samples, and results from which a killed script resumes.

A data folder holds `train.parquet` and `test.parquet` with columns `text` and `label`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from halflabel.bench.corpora import Sample, sample_per_class, sample_texts
from halflabel.bench.execute import code_version, machine
from halflabel.data.corpus import Corpus
from halflabel.data.readers.read import read

__all__ = ["RESULTS", "SETS", "Results", "Sample", "load", "machine", "sample_per_class", "sample_texts", "setting"]

RESULTS = Path(__file__).parent / "results"
SETS = {"ag_news": (6000, 2000), "sst5": (6000, None), "arxiv_topics10": (6000, 2000)}  # train and test texts


def load(data: Path, name: str, part: str, limit: int | None = None) -> Corpus:
    """One part of a data set; `limit` samples that many rows, the same for every caller."""
    corpus = read(data / name / f"{part}.parquet")
    if limit is None or limit >= len(corpus):
        return corpus
    return corpus.take(np.random.default_rng(0).permutation(len(corpus))[:limit].tolist())


class Results:
    """Lines of JSON, one for each finished run; a finished run is not repeated."""

    def __init__(self, name: str) -> None:
        self.file = RESULTS / f"{name}.jsonl"
        RESULTS.mkdir(exist_ok=True)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self.file.exists():
            yield from map(json.loads, self.file.read_text(encoding="utf-8").splitlines())

    def has(self, **key: Any) -> bool:
        return self.get(**key) is not None

    def get(self, **key: Any) -> dict[str, Any] | None:
        """The first line with these values; a field that it lacks is None."""
        return next((line for line in self if all(line.get(k) == v for k, v in key.items())), None)

    def add(self, **line: Any) -> None:
        """Writes a line, with the machine and the commit unless they are given."""
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(json.dumps(line | {"machine": machine(), "code": code_version()} | line) + "\n")


def setting(pair: str) -> tuple[str, float]:
    """KEY=NUMBER of a command line; whole numbers become int."""
    key, _, number = pair.partition("=")
    value = float(number)
    return key, int(value) if value == int(value) else value
