"""Does `lift` gain from fine-tuning the encoder on pairs of labelled texts first? On training texts outside the sample.

    python benchmarks/pairs.py --data FOLDER [--sets emotions6 emotions sst5 ...] [--per-class 5 10] [--seeds 0 1 2]
        [--methods off auto setfit] [--threads 1]

`off` and `auto` are values of the hyper-parameter `contrast` of `lift`, in the plan `laptop` with all of its steps.
`emotions` are texts of goemotions that have one label, of those with at least 100 such texts; `emotions6` are six of
these labels, 700 texts of each at most. `sst2` has the negative and the positive sentences of sst5. No test text is
used: constants of `methods/contrast.py` were chosen here.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import f1_score

from halflabel import TextClassifier
from halflabel.data.corpus import Corpus
from halflabel.evaluation.confidence import calibration_error
from protocol import Results, Sample, load, sample_per_class
from rivals import setfit

POOLS = {"emotions6": 2200, "emotions": 3000, "sst5": 3000, "sst2": 3000, "ag_news": 3000, "arxiv_topics10": 2000,
         "clinc150": 6000}
OUTSIDE = 1500  # training texts outside the sample
NEUTRAL = 2  # of the five grades
SIX = ("anger", "joy", "sadness", "fear", "surprise", "love")


def main() -> None:
    options, results = parse(), Results("pairs")
    torch.set_num_threads(options.threads)
    for name, per_class, seed, method in product(options.sets, options.per_class, options.seeds, options.methods):
        key = {"set": name, "per_class": per_class, "seed": seed, "method": method, "unlabelled": POOLS[name]}
        if results.has(**key):
            continue
        split = sample_per_class(corpus(options.data, name), per_class, POOLS[name], seed)
        outside = split.rest.take(range(min(OUTSIDE, len(split.rest))))
        began = time.perf_counter()
        predicted, facts = predict(method, split, outside, seed)
        truth = np.array(outside.labels).astype(str)
        line = {"accuracy": float((predicted == truth).mean()), "n": len(truth), "pool": len(split.pool),
                "macro_f1": float(f1_score(truth, predicted, average="macro"))} | facts
        results.add(**key, **line, seconds=time.perf_counter() - began)
        print(key, line, flush=True)


def corpus(data: Path, name: str) -> Corpus:
    """The training texts of a set."""
    if name == "sst2":
        grades = load(data, "sst5", "train")
        polar = [i for i, grade in enumerate(grades.labels) if grade != NEUTRAL]
        return Corpus([grades.texts[i] for i in polar], [int(str(grades.labels[i])) > NEUTRAL for i in polar])
    if not name.startswith("emotions"):
        return load(data, name, "train")
    several = load(data, "goemotions", "train")
    labels = json.loads((data / "goemotions" / "meta.json").read_text(encoding="utf-8"))["label_names"]
    rows: dict[str, list[int]] = {}
    for row, some in enumerate(several.labels):
        if isinstance(some, tuple) and len(some) == 1:
            rows.setdefault(labels[int(some[0])], []).append(row)
    chosen = SIX if name == "emotions6" else sorted(label for label in rows if len(rows[label]) >= 100)
    pairs = [(row, label) for label in chosen for row in rows[label][: 700 if name == "emotions6" else None]]
    return Corpus([several.texts[row] for row, _ in pairs], [label for _, label in pairs])


def predict(method: str, split: Sample, outside: Corpus, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Labels of the texts outside the sample; whether contrast was used, and how far the model knows its accuracy."""
    if method == "setfit":
        return np.array(setfit(split, outside, seed)["predicted"]).astype(str), {"contrast": True}
    clf = TextClassifier("lift", plan="laptop", names="none", minutes=1000, random_state=seed,
                         settings={"contrast": method})
    clf.fit(split.labelled.texts, split.labelled.labels, unlabelled=split.pool.texts)
    assert clf.model_ is not None
    p = clf.predict_proba(outside.texts)
    predicted, confidence = clf.classes_[p.argmax(axis=1)].astype(str), p.max(axis=1)
    facts, expected = clf.model_.facts["start"], clf.model_.facts["outlook"]["expected"]
    return predicted, {"contrast": bool(facts.get("contrast")), "trust": facts["trust"],
                       "evidence": facts.get("contrast_evidence"),
                       "confidence": float(confidence.mean()), "expected": expected and expected["value"],
                       "ece": calibration_error(confidence, predicted == np.array(outside.labels).astype(str))}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(POOLS), choices=list(POOLS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=["off", "auto", "setfit"])
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
