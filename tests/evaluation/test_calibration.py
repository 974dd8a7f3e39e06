"""Temperatures, calibration error, intervals; and the temperature of a trained model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.errors import ModelError
from halflabel.evaluation.confidence import (
    accuracy_by_coverage,
    calibration_error,
    fit_temperature,
    reliability,
    softmax,
    wilson_interval,
)
from halflabel.evaluation.metrics import multi_class

TEXTS = tiny_texts(5, seed=7)[0]
POOL = tiny_texts(20, seed=1)[0]


@pytest.fixture(scope="module")
def tuned(tiny_encoder: str) -> TextClassifier:
    """`lift` after some steps on pseudo-labels."""
    classifier = TextClassifier("lift", tiny_encoder, "frozen", settings={"epochs": 2, "epoch_steps": 8})
    return classifier.fit(*tiny_texts(8), POOL)


def test_a_temperature_gives_the_confidence_that_was_asked_for() -> None:
    scores = np.random.default_rng(0).normal(0.0, 5.0, (500, 4))
    temperature = fit_temperature(scores, 0.7)
    assert softmax(scores, temperature).max(axis=1).mean() == pytest.approx(0.7, abs=1e-6)
    assert temperature > 1.0 and softmax(scores).max(axis=1).mean() > 0.8


def test_calibration_error_is_zero_for_honest_and_large_for_boastful_probabilities() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1.0, 20_000)
    correct = rng.random(20_000) < confidence
    assert calibration_error(confidence, correct) < 0.02
    assert calibration_error(np.full(20_000, 0.99), correct) == pytest.approx(0.99 - correct.mean(), abs=1e-6)
    rows = reliability(confidence, correct)
    assert sum(row.texts for row in rows) == 20_000 and all(abs(row.confidence - row.accuracy) < 0.05 for row in rows)


def test_accuracy_falls_with_coverage_if_confidence_is_informative() -> None:
    shares, accuracy = accuracy_by_coverage(np.array([0.9, 0.5, 0.8, 0.4]), np.array([True, False, True, False]))
    assert shares.tolist() == [0.25, 0.5, 0.75, 1.0] and accuracy.tolist() == [1.0, 1.0, 2 / 3, 0.5]


def test_wilsons_interval() -> None:
    low, high = wilson_interval(90, 100)
    assert (round(low, 4), round(high, 4)) == (0.8256, 0.9448)  # as in the literature
    assert wilson_interval(0, 0) == (0.0, 1.0) and wilson_interval(5, 5)[1] == pytest.approx(1.0)


def test_a_trained_model_is_as_sure_as_held_out_labels_allow(tuned: TextClassifier, tmp_path: Path) -> None:
    model = tuned.model_
    unfitted = replace(model, facts=model.facts | {"temperature": 1.0})
    sure, too_sure = (some.probabilities(POOL).max(axis=1).mean() for some in (model, unfitted))
    expected = model.facts["start"]["confidence"]  # the temperature is fitted to it on a fifth of the pool, 12 texts
    assert sure == pytest.approx(expected, abs=0.05) and too_sure > expected + 0.2
    before = unfitted.probabilities(TEXTS)
    p = model.probabilities(TEXTS)
    assert (p.argmax(axis=1) == before.argmax(axis=1)).all() and np.abs(p - before).max() > 1e-3
    model.save(tmp_path / "model")
    assert np.allclose(TextClassifier.load(tmp_path / "model").predict_proba(TEXTS), p)
    assert model.facts["start"]["held_out"] == 24 and sum(model.facts["pool_predictions"]) == 60


def test_the_closed_form_needs_a_temperature_only_where_words_vote(tiny_encoder: str) -> None:
    alone, both = (TextClassifier("lift", tiny_encoder, "frozen").fit(*tiny_texts(8), pool) for pool in ([], POOL))
    assert alone.model_.temperature == 1.0 < both.model_.temperature  # two votes together are surer than one


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), "warm"])
def test_an_impossible_temperature_is_refused(temperature: object, tuned: TextClassifier, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    tuned.save(folder)
    (folder / "checksums.json").unlink()
    config = json.loads((folder / "config.json").read_text()) | {"temperature": temperature}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="temperature"):
        TextClassifier.load(folder)


def test_accuracy_does_not_depend_on_the_temperature(tuned: TextClassifier) -> None:
    texts, labels = tiny_texts(5, seed=7)
    truth = np.array([list(tuned.classes_).index(label) for label in labels])
    by_p = multi_class(truth, tuned.predict_proba(texts).argmax(axis=1), tuned.classes_)
    assert by_p["accuracy"] == tuned.score(texts, labels)
