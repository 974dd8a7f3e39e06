"""Texts of no class: are they told from known ones, at the stated coverage, and do they hurt in the pool?

    python benchmarks/unknown.py --data FOLDER [--per-class 10] [--seeds 0 1 2]

`clinc150` has out-of-scope texts of its own. Elsewhere some classes are left out of the labels: they are unknown. Each
run is done with a pool of known texts, and with the same pool and so many unknown texts that they are 30 % of it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from calibration import TOKENS
from halflabel import TextClassifier
from halflabel.atomic import cache_folder
from halflabel.data.corpus import Corpus
from halflabel.data.readers.read import concat_corpora
from halflabel.encoders.cache import EncoderCache
from halflabel.evaluation.confidence import softmax
from protocol import Results, load, sample_per_class

SETS = {"clinc150": None, "ag_news": 14_000, "arxiv_topics10": 8000}  # training texts
UNKNOWN: dict[str, list[tuple[int, ...]]] = {  # classes without labels
    "clinc150": [(), tuple(range(0, 150, 5))], "ag_news": [(0,), (1,), (2,), (3,)],
    "arxiv_topics10": [(0, 1, 2), (4, 6, 8)]}
COVERAGE = 0.95
FOREIGN = 0.3  # share of unknown texts in a pool
HELD_OUT = 2000  # known texts that are predicted


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
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


def auroc(known: np.ndarray, unknown: np.ndarray) -> float:
    truth = np.repeat([0, 1], [len(known), len(unknown)])
    return float(roc_auc_score(truth, np.concatenate([known, unknown])))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[10])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--unlabelled", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
