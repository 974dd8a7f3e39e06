"""The closed form: its models, mixture and smoothing, and that a misleading pool is ignored."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from conftest import tiny_texts
from halflabel.evaluation.confidence import unit
from halflabel.methods import closed_form
from halflabel.methods.closed_form import (
    ALL_POWERS,
    PRIOR_TRUST,
    ClosedForm,
    cluster_evidence,
    cluster_trust,
    excess_confidence,
    fit_closed_form,
    words_improve,
)
from halflabel.methods.closed_form_several import gaussians
from halflabel.methods.gaussian_em import POOL_MASS, centre_of_classes, gaussian_em, near_classes
from halflabel.methods.held_out import cross_validate, fit_weights, validate_halves
from halflabel.methods.label_smoothing import (
    corrected_by_words,
    kept_frequencies,
    match_confidence,
    neighbour_graph,
    sharpened,
    smoothed,
    word_features,
)
from halflabel.methods.linear_models import LinearModel, distil, logistic_regression, weighted_sum
from halflabel.methods.wrong_labels import fit_without_wrong_labels, likely_wrong

NEAR_CLASSES = "halflabel.methods.gaussian_em.near_classes"
NO_WORDS = sparse.csr_matrix((2000, 0))
BOTH = [gaussian_em, logistic_regression]


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


def accuracy(model: LinearModel, x: np.ndarray, y: np.ndarray) -> float:
    return float((model.log_probabilities(x).argmax(axis=1) == y).mean())


def test_the_pool_improves_on_two_labels_per_class() -> None:
    x, y = clusters(4, 150, spread=0.35)
    rows = few(x, y, 2)
    alone, pooled = logistic_regression(x[rows], y[rows], x, 4), gaussian_em(x[rows], y[rows], x, 4)
    assert accuracy(pooled, x, y) > accuracy(alone, x, y) + 0.03


def test_gaussian_em_with_an_isotropic_pool_is_nearest_mean() -> None:
    x, y = clusters(3, 200, spread=0.1)
    rows = few(x, y, 5)
    model = gaussian_em(x[rows], y[rows], x, 3)
    means = np.stack([x[y == k].mean(axis=0) for k in range(3)])
    nearest = ((x[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (model.log_probabilities(x).argmax(axis=1) == nearest).mean() > 0.99


def test_texts_that_are_all_the_same_to_the_encoder_are_no_error() -> None:
    x, y, names = np.ones((6, 3)), np.array([0, 1] * 3), np.eye(3)[:2]
    for found in (gaussian_em(x, y, np.ones((20, 3)), 2), gaussian_em(x[:0], y[:0], np.ones((20, 3)), 2, names=names),
                  gaussians(np.ones((20, 3)), np.eye(2)[[0, 1] * 10], np.ones(3))):
        assert np.isfinite(found.weight).all() and np.isfinite(found.bias).all()
    p = np.exp(gaussian_em(x, y, np.ones((20, 3)), 2).log_probabilities(x))
    assert np.allclose(p, 0.5)


def test_the_weight_of_the_pool_is_limited() -> None:
    assert POOL_MASS == 25.0
    x, y = clusters(2, 400, spread=0.1)
    rows = few(x, y, 50)
    shifted = x + 0.5 * np.eye(x.shape[1])[-1]  # a shifted pool cannot move the means all the way
    model = gaussian_em(x[rows], y[rows], shifted, 2)
    assert accuracy(model, x, y) > 0.95


def test_logistic_regression_never_predicts_a_class_without_texts() -> None:
    x, y = clusters(3, 10)
    present = y != 1
    model = logistic_regression(x[present], y[present], x, 3)
    assert not (model.log_probabilities(x).argmax(axis=1) == 1).any()
    assert accuracy(model, x[present], y[present]) > 0.95


def test_two_classes_give_two_columns_with_scikit_learns_probabilities() -> None:
    from sklearn.linear_model import LogisticRegression

    x, y = clusters(2, 20, spread=0.5)
    model = LogisticRegression(C=10.0, max_iter=300).fit(x, y)
    assert np.allclose(np.exp(logistic_regression(x, y, x, 2).log_probabilities(x)), model.predict_proba(x), atol=1e-6)


def test_held_out_texts_are_not_seen_by_their_own_model() -> None:
    x, y = clusters(3, 6)
    y = y.copy()
    sizes: list[int] = []

    def spy(x: np.ndarray, y: np.ndarray, pool: np.ndarray, labels: int) -> LinearModel:
        sizes.append(len(x))
        return logistic_regression(x, y, pool, labels)

    held_out = cross_validate([spy], x, y, x, 3, np.random.default_rng(0))
    assert len(held_out.y) == len(y) and held_out.log_p.shape == (1, len(y), 3)
    assert all(size == len(y) - fold.sum() for size, fold in zip(sizes, held_out.folds, strict=True))
    assert np.sum(held_out.folds, axis=0).tolist() == [1] * len(y)


def test_the_only_text_of_a_class_is_not_held_out() -> None:
    x, y = clusters(3, 4)
    keep = np.concatenate([np.flatnonzero(y != 2), np.flatnonzero(y == 2)[:1]])
    held_out = cross_validate([logistic_regression], x[keep], y[keep], x, 3, np.random.default_rng(0))
    assert 2 not in held_out.y.tolist()


def test_a_misleading_model_gets_a_low_weight() -> None:
    x, y = clusters(3, 20)
    wrong = np.log(np.full((len(y), 3), 0.05) + 0.85 * np.eye(3)[(y + 1) % 3])
    mostly = np.where(np.arange(len(y)) % 4 == 0, (y + 2) % 3, y)
    right = np.log(np.full((len(y), 3), 0.05) + 0.85 * np.eye(3)[mostly])
    held_out = cross_validate([logistic_regression, logistic_regression], x, y, x, 3, np.random.default_rng(0))
    prior = np.array([0.3, 0.3])
    bad, _ = fit_weights(held_out._replace(log_p=np.stack([wrong, right]), y=y), prior, np.ones(2))
    good, _ = fit_weights(held_out._replace(log_p=np.stack([right, wrong]), y=y), prior, np.ones(2))
    assert bad[0] < 0.1 < 0.3 < bad[1]
    assert good[1] < 0.1 < 0.3 < good[0]


def test_without_held_out_texts_the_prior_decides() -> None:
    x, y = clusters(3, 1)
    held_out = cross_validate([logistic_regression, logistic_regression], x, y, x, 3, np.random.default_rng(0))
    weights, _ = fit_weights(held_out, np.array([0.1, 0.5]), np.ones(2))
    assert weights.tolist() == pytest.approx([0.1, 0.5])


def test_smoothing_corrects_labels_that_differ_from_their_neighbours() -> None:
    x, y = clusters(3, 100, spread=0.1)
    noisy = y.copy()
    noisy[::5] = (noisy[::5] + 1) % 3
    graph = neighbour_graph(x)
    assert np.allclose(np.asarray(graph.sum(axis=1)).ravel(), 1.0, atol=1e-5) and graph.diagonal().sum() == 0
    corrected = smoothed(graph, np.eye(3)[noisy], 0.8)
    assert (corrected.argmax(axis=1) == y).mean() > 0.99 > (noisy == y).mean()
    assert np.allclose(corrected.sum(axis=1), 1.0, atol=1e-5)
    assert np.allclose(smoothed(graph, np.eye(3)[noisy], 0.0), np.eye(3)[noisy])


def test_sharpening_keeps_order_and_sums() -> None:
    p = np.array([[0.5, 0.3, 0.2]])
    assert np.allclose(sharpened(p, 2.0), p**2 / (p**2).sum())
    assert np.allclose(sharpened(p, 1.0), p)


def test_distilling_a_model_into_itself_changes_nothing() -> None:
    x, y = clusters(3, 50, spread=0.4)
    model = logistic_regression(x, y, x, 3)
    same = distil(model, x, np.exp(model.log_probabilities(x)))
    assert np.allclose(same.weight, model.weight, atol=1e-2)
    turned = distil(model, x, np.eye(3)[(y + 1) % 3])
    assert accuracy(turned, x, (y + 1) % 3) > 0.8


def test_the_weighted_sum_adds_logits() -> None:
    a, b = LinearModel(np.ones((2, 3)), np.zeros(3)), LinearModel(np.full((2, 3), 2.0), np.ones(3))
    both = weighted_sum([a, b], np.array([0.5, 2.0]))
    assert np.allclose(both.weight, 4.5) and np.allclose(both.bias, 2.0)


def test_the_whole_pool_is_labelled_and_the_result_is_deterministic() -> None:
    x, y = clusters(4, 100, spread=0.35)
    rows = few(x, y, 5)
    first, second = (fit_closed_form(x[rows], y[rows], x, NO_WORDS, 4, seed=3) for _ in range(2))
    assert first.soft.shape == (400, 4) and np.allclose(first.soft.sum(axis=1), 1.0, atol=1e-4)
    assert np.array_equal(first.soft, second.soft) and np.array_equal(first.model.weight, second.model.weight)
    assert (first.soft.argmax(axis=1) == y).mean() > accuracy(logistic_regression(x[rows], y[rows], x, 4), x, y)


def test_permuting_the_classes_permutes_the_cluster_model() -> None:
    x, y = clusters(3, 60, spread=0.3)
    rows = few(x, y, 6)
    order = np.array([2, 0, 1])
    plain = gaussian_em(x[rows], y[rows], x, 3).log_probabilities(x)
    permuted = gaussian_em(x[rows], order[y[rows]], x, 3).log_probabilities(x)
    assert np.allclose(plain, permuted[:, order], atol=1e-6)


def test_without_a_pool_only_labelled_texts_are_used() -> None:
    x, y = clusters(3, 8)
    start = fit_closed_form(x, y, x[:0], NO_WORDS, 3, seed=0)
    assert start.soft.shape == (0, 3) and accuracy(start.model, x, y) > 0.95


def test_an_unknown_class_in_the_pool_does_not_move_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = clusters(4, 150, spread=0.35)
    x, y, unknown = x[y < 3], y[y < 3], x[y == 3]
    rows, pool = few(x, y, 5), np.concatenate([x, unknown])
    f, centre = x[rows], pool.mean(axis=0)
    near = near_classes(unit(f - centre), y[rows], unit(pool - centre), np.eye(3)[y[rows]].T @ unit(f - centre), 0.9)
    assert near[: len(x)].mean() > 0.7 > 0.1 > near[len(x) :].mean()
    clean, foreign = (accuracy(gaussian_em(f, y[rows], texts, 3), x, y) for texts in (x, pool))
    monkeypatch.setattr(NEAR_CLASSES, lambda f, y, f_pool, *rest: np.ones(len(f_pool), dtype=bool))
    assert foreign > clean - 0.01 and foreign > accuracy(gaussian_em(f, y[rows], pool, 3), x, y)


@pytest.mark.parametrize("seed", range(4))
def test_texts_of_a_class_that_is_most_of_the_pool_are_near(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = clusters(3, 400, width=100, spread=0.12, seed=seed)
    rows, pool = few(x, y, 5), x[(y == 0) | (np.arange(len(y)) % 20 == 0)]  # nine tenths are of class 0
    seen: list[np.ndarray] = []
    monkeypatch.setattr(NEAR_CLASSES, lambda *given: seen.append(near_classes(*given)) or seen[-1])
    gaussian_em(x[rows], y[rows], pool, 3)
    assert seen[0].all()
    f, f_pool = (unit(part - pool.mean(axis=0)) for part in (x[rows], pool))
    assert near_classes(f, y[rows], f_pool, np.eye(3)[y[rows]].T @ f, 0.9).mean() <= 0.8


def test_all_texts_are_near_without_unknown_classes_if_a_class_has_no_label_or_if_none_would_be() -> None:
    x, y = clusters(3, 40)
    rows = few(x, y, 20)
    sums = np.eye(3)[y[rows]].T @ x[rows]
    pool = np.concatenate([x, -x[:60]])
    assert near_classes(x[rows], y[rows], x, sums, 0.9).all()
    assert not near_classes(x[rows], y[rows], pool, sums, 0.9)[len(x) :].any()
    assert near_classes(x[rows], y[rows], pool, np.pad(sums, ((0, 1), (0, 0))), 0.9).all()
    assert near_classes(x[rows], y[rows], -x[:5], sums, 0.9).all()


def topics_and_sentiments(number: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors of two distant topics, with a weak sentiment that is independent of them: x, topic, sentiment."""
    rng = np.random.default_rng(seed)
    topic, sentiment = rng.integers(0, 2, (2, number))
    x = rng.normal(size=(number, 12)) * 0.3
    x[:, 0] += 1.5 * (2 * topic - 1)
    x[:, 1] += 0.35 * (2 * sentiment - 1)
    return x / np.linalg.norm(x, axis=1, keepdims=True), topic, sentiment


