"""Texts of no class: are they told from known ones, at the stated coverage, and do they hurt in the pool?

    python benchmarks/unknown.py --data FOLDER [--per-class 10] [--seeds 0 1 2]
    python benchmarks/unknown.py --data FOLDER --training [--per-class 2 5 10 25] [--ways known_pool]

`clinc150` has out-of-scope texts of its own. Elsewhere some classes are left out of the labels: they are unknown. Each
run is done with a pool of known texts, and with the same pool and so many unknown texts that they are 30 % of it.

`--training` fits the closed form of `lift` with EM on the whole pool (`whole_pool`), on its texts near the classes
(`near_pool`), and without the unknown classes that it finds (`known_pool`, what `lift` does). Accuracy is measured on
training texts outside the sample, and no test text is used. The quantiles in STAGES of `methods/gaussian_em.py`, and
the constants of `methods/unknown_classes.py`, were chosen on such samples.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from calibration import TOKENS
from halflabel import TextClassifier
from halflabel.atomic import cache_folder
from halflabel.data.corpus import Corpus
from halflabel.data.labels import Classes
from halflabel.data.readers.read import concat_corpora
from halflabel.encoders.cache import EncoderCache
from halflabel.evaluation.confidence import softmax
from halflabel.methods import closed_form, gaussian_em
from halflabel.methods.label_smoothing import word_features
from halflabel.methods.linear_models import logistic_regression
from protocol import Results, load, sample_per_class
from rivals import vectors

SETS = {"clinc150": None, "ag_news": 14_000, "arxiv_topics10": 8000}  # training texts
UNKNOWN: dict[str, list[tuple[int, ...]]] = {  # classes without labels
    "clinc150": [(), tuple(range(0, 150, 5))], "ag_news": [(0,), (1,), (2,), (3,)],
    "arxiv_topics10": [(0, 1, 2), (4, 6, 8)]}
COVERAGE = 0.95
FOREIGN = 0.3  # share of unknown texts in a pool
HELD_OUT = 2000  # known texts that are predicted
TRAINING_SETS = {"ag_news": 14_000, "arxiv_topics10": 8000, "sst5": None, "clinc150": None}
TRAINING_POOL = 1400  # texts of known classes in the pool
NO_UNKNOWN = {(closed_form, "find_unknown_classes"): lambda *rest: None}
ALL_NEAR = {(gaussian_em, "near_classes"): lambda f, y, f_pool, *rest: np.ones(len(f_pool), dtype=bool)}
WAYS: dict[str, dict[Any, Any]] = {  # to use a pool, and the functions that each replaces
    "labels_alone": {}, "whole_pool": NO_UNKNOWN | ALL_NEAR, "near_pool": NO_UNKNOWN, "known_pool": {}}


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    if options.training:
        compare_training(options)
        return
    results = Results("unknown")
    for name in options.sets:
        train = load(options.data, name, "train", SETS[name])
        for classes in UNKNOWN[name]:
            known = rows_of(train, classes, inside=False)
            if classes:
                unknown = rows_of(train, classes, inside=True)
                far = unknown.take(range(HELD_OUT // 2, len(unknown)))
                unknown, tested = unknown.take(range(HELD_OUT // 2)), None
            else:
                unknown = load(options.data, name, "oos_test")
                far = concat_corpora([load(options.data, name, part) for part in ("oos_train", "oos_val", "oos_test")])
                tested = load(options.data, name, "test", HELD_OUT)
            for per_class in options.per_class:
                for seed in options.seeds:
                    for foreign in (0.0, FOREIGN):
                        key = {"set": name, "unknown": list(classes), "per_class": per_class, "seed": seed,
                               "unlabelled": options.unlabelled, "foreign": foreign}
                        if not results.has(**key):
                            line = run(known, unknown, far, tested, key)
                            results.add(**key, **line)
                            print(key, line, flush=True)


def rows_of(corpus: Corpus, classes: tuple[int, ...], *, inside: bool) -> Corpus:
    return corpus.take([i for i, label in enumerate(corpus.labels) if (label in classes) == inside])


def run(known: Corpus, unknown: Corpus, far: Corpus, tested: Corpus | None, key: dict[str, Any]) -> dict[str, Any]:
    """Accuracy, AUROC of distance and of confidence, and how many texts get a label; `far` texts may join the pool.

    Unknown texts that did are not predicted.
    """
    split = sample_per_class(known, key["per_class"], key["unlabelled"], key["seed"])
    wanted = round(key["unlabelled"] * key["foreign"] / (1.0 - key["foreign"]))
    pool = [*split.pool.texts, *list(far.texts)[:wanted]]
    clf = TextClassifier(plan="frozen", random_state=key["seed"], settings={"max_tokens": TOKENS})
    clf.fit(split.labelled.texts, split.labelled.labels, unlabelled=pool)
    test = (split.rest if tested is None else tested).take(range(min(HELD_OUT, len(tested or split.rest))))
    foreign = set(pool[len(split.pool) :])
    unseen = unknown.take([i for i, text in enumerate(unknown.texts) if text not in foreign])
    model, cache = clf.model_, EncoderCache(cache_folder(), clf.model_.encoder)
    near, away = (model.classify(cache.vectors(corpus.texts), corpus.texts) for corpus in (test, unseen))
    distances = [model.detector.distances(output.f.numpy()) for output in (near, away)]
    doubts = [-softmax(output.scores.numpy()).max(axis=1) for output in (near, away)]
    correct = clf.classes_[near.scores.numpy().argmax(axis=1)] == np.array(test.labels)
    answered = distances[0] <= model.detector.threshold(COVERAGE)
    rounded = {"accuracy": correct.mean(), "answered_accuracy": correct[answered].mean(), "coverage": answered.mean(),
               "unknown_answered": (distances[1] <= model.detector.threshold(COVERAGE)).mean(),
               "auroc": auroc(*distances), "auroc_confidence": auroc(*doubts)}
    return {name: round(float(value), 4) for name, value in rounded.items()} | {
        "foreign_texts": len(foreign), "n_known": len(test), "n_unknown": len(unseen)}


def compare_training(options: argparse.Namespace) -> None:
    """Accuracy by the ways to use a pool, with and without unknown texts in it."""
    results = Results("foreign")
    corpora = {name: load(options.data, name, "train", TRAINING_SETS[name]) for name in options.sets}
    for seed in options.seeds:
        for per_class in options.per_class:
            for name, train in corpora.items():
                for classes in [(), *(left_out for left_out in UNKNOWN.get(name, []) if name != "clinc150")]:
                    for foreign in (0.0, FOREIGN) if classes else (0.0,):
                        key = {"set": name, "unknown": list(classes), "per_class": per_class, "seed": seed,
                               "unlabelled": TRAINING_POOL, "foreign": foreign}
                        if ways := [way for way in options.ways if not results.has(**key, way=way)]:
                            known, far = (rows_of(train, classes, inside=inside) for inside in (False, True))
                            for line in train_ways(known, far, key, ways):
                                results.add(**key, **line)
                                print(key, line, flush=True)


def train_ways(known: Corpus, far: Corpus, key: dict[str, Any], ways: list[str]) -> Iterator[dict[str, Any]]:
    """The accuracy of each way to use the pool, and its seconds."""
    split = sample_per_class(known, key["per_class"], key["unlabelled"], key["seed"])
    wanted = round(key["unlabelled"] * key["foreign"] / (1.0 - key["foreign"]))
    test = split.rest.take(range(min(HELD_OUT, len(split.rest))))
    texts, pool = list(split.labelled.texts), [*split.pool.texts, *list(far.texts)[:wanted]]
    classes = Classes.of(split.labelled.labels)
    y, truth = (classes.matrix(part.labels).argmax(axis=1) for part in (split.labelled, test))
    x, x_pool, x_test = (vectors(part).astype(np.float64) for part in (texts, pool, list(test.texts)))
    words = word_features([*texts, *pool])
    for way in ways:
        began, unknown = time.perf_counter(), 0.0
        if way == "labels_alone":
            model = logistic_regression(x, y, x_pool, len(classes))
        else:
            with ExitStack() as replaced:
                for (module, name), function in WAYS[way].items():
                    replaced.enter_context(mock.patch.object(module, name, function))
                fitted = closed_form.fit_closed_form(x, y, x_pool, words, len(classes), seed=key["seed"])
            model, unknown = fitted.model, fitted.unknown
        accuracy = (model.log_probabilities(x_test).argmax(axis=1) == truth).mean()
        yield {"way": way, "accuracy": round(float(accuracy), 4), "left_out": round(float(unknown), 4),
               "seconds": round(time.perf_counter() - began, 2)}


def auroc(known: np.ndarray, unknown: np.ndarray) -> float:
    truth = np.repeat([0, 1], [len(known), len(unknown)])
    return float(roc_auc_score(truth, np.concatenate([known, unknown])))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=list(TRAINING_SETS))
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[10])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--unlabelled", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.sets = options.sets or list(TRAINING_SETS if options.training else SETS)
    return options


if __name__ == "__main__":
    main()
