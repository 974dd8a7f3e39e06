"""Time to the accuracy that SetFit reaches with the same labels and encoder, on AG News' test set.

    python benchmarks/race.py --data FOLDER [--per-class 10] [--seeds 0 1 2 3 4]

halflabel runs its plans from the fastest to the slowest, each with an empty cache (encoding the pool is included),
until one is as accurate as SetFit on the test set; this measures time and selects no settings.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from halflabel import TextClassifier
from halflabel.data.corpus import Corpus
from protocol import Results, Sample, load, sample_per_class
from rivals import setfit

PLANS: dict[str, dict[str, Any]] = {
    "frozen": {"plan": "frozen"}, "laptop, 1 epoch": {"settings": {"epochs": 1}}, "laptop": {}}


def main() -> None:
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    results = Results("race")
    train, test = load(options.data, "ag_news", "train"), load(options.data, "ag_news", "test", options.test)
    for seed in options.seeds:
        key = {"per_class": options.per_class, "unlabelled": options.unlabelled, "seed": seed}
        if not results.has(**key):
            line = race(sample_per_class(train, options.per_class, options.unlabelled, seed), test, seed)
            results.add(**key, **line)
            print(key, line, flush=True)


def race(split: Sample, test: Corpus, seed: int) -> dict[str, Any]:
    """Accuracy and time of SetFit, and of the fastest plan that is as accurate, if any."""
    truth = np.array(test.labels)
    competitor = setfit(split, test, seed)
    target = float(np.mean(competitor["predicted"] == truth))
    tried: dict[str, dict[str, float]] = {}
    for name, choice in PLANS.items():
        with TemporaryDirectory() as cache:
            os.environ["HALFLABEL_CACHE"] = cache
            clf = TextClassifier(**choice, random_state=seed)
            began = time.perf_counter()
            clf.fit(split.labelled.texts, split.labelled.labels, unlabelled=split.pool.texts)
            seconds = time.perf_counter() - began
        tried[name] = {"accuracy": float(np.mean(clf.predict(test.texts) == truth)), "seconds": seconds}
        if tried[name]["accuracy"] >= target:
            break
    line = {"setfit": {"accuracy": target, "seconds": competitor["seconds"]}, "tried": tried}
    if tried[name]["accuracy"] < target:
        return line | {"winner": None, "share": None}
    return line | {"winner": name, "share": tried[name]["seconds"] / competitor["seconds"]}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--per-class", type=int, default=10)
    parser.add_argument("--unlabelled", type=int, default=10_000)
    parser.add_argument("--test", type=int, default=None, help="test texts, all when not given")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--threads", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
