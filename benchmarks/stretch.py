"""Where balancing costs F1: each label with and without it, by its slope a_k and its labelled positives.

    python benchmarks/stretch.py --data FOLDER [--sets arxiv54 ...] [--seeds 0 1 2 3 4]

Samples are those of multilabel.py, on frozen vectors, under `prior-quantile`. Each pair, `bdd-ml` and `am-ml`, runs
with pseudo-labels and without (lambda1 = 0), and is evaluated on training texts outside the sample.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cached_scores import scores
from halflabel import TextClassifier
from halflabel.data.labels import Classes
from halflabel.methods.bdd import BalancedAngles
from multilabel import SETS
from protocol import Results, Sample, load, sample_texts

MEASURED = 3000  # texts outside the sample, at most


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    results = Results("stretch")
    for name in options.sets:
        train = load(options.data, name, "train")
        classes, (labelled, unlabelled) = Classes.of(train.labels), SETS[name]
        for seed in options.seeds:
            split = sample_texts(train, labelled, min(unlabelled, len(train) - labelled - MEASURED // 2), seed)
            for weight in (1.0, 0.0):
                key = {"set": name, "labelled": labelled, "pool": len(split.pool), "seed": seed, "lambda1": weight}
                if not results.has(**key):
                    line = pair(split, classes, weight, seed)
                    results.add(**key, **line)
                    print(key, *(f"{m} {np.mean(line[m]):.3f}" for m in ("bdd-ml", "am-ml")), flush=True)


def pair(split: Sample, classes: Classes, weight: float, seed: int) -> dict[str, Any]:
    """F1 of every label by both methods, its slope a_k, and its labelled positives."""
    y, texts = classes.matrix(split.labelled.labels), split.rest.texts[:MEASURED]
    truth = classes.matrix(split.rest.labels[:MEASURED]) > 0
    line: dict[str, Any] = {"positives": y.sum(axis=0).astype(int).tolist(), "n": len(texts)}
    for method in ("bdd-ml", "am-ml"):
        clf = TextClassifier(method, plan="frozen", random_state=seed, settings={"lambda1": weight})
        clf.fit(split.labelled.texts, y, unlabelled=split.pool.texts)
        predicted = clf.decision_(scores(clf.model_, texts), "prior-quantile") > 0
        both, either = (truth & predicted).sum(axis=0), truth.sum(axis=0) + predicted.sum(axis=0)
        line[method] = (2 * both / np.maximum(either, 1)).round(4).tolist()
        angles = clf.model_.network.angles
        if isinstance(angles, BalancedAngles):
            line["stretch"] = angles.slopes().numpy().round(3).tolist()
    return line


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
