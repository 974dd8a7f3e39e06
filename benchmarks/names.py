"""What class names add to the closed form of `lift`: accuracy on training texts outside the sample.

    python benchmarks/names.py --data FOLDER [--sets ag_news ...] [--per-class 0 1 2 5 10] [--seeds 0 1 2]

Names come from `label_names` of a set's meta.json. `opaque` are names that mean nothing (tag00, tag01, ...), `wrong`
are the names in another order; neither may do harm. No test text is used: the constants NAME_MASS and NAME_RADIUS of
`methods/closed_form.py` were chosen by this script.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from halflabel.class_names import name_vectors, words_of_label
from halflabel.encoders.loading import load_encoder
from halflabel.methods.closed_form import fit_closed_form, logistic_regression
from halflabel.methods.label_smoothing import word_features
from protocol import Results, Sample, load, sample_per_class
from rivals import vectors

SETS = {"ag_news": 12_000, "sst5": None, "arxiv_topics10": 9000, "clinc150": None}  # training texts
HELD_OUT = 2000  # texts outside the sample that are predicted


def main() -> None:
    options = parse()
    results, encoder = Results("names"), load_encoder("minilm").eval()
    for name in options.sets:
        train = load(options.data, name, "train", SETS[name])
        labels = json.loads((options.data / name / "meta.json").read_text(encoding="utf-8"))["label_names"]
        meant = name_vectors(encoder, [[words_of_label(label) or label] for label in labels])
        kinds = {"none": None, "names": meant, "wrong": np.roll(meant, 1, axis=0),
                 "opaque": name_vectors(encoder, [[f"tag{i:02d}"] for i in range(len(labels))])}
        for per_class in options.per_class:
            for seed in options.seeds:
                for kind, anchors in kinds.items():
                    key = {"set": name, "per_class": per_class, "seed": seed, "unlabelled": options.unlabelled,
                           "names": kind}
                    if (per_class or kind == "names") and not results.has(**key):
                        split = sample_per_class(train, per_class, options.unlabelled, seed)
                        line = accuracy(split, anchors, len(labels), seed)
                        results.add(**key, **line)
                        print(key, line, flush=True)


def accuracy(split: Sample, names: np.ndarray | None, labels: int, seed: int) -> dict[str, Any]:
    """Accuracy of the closed form, and of logistic regression on the labels alone."""
    rest = split.rest.take(range(min(HELD_OUT, len(split.rest))))
    y, truth = (np.array(part.labels, dtype=np.int64) for part in (split.labelled, rest))
    x, pool, test = (vectors(part.texts).astype(np.float64) for part in (split.labelled, split.pool, rest))
    words = word_features([*split.labelled.texts, *split.pool.texts])
    fitted = fit_closed_form(x.reshape(len(y), -1), y, pool, words, labels, seed=seed, names=names)

    def correct(log_p: np.ndarray) -> float:
        return round(float((log_p.argmax(axis=1) == truth).mean()), 4)

    alone = correct(logistic_regression(x, y, pool, labels).log_probabilities(test)) if len(y) else None
    return {"accuracy": correct(fitted.model.log_probabilities(test)), "labels_only": alone, "n_test": len(rest),
            "uses_names": bool(fitted.uses_names), "trust": fitted.trust}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[0, 1, 2, 5, 10])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--unlabelled", type=int, default=6000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
