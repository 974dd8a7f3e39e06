"""halflabel's default against its competitors on the same samples: accuracy on the official test set, no dev set.

    python benchmarks/accuracy.py --data FOLDER [--name ag_news] [--per-class 25 10] [--seeds 0 1 2 3 4]
        [--methods default lift/frozen lift/laptop constant logreg self-training setfit]
        [--names] [--encoder FOLDER] [--save FOLDER] [--minutes 60] [--results sealed]

Training time does not include the vectors of a frozen encoder, which are cached. With `--names` halflabel is told the
class names of the set, and `--per-class 0` trains it on these and unlabelled texts alone. `--save` keeps the models.
Beside other jobs, `--minutes` prevents that a plan for 15 minutes is shortened; `steps` says how many it had.
`--results` names the file in benchmarks/results: sets that nothing was chosen on have one of their own.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import f1_score

import cached_scores
from halflabel import TextClassifier
from halflabel.class_names import words_of_label
from halflabel.data.corpus import Corpus
from halflabel.evaluation.confidence import calibration_error, softmax
from halflabel.persistence.model import TrainedModel
from halflabel.types import Plan
from names import SUBJECTS
from protocol import Results, Sample, load, sample_per_class
from rivals import RIVALS

POOLS = {"ag_news": 10_000, "arxiv_topics10": 6000, "clinc150": 9000, "sst5": 4000,  # unlabelled texts
         "trec6": 4000, "ohsumed23": 2500, "mr2": 5000}


def main() -> None:
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    results = Results(options.results)
    test = load(options.data, options.name, "test", options.test)
    train = load(options.data, options.name, "train")
    truth = np.array(test.labels)
    names = names_of(options.data, options.name) if options.names else None
    for per_class in options.per_class:
        for seed in options.seeds:
            split = sample_per_class(train, per_class, options.unlabelled, seed)
            for method in options.methods:
                key = key_of(options.name, per_class, seed, method, names=options.names,
                             encoder=options.encoder.name if options.encoder else None)
                if results.has(**key):
                    continue
                if method in RIVALS:
                    line = RIVALS[method](split, test, seed)
                else:
                    line = halflabel(method, split, test, seed, names, options)
                predicted = line.pop("predicted")
                accuracy, macro_f1 = float(np.mean(predicted == truth)), f1_score(truth, predicted, average="macro")
                results.add(**key, accuracy=accuracy, macro_f1=float(macro_f1), n_test=len(test), **line)
                print(key, round(accuracy, 4), line.get("ece"), round(line["seconds"], 1), flush=True)


def key_of(name: str, per_class: int, seed: int, method: str, *, names: bool = False,
           encoder: str | None = None) -> dict[str, Any]:
    """What tells a run from all others in the results."""
    return {"set": name, "per_class": per_class, "seed": seed, "method": method, "unlabelled": POOLS[name],
            "names": "given" if names else None, "encoder": encoder}


def names_of(data: Path, name: str) -> dict[int, str]:
    """What the labels of a set mean, in words."""
    meta = json.loads((data / name / "meta.json").read_text(encoding="utf-8"))
    labels = meta["label_names"] if "label_names" in meta else meta["labels"]
    return {i: SUBJECTS.get(label) or words_of_label(label) or label for i, label in enumerate(labels)}


def halflabel(method: str, split: Sample, test: Corpus, seed: int, names: Mapping[int, str] | None,
              options: argparse.Namespace) -> dict[str, Any]:
    """The estimator with `default` for its default method and plan, else method or method/plan."""
    kind, _, plan = method.partition("/")
    choice: dict[str, Any] = {} if kind == "default" else {"method": kind}
    choice |= {"plan": plan} if plan else {}
    choice |= {"encoder": str(options.encoder)} if options.encoder else {}
    clf = TextClassifier(**choice, names=names, minutes=options.minutes, random_state=seed)
    began = time.perf_counter()
    clf.fit(split.labelled.texts, split.labelled.labels, unlabelled=split.pool.texts)
    seconds = time.perf_counter() - began
    assert isinstance(clf.model_, TrainedModel)
    if options.save:
        folder = "-".join(map(str, (options.name, len(split.labelled), seed, method.replace("/", "-"),
                                    "names" if names else "", options.encoder.name if options.encoder else "")))
        clf.save(options.save / folder.rstrip("-"))
    scores = cached_scores.scores(clf.model_, test.texts)
    truth = np.array(test.labels)
    predicted = clf.classes_[scores.argmax(axis=1)].astype(truth.dtype)  # names alone are given as strings
    confidence = softmax(scores, clf.model_.temperature).max(axis=1)
    return {"predicted": predicted, "seconds": seconds, "name": clf.method, "plan": clf.plan,
            "steps": Plan.from_json(clf.model_.facts["plan"]).steps, "minutes": options.minutes,
            "why": clf.termination_condition_,
            "confidence": float(confidence.mean()),
            "ece": calibration_error(confidence, predicted == truth)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", default="ag_news", choices=list(POOLS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[25, 10])
    parser.add_argument("--test", type=int, default=None, help="test texts, all when not given")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--methods", nargs="+", default=["default", "logreg", "self-training", "setfit"])
    parser.add_argument("--names", action="store_true", help="tell halflabel the class names of the set")
    parser.add_argument("--encoder", type=Path, help="a folder with another encoder than minilm, for halflabel")
    parser.add_argument("--save", type=Path, help="a folder that the trained models are saved in")
    parser.add_argument("--minutes", type=float, help="of the plan, instead of its own")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--results", default="accuracy")
    options = parser.parse_args()
    options.unlabelled = POOLS[options.name]
    return options


if __name__ == "__main__":
    main()
