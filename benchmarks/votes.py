"""What the votes of words and neighbours add to `lift`, on training texts outside the sample.

    python benchmarks/votes.py --data FOLDER [--sets ag_news ...] [--per-class 2 10 25] [--seeds 0 1 2] [--plan laptop]

One model is trained, and its accuracy is compared with that of its network alone and of its network with words. No
test text is used.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import cached_scores
from halflabel import TextClassifier
from halflabel.evaluation.confidence import calibration_error
from halflabel.persistence.model import TrainedModel
from protocol import Results, Sample, load, sample_per_class

POOLS = {"ag_news": 10_000, "arxiv_topics10": 3000, "clinc150": 6000, "sst5": 4000}  # unlabelled texts
HELD_OUT = 3000  # texts outside the sample that are predicted


def main() -> None:
    options = parse()
    results = Results("votes")
    for seed, name, per_class in product(options.seeds, options.sets, options.per_class):
        key = {"set": name, "plan": options.plan, "per_class": per_class, "seed": seed}
        if not results.has(**key):
            line = measure(sample_per_class(load(options.data, name, "train"), per_class, POOLS[name], seed),
                           options.plan, seed)
            results.add(**key, **line)
            print(key, line, flush=True)


def measure(split: Sample, plan: str, seed: int) -> dict[str, Any]:
    """Accuracy of network, network with words, and all; the calibration error is that of all."""
    model = TextClassifier("lift", plan=plan, random_state=seed).fit(split.labelled.texts, split.labelled.labels,
                                                                     split.pool.texts).model_
    assert isinstance(model, TrainedModel) and model.words is not None
    rest = split.rest.take(range(min(HELD_OUT, len(split.rest))))
    truth = model.classes.matrix(rest.labels).argmax(axis=1)
    parts = {"network": replace(model, words=None, neighbours=None), "words": replace(model, neighbours=None),
             "all": model}
    scores = {name: cached_scores.scores(part, rest.texts) for name, part in parts.items()}
    p = model.probabilities_of(scores["all"])
    return {"unlabelled": len(split.pool), "n_test": len(rest), "neighbours": model.neighbours is not None,
            **{name: float((found.argmax(axis=1) == truth).mean()) for name, found in scores.items()},
            "calibration_error": float(calibration_error(np.asarray(p.max(axis=1)), p.argmax(axis=1) == truth))}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(POOLS), choices=list(POOLS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[2, 10, 25])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--plan", choices=("frozen", "laptop"), default="frozen")
    return parser.parse_args()


if __name__ == "__main__":
    main()
