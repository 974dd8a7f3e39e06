"""Simulated labelling: accuracy against the number of labels, for strategies of `halflabel suggest` and of others.

    python benchmarks/active_learning.py --data FOLDER [--sets ag_news ...] [--strategies balanced random ...]
    python benchmarks/active_learning.py --data FOLDER --choose
    python benchmarks/active_learning.py --plot

A simulation starts with one labelled text per class, or with 20 random texts if there are more than 20 classes or texts
have several labels. In each of 10 rounds the strategy suggests 20 texts of the pool, these get their true labels, and
the learner is fitted again on frozen vectors. Accuracy, or micro F1 for several labels, is measured on training texts
outside the pool; test texts are not used. `--choose` compares variants of `balanced` on other samples than those that
are reported. `--plot` draws docs/active_learning.svg from the results.

Strategies of others need `pip install --no-deps small-text modAL-python`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from halflabel.active_learning import DOUBTFUL, STRATEGIES
from halflabel.data.labels import Classes
from halflabel.labelling import Guesses
from halflabel.methods.closed_form import fit_closed_form
from halflabel.methods.label_smoothing import word_features
from halflabel.methods.linear_models import logistic_regression
from halflabel.suggestions import suggest
from halflabel.types import Task
from protocol import Results, Sample, load, sample_per_class, sample_texts
from rivals import vectors
from tables import curves, labels_needed

SEVERAL = ("arxiv54", "pubmed_mesh23", "goemotions")  # several labels per text
SETS = ("ag_news", "sst5", "arxiv_topics10", "clinc150", *SEVERAL)
SVG = Path(__file__).parent.parent / "docs" / "active_learning.svg"
ROUNDS, BATCH = 10, 20
TRAIN, POOL = 6000, 4000  # training texts of a set, and those in the pool
SEEDS = {"choose": [0, 1, 2, 3], "report": [5, 6, 7, 8, 9, 20, 21, 22, 23, 24]}

Fitted = Callable[[np.ndarray], np.ndarray]  # vectors (N, H) -> probabilities (N, K)
Learner = Callable[[np.ndarray, np.ndarray, int], Fitted]  # labelled rows, their labels (N, K), seed -> fitted


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    if options.plot:
        plot()
        return
    results, part = Results("active_learning"), "choose" if options.choose else "report"
    strategies = options.strategies or (["random", "balanced", *VARIANTS] if options.choose
                                        else [*STRATEGIES, *RIVALS])
    if missing := [name for name in strategies if name in RIVALS and find_spec(MODULES[name.split()[0]]) is None]:
        sys.exit(f"{', '.join(missing)}: pip install --no-deps small-text modAL-python, or name other --strategies")
    for name in options.sets:
        train = load(options.data, name, "train", TRAIN)
        encoded = dict(zip(train.texts, vectors(train.texts), strict=True))
        classes = Classes.of(train.labels)
        task: Task = "multi-label" if name in SEVERAL else "multi-class"
        for seed in options.seeds or SEEDS[part]:
            split = (sample_texts(train, BATCH, POOL, seed) if name in SEVERAL or len(classes) > BATCH
                     else sample_per_class(train, 1, POOL, seed))
            for strategy in strategies:
                key = {"set": name, "part": part, "learner": options.learner, "strategy": strategy, "seed": seed}
                if results.has(**key) or strategy in (ONE_LABEL if name in SEVERAL else SEVERAL_LABELS):
                    continue
                began = time.perf_counter()
                with patch.multiple("halflabel.active_learning", **VARIANTS.get(strategy, {"DOUBTFUL": DOUBTFUL})):
                    accuracy = simulate(split, encoded, strategy, options.learner, seed, classes, task)
                results.add(**key, batch=BATCH, accuracy=accuracy, seconds=round(time.perf_counter() - began, 1))
                print(key, *(f"{value:.3f}" for value in accuracy), flush=True)
    for name, by_strategy in curves(part).items():
        for strategy, curve in by_strategy.items():
            print(f"{name:16}{strategy:26} area {curve.accuracy.mean():.4f}, labels needed "
                  f"{labels_needed(curve.accuracy, curve.random):.0f}, at the end {curve.accuracy[-1]:.4f}")


def simulate(split: Sample, encoded: dict[str, np.ndarray], strategy: str, learner: str, seed: int, classes: Classes,
             task: Task) -> list[float]:
    """Accuracy, or micro F1, at the start and after each round."""
    texts, rng = [*split.labelled.texts, *split.pool.texts], np.random.default_rng([31, seed])
    x, y = np.stack([encoded[text] for text in texts]), classes.matrix([*split.labelled.labels, *split.truth])
    rest, truth = np.stack([encoded[text] for text in split.rest.texts]), classes.matrix(split.rest.labels) > 0
    fit = make_learner(learner if task == "multi-class" else "one-vs-rest", x, texts, len(classes))
    labelled, accuracy = np.arange(len(split.labelled)), list[float]()
    while True:
        probabilities = fit(labelled, y[labelled], seed)
        left, p = np.setdiff1d(np.arange(len(x)), labelled), probabilities(x)
        accuracy.append(quality(probabilities(rest), truth, task, p[left], y[labelled].sum(axis=1).mean()))
        if len(accuracy) > ROUNDS:
            return [round(value, 4) for value in accuracy]
        if strategy in RIVALS:
            chosen = left[RIVALS[strategy](x[left], p[left], x[labelled], y[labelled], rng)]
        else:
            guesses = Guesses({text: row for row, text in enumerate(texts)}, x, p, classes, task)
            chosen = own("balanced" if strategy in VARIANTS else strategy, guesses, [texts[row] for row in left],
                         [texts[row] for row in labelled], rng)
        labelled = np.concatenate([labelled, chosen])


def quality(p: np.ndarray, truth: np.ndarray, task: Task, pool: np.ndarray, labels_per_text: float) -> float:
    """Accuracy, or micro F1 with the threshold at which texts of the pool have as many labels as labelled texts."""
    if task == "multi-class":
        return float(truth[np.arange(len(p)), p.argmax(axis=1)].mean())
    predicted = p > np.quantile(pool, 1.0 - labels_per_text / pool.shape[1])
    return float(2 * (predicted & truth).sum() / (predicted.sum() + truth.sum()))


def own(strategy: str, guesses: Guesses, pool: list[str], labelled: list[str], rng: np.random.Generator) -> np.ndarray:
    """Rows of the texts that `halflabel suggest` suggests."""
    found, _ = suggest(pool, BATCH, strategy, model=guesses, vectors=guesses.vectors, labelled=labelled,
                       seed=int(rng.integers(2**31)))
    return np.array(guesses.rows([suggestion.text for suggestion in found]))


# Strategies of others: vectors (N, H) and probabilities (N, K) of the pool, vectors (M, H) and labels (M, K) of
# labelled texts, random numbers -> rows to label

Suggest = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.random.Generator], np.ndarray]


def small_text_k_means(x: np.ndarray, p: np.ndarray, labelled: np.ndarray, y: np.ndarray, rng: np.random.Generator
                       ) -> np.ndarray:
    """small-text's EmbeddingKMeans."""
    from small_text import EmbeddingKMeans

    np.random.seed(rng.integers(2**31))  # it has no seed of its own
    return np.asarray(EmbeddingKMeans().sample(None, x, np.arange(len(x)), None, None, BATCH, x))


