"""The pool must not hurt: each method with its pool against the same method on labelled texts only.

    python benchmarks/floor.py --data FOLDER [--per-class 2 5 10] [--seeds 0 1 2 3 4] [--plan laptop]

Same labelled texts, same encoder, no dev set. Notices tell which runs abandoned
their pool after a collapse of the pseudo-labels.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cached_scores import scores
from halflabel import TextClassifier
from halflabel.data.augmentation import WordEdits
from protocol import SETS, Results, Sample, load, sample_per_class

METHODS = ("lift", "bdd-s", "bdd-f", "am-s", "am-f")


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    results = Results("floor")
    for name in options.sets:
        train, test = (load(options.data, name, part, n) for part, n in zip(("train", "test"), SETS[name], strict=True))
        views = dict(zip(train.texts, WordEdits.fit(train.texts, seed=0).views(train.texts, 0), strict=True))
        for per_class in options.per_class:
            for seed in options.seeds:
                split = sample_per_class(train, per_class, options.unlabelled, seed)
                for method in options.methods:
                    key = {"set": name, "per_class": per_class, "seed": seed, "method": method,
                           "unlabelled": options.unlabelled, "plan": options.plan}
                    if results.has(**key):
                        continue
                    line = run(method, options.plan, split, views, test.texts, np.array(test.labels), seed)
                    results.add(**key, n_test=len(test), **line)
                    print(key, {name: round(line[name], 4) for name in ("labels", "both")}, flush=True)


def run(method: str, plan: str, split: Sample, views: dict[str, str], texts: Sequence[str], truth: np.ndarray,
        seed: int) -> dict[str, Any]:
    """Accuracy on the test texts from the labelled texts alone, and from both."""
    alone = TextClassifier(method, plan=plan, random_state=seed)
    alone.fit(split.labelled.texts, split.labelled.labels)
    both = TextClassifier(method, plan=plan, random_state=seed)
    both.fit(split.labelled.texts, split.labelled.labels, unlabelled=split.pool.texts,
             views=[(views[text],) for text in split.pool.texts])
    accuracies: dict[str, Any] = {name: float(np.mean(clf.classes_[scores(clf.model_, texts).argmax(axis=1)] == truth))
                                  for name, clf in (("labels", alone), ("both", both))}
    return accuracies | {"notices": both.notices_}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[2, 5, 10])
    parser.add_argument("--unlabelled", type=int, default=4000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--plan", default="frozen")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
