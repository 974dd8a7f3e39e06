"""Wrong labels: how well they are found, beside cleanlab, and what they cost `lift`.

    python benchmarks/label_errors.py --data FOLDER [--sets ag_news ...] [--seeds 0 1 2 3 4]
    python benchmarks/label_errors.py --data FOLDER --training [--per-class 25]

A share of the labels is replaced by other classes at random. The first form compares the list of `halflabel check` with
cleanlab's on the same cross-fitted probabilities. The second fits the closed form of `lift` to these labels and a pool,
as they are or after one of the `REMEDIES`; accuracy is measured on training texts outside the sample. Test texts are
not used.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halflabel.data.labels import Classes
from halflabel.label_errors import STRENGTH, LabelError, confident_learning, cross_fitted, find_label_errors
from halflabel.methods.closed_form import fit_closed_form
from halflabel.methods.gaussian_em import gaussian_em
from halflabel.methods.held_out import WEIGHT_PRIOR, WEIGHT_SPREAD, cross_validate, fit_weights
from halflabel.methods.label_smoothing import word_features
from halflabel.methods.linear_models import LinearModel, logistic_regression
from halflabel.methods.wrong_labels import fit_without_wrong_labels
from protocol import Results, load, sample_per_class
from rivals import vectors

PER_CLASS = {"ag_news": 50, "sst5": 50, "arxiv_topics10": 50, "clinc150": 25}
TRAINING_SETS = {"ag_news": (25, 10), "arxiv_topics10": (25, 10), "sst5": (25, 10), "clinc150": (10,)}
TRAIN, POOL = 6000, 4000  # training texts of a set, and those in the pool
SHARES = (0.05, 0.1, 0.2)
FIRST = 20  # texts at the head of a list, as a person may look at


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    sets = options.sets or (TRAINING_SETS if options.training else PER_CLASS)
    corpora = {name: load(options.data, name, "train", TRAIN) for name in sets}
    for seed in options.seeds:
        for name, train in corpora.items():
            if options.training:
                for per_class in options.per_class or TRAINING_SETS[name]:
                    compare_training(train, name, per_class, seed, options.remedies)
            else:
                compare_lists(train, name, seed)


# Finding wrong labels


def compare_lists(train: Any, name: str, seed: int) -> None:
    """Both lists of likely errors for each share of wrong labels."""
    results, sample = Results("label_errors"), sample_per_class(train, PER_CLASS[name], 0, seed).labelled
    classes = Classes.of(sample.labels)
    truth, x = columns(classes, sample.labels), vectors(sample.texts)
    for share in SHARES:
        key = {"set": name, "per_class": PER_CLASS[name], "share": share, "seed": seed}
        if results.has(**key):
            continue
        y = flipped(truth, len(classes), share, seed)
        p = cross_fitted(x, y, len(classes), seed=seed, strength=STRENGTH)
        lists = {"halflabel": [error.row for error in confident_learning(p, y)], "cleanlab": cleanlab(p, y)}
        for finder, rows in lists.items():
            figures = quality(np.array(rows, dtype=np.int64), y != truth)
            results.add(**key, finder=finder, **figures)
            print(key, finder, figures, flush=True)


def cleanlab(p: np.ndarray, y: np.ndarray) -> list[int]:
    """Rows that cleanlab lists with its defaults, the most likely errors first."""
    from cleanlab.filter import find_label_issues

    return [int(row) for row in find_label_issues(y, p, return_indices_ranked_by="self_confidence", n_jobs=1)]


def quality(rows: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """Size, precision and recall of a list of rows, and the precision of its head; `wrong` (N,) are the errors."""
    return {"listed": len(rows), "precision": round(float(wrong[rows].mean()) if len(rows) else 0.0, 4),
            "recall": round(float(wrong[rows].sum() / wrong.sum()), 4),
            "precision_first": round(float(wrong[rows[:FIRST]].mean()) if len(rows) else 0.0, 4)}


# Training with wrong labels


def compare_training(train: Any, name: str, per_class: int, seed: int, remedies: list[str]) -> None:
    """Accuracy of the closed form with each remedy and share of wrong labels, none included."""
    results, split = Results("noise"), sample_per_class(train, per_class, POOL, seed)
    classes = Classes.of(split.labelled.labels)
    k, truth = len(classes), columns(classes, split.labelled.labels)
    x, pool, rest = (vectors(texts) for texts in (split.labelled.texts, split.pool.texts, split.rest.texts))
    words, rest_truth = word_features([*split.labelled.texts, *split.pool.texts]), columns(classes, split.rest.labels)
    for share in (0.0, *SHARES[1:]):
        y = flipped(truth, k, share, seed)
        for remedy in remedies:
            key = {"set": name, "per_class": per_class, "share": share, "seed": seed, "remedy": remedy}
            if results.has(**key):
                continue
            began = time.perf_counter()
            model = REMEDIES[remedy](x, y, pool, words, k, seed)
            accuracy = float((model.log_probabilities(rest).argmax(axis=1) == rest_truth).mean())
            results.add(**key, accuracy=round(accuracy, 4), seconds=round(time.perf_counter() - began, 1))
            print(key, f"{accuracy:.4f}", flush=True)


Remedy = Callable[[np.ndarray, np.ndarray, np.ndarray, Any, int, int], LinearModel]


def as_they_are(x: np.ndarray, y: np.ndarray, pool: np.ndarray, words: Any, labels: int, seed: int) -> LinearModel:
    return fit_closed_form(x, y, pool, words, labels, seed=seed).model


def dropped(x: np.ndarray, y: np.ndarray, pool: np.ndarray, words: Any, labels: int, seed: int) -> LinearModel:
    """Without the labels that `halflabel check` lists."""
    return without(find_label_errors(x, y, labels, seed=seed), x, y, pool, words, labels, seed)


def dropped_by_pool(x: np.ndarray, y: np.ndarray, pool: np.ndarray, words: Any, labels: int, seed: int) -> LinearModel:
    """Without the labels that `lift`'s own held-out predictions contradict, which use the pool."""
    return without(confident_learning(held_out_by_pool(x, y, pool, labels, seed), y), x, y, pool, words, labels, seed)


