"""The closed-form start: each view, the pooling, the smoothing, and that a misleading pool loses its say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from conftest import tiny_texts
from halflabel.methods.closed_form import (
    EVIDENCE,
    MASS,
    LinearModel,
    closed_form,
    combined,
    distil,
    evidence,
    gaussian,
    hold_out,
    in_halves,
    logistic,
    pooling,
    words_help,
)
from halflabel.methods.label_smoothing import as_sure_as, neighbour_graph, sharpened, smoothed, with_words, word_counts

NO_WORDS = sparse.csr_matrix((2000, 0))


def clusters(labels: int, per_class: int, width: int = 12, spread: float = 0.25, seed: int = 0,
             ) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around `labels` directions, and their columns, in a shuffled order."""
    rng = np.random.default_rng(seed)
    centres = np.linalg.qr(np.random.default_rng(99).normal(size=(width, width)))[0][:labels]
    y = rng.permutation(np.repeat(np.arange(labels), per_class))
    x = centres[y] + spread * rng.normal(size=(len(y), width))
    return x / np.linalg.norm(x, axis=1, keepdims=True), y


def few(x: np.ndarray, y: np.ndarray, per_class: int) -> np.ndarray:
    return np.concatenate([np.flatnonzero(y == k)[:per_class] for k in range(y.max() + 1)])


def accuracy(rule: LinearModel, x: np.ndarray, y: np.ndarray) -> float:
    return float((rule.log_probabilities(x).argmax(axis=1) == y).mean())


def test_the_pool_improves_on_two_labels_a_class() -> None:
    x, y = clusters(4, 150, spread=0.35)
    rows = few(x, y, 2)
    alone, pooled = logistic(x[rows], y[rows], x, 4), gaussian(x[rows], y[rows], x, 4)
    assert accuracy(pooled, x, y) > accuracy(alone, x, y) + 0.03


