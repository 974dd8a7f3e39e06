"""Classes of the pool without labels are found, parts of known classes are not taken for them, and EM does without."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from halflabel.evaluation.confidence import unit
from halflabel.methods import closed_form, gaussian_em
from halflabel.methods.closed_form import fit_closed_form
from halflabel.methods.linear_models import LinearModel, logistic_regression
from halflabel.methods.unknown_classes import (
    LOG_ODDS,
    MISTAKEN,
    Components,
    UnknownClasses,
    evidence,
    find_unknown_classes,
    fit_components,
    largest_cosine,
)

WIDTH = 64


def classes(labels: int, per_class: int, seed: int = 0, spread: float = 0.09) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around `labels` directions in random order, and their columns; each class has two halves."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(np.random.default_rng(99).normal(size=(WIDTH, WIDTH)))[0]
    y = rng.permutation(np.repeat(np.arange(labels), per_class))
    half = rng.choice([-0.3, 0.3], len(y))
    return unit(directions[y] + half[:, None] * directions[labels + y] + spread * rng.normal(size=(len(y), WIDTH))), y


def found_in(x: np.ndarray, y: np.ndarray, known: int, per_class: int, pool: np.ndarray) -> UnknownClasses | None:
    rows = np.concatenate([np.flatnonzero(y == k)[:per_class] for k in range(known)])
    return find_unknown_classes(x[rows], y[rows], pool, known, np.random.default_rng(0))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("unknown", [1, 2])
def test_unknown_classes_are_found(unknown: int, seed: int) -> None:
    x, y = classes(3 + unknown, 150, seed)
    found = found_in(x, y, 3, 8, x)
    assert found is not None and found.log_odds >= LOG_ODDS
    number, certain = found.number(x), found.certain(x)
    assert (number[y >= 3] > 0).mean() > 0.95 > 0.1 > (number[y < 3] > 0).mean()
    assert not certain[number == 0].any() and certain[y >= 3].mean() > 0.5
    assert len({np.bincount(number[y == k]).argmax() for k in range(2, 3 + unknown)}) == 1 + unknown


@pytest.mark.parametrize("seed", range(5))
def test_parts_of_known_classes_are_no_unknown_classes(seed: int) -> None:
    x, y = classes(4, 150, seed)
    assert found_in(x, y, 4, 8, x) is None


def test_halves_of_a_class_that_is_most_of_the_pool_do_not_lie_in_opposite_directions() -> None:
    means = np.array([[1.0, 0.6, 0.0], [0.0, 0.0, 0.3], [0.0, 0.6, 1.0], [1.0, -0.6, 0.0]])  # halves: first and last
    from_pool = means - np.average(means, axis=0, weights=[4, 1, 1, 4])
    assert (unit(from_pool)[:-1] @ unit(from_pool)[-1]).max() < -0.2
    assert largest_cosine(from_pool) == pytest.approx(0.025, abs=0.001)


def test_nothing_is_unknown_with_few_texts_or_a_class_without_labels() -> None:
    x, y = classes(4, 150)
    assert found_in(x, y, 3, 8, x[:5]) is None
    assert find_unknown_classes(x[y == 0][:8], np.zeros(8, dtype=int), x, 3, np.random.default_rng(0)) is None
    assert found_in(x, y, 3, 1, x) is None  # one label per class is no evidence


def test_a_text_between_classes_may_be_unknown_but_is_not_for_certain() -> None:
    found = UnknownClasses(Components(np.eye(2), np.ones(2), np.log([0.5, 0.5]), 0.1), np.zeros(2), 1, LOG_ODDS)
    pool = np.array([[1.0, 0.0], [0.4, 0.6], [-1.0, 1.0]])
    assert found.number(pool).tolist() == [0, 1, 1] and found.certain(pool).tolist() == [False, False, True]


def test_evidence_is_the_likelihood_ratio_of_the_labelled_texts() -> None:
    directions = np.eye(3)
    fit = Components(directions, np.full(3, 30.0), np.log([0.25, 0.25, 0.5]), variance=1e-3)
    x, y = np.repeat(directions[:2], [4, 6], axis=0), np.repeat([0, 1], [4, 6])
    outside = np.log((1.0 - MISTAKEN) / (1.0 - 0.5 / 0.75))
    assert evidence(fit, x, y, 2) == pytest.approx(4 * outside)  # cosines are 0; the class with fewer labels counts
    claimed = x.copy()
    claimed[0] = directions[2]
    assert evidence(fit, claimed, y, 2) == pytest.approx(4 * outside + np.log(MISTAKEN / (1.0 - MISTAKEN)))
    near = fit._replace(means=np.array([[1.0, 0, 0], [0, 1, 0], [0.6, 0, 0.8]]))
    small = fit._replace(log_prior=np.log([0.49, 0.49, 0.02]))
    assert evidence(near, x, y, 2) == evidence(small, x, y, 2) == -np.inf


def test_a_labelled_text_is_no_part_of_the_mean_that_it_is_compared_with() -> None:
    x, y = classes(3, 40)
    rows = np.concatenate([np.flatnonzero(y == k)[:5] for k in range(3)])
    fit = fit_components(x[rows], y[rows], x, 3, np.empty((0, WIDTH)))
    own, held_out = (logits[np.arange(15), y[rows]] for logits in (fit.logits(x[rows]),
                                                                   fit.held_out_logits(x[rows], y[rows])))
    assert (held_out < own).all()
    first = rows[0]
    mean = (fit.mass[y[first]] * fit.means[y[first]] - x[first]) / (fit.mass[y[first]] - 1.0)
    expected = (x[first] @ mean - 0.5 * mean @ mean) / fit.variance + fit.log_prior[y[first]]
    assert held_out[0] == pytest.approx(expected)


def test_the_closed_form_does_without_unknown_texts_and_is_the_same_if_there_are_none(
        monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = classes(4, 150)
    rows = np.concatenate([np.flatnonzero(y == k)[:8] for k in range(3)])
    known, words = x[y < 3], sparse.csr_matrix((24 + len(x), 0))

    def fitted(pool: np.ndarray) -> closed_form.ClosedForm:
        return fit_closed_form(x[rows], y[rows], pool, words[: 24 + len(pool)], 3, seed=0)

    clean, mixed = fitted(known), fitted(x)
    assert clean.unknown == 0.0 and mixed.unknown == pytest.approx(0.25, abs=0.02)
    assert mixed.soft.shape == (600, 3) and np.allclose(mixed.soft.sum(axis=1), 1.0, atol=1e-5)
    assert np.abs(mixed.soft[y < 3] - clean.soft).max() < 0.1
    monkeypatch.setattr(closed_form, "find_unknown_classes", lambda *rest: None)
    same = fitted(known)
    assert (same.soft == clean.soft).all() and (same.model.weight == clean.model.weight).all()


def test_texts_that_may_be_unknown_are_no_part_of_the_cluster_model_but_learn_labels(
        monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = classes(4, 150)
    rows = np.concatenate([np.flatnonzero(y == k)[:8] for k in range(3)])
    monkeypatch.setattr(UnknownClasses, "certain", lambda self, pool: np.zeros(len(pool), dtype=bool))
    seen = []

    def em(x: np.ndarray, y: np.ndarray, pool: np.ndarray, labels: int) -> LinearModel:
        seen.append(len(pool))
        return logistic_regression(x, y, pool, labels)

    clusters, kept, unknown = closed_form.known_texts(None, x[rows], y[rows], x, 3, seed=0)
    assert kept.all() and unknown == pytest.approx(0.25, abs=0.02)
    found = found_in(x, y, 3, 8, x)
    assert found is not None
    closed_form.without_unknown(em, found)(x[rows], y[rows], x, 3)
    closed_form.without_unknown(em, found)(x[rows], y[rows], x[y == 3][:20], 3)  # all are unknown
    assert seen == [(found.number(x) == 0).sum(), 20]
    model = gaussian_em.gaussian_em(x[rows], y[rows], x[found.number(x) == 0], 3)
    assert np.allclose(clusters.fit(x[rows], y[rows], x, 3).weight, model.weight)


def test_class_names_are_judged_without_unknown_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = classes(4, 150)
    rows, names = np.concatenate([np.flatnonzero(y == k)[:8] for k in range(3)]), np.eye(3, WIDTH)
    judged = []

    def fit_labels(names: np.ndarray, x: np.ndarray, y: np.ndarray, pool: np.ndarray, labels: int) -> bool:
        judged.append(len(pool))
        return len(pool) < 500  # names do not explain labels in a pool with unknown texts

    monkeypatch.setattr(closed_form, "names_fit_labels", fit_labels)
    monkeypatch.setattr(gaussian_em, "name_directions", lambda names: unit(
        np.stack([x[y == k].mean(axis=0) for k in range(3)])))
    clusters, _, unknown = closed_form.known_texts(names, x[rows], y[rows], x, 3, seed=0)
    assert unknown > 0.2 and clusters.uses_names and judged == [pytest.approx(450, abs=15)]


def test_held_out_labels_can_speak_against_leaving_texts_out(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = classes(3, 100)
    rows = np.concatenate([np.flatnonzero(y == k)[:8] for k in range(3)])
    words, means = sparse.csr_matrix((24 + len(x), 0)), np.stack([x[y == k].mean(axis=0) for k in (1, 2, 0)])
    components = Components(np.vstack([-means[2], means]), np.ones(4), np.zeros(4), variance=1e-3)  # class 0 is unknown

    def unknown(log_odds: float) -> float:
        monkeypatch.setattr(closed_form, "find_unknown_classes",
                            lambda *rest: UnknownClasses(components, np.zeros(WIDTH), 3, log_odds))
        return fit_closed_form(x[rows], y[rows], x, words, 3, seed=0).unknown

    assert unknown(LOG_ODDS) == 0.0  # without the texts of class 0, its held-out labels are not explained
    assert unknown(1e3) == pytest.approx(1 / 3)
