"""Whether probabilities mean what they say: expected calibration error without a dev set, with and without temperature.

    python benchmarks/calibration.py --data FOLDER [--plans frozen laptop] [--per-class 10 25] [--seeds 0 1 2]

Predicted are training texts outside the sample (`--part rest`), on which everything was chosen, or the official test
texts (`--part test`). Texts are cut at 128 tokens under both plans.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halflabel import TextClassifier
from halflabel.atomic import cache_folder
from halflabel.data.corpus import Corpus
from halflabel.encoders.cache import EncoderCache
from halflabel.evaluation.confidence import calibration_error, softmax
from halflabel.persistence.model import TrainedModel
from protocol import Results, load, sample_per_class

SETS = {"ag_news": 14_000, "arxiv_topics10": 8000, "clinc150": None}  # training texts
HELD_OUT = 2000  # texts that are predicted, at most
TOKENS = 128


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    results = Results("calibration")
    for name in options.sets:
        train = load(options.data, name, "train", SETS[name])
        for plan in options.plans:
            for per_class in options.per_class:
                for seed in options.seeds:
                    key = {"set": name, "plan": plan, "per_class": per_class, "seed": seed,
                           "unlabelled": options.unlabelled, "part": options.part}
                    if not results.has(**key):
                        line = run(train, options.data, key)
                        results.add(**key, **line)
                        print(key, line, flush=True)


def run(train: Corpus, data: Path, key: dict[str, Any]) -> dict[str, Any]:
    """One run: accuracy, confidence, and calibration error at its temperature and at one."""
    split = sample_per_class(train, key["per_class"], key["unlabelled"], key["seed"])
    corpus = split.rest if key["part"] == "rest" else load(data, key["set"], "test", HELD_OUT)
    corpus = corpus.take(range(min(HELD_OUT, len(corpus))))
    clf = TextClassifier(plan=key["plan"], random_state=key["seed"], settings={"max_tokens": TOKENS})
    began = time.perf_counter()
    clf.fit(split.labelled.texts, split.labelled.labels, unlabelled=split.pool.texts)
    seconds = time.perf_counter() - began
    model = clf.model_
    scores = scores_of(model, corpus.texts)
    correct = clf.classes_[scores.argmax(axis=1)] == np.array(corpus.labels)
    confidence, before = (softmax(scores, t).max(axis=1) for t in (model.temperature, 1.0))
    return {"accuracy": round(float(correct.mean()), 4), "confidence": round(float(confidence.mean()), 4),
            "ece": round(calibration_error(confidence, correct), 4),
            "ece_without": round(calibration_error(before, correct), 4), "temperature": round(model.temperature, 4),
            "n_test": len(corpus), "seconds": round(seconds, 1)}


def scores_of(model: TrainedModel, texts: Sequence[str]) -> np.ndarray:
    """`model.scores` (N, K), from cached vectors if the encoder is frozen."""
    if not model.frozen:
        return model.scores(texts)
    return model.classify(EncoderCache(cache_folder(), model.encoder).vectors(texts), texts).scores.numpy()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--plans", nargs="+", default=["frozen", "laptop"])
    parser.add_argument("--per-class", type=int, nargs="+", default=[10, 25])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--unlabelled", type=int, default=4000)
    parser.add_argument("--part", choices=["rest", "test"], default="rest")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
