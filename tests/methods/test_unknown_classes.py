"""Classes of the pool without labels are found, parts of known classes are not taken for them, and EM does without."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from halflabel.evaluation.confidence import unit
from halflabel.methods import closed_form
from halflabel.methods.closed_form import fit_closed_form
from halflabel.methods.unknown_classes import (
    LOG_ODDS,
    MISTAKEN,
    Components,
    UnknownTexts,
    evidence,
    fit_components,
    unknown_texts,
)

WIDTH = 64


def classes(labels: int, per_class: int, seed: int = 0, spread: float = 0.09) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around `labels` directions in random order, and their columns; each class has two halves."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(np.random.default_rng(99).normal(size=(WIDTH, WIDTH)))[0]
    y = rng.permutation(np.repeat(np.arange(labels), per_class))
    half = rng.choice([-0.3, 0.3], len(y))
    return unit(directions[y] + half[:, None] * directions[labels + y] + spread * rng.normal(size=(len(y), WIDTH))), y


def found_in(x: np.ndarray, y: np.ndarray, known: int, per_class: int, pool: np.ndarray) -> UnknownTexts:
    rows = np.concatenate([np.flatnonzero(y == k)[:per_class] for k in range(known)])
    return unknown_texts(x[rows], y[rows], pool, known, np.random.default_rng(0))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("unknown", [1, 2])
def test_unknown_classes_are_found(unknown: int, seed: int) -> None:
    x, y = classes(3 + unknown, 150, seed)
    found = found_in(x, y, 3, 8, x)
    assert found.log_odds >= LOG_ODDS
    assert found.mask[y >= 3].mean() > 0.95 > 0.1 > found.mask[y < 3].mean()
    assert len({np.bincount(found.number[y == k]).argmax() for k in range(2, 3 + unknown)}) == 1 + unknown


@pytest.mark.parametrize("seed", range(5))
def test_parts_of_known_classes_are_no_unknown_classes(seed: int) -> None:
    x, y = classes(4, 150, seed)
    found = found_in(x, y, 4, 8, x)
    assert not found.mask.any() and found.log_odds == -np.inf


def test_nothing_is_unknown_with_few_texts_or_a_class_without_labels() -> None:
    x, y = classes(4, 150)
    assert not found_in(x, y, 3, 8, x[:5]).mask.any()
    assert not unknown_texts(x[y == 0][:8], np.zeros(8, dtype=int), x, 3, np.random.default_rng(0)).mask.any()
    assert not found_in(x, y, 3, 1, x).mask.any()  # one label per class is no evidence


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
    monkeypatch.setattr(closed_form, "unknown_texts",
                        lambda x, y, pool, *rest: UnknownTexts(np.zeros(len(pool), dtype=int), -np.inf))
    same = fitted(known)
    assert (same.soft == clean.soft).all() and (same.model.weight == clean.model.weight).all()


def test_held_out_labels_can_speak_against_leaving_texts_out(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = classes(3, 100)
    rows = np.concatenate([np.flatnonzero(y == k)[:8] for k in range(3)])
    words = sparse.csr_matrix((24 + len(x), 0))

    def unknown(log_odds: float) -> float:
        monkeypatch.setattr(closed_form, "unknown_texts", lambda *rest: UnknownTexts((y == 0).astype(int), log_odds))
        return fit_closed_form(x[rows], y[rows], x, words, 3, seed=0).unknown

    assert unknown(LOG_ODDS) == 0.0  # without the texts of class 0, its held-out labels are not explained
    assert unknown(1e3) == pytest.approx(1 / 3)
