"""Simulated labelling: accuracy against the number of labels, for each strategy of `halflabel suggest`.

    python benchmarks/active_learning.py --data FOLDER [--sets ag_news ...] [--learner logistic] [--seeds 0 1 2 3 4]

A simulation starts with one labelled text per class. In each of 10 rounds the strategy suggests 20 texts of the pool,
these get their true labels, and the learner is fitted again on frozen vectors. Accuracy is measured on training texts
outside the pool; test texts are not used.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from halflabel.active_learning import STRATEGIES, Candidates, Scores
from halflabel.data.corpus import TextLabel
from halflabel.data.labels import Classes
from halflabel.methods.closed_form import LinearModel, fit_closed_form, logistic_regression
from halflabel.methods.label_smoothing import word_features
from protocol import Results, Sample, load, sample_per_class
from rivals import vectors

SETS = ("ag_news", "sst5", "arxiv_topics10", "clinc150")
ROUNDS, BATCH = 10, 20
COMPARED = 100  # labels at which random's accuracy is the goal
TRAIN, POOL = 6000, 4000  # training texts of a set, and those in the pool

Learner = Callable[[np.ndarray, np.ndarray, int], LinearModel]  # labelled rows, their labels, seed -> model


def main() -> None:
    options = parse()
    results = Results("active_learning")
    for name in options.sets:
        train = load(options.data, name, "train", TRAIN)
        for seed in options.seeds:
            split = sample_per_class(train, 1, POOL, seed)
            for strategy in options.strategies:
                key = {"set": name, "learner": options.learner, "strategy": strategy, "seed": seed}
                if not results.has(**key):
                    began = time.perf_counter()
                    accuracy = simulate(split, strategy, options.learner, seed)
                    results.add(**key, batch=BATCH, accuracy=accuracy, seconds=round(time.perf_counter() - began, 1))
                    print(key, *(f"{value:.3f}" for value in accuracy), flush=True)
    summarise(results, options)


def simulate(split: Sample, strategy: str, learner: str, seed: int) -> list[float]:
    """Accuracy at the start and after each round."""
    classes, chosen, rng = Classes.of(split.labelled.labels), STRATEGIES[strategy], np.random.default_rng([31, seed])
    texts = [*split.labelled.texts, *split.pool.texts]
    x, y = vectors(texts), columns(classes, [*split.labelled.labels, *split.truth])
    rest, truth = vectors(split.rest.texts), columns(classes, split.rest.labels)
    fit = make_learner(learner, x, texts, len(classes))
    labelled, accuracy = np.arange(len(split.labelled)), []
    for _ in range(ROUNDS + 1):
        model = fit(labelled, y[labelled], seed)
        accuracy.append(float((model.log_probabilities(rest).argmax(axis=1) == truth).mean()))
        left = np.setdiff1d(np.arange(len(x)), labelled)
        scores = Scores.of(np.exp(model.log_probabilities(x[left])), "multi-class")
        rows = chosen.shortlist(scores, len(left), BATCH, len(left), rng)
        counts = np.bincount(y[labelled], minlength=len(classes)).astype(np.float64)
        candidates = Candidates.of(x[left[rows]], x[labelled], scores[rows], counts)
        labelled = np.concatenate([labelled, left[rows[chosen.select(candidates, BATCH, rng)]]])
    return [round(value, 4) for value in accuracy]


def columns(classes: Classes, labels: Sequence[TextLabel]) -> np.ndarray:
    return classes.matrix(labels).argmax(axis=1)


def make_learner(name: str, x: np.ndarray, texts: list[str], labels: int) -> Learner:
    """Logistic regression on the labelled texts, or the closed form of `lift`, which uses the pool as well."""
    if name == "logistic":
        return lambda rows, y, seed: logistic_regression(x[rows], y, x, labels)
    words = word_features(texts)

    def fit(rows: np.ndarray, y: np.ndarray, seed: int) -> LinearModel:
        others = np.setdiff1d(np.arange(len(x)), rows)
        return fit_closed_form(x[rows], y, x[others], words[np.concatenate([rows, others])], labels, seed=seed).model
    return fit


def summarise(results: Results, options: argparse.Namespace) -> None:
    """Prints the area under the mean curve of each strategy, and the labels it needs for random's accuracy at 100."""
    for name in options.sets:
        curves = {strategy: np.mean([line["accuracy"] for line in results if line["set"] == name and
                                     line["learner"] == options.learner and line["strategy"] == strategy], axis=0)
                  for strategy in options.strategies}
        for strategy, curve in curves.items():
            needed = labels_needed(curve, curves["random"][COMPARED // BATCH]) if "random" in curves else np.nan
            print(f"{name:16}{strategy:12} area {curve.mean():.4f}, labels needed {needed:.0f}, at 100 "
                  f"{curve[COMPARED // BATCH]:.4f}, at the end {curve[-1]:.4f}")


def labels_needed(curve: np.ndarray, goal: float) -> float:
    """Labels after which a curve first reaches the goal, interpolated; infinite if it never does."""
    if not (curve >= goal).any():
        return np.inf
    i = int((curve >= goal).argmax())
    return BATCH * (i - (curve[i] - goal) / (curve[i] - curve[i - 1])) if i else 0.0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--learner", default="logistic", choices=["logistic", "closed-form"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    return parser.parse_args()


if __name__ == "__main__":
    main()