@pytest.mark.parametrize("seed", range(6))
def test_a_pool_that_clusters_by_something_else_is_ignored(seed: int) -> None:
    x, topic, sentiment = topics_and_sentiments(800, seed)
    rows = few(x, sentiment, 5)
    start = fit_closed_form(x[rows], sentiment[rows], x, sparse.csr_matrix((len(rows) + len(x), 0)), 2, seed=seed)
    alone = fit_closed_form(x[rows], sentiment[rows], x[:0], NO_WORDS, 2, seed=seed)
    assert not start.trust and len(start.weights) == 1
    assert accuracy(start.model, x, sentiment) == accuracy(alone.model, x, sentiment)
    misled = gaussian_em(x[rows], sentiment[rows], x, 2)
    by_topic = accuracy(misled, x, topic)
    assert max(by_topic, 1.0 - by_topic) > 0.9 and accuracy(misled, x, sentiment) < accuracy(alone.model, x, sentiment)


def test_one_label_per_class_is_no_evidence_so_the_prior_remains() -> None:
    x, y = clusters(4, 100)
    rows = few(x, y, 1)
    halves = validate_halves(BOTH, x[rows], y[rows], x, 4, np.random.default_rng(0))
    assert not halves.folds and cluster_evidence(halves) == pytest.approx(0.0)
    fitted = fit_closed_form(x[rows], y[rows], x, NO_WORDS, 4, seed=0)
    assert fitted.trust == pytest.approx(PRIOR_TRUST)
    assert accuracy(fitted.model, x, y) > accuracy(logistic_regression(x[rows], y[rows], x, 4), x, y)