def small_text_contrastive(x: np.ndarray, p: np.ndarray, labelled: np.ndarray, y: np.ndarray,
                           rng: np.random.Generator) -> np.ndarray:
    """small-text's ContrastiveActiveLearning."""
    from small_text import ContrastiveActiveLearning

    return np.asarray(ContrastiveActiveLearning().sample(None, x, np.arange(len(x)), None, None, BATCH, x,
                                                         embeddings_proba=p))


def modal_ranked_batch(x: np.ndarray, p: np.ndarray, labelled: np.ndarray, y: np.ndarray, rng: np.random.Generator
                       ) -> np.ndarray:
    """modAL's ranked batch-mode sampling."""
    from modAL.batch import uncertainty_batch_sampling

    model = SimpleNamespace(predict_proba=lambda _: p, X_training=labelled, on_transformed=False)
    found = uncertainty_batch_sampling(model, x, n_instances=BATCH)
    return np.asarray(found[0] if isinstance(found, tuple) else found)


RIVALS: dict[str, Suggest] = {"small-text k-means": small_text_k_means,
                              "small-text contrastive": small_text_contrastive,
                              "modAL ranked batch": modal_ranked_batch}
MODULES = {"small-text": "small_text", "modAL": "modAL"}
ONE_LABEL = ("small-text contrastive", "modAL ranked batch")  # which need one distribution for each text


