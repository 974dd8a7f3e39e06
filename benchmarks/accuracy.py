"""halflabel's default against its competitors on the same samples: accuracy on the official test set, no dev set.

    python benchmarks/accuracy.py --data FOLDER [--name ag_news] [--per-class 25 10] [--seeds 0 1 2 3 4]
        [--methods default lift/frozen lift/laptop constant logreg self-training setfit]

Training time does not include the vectors of a frozen encoder, which are cached.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cached_scores
from halflabel import TextClassifier
from halflabel.data.corpus import Corpus
from halflabel.persistence.model import TrainedModel
from protocol import Results, Sample, load, sample_per_class
from rivals import RIVALS

POOLS = {"ag_news": 10_000, "arxiv_topics10": 6000, "clinc150": 9000, "sst5": 4000}  # unlabelled texts


def main() -> None:
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    results = Results("accuracy")
    test = load(options.data, options.name, "test", options.test)
    train = load(options.data, options.name, "train")
    truth = np.array(test.labels)
    for per_class in options.per_class:
        for seed in options.seeds:
            split = sample_per_class(train, per_class, options.unlabelled, seed)
            for method in options.methods:
                key = {"set": options.name, "per_class": per_class, "seed": seed, "method": method,
                       "unlabelled": options.unlabelled}
                if results.has(**key):
                    continue
                line = (RIVALS[method](split, test, seed) if method in RIVALS
                        else halflabel(method, split, test, seed))
                accuracy = float(np.mean(line.pop("predicted") == truth))
                results.add(**key, accuracy=accuracy, n_test=len(test), **line)
                print(key, round(accuracy, 4), round(line["seconds"], 1), flush=True)


def halflabel(method: str, split: Sample, test: Corpus, seed: int) -> dict[str, Any]:
    """The estimator with `default` for its default method and plan, else method or method/plan."""
    kind, _, plan = method.partition("/")
    choice: dict[str, Any] = {} if kind == "default" else {"method": kind}
    if plan:
        choice["plan"] = plan
    clf = TextClassifier(**choice, random_state=seed)
    began = time.perf_counter()
    clf.fit(split.labelled.texts, split.labelled.labels, unlabelled=split.pool.texts)
    seconds = time.perf_counter() - began
    assert isinstance(clf.model_, TrainedModel)
    predicted = clf.classes_[cached_scores.scores(clf.model_, test.texts).argmax(axis=1)]
    return {"predicted": predicted, "seconds": seconds, "name": clf.method, "plan": clf.plan,
            "why": clf.termination_condition_}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", default="ag_news", choices=list(POOLS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[25, 10])
    parser.add_argument("--test", type=int, default=None, help="test texts, all when not given")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--methods", nargs="+", default=["default", "logreg", "self-training", "setfit"])
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    options.unlabelled = POOLS[options.name]
    return options


if __name__ == "__main__":
    main()
