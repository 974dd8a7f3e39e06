"""Labels that are likely wrong, on made-up vectors."""

from __future__ import annotations

import numpy as np

from halflabel.label_errors import confident_learning, cross_fitted, disagreeing_near_duplicates, find_label_errors


def clusters(per_class: int = 30, labels: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat(np.arange(labels), per_class)
    return np.eye(8)[y] * 3 + np.random.default_rng(seed).normal(size=(len(y), 8)) * 0.4, y


def test_flipped_labels_are_found_with_the_right_label() -> None:
    x, truth = clusters()
    y, flipped = truth.copy(), [3, 40, 77]
    y[flipped] = (y[flipped] + 1) % 3
    errors = find_label_errors(x, y, 3)
    assert sorted(error.row for error in errors[:3]) == flipped
    assert all(error.suggested == truth[error.row] and error.given == y[error.row] for error in errors[:3])
    assert [error.score for error in errors] == sorted((error.score for error in errors), reverse=True)
    assert errors == find_label_errors(x, y, 3)


def test_few_labels_are_suspected_where_all_are_right() -> None:
    assert len(find_label_errors(*clusters(), 3)) <= 2


def test_every_text_is_predicted_without_itself() -> None:
    x, y = clusters(10)
    y[0] = 2
    assert cross_fitted(x, y, 3)[0].argmax() == 0


def test_the_only_text_of_a_class_is_not_judged() -> None:
    x, y = clusters(10)
    y[5] = 3
    p = cross_fitted(x, y, 4)
    assert np.isnan(p[5]).all() and not np.isnan(np.delete(p, 5, axis=0)).any()
    assert 5 not in [error.row for error in confident_learning(p, y)]


def test_as_many_labels_are_suspected_as_texts_are_surely_of_another_class() -> None:
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.4, 0.6], [0.05, 0.95]])
    y = np.array([0, 0, 1, 1, 0, 0])
    errors = confident_learning(p, y)
    assert [(error.row, error.given, error.suggested) for error in errors] == [(5, 0, 1)]
    assert round(errors[0].score, 2) == 0.95


def test_near_duplicates_with_different_labels() -> None:
    x, y = np.random.default_rng(0).normal(size=(30, 64)), clusters(10)[1]
    x[25] = x[3] + 1e-4
    x[4] = x[5]  # the same label
    assert [pair[:2] for pair in disagreeing_near_duplicates(x, y)] == [(3, 25)]