def dropped_by_rate(x: np.ndarray, y: np.ndarray, pool: np.ndarray, words: Any, labels: int, seed: int) -> LinearModel:
    """As `lift` does with `wrong_labels=drop`."""
    return fit_without_wrong_labels(x, y, pool, words, labels, seed=seed)[0].model


REMEDIES: dict[str, Remedy] = {"as they are": as_they_are, "dropped by pool": dropped_by_pool,
                               "dropped by rate": dropped_by_rate, "dropped": dropped}


def without(errors: list[LabelError], x: np.ndarray, y: np.ndarray, pool: np.ndarray, words: Any, labels: int,
            seed: int) -> LinearModel:
    """The closed form without the listed labels, whose texts join the pool; a class keeps one label at least."""
    kept = np.ones(len(y), dtype=bool)
    for error in errors:
        kept[error.row] = (kept & (y == error.given)).sum() <= 1
    order = np.concatenate([np.flatnonzero(kept), np.flatnonzero(~kept), len(y) + np.arange(len(pool))])
    return fit_closed_form(x[kept], y[kept], np.concatenate([x[~kept], pool]), words[order], labels, seed=seed).model


def held_out_by_pool(x: np.ndarray, y: np.ndarray, pool: np.ndarray, labels: int, seed: int) -> np.ndarray:
    """Probabilities (N, K) by the mixture of cluster model and logistic regression that was fitted without the text.

    The only text of a class is never predicted: its row is NaN.
    """
    from scipy.special import softmax

    held_out = cross_validate([gaussian_em, logistic_regression], x, y, pool, labels, np.random.default_rng([37, seed]))
    weights, _ = fit_weights(held_out, WEIGHT_PRIOR, WEIGHT_SPREAD)
    p = np.full((len(y), labels), np.nan)
    p[np.concatenate([np.flatnonzero(fold) for fold in held_out.folds])] = softmax(
        np.tensordot(weights, held_out.log_p, 1), axis=1)
    return p


def flipped(y: np.ndarray, labels: int, share: float, seed: int) -> np.ndarray:
    """Labels (N,) of which a share is replaced by another class."""
    rng, wrong = np.random.default_rng([41, seed]), y.copy()
    rows = rng.permutation(len(y))[: round(share * len(y))]
    wrong[rows] = (y[rows] + rng.integers(1, labels, len(rows))) % labels
    return wrong


def columns(classes: Classes, labels: Any) -> np.ndarray:
    return classes.matrix(labels).argmax(axis=1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--per-class", type=int, nargs="+")
    parser.add_argument("--remedies", nargs="+", default=list(REMEDIES), choices=list(REMEDIES))
    return parser.parse_args()


if __name__ == "__main__":
    main()
