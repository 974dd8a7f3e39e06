"""BDD against AM, everything else equal: frozen and fine-tuned, with and without balanced angles.

    python benchmarks/balance.py --data FOLDER [--plans frozen laptop] [--seeds 0 1 2 3 4]

Only the labelled texts differ from seed to seed. Strong views are made once by word edits and shared by all runs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cached_scores import scores
from halflabel import TextClassifier
from halflabel.data.augmentation import WordEdits
from halflabel.data.corpus import Corpus
from halflabel.notices import EpochReport
from protocol import SETS, Results, load, sample_per_class, setting

METHODS = ("bdd-s", "am-s", "bdd-f", "am-f")


def main() -> None:
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    results = Results("balance")
    for name in options.sets:
        train, test = (load(options.data, name, part, n) for part, n in zip(("train", "test"), SETS[name], strict=True))
        views = dict(zip(train.texts, WordEdits.fit(train.texts, seed=0).views(train.texts, 0), strict=True))
        for plan in options.plans:
            for per_class in options.per_class:
                for seed in options.seeds:
                    for method in METHODS:
                        key = {"set": name, "plan": plan, "per_class": per_class, "seed": seed, "method": method,
                               "unlabelled": options.unlabelled, "settings": dict(options.set)}
                        if not results.has(**key):
                            line = run(train, test, views, key)
                            results.add(**key, **line)
                            print(key, round(line["accuracy"], 4), round(line["seconds"], 1), flush=True)


def run(train: Corpus, test: Corpus, views: dict[str, str], key: dict[str, Any]) -> dict[str, Any]:
    """One run, evaluated on the test texts; true labels of the pool only evaluate pseudo-labels."""
    split = sample_per_class(train, key["per_class"], key["unlabelled"], key["seed"])
    epochs: list[dict[str, Any]] = []
    clf = TextClassifier(key["method"], plan=key["plan"], random_state=key["seed"], settings=key["settings"] or None)
    began = time.perf_counter()
    clf.fit(split.labelled.texts, split.labelled.labels, unlabelled=split.pool.texts, truth=split.truth,
            views=[(views[text],) for text in split.pool.texts],
            report=lambda event: epochs.append(event.figures) if isinstance(event, EpochReport) else None)
    seconds = time.perf_counter() - began
    predicted = clf.classes_[scores(clf.model_, test.texts).argmax(axis=1)]
    accuracies = [figures["pseudo_accuracy"] for figures in epochs if "pseudo_accuracy" in figures]
    return {"accuracy": float(np.mean(predicted == np.array(test.labels))), "seconds": seconds, "n_test": len(test),
            "pseudo_accuracy": accuracies[-1], "dlav": epochs[-1]["dlav"], "a": epochs[-1].get("a"),
            "notices": clf.notices_}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--plans", nargs="+", default=["frozen", "laptop"])
    parser.add_argument("--per-class", type=int, nargs="+", default=[25])
    parser.add_argument("--unlabelled", type=int, default=4000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=NUMBER", type=setting)
    return parser.parse_args()


if __name__ == "__main__":
    main()