def test_gaussian_with_an_isotropic_pool_is_nearest_mean() -> None:
    x, y = clusters(3, 200, spread=0.1)
    rows = few(x, y, 5)
    rule = gaussian(x[rows], y[rows], x, 3)
    means = np.stack([x[y == k].mean(axis=0) for k in range(3)])
    nearest = ((x[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (rule.log_probabilities(x).argmax(axis=1) == nearest).mean() > 0.99


def test_the_pool_counts_as_no_more_than_its_mass() -> None:
    assert MASS == 25.0
    x, y = clusters(2, 400, spread=0.1)
    rows = few(x, y, 50)
    shifted = x + 0.5 * np.eye(x.shape[1])[-1]  # a pool that sits elsewhere cannot drag the means all the way
    rule = gaussian(x[rows], y[rows], shifted, 2)
    assert accuracy(rule, x, y) > 0.95


def test_logistic_gives_no_weight_to_a_class_without_texts() -> None:
    x, y = clusters(3, 10)
    present = y != 1
    rule = logistic(x[present], y[present], x, 3)
    assert not (rule.log_probabilities(x).argmax(axis=1) == 1).any()
    assert accuracy(rule, x[present], y[present]) > 0.95


def test_two_classes_give_a_two_column_rule_with_scikit_learns_probabilities() -> None:
    from sklearn.linear_model import LogisticRegression

    x, y = clusters(2, 20, spread=0.5)
    model = LogisticRegression(C=10.0, max_iter=300).fit(x, y)
    assert np.allclose(np.exp(logistic(x, y, x, 2).log_probabilities(x)), model.predict_proba(x), atol=1e-6)


def test_held_out_texts_are_never_seen_by_their_own_rule() -> None:
    x, y = clusters(3, 6)
    y = y.copy()
    seen: list[int] = []

    def spy(some: np.ndarray, columns: np.ndarray, pool: np.ndarray, labels: int) -> LinearModel:
        seen.append(len(some))
        return logistic(some, columns, pool, labels)

    trial = hold_out([spy], x, y, x, 3, np.random.default_rng(0))
    assert len(trial.truth) == len(y) and trial.held.shape == (1, len(y), 3)
    assert all(number == len(y) - out.sum() for number, out in zip(seen, trial.folds, strict=True))
    assert np.sum(trial.folds, axis=0).tolist() == [1] * len(y)


def test_the_only_text_of_a_class_is_not_held_out() -> None:
    x, y = clusters(3, 4)
    keep = np.concatenate([np.flatnonzero(y != 2), np.flatnonzero(y == 2)[:1]])
    trial = hold_out([logistic], x[keep], y[keep], x, 3, np.random.default_rng(0))
    assert 2 not in trial.truth.tolist()


def test_a_view_that_misleads_loses_its_weight() -> None:
    x, y = clusters(3, 20)
    wrong = np.log(np.full((len(y), 3), 0.05) + 0.85 * np.eye(3)[(y + 1) % 3])
    mostly = np.where(np.arange(len(y)) % 4 == 0, (y + 2) % 3, y)
    right = np.log(np.full((len(y), 3), 0.05) + 0.85 * np.eye(3)[mostly])
    trial = hold_out([logistic, logistic], x, y, x, 3, np.random.default_rng(0))
    prior = np.array([0.3, 0.3])
    bad, _ = pooling(trial._replace(held=np.stack([wrong, right]), truth=y), prior, np.ones(2))
    good, _ = pooling(trial._replace(held=np.stack([right, wrong]), truth=y), prior, np.ones(2))
    assert bad[0] < 0.1 < 0.3 < bad[1]
    assert good[1] < 0.1 < 0.3 < good[0]


def test_without_held_out_texts_the_prior_decides() -> None:
    x, y = clusters(3, 1)
    trial = hold_out([logistic, logistic], x, y, x, 3, np.random.default_rng(0))
    weights, _ = pooling(trial, np.array([0.1, 0.5]), np.ones(2))
    assert weights.tolist() == pytest.approx([0.1, 0.5])


def test_smoothing_mends_labels_that_differ_from_their_neighbours() -> None:
    x, y = clusters(3, 100, spread=0.1)
    noisy = y.copy()
    noisy[::5] = (noisy[::5] + 1) % 3
    graph = neighbour_graph(x)
    assert np.allclose(np.asarray(graph.sum(axis=1)).ravel(), 1.0, atol=1e-5) and graph.diagonal().sum() == 0
    mended = smoothed(graph, np.eye(3)[noisy], 0.8)
    assert (mended.argmax(axis=1) == y).mean() > 0.99 > (noisy == y).mean()
    assert np.allclose(mended.sum(axis=1), 1.0, atol=1e-5)
    assert np.allclose(smoothed(graph, np.eye(3)[noisy], 0.0), np.eye(3)[noisy])


def test_sharpening_keeps_order_and_sums() -> None:
    p = np.array([[0.5, 0.3, 0.2]])
    assert np.allclose(sharpened(p, 2.0), p**2 / (p**2).sum())
    assert np.allclose(sharpened(p, 1.0), p)


def test_distilling_a_rule_into_itself_changes_nothing() -> None:
    x, y = clusters(3, 50, spread=0.4)
    rule = logistic(x, y, x, 3)
    same = distil(rule, x, np.exp(rule.log_probabilities(x)))
    assert np.allclose(same.weight, rule.weight, atol=1e-2)
    turned = distil(rule, x, np.eye(3)[(y + 1) % 3])
    assert accuracy(turned, x, (y + 1) % 3) > 0.8


def test_combined_adds_logits() -> None:
    a, b = LinearModel(np.ones((2, 3)), np.zeros(3)), LinearModel(np.full((2, 3), 2.0), np.ones(3))
    both = combined([a, b], np.array([0.5, 2.0]))
    assert np.allclose(both.weight, 4.5) and np.allclose(both.bias, 2.0)


def test_the_start_labels_the_whole_pool_and_is_deterministic() -> None:
    x, y = clusters(4, 100, spread=0.35)
    rows = few(x, y, 5)
    first, second = (closed_form(x[rows], y[rows], x, NO_WORDS, 4, seed=3) for _ in range(2))
    assert first.soft.shape == (400, 4) and np.allclose(first.soft.sum(axis=1), 1.0, atol=1e-4)
    assert np.array_equal(first.soft, second.soft) and np.array_equal(first.rule.weight, second.rule.weight)
    assert (first.soft.argmax(axis=1) == y).mean() > accuracy(logistic(x[rows], y[rows], x, 4), x, y)


def test_permuting_the_classes_permutes_the_start() -> None:
    x, y = clusters(3, 60, spread=0.3)
    rows = few(x, y, 6)
    order = np.array([2, 0, 1])
    plain = gaussian(x[rows], y[rows], x, 3).log_probabilities(x)
    permuted = gaussian(x[rows], order[y[rows]], x, 3).log_probabilities(x)
    assert np.allclose(plain, permuted[:, order], atol=1e-6)


def test_without_a_pool_the_labels_alone_decide() -> None:
    x, y = clusters(3, 8)
    start = closed_form(x, y, x[:0], NO_WORDS, 3, seed=0)
    assert start.soft.shape == (0, 3) and accuracy(start.rule, x, y) > 0.95


def topics_and_moods(number: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors that fall into two far topics, with a faint mood that cuts across them: x, topic, mood."""
    rng = np.random.default_rng(seed)
    topic, mood = rng.integers(0, 2, (2, number))
    x = rng.normal(size=(number, 12)) * 0.3
    x[:, 0] += 1.5 * (2 * topic - 1)
    x[:, 1] += 0.35 * (2 * mood - 1)
    return x / np.linalg.norm(x, axis=1, keepdims=True), topic, mood


@pytest.mark.parametrize("seed", range(6))
def test_a_pool_that_falls_into_other_groups_than_the_labels_is_not_heard(seed: int) -> None:
    x, topic, mood = topics_and_moods(800, seed)
    rows = few(x, mood, 5)
    start = closed_form(x[rows], mood[rows], x, sparse.csr_matrix((len(rows) + len(x), 0)), 2, seed=seed)
    alone = closed_form(x[rows], mood[rows], x[:0], NO_WORDS, 2, seed=seed)
    assert not start.heard and len(start.weights) == 1
    assert accuracy(start.rule, x, mood) == accuracy(alone.rule, x, mood)
    misled = gaussian(x[rows], mood[rows], x, 2)
    by_topic = accuracy(misled, x, topic)
    assert max(by_topic, 1.0 - by_topic) > 0.9 and accuracy(misled, x, mood) < accuracy(alone.rule, x, mood)


def test_one_label_a_class_is_no_evidence() -> None:
    x, y = clusters(4, 100)
    rows = few(x, y, 1)
    halves = in_halves(x[rows], y[rows], x, 4, np.random.default_rng(0))
    assert not halves.folds and evidence(halves) == pytest.approx(0.0)
    assert not closed_form(x[rows], y[rows], x, NO_WORDS, 4, seed=0).heard


def test_a_half_is_judged_by_the_other_half() -> None:
    x, y = clusters(3, 5)
    halves = in_halves(x, y, x, 3, np.random.default_rng(0))
    assert len(halves.folds) == 4 and np.sum(halves.folds, axis=0).tolist() == [2] * len(y)
    assert all((np.bincount(y[out], minlength=3) >= 2).all() for out in halves.folds)
    x, y = clusters(4, 100, spread=0.35)
    rows = few(x, y, 4)
    heard = in_halves(x[rows], y[rows], x, 4, np.random.default_rng(0))
    misled = heard._replace(held=np.stack([np.roll(heard.held[0], 1, axis=1), heard.held[1]]))
    assert evidence(misled) < 0.0 < EVIDENCE < evidence(heard)


def test_words_are_asked_where_they_bear_out_held_out_labels() -> None:
    texts, labels = tiny_texts(20)
    names = sorted(set(labels))
    y = np.array([names.index(name) for name in labels])
    rows = few(y, y, 8)
    order = np.concatenate([rows, np.setdiff1d(np.arange(60), rows)])
    y, counts, known = y[order], word_counts([texts[i] for i in order]), np.eye(3)[y[rows]]
    rng = np.random.default_rng(0)
    for signal, shuffled in ((0.3, False), (3.0, True)):
        x = signal * np.eye(3)[y] + rng.normal(size=(60, 3))
        some = counts[rng.permutation(60)] if shuffled else counts
        halves = in_halves(x[:24], y[:24], x[24:], 3, rng)
        assert words_help(halves, np.array([0.5]), some, known) is not shuffled


def test_words_correct_soft_labels_and_leave_their_confidence() -> None:
    texts, labels = tiny_texts(60)
    names = sorted(set(labels))
    truth = np.array([names.index(name) for name in labels])
    counts = word_counts(texts)
    noisy = truth.copy()
    noisy[6::4] = (noisy[6::4] + 1) % 3
    soft = 0.3 + 0.1 * np.eye(3)[noisy]
    mended = with_words(counts, np.eye(3)[truth[:6]], soft[6:])
    assert (mended.argmax(axis=1) == truth[6:]).mean() > 0.9 > 0.8 > (noisy == truth).mean()
    assert mended.max(axis=1).mean() == pytest.approx(0.4, abs=0.01)
    assert np.allclose(mended.sum(axis=1), 1.0)


def test_without_words_nothing_changes() -> None:
    soft = np.array([[0.6, 0.4]])
    assert word_counts(["", "?!"]).shape == (2, 0)
    assert with_words(word_counts(["", "?!"]), np.eye(2)[:1], soft) is soft


def test_confidence_is_restored_by_a_power() -> None:
    before, after = np.array([[0.7, 0.3], [0.6, 0.4]]), np.array([[0.99, 0.01], [0.2, 0.8]])
    restored = as_sure_as(before, after)
    assert restored.max(axis=1).mean() == pytest.approx(0.65, abs=1e-3)
    assert restored.argmax(axis=1).tolist() == [0, 1]
