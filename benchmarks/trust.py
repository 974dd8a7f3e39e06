"""How far `lift` may trust the pool: its closed form with and without the cluster model, and the evidence for it.

    python benchmarks/trust.py --data FOLDER [--sets ag_news ...] [--per-class 1 2 5 10] [--seeds 0 1 2]

Each line has the accuracy of logistic regression on the labels alone, of the closed form as it is, and of the closed
form with a trust of 0 and of 1, between which a switch at an evidence of 3 decided before. No test text is used: the
constants PRIOR_TRUST and CERTAIN of `methods/closed_form.py` were chosen on training texts outside the samples.
`draws` are the evidence by other random splits of the labels into halves, by their number.
`--summary` counts the runs below labels alone by more than two standard errors of a difference, and the largest loss.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from halflabel.methods import closed_form, held_out
from halflabel.methods.gaussian_em import gaussian_em
from halflabel.methods.label_smoothing import word_features
from halflabel.methods.linear_models import Fit, LinearModel, logistic_regression
from halflabel.randomness import Stream, generator
from protocol import Results, Sample, load, sample_per_class
from rivals import vectors

SETS = {"ag_news": 12_000, "sst5": None, "arxiv_topics10": 9000, "clinc150": None}  # training texts
HELD_OUT = 1500  # texts outside the sample that are predicted
DRAWS = 3  # of random splits
MANY = 150  # labelled texts from which on the number of splits is always the same
SWITCH = 3.0  # evidence from which on the cluster model was used before


def main() -> None:
    options = parse()
    results = Results("trust")
    if options.threads:
        torch.set_num_threads(options.threads)
    for seed in [] if options.summary else options.seeds:
        for per_class in options.per_class:
            for name in options.sets:
                key = {"set": name, "per_class": per_class, "seed": seed, "unlabelled": options.unlabelled}
                if not results.has(**key):
                    train = load(options.data, name, "train", SETS[name])
                    line = compare(sample_per_class(train, per_class, options.unlabelled, seed), seed)
                    results.add(**key, **line)
                    print(key, line, flush=True)
    summarise(list(results))


def compare(split: Sample, seed: int) -> dict[str, Any]:
    """The evidence, the trust, and accuracies on texts outside the sample."""
    rest = split.rest.take(range(min(HELD_OUT, len(split.rest))))
    y, truth = (np.array(part.labels, dtype=np.int64) for part in (split.labelled, rest))
    x, pool, test = (vectors(part.texts).astype(np.float64) for part in (split.labelled, split.pool, rest))
    words, labels = word_features([*split.labelled.texts, *split.pool.texts]), int(y.max()) + 1
    fits: list[Fit] = [gaussian_em, logistic_regression]

    def evidence_of(rng: np.random.Generator) -> float:
        return closed_form.cluster_evidence(held_out.validate_halves(fits, x, y, pool, labels, rng))

    def drawn(splits: int) -> list[float]:
        with mock.patch.object(held_out, "SPLITS", (splits, splits)):
            return [round(evidence_of(np.random.default_rng(draw)), 3) for draw in range(DRAWS)]

    def accuracy(model: LinearModel) -> float:
        return round(float((model.log_probabilities(test).argmax(axis=1) == truth).mean()), 4)

    def trusted(share: float) -> float:
        with mock.patch.object(closed_form, "cluster_trust", return_value=share):
            return accuracy(closed_form.fit_closed_form(x, y, pool, words, labels, seed=seed).model)

    evidence = evidence_of(generator(seed, Stream.HELD_OUT_HALVES))
    trust = closed_form.cluster_trust(evidence, closed_form.PRIOR_TRUST)
    none, full = trusted(0.0), trusted(1.0)
    mixed = {0.0: none, 1.0: full}.get(trust)
    drawable = labels < len(y) < MANY
    return {"evidence": round(evidence, 3), "trust": round(trust, 4), "n_test": len(rest),
            "labels_only": accuracy(logistic_regression(x, y, pool, labels)), "trust_0": none,
            "trust_1": full, "mixture": trusted(trust) if mixed is None else mixed,
            "draws": {splits: drawn(splits) for splits in held_out.SPLITS} if drawable else {}}


def summarise(lines: list[dict[str, Any]]) -> None:
    """Mean accuracy, runs below labels alone, and the largest loss, for the switch and for the mixture."""
    alone = np.array([line["labels_only"] for line in lines])
    noise = 2 * np.sqrt(2 * alone * (1 - alone) / np.array([line["n_test"] for line in lines]))
    switch = np.array([line["trust_1" if line["evidence"] >= SWITCH else "trust_0"] for line in lines])
    for name, found in (("switch", switch), ("mixture", np.array([line["mixture"] for line in lines]))):
        loss = alone - found
        print(f"{name}: {len(lines)} runs, mean {found.mean():.4f} (labels alone {alone.mean():.4f}), below labels "
              f"alone {(loss > 0).sum()}, by more than noise {(loss > noise).sum()}, largest loss {loss.max():.4f}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[1, 2, 5, 10, 25])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--unlabelled", type=int, default=1500)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--summary", action="store_true", help="only report what was measured")
    return parser.parse_args()


if __name__ == "__main__":
    main()