def test_trust_grows_with_the_evidence_and_ends_in_certainty() -> None:
    growing = [cluster_trust(evidence, PRIOR_TRUST) for evidence in (-1e6, -0.1, 0.0, 1.0, 1e6)]
    assert growing == sorted(growing) and growing[:2] == [0.0, 0.0] and growing[-1] == 1.0
    assert growing[2] == pytest.approx(PRIOR_TRUST) and cluster_trust(2.0, 0.5) == pytest.approx(1 / (1 + np.exp(-2.0)))


def test_each_half_evaluates_the_other() -> None:
    x, y = clusters(3, 5)
    halves = validate_halves(BOTH, x, y, x, 3, np.random.default_rng(0))
    assert len(halves.folds) == 12 and np.sum(halves.folds, axis=0).tolist() == [6] * len(y)
    assert halves.discount == pytest.approx(1 / 6)  # each text counts once
    assert all((np.bincount(y[fold], minlength=3) >= 2).all() for fold in halves.folds)
    x, y = clusters(4, 100, spread=0.35)
    rows = few(x, y, 4)
    halves = validate_halves(BOTH, x[rows], y[rows], x, 4, np.random.default_rng(0))
    misled = halves._replace(log_p=np.stack([np.roll(halves.log_p[0], 1, axis=1), halves.log_p[1]]))
    assert cluster_evidence(misled) < 0.0 and cluster_trust(cluster_evidence(halves), PRIOR_TRUST) == 1.0