# Variants of `balanced`: what they change in halflabel.active_learning


def doubt_of_one_label(p: np.ndarray, task: Task) -> np.ndarray:
    """How near to one half the probability of the most doubtful label is."""
    return np.asarray(1.0 - np.abs(2.0 * p - 1.0).min(axis=1))


VARIANTS: dict[str, dict[str, Any]] = {"labelled texts take no cluster": {"MOST_COVERED": 0},
                                       "a quarter of each class": {"DOUBTFUL": 0.25},
                                       "all texts of each class": {"DOUBTFUL": 1.0},
                                       "doubt of one label": {"doubt": doubt_of_one_label}}
SEVERAL_LABELS = ("doubt of one label",)  # which differ for several labels per text alone


# Learners


def make_learner(name: str, x: np.ndarray, texts: list[str], labels: int) -> Learner:
    """Logistic regression on the labelled texts, or the closed form of `lift`, which uses the pool as well."""
    if name == "one-vs-rest":
        return lambda rows, y, seed: one_vs_rest(x[rows], y)
    words = word_features(texts) if name == "closed-form" else None

    def fit(rows: np.ndarray, y: np.ndarray, seed: int) -> Fitted:
        others = np.setdiff1d(np.arange(len(x)), rows)
        model = (logistic_regression(x[rows], y.argmax(axis=1), x, labels) if words is None
                 else fit_closed_form(x[rows], y.argmax(axis=1), x[others], words[np.concatenate([rows, others])],
                                      labels, seed=seed).model)
        return lambda some: np.exp(model.log_probabilities(some))
    return fit


def one_vs_rest(x: np.ndarray, y: np.ndarray, strength: float = 10.0) -> Fitted:
    """Logistic regression of each label, (N, H) and (N, K), all in one minimisation; the intercept is not penalised."""
    from scipy.optimize import minimize
    from scipy.special import expit

    known = np.flatnonzero(y.any(axis=0) & ~y.all(axis=0))
    features, target = np.hstack([x, np.ones((len(x), 1))]), y[:, known]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weight = flat.reshape(features.shape[1], len(known))
        z, penalised = features @ weight, np.vstack([weight[:-1], np.zeros((1, len(known)))])
        value = strength * (np.logaddexp(0.0, z) - target * z).sum() + 0.5 * (penalised**2).sum()
        return float(value), (strength * features.T @ (expit(z) - target) + penalised).ravel()

    best = minimize(loss, np.zeros(features.shape[1] * len(known)), jac=True, method="L-BFGS-B",
                    options={"maxiter": 300}).x.reshape(features.shape[1], len(known))

    def probabilities(some: np.ndarray) -> np.ndarray:
        p = np.tile(y.mean(axis=0).astype(np.float64), (len(some), 1))
        p[:, known] = expit(some @ best[:-1] + best[-1])
        return p
    return probabilities


COLOURS = {strategy: "black" if strategy == "random" else f"C{i}" for i, strategy in enumerate([*STRATEGIES, *RIVALS])}


def plot() -> None:
    """Draws the curve of each strategy, a panel for each set."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "halflabel"  # the same figure gives the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 4, figsize=(12, 5.5), layout="constrained")
    found = curves("report")
    for ax, (name, by_strategy) in zip(axes.flat, found.items(), strict=False):
        for strategy, curve in by_strategy.items():
            ax.plot(BATCH * np.arange(ROUNDS + 1), curve.accuracy, "-" if strategy in STRATEGIES else ":",
                    label=strategy, color=COLOURS[strategy], linewidth=2.2 if strategy == "balanced" else 1.2)
        ax.set(title=name, xlabel="suggested labels", ylabel="micro F1" if name in SEVERAL else "accuracy")
        ax.grid(True, alpha=0.3)
    handles = {label: line for ax in axes.flat for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    for ax in list(axes.flat)[len(found):]:
        ax.axis("off")
    list(axes.flat)[-1].legend(handles.values(), handles.keys(), loc="center")
    figure.savefig(SVG, metadata={"Date": None})


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--strategies", nargs="+", choices=[*STRATEGIES, *RIVALS, *VARIANTS])
    parser.add_argument("--learner", default="logistic", choices=["logistic", "closed-form"])
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--plot", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
