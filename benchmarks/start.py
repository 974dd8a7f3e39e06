"""What each part of the closed-form start adds, and whether balanced angles would: accuracy on the pool.

    python benchmarks/start.py --data FOLDER [--seeds 0 1 2 3 4]

True labels of the pool are used for evaluation only. `angles` names the label whose prototype, the soft labels' mean
vector, is nearest in angle; `balanced` does so after Eq. 2.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halflabel.data.labels import Classes
from halflabel.equations import angle_moments, angles, balanced, cosines, prototypes, slopes
from halflabel.methods.closed_form import choose_smoothing
from halflabel.methods.gaussian_em import gaussian_em
from halflabel.methods.held_out import WEIGHT_PRIOR, WEIGHT_SPREAD, cross_validate, fit_weights
from halflabel.methods.label_smoothing import corrected_by_words, neighbour_graph, sharpened, smoothed, word_features
from halflabel.methods.linear_models import distil, logistic_regression, weighted_sum
from protocol import Results, Sample, load, sample_per_class
from rivals import vectors

SETS = {"ag_news": None, "sst5": None, "arxiv_topics10": 6000, "clinc150": None}


def main() -> None:
    options = parse()
    results = Results("start")
    for name in options.sets:
        train = load(options.data, name, "train", SETS[name])
        for per_class in options.per_class:
            for seed in options.seeds:
                key = {"set": name, "per_class": per_class, "seed": seed, "unlabelled": options.unlabelled}
                if not results.has(**key):
                    line = stages(sample_per_class(train, per_class, options.unlabelled, seed), seed)
                    results.add(**key, **line)
                    print(key, {stage: round(value, 4) for stage, value in line.items()}, flush=True)


def stages(split: Sample, seed: int) -> dict[str, Any]:
    """Accuracy on the pool after each part, in the order in which the start applies them."""
    classes = Classes.of(split.labelled.labels)
    labels, known = len(classes), classes.matrix(split.labelled.labels).astype(np.float64)
    y, truth = known.argmax(axis=1), classes.matrix(split.truth).argmax(axis=1)
    x, pool = (vectors(part.texts).astype(np.float64) for part in (split.labelled, split.pool))
    found: dict[str, Any] = {}

    def note(stage: str, p: np.ndarray) -> np.ndarray:
        found[stage] = float((p.argmax(axis=1) == truth).mean())
        return p

    rng = np.random.default_rng([seed, 5])
    trial = cross_validate([gaussian_em, logistic_regression], x, y, pool, labels, rng)
    weights, _ = fit_weights(trial, WEIGHT_PRIOR, WEIGHT_SPREAD)
    rules = [gaussian_em(x, y, pool, labels), logistic_regression(x, y, pool, labels)]
    note("logistic", rules[1].log_probabilities(pool))
    note("gaussian", rules[0].log_probabilities(pool))
    rule = weighted_sum(rules, weights)
    soft = note("pooled", np.exp(rule.log_probabilities(pool)))
    alpha, power, _ = choose_smoothing(trial, weights, x, y, labels)
    graph = neighbour_graph(np.concatenate([x, pool]))
    soft = note("smoothed", sharpened(smoothed(graph, np.concatenate([known, soft]), alpha)[len(x) :], power))
    counts = word_features([*split.labelled.texts, *split.pool.texts])
    for _ in range(2):
        soft = corrected_by_words(counts, known, soft)
    note("words", soft)
    everything, given = np.concatenate([x, pool]), np.concatenate([known, soft])
    note("rule", distil(rule, everything, given).log_probabilities(pool))
    for stage, p in by_angles(everything, given, len(x)).items():
        note(stage, p)
    return found | {"alpha": alpha, "power": power, "weight_gaussian": float(weights[0]),
                    "weight_logistic": float(weights[1])}


def by_angles(x: np.ndarray, soft: np.ndarray, labelled: int) -> dict[str, np.ndarray]:
    """Scores by angle to the prototypes of the soft labels, as they are and balanced (Eqs. 2, 6-8)."""
    f, y = torch.from_numpy(x - x[labelled:].mean(axis=0)), torch.from_numpy(soft)
    cos = cosines(f, prototypes(f, y))
    mu, var = angle_moments(angles(cos), y)
    return {"angles": cos[labelled:].numpy(), "balanced": balanced(cos, mu, slopes(var))[labelled:].numpy()}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[2, 5, 10, 25])
    parser.add_argument("--unlabelled", type=int, default=4000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    return parser.parse_args()


if __name__ == "__main__":
    main()
