"""All registered methods on the same splits, on frozen vectors or fine-tuned.

    python benchmarks/methods.py --data FOLDER [--sets ag_news ... goemotions] [--seeds 0 1 2 3 4]
    python benchmarks/methods.py --data FOLDER --plan laptop [--methods freematch ...]

Each set is for the methods of its kind of labels. For one label per text, samples, strong views and test texts are
those of balance.py; for several, samples, decisions and the result file are those of multilabel.py. So vectors and
finished runs are shared. Only the labelled texts and the pool differ between seeds. Time is that of `fit` with cached
vectors.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import multilabel
from cached_scores import scores, store
from halflabel import TextClassifier
from halflabel.data.augmentation import WordEdits
from halflabel.data.corpus import Corpus
from halflabel.methods.registry import METHODS, Method
from halflabel.types import Shape
from protocol import SETS, Results, load, sample_per_class


def main() -> None:
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    for name in options.sets:
        (one_label if name in SETS else several_labels)(name, options)


def one_label(name: str, options: argparse.Namespace) -> None:
    """Multi-class methods on one set."""
    results = Results("methods")
    train, test = (load(options.data, name, part, n) for part, n in zip(("train", "test"), SETS[name], strict=True))
    views = dict(zip(train.texts, WordEdits.fit(train.texts, seed=0).views(train.texts, 0), strict=True))
    for seed in options.seeds:
        for method in chosen(options, "multi-class"):
            if options.plan != "frozen" and (METHODS[method].no_steps or METHODS[method].bag_of_words):
                continue  # the same under every plan
            key = {"set": name, "plan": options.plan, "per_class": options.per_class,
                   "unlabelled": options.unlabelled, "seed": seed, "method": method}
            if not results.has(**key):
                if options.plan == "frozen" and not METHODS[method].bag_of_words:
                    encode(METHODS[method], [*train.texts, *test.texts], list(views.values()))
                line = run(train, test, views, key)
                results.add(**key, **line)
                print(name, seed, method, round(line["accuracy"], 4), f"{line['seconds']:.1f} s", *line["notices"],
                      flush=True)


def several_labels(name: str, options: argparse.Namespace) -> None:
    """Multi-label methods on one set."""
    def prepare(method: str, texts: list[str]) -> None:
        if options.plan == "frozen":
            encode(METHODS[method.split("/")[0]], texts, [])

    methods = [f"{method}/{options.plan}" for method in chosen(options, "multi-label")]
    multilabel.compare(name, argparse.Namespace(data=options.data, seeds=options.seeds, methods=methods, on="test",
                                                test=None, unlabelled=0, set=[]), prepare)


def chosen(options: argparse.Namespace, task: str) -> list[str]:
    """The requested methods, or all, that are for this kind of labels."""
    return [name for name, method in METHODS.items() if method.task == task and name in (options.methods or METHODS)]


def run(train: Corpus, test: Corpus, views: dict[str, str], key: dict[str, Any]) -> dict[str, Any]:
    """One run, evaluated on the test texts."""
    split = sample_per_class(train, key["per_class"], key["unlabelled"], key["seed"])
    clf = TextClassifier(key["method"], plan=key["plan"], random_state=key["seed"])
    began = time.perf_counter()
    clf.fit(split.labelled.texts, split.labelled.labels, unlabelled=split.pool.texts,
            views=[(views[text],) for text in split.pool.texts])
    seconds = time.perf_counter() - began
    predicted = clf.classes_[scores(clf.model_, test.texts).argmax(axis=1)]
    return {"accuracy": float(np.mean(predicted == np.array(test.labels))), "seconds": seconds, "n_test": len(test),
            "labels": len(clf.classes_), "notices": clf.notices_}


def encode(method: Method, texts: list[str], views: list[str]) -> None:
    """Fills the cache of vectors, so that the time of a run does not include them."""
    strong = method(Shape(labels=2, width=8, labelled=2, unlabelled=2)).strong_views
    store(method.depths).vectors(texts + views if strong else texts)


def parse() -> argparse.Namespace:
    sets = [*SETS, *multilabel.SETS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=sets, choices=sets)
    parser.add_argument("--methods", nargs="+", default=None, choices=list(METHODS), help="all when not given")
    parser.add_argument("--plan", default="frozen")
    parser.add_argument("--per-class", type=int, default=25, help="labels, where texts have one")
    parser.add_argument("--unlabelled", type=int, default=4000, help="pool, where texts have one label")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--threads", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
