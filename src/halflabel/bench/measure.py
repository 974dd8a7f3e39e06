"""What a trained model is worth on test texts, and how its label angles lie. N texts, K labels, H and D widths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from halflabel.data.corpus import Corpus
from halflabel.data.labels import Classes
from halflabel.encoders.inference import encode
from halflabel.equations import angle_moments, angles, cosines, prototypes
from halflabel.evaluation.metrics import collapsed, effective_classes, multi_class, multi_label, variance_difference
from halflabel.fitting import vector_cache
from halflabel.nn.network import PrecomputedVectors
from halflabel.persistence.model import CHUNK, TrainedModel

RULES = ("prior-quantile", "fixed")  # of several labels
BEST = "argmax"  # stands where a rule does, if each text has one label
KEPT = ("micro_f1", "macro_f1", "accuracy", "ranking_loss", "lrap", "coverage", "empty")
BIN = 6  # degrees of a bar in a histogram of angles
SHOWN = 12  # labels whose histograms are kept, the most frequent ones


def measured(model: TrainedModel, classes: Classes, test: Corpus) -> dict[str, Any]:
    """Figures under each rule, shares of the predicted labels, and angles."""
    f, scores = outputs(model, test)
    truth = classes.matrix(test.labels, source=test.source) > 0
    if model.task == "multi-label":
        chosen = {rule: model.rules(scores, rule) for rule in RULES}
        found = {rule: multi_label(truth, said, scores, classes.names) for rule, said in chosen.items()}
    else:
        columns = np.array([classes.index(name) for name in model.classes.names])[scores.argmax(axis=1)]
        chosen = {BEST: np.eye(len(classes), dtype=bool)[columns]}
        found = {BEST: multi_class(truth.argmax(axis=1), columns, classes.names)}
    first = next(iter(found))
    return {"figures": {rule: {name: said[name] for name in KEPT if name in said} for rule, said in found.items()},
            "per_label": {name: row["f1"] for name, row in found[first]["per_label"].items()},
            "collapse": collapse(chosen[first], truth), "angles": angle_report(f, truth, classes)}


def outputs(model: TrainedModel, test: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Features (N, D) and scores (N, K) of test texts; frozen vectors are computed once for all runs."""
    def chunks() -> Iterator[np.ndarray]:
        for start in range(0, len(test), CHUNK):
            texts = test.texts[start : start + CHUNK]
            frozen = isinstance(model.network.encoder, PrecomputedVectors)
            yield vector_cache(model.encoder)(texts) if frozen else encode(model.encoder, texts)

    seen = [model.classify(h) for h in chunks()]
    return (np.concatenate([one.f.cpu().numpy() for one in seen]),
            np.concatenate([one.scores.cpu().numpy() for one in seen]))


def collapse(chosen: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Whether predictions (N, K) have fallen in on few labels: less than half as many as the truth (N, K) has."""
    said, true = (matrix.sum(axis=0).astype(np.float64) for matrix in (chosen, truth))
    return {"collapsed": bool(collapsed(said, true)), "labels_used": round(effective_classes(said), 2),
            "labels_there": round(effective_classes(true), 2)}


def angle_report(f: np.ndarray, truth: np.ndarray, classes: Classes) -> dict[str, Any]:
    """Eqs. 6-8 over test texts with their true labels: DLAV, and a histogram of angles for the frequent labels."""
    y = torch.from_numpy(truth.astype(np.float32))
    theta = angles(cosines(torch.from_numpy(f), prototypes(torch.from_numpy(f), y)))
    mean, variance = (moment.double().numpy() for moment in angle_moments(theta, y))
    degrees, there = np.degrees(theta.numpy()), np.flatnonzero(truth.sum(axis=0) > 1)
    frequent = sorted(there, key=lambda k: -truth[:, k].sum())[:SHOWN]
    edges = np.arange(0, 180 + BIN, BIN)
    return {"dlav": variance_difference(variance[there]), "bin": BIN, "labels": {
        str(classes.names[k]): {"mean": float(np.degrees(mean[k])), "deviation": float(np.degrees(variance[k] ** 0.5)),
                                "counts": np.trim_zeros(np.histogram(degrees[truth[:, k], k], edges)[0], "b").tolist()}
        for k in frequent}}
