"""What the votes of words and neighbours add to `lift`, on training texts outside the sample.

    python benchmarks/votes.py --data FOLDER [--sets ag_news ...] [--per-class 2 10 25] [--seeds 0 1 2] [--plan laptop]
        [--names] [--set epoch_steps=60 ...] [--threads 1]

One model is trained, and its accuracy is compared with that of its network alone and of its network with words. No
test text is used. With `--set` other schedules are compared; `seconds` is the processor time of training.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cached_scores
from accuracy import names_of
from halflabel import TextClassifier
from halflabel.evaluation.confidence import calibration_error
from halflabel.persistence.model import TrainedModel
from protocol import Results, Sample, load, sample_per_class, setting

POOLS = {"ag_news": 10_000, "arxiv_topics10": 3000, "clinc150": 6000, "sst5": 4000}  # unlabelled texts
HELD_OUT = 3000  # texts outside the sample that are predicted


def main() -> None:
    options = parse()
    results, settings = Results("votes"), dict(options.set) or None
    if options.threads:
        torch.set_num_threads(options.threads)
    for seed, name, per_class in product(options.seeds, options.sets, options.per_class):
        key = {"set": name, "plan": options.plan, "per_class": per_class, "seed": seed, "settings": settings,
               "names": "given" if options.names else None}
        if not results.has(**key):
            split = sample_per_class(load(options.data, name, "train"), per_class, POOLS[name], seed)
            names = names_of(options.data, name) if options.names else None
            line = measure(split, options.plan, seed, names, settings)
            results.add(**key, **line)
            print(key, line, flush=True)


def measure(split: Sample, plan: str, seed: int, names: Mapping[int, str] | None = None,
            settings: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Accuracy of network, network with words, and all; the calibration error is that of all."""
    clf = TextClassifier("lift", plan=plan, minutes=1000, random_state=seed, names=names, settings=settings)
    began = time.process_time()
    model = clf.fit(split.labelled.texts, split.labelled.labels, split.pool.texts).model_
    seconds = time.process_time() - began
    assert isinstance(model, TrainedModel) and model.words is not None
    rest = split.rest.take(range(min(HELD_OUT, len(split.rest))))
    truth = model.classes.matrix(rest.labels).argmax(axis=1)
    parts = {"network": replace(model, words=None, neighbours=None), "words": replace(model, neighbours=None),
             "all": model}
    scores = {name: cached_scores.scores(part, rest.texts) for name, part in parts.items()}
    p = model.probabilities_of(scores["all"])
    return {"seconds": round(seconds), "unlabelled": len(split.pool), "n_test": len(rest),
            "neighbours": model.neighbours is not None,
            **{name: float((found.argmax(axis=1) == truth).mean()) for name, found in scores.items()},
            "calibration_error": float(calibration_error(np.asarray(p.max(axis=1)), p.argmax(axis=1) == truth))}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(POOLS), choices=list(POOLS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[2, 10, 25])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--plan", choices=("frozen", "laptop"), default="frozen")
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--set", type=setting, nargs="*", default=[], metavar="KEY=NUMBER")
    parser.add_argument("--threads", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