@pytest.mark.parametrize(("per_class", "splits"), [(4, 6), (20, 5), (30, 3), (60, 2)])
def test_few_labels_are_split_more_often(per_class: int, splits: int) -> None:
    x, y = clusters(3, per_class)
    halves = validate_halves(BOTH, x, y, x, 3, np.random.default_rng(0))
    assert len(halves.folds) == 2 * splits and halves.discount == pytest.approx(1 / splits)


def test_words_are_used_where_they_improve_held_out_labels() -> None:
    texts, labels = tiny_texts(20)
    names = sorted(set(labels))
    y = np.array([names.index(name) for name in labels])
    rows = few(y, y, 8)
    order = np.concatenate([rows, np.setdiff1d(np.arange(60), rows)])
    y, counts, known = y[order], word_features([texts[i] for i in order]), np.eye(3)[y[rows]]
    rng = np.random.default_rng(0)
    for signal, shuffled in ((0.3, False), (3.0, True)):
        x = signal * np.eye(3)[y] + rng.normal(size=(60, 3))
        features = counts[rng.permutation(60)] if shuffled else counts
        halves = validate_halves(BOTH, x[:24], y[:24], x[24:], 3, rng)
        assert words_improve(halves, np.array([0.5]), features, known) is not shuffled


def test_words_correct_soft_labels_and_keep_their_confidence() -> None:
    texts, labels = tiny_texts(60)
    names = sorted(set(labels))
    truth = np.array([names.index(name) for name in labels])
    counts = word_features(texts)
    noisy = truth.copy()
    noisy[6::4] = (noisy[6::4] + 1) % 3
    soft = 0.3 + 0.1 * np.eye(3)[noisy]
    corrected = corrected_by_words(counts, np.eye(3)[truth[:6]], soft[6:])
    assert (corrected.argmax(axis=1) == truth[6:]).mean() > 0.9 > 0.8 > (noisy == truth).mean()
    assert corrected.max(axis=1).mean() == pytest.approx(0.4, abs=0.01)
    assert np.allclose(corrected.sum(axis=1), 1.0)


