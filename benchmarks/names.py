"""What class names add to the closed form of `lift`: accuracy on training texts outside the sample.

    python benchmarks/names.py --data FOLDER [--sets ag_news ...] [--per-class 0 1 2 5 10 25] [--seeds 0 1 2]

Names come from `label_names` of a set's meta.json, and for arXiv's categories from its own list of subjects. `opaque`
are names that mean nothing (tag00, tag01, ...), `wrong` are the names in another order; neither may do harm. No test
text is used: the constants NAME_MASS and NAME_RADIUS of `methods/closed_form.py`, and whether labels that read as words
are names by default, were chosen by this script.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from halflabel.atomic import cache_folder
from halflabel.class_names import name_vectors, words_of_label
from halflabel.encoders.cache import EncoderCache
from halflabel.encoders.loading import load_encoder
from halflabel.methods.closed_form import fit_closed_form
from halflabel.methods.label_smoothing import word_features
from protocol import Results, Sample, load, sample_per_class

SETS = {"ag_news": 12_000, "sst5": None, "arxiv_topics10": 8000, "clinc150": None}  # training texts
SUBJECTS = {"cs.CL": "computation and language", "cs.CR": "cryptography and security",
            "cs.DC": "distributed, parallel and cluster computing", "cs.DS": "data structures and algorithms",
            "cs.LO": "logic in computer science", "cs.NI": "networking and internet architecture",
            "math.NA": "numerical analysis", "physics.flu-dyn": "fluid dynamics",
            "physics.soc-ph": "physics and society", "stat.ME": "statistics methodology"}
MAX_TOKENS = 128
KINDS = ("none", "names", "opaque", "wrong")
HELD_OUT = 2000  # texts outside the sample that are predicted


def main() -> None:
    options = parse()
    results, encoder = Results("names"), load_encoder("minilm", MAX_TOKENS).eval()
    for name in options.sets:
        train = load(options.data, name, "train", SETS[name])
        labels = json.loads((options.data / name / "meta.json").read_text(encoding="utf-8"))["label_names"]
        meant = name_vectors(encoder, [[SUBJECTS.get(label) or words_of_label(label) or label] for label in labels])
        kinds = {"none": None, "names": meant, "wrong": np.roll(meant, 1, axis=0),
                 "opaque": name_vectors(encoder, [[f"tag{i:02d}"] for i in range(len(labels))])}
        x = EncoderCache(cache_folder(), encoder).vectors(train.texts).astype(np.float64)
        vector_of = dict(zip(train.texts, x / np.linalg.norm(x, axis=1, keepdims=True), strict=True))
        for seed, per_class in product(options.seeds, options.per_class):
            for kind in options.kinds:
                key = {"set": name, "per_class": per_class, "seed": seed, "unlabelled": options.unlabelled,
                       "names": kind}
                if (per_class or kind == "names") and not results.has(**key):
                    split = sample_per_class(train, per_class, options.unlabelled, seed)
                    line = accuracy(split, vector_of, kinds[kind], len(labels), seed)
                    results.add(**key, **line)
                    print(key, line, flush=True)


def accuracy(split: Sample, vector_of: Mapping[str, np.ndarray], names: np.ndarray | None, labels: int,
             seed: int) -> dict[str, Any]:
    """Accuracy of the closed form on texts outside the sample, and what it used."""
    rest = split.rest.take(range(min(HELD_OUT, len(split.rest))))
    y, truth = (np.array(part.labels, dtype=np.int64) for part in (split.labelled, rest))
    x, pool, test = (np.array([vector_of[text] for text in part.texts]) for part in (split.labelled, split.pool, rest))
    words = word_features([*split.labelled.texts, *split.pool.texts])
    fitted = fit_closed_form(x.reshape(-1, pool.shape[1]), y, pool, words, labels, seed=seed, names=names)
    correct = fitted.model.log_probabilities(test).argmax(axis=1) == truth
    return {"accuracy": round(float(correct.mean()), 4), "n_test": len(rest), "uses_names": bool(fitted.uses_names),
            "trust": round(fitted.trust, 4)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[0, 1, 2, 5, 10, 25])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--unlabelled", type=int, default=6000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
