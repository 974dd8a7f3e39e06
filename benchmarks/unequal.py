"""What if a pool has many texts of one class and few of another? On training texts outside the sample.

    python benchmarks/unequal.py --data FOLDER [--sets ag_news ...] [--ratios 1 5 20] [--seeds 0 1 2]
        [--methods lift am-f logreg self-training] [--per-class 5] [--pool 2500] [--ways halfway ...]

Each class has fewer texts than the one before, in the same ratio, and the largest `ratio` times as many as the
smallest; the seed decides which is the largest. The texts that are predicted have these shares too. Labelled are five
texts of each class (`equal`), or as many texts at random (`random`), as a user labels them. halflabel's methods run on
the plan `frozen`, or on that of METHOD/PLAN with all of its steps. `--ways` are other rules that `lift` could have: how
far from the pool's centre distances are measured, and which frequencies of classes words may change.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from sklearn.metrics import f1_score

import cached_scores
from halflabel import TextClassifier
from halflabel.data.corpus import Corpus
from halflabel.methods import gaussian_em, label_smoothing
from protocol import Results, Sample, load, sample_per_class, sample_texts
from rivals import RIVALS

SETS: dict[str, int | None] = {"ag_news": 12_000, "arxiv_topics10": 9000, "clinc150": None}  # training texts
PER_CLASS = 5
POOL, OUTSIDE = 2500, 1500  # texts, at most; of few texts, two thirds are in the pool
DRAWS = ("equal", "random")


def centre(share: float) -> dict[Any, Any]:
    """Distances from a point between the centre of the pool and that of the labelled classes."""
    return {(gaussian_em, "centre_of_classes"):
            lambda sums, counts, variance: share * (sums / np.maximum(counts, 1.0)[:, None]).mean(axis=0)}


WAYS: dict[str, dict[Any, Any]] = {
    "": {}, "halfway": centre(0.5), "pool_centre": centre(0.0),
    "words_decide": {(label_smoothing, "kept_frequencies"): lambda before, after: after.mean(axis=0)},
    "all_kept": {(label_smoothing, "kept_frequencies"): lambda before, after: before.mean(axis=0)}}


def main() -> None:
    options, results = parse(), Results("unequal")
    torch.set_num_threads(options.threads)
    for name, per_class, ratio, draw, seed in product(options.sets, options.per_class, options.ratios, options.draws,
                                                      options.seeds):
        split = outside = None
        for method, way in product(options.methods, options.ways):
            key = {"set": name, "ratio": ratio, "labelled": draw, "seed": seed, "method": method}
            default = {"per_class": PER_CLASS, "at_most": POOL, "way": ""}  # which older lines do not have
            given = {"per_class": per_class, "at_most": options.pool, "way": way}
            key |= {what: value if value != default[what] else None for what, value in given.items()}
            if results.has(**key):
                continue
            if split is None or outside is None:
                train = load(options.data, name, "train", SETS[name] if options.pool == POOL else None)
                split = sample(unequal(train, ratio, per_class, seed), draw, per_class, options.pool, seed)
                outside = split.rest.take(range(min(OUTSIDE, len(split.rest))))
            truth, began = np.array(outside.labels), time.perf_counter()
            with ExitStack() as stack:
                for (module, function), other in WAYS[way].items():
                    stack.enter_context(mock.patch.object(module, function, other))
                predicted = predict(method, split, outside, seed)
            line = {"accuracy": float((predicted == truth).mean()), "n": len(truth), "pool": len(split.pool),
                    "macro_f1": float(f1_score(truth, predicted, average="macro", labels=np.unique(truth)))}
            results.add(**key, **line, seconds=time.perf_counter() - began)
            print(key, line, flush=True)


def unequal(train: Corpus, ratio: float, per_class: int, seed: int) -> Corpus:
    """The texts of classes that are cut to sizes n, ..., n / ratio."""
    rng, labels = np.random.default_rng([29, seed]), np.array(train.labels)
    classes, counts = np.unique(labels, return_counts=True)
    sizes = counts.min() * ratio ** -np.linspace(0.0, 1.0, len(classes))
    rows = [rng.permutation(np.flatnonzero(labels == label))[: max(per_class + 1, round(size))]
            for label, size in zip(rng.permutation(classes), sizes, strict=True)]
    return train.take(np.concatenate(rows).tolist())


def sample(train: Corpus, draw: str, per_class: int, at_most: int, seed: int) -> Sample:
    """Labelled texts, so many of each class or as many at random, and a pool."""
    labelled = per_class * len(set(train.labels))
    pool = min(at_most, 2 * (len(train) - labelled) // 3)
    if draw == "random":
        return sample_texts(train, labelled, pool, seed)
    return sample_per_class(train, per_class, pool, seed)


def predict(method: str, split: Sample, outside: Corpus, seed: int) -> np.ndarray:
    """Labels of the texts outside the sample."""
    if method in RIVALS:
        return np.asarray(RIVALS[method](split, outside, seed)["predicted"])
    name, _, plan = method.partition("/")
    clf = TextClassifier(name, plan=plan or "frozen", names="none", minutes=1000, random_state=seed)
    clf.fit(split.labelled.texts, split.labelled.labels, unlabelled=split.pool.texts)
    assert clf.model_ is not None
    return np.asarray(clf.classes_[cached_scores.scores(clf.model_, outside.texts).argmax(axis=1)])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["ag_news", "arxiv_topics10"], choices=list(SETS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[PER_CLASS])
    parser.add_argument("--pool", type=int, default=POOL)
    parser.add_argument("--draws", nargs="+", default=list(DRAWS), choices=DRAWS)
    parser.add_argument("--ways", nargs="+", default=[""], choices=list(WAYS))
    parser.add_argument("--ratios", type=int, nargs="+", default=[1, 5, 20])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=["logreg", "self-training", "am-f", "lift"])
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