def test_words_keep_unequal_frequencies_of_classes() -> None:
    texts, labels = tiny_texts(60)
    truth = np.array([sorted(set(labels)).index(label) for label in labels])
    kept = np.flatnonzero((truth == 0) | (np.arange(len(truth)) % 7 == 0))
    counts = word_features([texts[i] for i in kept])
    noisy = np.where(np.arange(len(kept)) % 5 == 0, 2, truth[kept])  # some texts are taken for one class
    soft = 0.05 + 0.85 * np.eye(3)[noisy]
    changed, same = (corrected_by_words(counts, np.empty((0, 3)), soft, keep_frequencies=keep)
                     for keep in (False, True))
    assert not np.allclose(changed.mean(axis=0), soft.mean(axis=0), atol=0.005)
    assert np.allclose(same.mean(axis=0), soft.mean(axis=0), atol=1e-4)
    assert np.allclose(same.sum(axis=1), 1.0)
    assert np.ptp(np.log(same[:, 0] / same[:, 2]) - np.log(changed[:, 0] / changed[:, 2])) < 1e-2


@pytest.mark.parametrize(("before", "after", "expected"), [
    ([0.4, 0.35, 0.25], [0.34, 0.33, 0.33], [0.34, 0.33, 0.33]),  # about equal: words may be right
    ([0.8, 0.15, 0.05], [0.9, 0.09, 0.01], [0.8, 0.15, 0.05]),
    ([1.0, 0.0, 0.0], [0.98, 0.01, 0.01], [1.0, 0.0, 0.0]),
])
def test_frequencies_are_kept_as_far_as_they_are_unequal(before: list[float], after: list[float],
                                                         expected: list[float]) -> None:
    assert np.allclose(kept_frequencies(np.array([before]), np.array([after])), expected)
    between = kept_frequencies(np.array([[0.5, 0.35, 0.15]]), np.array([[0.4, 0.3, 0.3]]))
    assert 0.4 < between[0] < 0.5 and 0.15 < between[2] < 0.3


def test_frequencies_of_many_classes_are_kept() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.dirichlet(np.full(30, 50.0), size=2)
    assert np.allclose(kept_frequencies(before[None], after[None]), before)
    assert not np.allclose(kept_frequencies(before[None, :10] / before[:10].sum(), after[None, :10] / after[:10].sum()),
                           before[:10] / before[:10].sum(), atol=1e-3)


