"""Multi-label metrics equal those of scikit-learn, ties included, and are fast for many texts."""

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

from halflabel.evaluation import metrics
from halflabel.evaluation.metrics import Tally, multi_label


@pytest.mark.parametrize(("n", "labels", "levels"), [(60, 7, 4), (40, 5, 1), (200, 30, 3), (100, 20, 10_000)])
def test_metrics_equal_those_of_scikit_learn(n: int, labels: int, levels: int) -> None:
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


def test_chunks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    truth, scores = rng.random((50, 6)) < 0.3, rng.random((50, 6))
    tally = Tally(6)
    for start in range(0, 50, 7):
        part = slice(start, start + 7)
        tally.add(truth[part], scores[part] > 0.6, scores[part])
    whole = multi_label(truth, scores > 0.6, scores, range(6))
    monkeypatch.setattr(metrics, "CHUNK", 9)
    for chunked in (tally.figures(range(6)), multi_label(truth, scores > 0.6, scores, range(6))):
        assert chunked.pop("per_label") == whole["per_label"]
        assert chunked == pytest.approx({name: value for name, value in whole.items() if name != "per_label"})


def test_labels_that_the_model_does_not_know_are_ranked_last() -> None:
    truth = np.array([[True, False, True], [True, False, False]])
    figures = multi_label(truth, truth, np.array([[0.9, 0.5, -np.inf], [0.9, 0.5, -np.inf]]), "abc")
    assert figures["coverage"] == 2.0 and figures["ranking_loss"] == 0.25
    assert figures["lrap"] == pytest.approx((1 + 2 / 3) / 4 + 0.5)


def test_scores_of_a_diverged_run_give_no_error() -> None:
    truth = np.array([[True, False], [False, True]])
    assert multi_label(truth, truth, np.full((2, 2), np.nan), "ab")["micro_f1"] == 1.0


def test_a_metric_is_added_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(metrics.TEXT_METRICS, "hamming_loss", lambda truth, predicted, scores: float(
        (truth != predicted).mean()))
    truth = np.array([[True, False], [False, True], [True, True]])
    assert multi_label(truth, np.ones_like(truth), truth * 1.0, "ab")["hamming_loss"] == pytest.approx(1 / 3)


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
