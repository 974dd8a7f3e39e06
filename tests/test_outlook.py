"""What to expect of a model, and what would help most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from halflabel.outlook import MAX_SIZE, HeldOutLabels, expected_quality, in_words, most_helpful

EYE = np.eye(3)
CLASSES = ("a", "b", "c")


def held_out(truth: list[int], predicted: list[int]) -> HeldOutLabels:
    return HeldOutLabels(EYE[truth] > 0, EYE[predicted] > 0)


def test_texts_are_predicted_by_others() -> None:
    x, y = np.repeat(EYE, 4, axis=0), np.repeat(EYE, 4, axis=0)
    found = HeldOutLabels.of(lambda: x, y, several=False, seed=0)
    assert found is not None and found.all == 1.0
    swapped = y.copy()
    swapped[[0, 4]] = y[[4, 0]]
    wrong = HeldOutLabels.of(lambda: x, swapped, several=False, seed=0)
    assert wrong is not None and wrong.all < 1.0


@pytest.mark.parametrize("y", [EYE, np.repeat(EYE[:1], 8, axis=0), np.full((8, 3), np.nan),
                               np.zeros((MAX_SIZE // 3 + 1, 3))])
def test_labels_that_cannot_be_held_out(y: np.ndarray) -> None:
    assert HeldOutLabels.of(lambda: np.ones((len(y), 4)), y, several=False, seed=0) is None


def test_accuracy_has_an_interval_and_comes_from_the_method_where_it_can() -> None:
    found = held_out([0] * 5 + [1] * 5, [0] * 5 + [1] * 4 + [0])
    own = expected_quality(found, {}, several=False, seed=0)
    assert own is not None and (own["value"], own["held_out"]) == (0.9, 10) and own["low"] < 0.65 < 0.97 < own["high"]
    method = expected_quality(found, {"held_out": 100, "held_out_correct": 80}, several=False, seed=0)
    assert method is not None and (method["value"], method["held_out"]) == (0.8, 100) and method["low"] > 0.7
    assert expected_quality(None, {"held_out": 2, "held_out_correct": 2}, several=False, seed=0) is None


def test_several_labels_have_an_interval_of_micro_f1() -> None:
    truth = np.tile(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0]], dtype=bool), (10, 1))
    predicted = truth.copy()
    predicted[::6, 0] = False
    found = expected_quality(HeldOutLabels(truth, predicted), {}, several=True, seed=0)
    assert found is not None and found["measure"] == "micro F1"
    assert found["value"] == pytest.approx(50 / 55, abs=1e-4) and 0.7 < found["low"] < 0.9 < found["high"] <= 1.0


@pytest.mark.parametrize(("counts", "predicted", "options", "message"), [
    ([0, 0, 0], None, {}, "a few labels for each class"),
    ([3, 3, 3], None, {"could_use_names": True}, "class names: --names FILE"),
    ([3, 3], None, {"could_use_names": True, "classes": ("late_fee", "refund")}, "class names: --names labels"),
    ([3, 3], None, {"could_use_names": True, "tried_labels": True, "classes": ("late_fee", "refund")},
     "class names: --names FILE"),
    ([30, 30, 1], None, {"could_use_names": True}, "more labels for 'c', with one text or none"),
    ([3, 3, 3], [0, 0, 0, 1, 1, 1, 0, 0, 2], {}, "more labels for 'c': 1 of 3 held-out texts of 'c' were recognised"),
    ([3, 3, 3], [0, 0, 0, 1, 1, 1, 2, 2, 2], {}, "a stronger encoder, such as gte-small"),
    ([3, 3, 3], [0, 0, 0, 1, 1, 1, 2, 2, 2], {"encoder": "mpnet"}, "texts that it is unsure of"),
])
def test_the_one_thing_that_helps_most(counts: list[int], predicted: list[int] | None, options: dict[str, Any],
                                       message: str) -> None:
    found = predicted and held_out([0, 0, 0, 1, 1, 1, 2, 2, 2], predicted)
    options = {"could_use_names": False, "tried_labels": False, "encoder": "minilm"} | options
    assert message in most_helpful(options.pop("classes", CLASSES), np.array(counts), found or None, **options)


def test_lines() -> None:
    outlook = {"names_given": True, "expected": {"measure": "accuracy", "value": 0.9, "low": 0.6, "high": 0.98,
                                                 "held_out": 10}, "would_help": "sleep"}
    start = {"trust": 0.8, "uses_words": False, "uses_names": True}
    rows = in_words({"start": start, "outlook": outlook, "run": {"dev": None}})
    assert rows == {"trusted": "clusters of the pool 80%, words of the pool not used, class names used",
                    "expected": "accuracy 0.90 (0.60 to 0.98), by 10 labelled texts that were held out",
                    "would help": "sleep"}
    rows = in_words({"start": start | {"contrast": True, "trust": 0.0}, "outlook": outlook, "run": {"dev": None}})
    assert rows["trusted"].startswith("contrast of labelled texts, words ")
    assert "learned two thirds of the labels" in rows["expected"]
    unknown = outlook | {"expected": None, "names_given": False}
    rows = in_words({"start": start, "outlook": unknown, "run": {"dev": None}})
    assert "names" not in rows["trusted"] and "--dev FILE" in rows["expected"]
    assert "expected" not in in_words({"outlook": unknown, "run": {"dev": 0.9}}) and in_words({}) == {}