def test_the_centre_of_classes_is_that_of_the_pool_unless_labels_tell_more_than_chance() -> None:
    rng = np.random.default_rng(0)
    y, far = np.repeat(np.arange(4), 2), np.full(16, 2.0)
    one_hot = np.eye(4)[y]
    shares = []
    for centre in (np.zeros(16), far):
        draws = [one_hot.T @ (centre + rng.normal(size=(8, 16))) for _ in range(200)]
        lengths = [np.linalg.norm(centre_of_classes(sums, one_hot.sum(axis=0), 16.0)) for sums in draws]
        shares.append(np.mean(lengths) / np.mean([np.linalg.norm(sums.sum(axis=0) / 8.0) for sums in draws]))
    assert shares[0] < 0.25 and shares[1] > 0.95
    assert not centre_of_classes(np.zeros((4, 16)), np.zeros(4), 16.0).any()


def test_without_words_nothing_changes() -> None:
    soft = np.array([[0.6, 0.4]])
    assert word_features(["", "?!"]).shape == (2, 0)
    assert corrected_by_words(word_features(["", "?!"]), np.eye(2)[:1], soft) is soft


def test_confidence_is_restored_by_a_power() -> None:
    before, after = np.array([[0.7, 0.3], [0.6, 0.4]]), np.array([[0.99, 0.01], [0.2, 0.8]])
    restored = match_confidence(after, before)
    assert restored.max(axis=1).mean() == pytest.approx(0.65, abs=1e-3)
    assert restored.argmax(axis=1).tolist() == [0, 1]


def test_the_expected_confidence_is_a_mean_over_powers() -> None:
    p, certain = np.array([[0.7, 0.3], [0.6, 0.4]]), np.eye(len(ALL_POWERS))
    weak, strong = ALL_POWERS[1], ALL_POWERS[4]
    assert excess_confidence(p, strong, certain[4]) == 0.0
    assert excess_confidence(p, weak, certain[[1, 4]].mean(axis=0)) < 0.0
    assert excess_confidence(p, strong, certain[[1, 4]].mean(axis=0)) > 0.0


def test_the_prior_of_sharpness_moves_the_confidence_and_not_the_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = clusters(4, 60, spread=0.35)
    rows = few(x, y, 5)

    def fitted(sharpness: float) -> ClosedForm:
        monkeypatch.setattr(closed_form, "SHARPNESS", sharpness)
        return fit_closed_form(x[rows], y[rows], x, NO_WORDS[: len(rows) + len(x)], 4, seed=0)

    blunt, sharp = fitted(0.01), fitted(1.0)
    assert blunt.excess > sharp.excess
    assert np.array_equal(blunt.soft, sharp.soft)


class TestWrongLabels:
    def test_most_flipped_labels_and_no_others_are_dropped(self) -> None:
        x, truth = clusters(4, 60)
        rows = few(x, truth, 15)
        y, flipped = truth[rows].copy(), np.arange(0, 60, 7)
        y[flipped] = (y[flipped] + 1) % 4
        wrong = likely_wrong(x[rows], y, x, 4, seed=0)
        assert wrong[flipped].mean() > 0.6 and not np.delete(wrong, flipped).any()
        fitted, dropped = fit_without_wrong_labels(x[rows], y, x, NO_WORDS, 4, seed=0)
        assert dropped == wrong.sum() and fitted.soft.shape == (len(x), 4) and accuracy(fitted.model, x, truth) > 0.95

    def test_right_labels_are_kept(self) -> None:
        x, y = clusters(3, 100)
        rows = few(x, y, 10)
        assert not likely_wrong(x[rows], y[rows], x, 3, seed=0).any()
        fitted, dropped = fit_without_wrong_labels(x[rows], y[rows], x, NO_WORDS, 3, seed=0)
        same = fit_closed_form(x[rows], y[rows], x, NO_WORDS, 3, seed=0)
        assert dropped == 0 and np.array_equal(fitted.soft, same.soft)

    def test_a_class_keeps_a_label(self) -> None:
        x, truth = clusters(3, 100)
        rows = few(x, truth, 8)
        y = np.where(truth[rows] == 2, 0, truth[rows])
        y[:2] = 2  # both labels of this class are wrong
        assert not likely_wrong(x[rows], y, x, 3, seed=0)[y == 2].all()

    def test_nothing_is_known_without_a_pool_or_with_one_label_per_class(self) -> None:
        x, y = clusters(3, 10)
        assert not likely_wrong(x, (y + 1) % 3, x[:0], 3, seed=0).any()
        assert not likely_wrong(x[few(x, y, 1)], y[few(x, y, 1)], x, 3, seed=0).any()
