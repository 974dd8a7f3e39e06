"""Multi-label figures are scikit-learn's, ties included, and quick for many texts."""

from __future__ import annotations

import time

import numpy as np
import pytest
from sklearn.metrics import (
    accuracy_score,
    coverage_error,
    f1_score,
    label_ranking_average_precision_score,
    label_ranking_loss,
    precision_recall_fscore_support,
)

from halflabel.evaluation.metrics import Tally, multi_label


@pytest.mark.parametrize(("n", "labels", "levels"), [(60, 7, 4), (40, 5, 1), (200, 30, 3), (100, 20, 10_000)])
def test_figures_are_those_of_scikit_learn(n: int, labels: int, levels: int) -> None:
    rng = np.random.default_rng(n)
    truth, scores = rng.random((n, labels)) < 0.2, rng.integers(0, levels, (n, labels)).astype(np.float32)
    truth[0], truth[1], truth[:, 2] = False, True, False
    predicted = rng.random((n, labels)) < 0.3
    predicted[3] = False
    found = multi_label(truth, predicted, scores, [f"l{k}" for k in range(labels)])
    expected = {
        "micro_f1": f1_score(truth, predicted, average="micro", zero_division=0.0),
        "macro_f1": f1_score(truth, predicted, average="macro", zero_division=0.0),
        "ranking_loss": label_ranking_loss(truth, scores), "coverage": coverage_error(truth, scores),
        "lrap": label_ranking_average_precision_score(truth, scores), "accuracy": accuracy_score(truth, predicted),
        "empty": int((~predicted.any(axis=1)).sum()), "n": n}
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    precision, recall, f1, support = precision_recall_fscore_support(truth, predicted, zero_division=0.0)
    rows = list(found["per_label"].values())
    assert [row["precision"] for row in rows] == pytest.approx(precision.tolist())
    assert [row["recall"] for row in rows] == pytest.approx(recall.tolist())
    assert [row["f1"] for row in rows] == pytest.approx(f1.tolist()) and [r["n"] for r in rows] == support.tolist()


def test_chunks_add_up() -> None:
    rng = np.random.default_rng(0)
    truth, scores = rng.random((50, 6)) < 0.3, rng.random((50, 6))
    tally = Tally(6)
    for start in range(0, 50, 7):
        part = slice(start, start + 7)
        tally.add(truth[part], scores[part] > 0.6, scores[part])
    found, whole = tally.figures(range(6)), multi_label(truth, scores > 0.6, scores, range(6))
    assert found.pop("per_label") == whole.pop("per_label") and found == pytest.approx(whole)


def test_no_texts_give_zeros_and_no_nan() -> None:
    found = Tally(3).figures("abc")
    assert found["n"] == 0 and found["micro_f1"] == 0.0 and found["macro_f1"] == 0.0


def test_a_tenth_of_the_largest_test_set_takes_seconds() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((40_000, 103), dtype=np.float32)
    truth = scores[::-1] > 0.97
    began = time.process_time()
    multi_label(truth, scores > 0.97, scores, range(103))
    assert time.process_time() - began < 3.0
