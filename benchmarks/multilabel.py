"""Several labels: bdd-ml against bce, am-ml, one-vs-rest logistic regression and SetFit, under both decisions.

    python benchmarks/multilabel.py --data FOLDER [--sets ...] [--methods ...] [--seeds 0 1 2]

Labelled texts are sampled at random by seed, whatever their labels. Thresholds come from labelled frequencies and
scores of the unlabelled texts, never from the test texts. `--on rest` evaluates on training texts outside the sample
instead, to choose settings; such lines go to a file of their own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cached_scores import scores
from halflabel import TextClassifier
from halflabel.data.labels import Classes
from halflabel.evaluation.decisions import Decision
from halflabel.evaluation.metrics import multi_label
from halflabel.notices import EpochReport
from names import several_names
from protocol import Results, Sample, load, sample_texts, setting
from rivals_several import RIVALS

SETS = {"arxiv54": (200, 20_000), "pubmed_mesh23": (100, 5_000), "goemotions": (500, 20_000)}  # labelled, unlabelled
METHODS = ("bce/frozen", "am-ml/frozen", "bdd-ml/frozen", "logreg")
DECISIONS = ("prior-quantile", "fixed")
NAMED = "+names"  # after a method: with class names
METRICS = ("micro_f1", "macro_f1", "ranking_loss", "lrap", "coverage", "empty")


def main() -> None:
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    for name in options.sets:
        compare(name, options)


def compare(name: str, options: argparse.Namespace,
            prepare: Callable[[str, list[str]], None] = lambda method, texts: None) -> None:
    """All methods and seeds on one set; `prepare` is called with a method and all texts before it runs."""
    results = Results("multilabel" if options.on == "test" else "multilabel-rest")
    train, test = load(options.data, name, "train", options.train), load(options.data, name, "test", options.test)
    classes, words = Classes.of([*train.labels, *test.labels]), several_names(options.data, name)
    for seed in options.seeds:
        labelled, unlabelled = SETS[name]
        split = sample_texts(train, labelled, options.unlabelled or unlabelled, seed)
        measured = test if options.on == "test" else split.rest
        y, truth = classes.matrix(split.labelled.labels), classes.matrix(measured.labels) > 0
        for method in options.methods:
            key = {"set": name, "labelled": labelled, "unlabelled": len(split.pool), "seed": seed, "method": method,
                   "n": len(measured)}
            if results.has(**key):
                continue
            prepare(method, [*train.texts, *test.texts])
            names = [words[str(label)] for label in classes.names] if NAMED in method else None
            line = figures(run(method, split, y, measured.texts, seed, dict(options.set), names), y, truth)
            results.add(**key, **line, train=len(train), settings=dict(options.set))
            print(key, {rule: round(line[rule]["micro_f1"], 3) for rule in DECISIONS}, flush=True)


def run(method: str, split: Sample, y: np.ndarray, texts: Sequence[str], seed: int,
        changes: dict[str, float], names: Sequence[str] | None = None) -> dict[str, Any]:
    """Scores of texts by one method and its decision, with its time and notices; `names` are those of the columns."""
    if method in RIVALS:
        line = RIVALS[method](split, y, texts, seed, changes)
        line["decision"] = Decision.fit(line.pop("pool"), y.mean(axis=0).astype(np.float64), source="pool", logits=True,
                                        slope=1.0, chosen="fixed")
        return line
    kind, plan = method.replace(NAMED, "").split("/")
    epochs: list[dict[str, Any]] = []
    clf = TextClassifier(kind, plan=plan, random_state=seed, settings=changes or None,
                         names=None if names is None else {str(k): phrase for k, phrase in enumerate(names)})
    began = time.perf_counter()
    clf.fit(split.labelled.texts, y, unlabelled=split.pool.texts,
            report=lambda event: epochs.append(event.figures) if isinstance(event, EpochReport) else None)
    seconds = time.perf_counter() - began
    return {"new": scores(clf.model_, texts), "decision": clf.decision_, "seconds": seconds,
            "nuclear_norm": epochs[-1].get("nuclear_norm"), "notices": clf.notices_}


def figures(line: dict[str, Any], y: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """The line of a run with all metrics under both decisions in place of its scores."""
    new, decision = line.pop("new"), line.pop("decision")
    for rule in DECISIONS:
        metrics = multi_label(truth, decision(new, rule), new, range(y.shape[1]))
        line[rule] = {name: metrics[name] for name in METRICS}
    return line


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS),
                        help="logreg, setfit, or method/plan: bdd-ml/laptop, lift-ml+names/frozen with class names")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--on", choices=["test", "rest"], default="test")
    parser.add_argument("--train", type=int, default=None, help="training texts to sample from, all when not given")
    parser.add_argument("--test", type=int, default=None, help="test texts, all when not given")
    parser.add_argument("--unlabelled", type=int, default=0, help="pool, the set's own when not given")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=NUMBER", type=setting)
    return parser.parse_args()


if __name__ == "__main__":
    main()
