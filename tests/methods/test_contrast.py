"""Contrast: its loss, what it does to vectors, when `lift` uses it, and what a run with it says and keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.encoders.inference import encode
from halflabel.encoders.loading import load_encoder
from halflabel.evaluation.confidence import softmax, unit
from halflabel.methods import contrast, lift
from halflabel.methods.contrast import (
    HeldOutContrast,
    at_best_temperature,
    batch_of,
    fit_tuned,
    minutes_needed,
    pair_loss,
    rate_at,
    validate_contrast,
)
from halflabel.methods.gaussian_em import gaussian_em
from halflabel.methods.linear_models import logistic_regression
from halflabel.notices import ContrastProgress, Event, Report, StepProgress, silent
from halflabel.persistence.model import TrainedModel
from halflabel.processes import Interrupted, request_stop

TEXTS, TOPICS = tiny_texts(8)
POOL, _ = tiny_texts(30, seed=1)
TEST, TEST_TOPICS = tiny_texts(20, seed=2)
Y = np.unique(TOPICS, return_inverse=True)[1]
HELPS = HeldOutContrast(evidence=2.0, correct=(18, 24), confidence=0.7)


def test_the_loss_is_the_squared_error_of_cosines_and_both_kinds_of_pairs_weigh_the_same() -> None:
    h, y = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 0, 1, 1, 1])
    errors: dict[bool, list[float]] = {True: [], False: []}
    for i in range(5):
        for j in range(5):
            if i != j:
                cosine = float(h[i] @ h[j] / (h[i].norm() * h[j].norm()))
                alike = bool(y[i] == y[j])
                errors[alike].append((cosine - alike) ** 2)
    assert float(pair_loss(h, y)) == pytest.approx(0.5 * np.mean(errors[True]) + 0.5 * np.mean(errors[False]), abs=1e-6)


def test_the_less_clusters_are_trusted_the_less_has_to_be_shown() -> None:
    found = [[HELPS._replace(evidence=evidence).supports(trust) for trust in (0.0, 0.5, 1.0)]
             for evidence in (6.0, 1.0, -1.0, -6.0)]
    assert found == [[True, True, True], [True, True, False], [True, False, False], [False, False, False]]


def test_a_batch_has_as_many_texts_of_each_of_its_classes() -> None:
    y = np.repeat(np.arange(20), 6)
    counts = np.bincount(y[batch_of(y, np.random.default_rng(0))], minlength=20)
    assert sorted(counts[counts > 0]) == [4] * 8
    few = batch_of(np.array([0, 0, 0, 1]), np.random.default_rng(0))
    assert sorted(few) == [0, 1, 2, 3]  # no text twice


def test_the_rate_rises_and_falls() -> None:
    rates = [rate_at(step) for step in range(contrast.STEPS)]
    assert max(rates) == 1.0 and rates[0] < 0.2 and 0.0 < rates[-1] < 0.05
    top = int(np.argmax(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1]) and rates[top:] == sorted(rates[top:], reverse=True)


def test_long_texts_need_more_minutes(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contrast, "TOKENS", 20)
    monkeypatch.setattr(contrast, "MAX_TOKENS", 40)
    encoder = load_encoder(tiny_encoder, 64)
    short, long, longest = ([" ".join(TEXTS[:1] * number)] for number in (1, 100, 200))
    assert minutes_needed(encoder, short) == 5.0 < minutes_needed(encoder, short + long) < 10.0
    assert minutes_needed(encoder, long) == minutes_needed(encoder, longest) == 10.0


def test_texts_of_a_class_become_similar(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contrast, "RATE", 1e-3)
    encoder = load_encoder(tiny_encoder, 64)

    def loss() -> float:
        return float(pair_loss(torch.from_numpy(unit(encode(encoder, TEST))), torch.from_numpy(
            np.unique(TEST_TOPICS, return_inverse=True)[1])))

    before = loss()
    contrast.contrast(encoder, TEXTS, Y, seed=0)
    assert loss() < 0.7 * before and not encoder.training


class TestEvidence:
    @staticmethod
    def of(tiny_encoder: str, y: np.ndarray, texts: list[str]) -> HeldOutContrast | None:
        encoder = load_encoder(tiny_encoder, 64)
        before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
        x = unit(encode(encoder, texts).astype(np.float64))
        found = validate_contrast(encoder, texts, x, y, 3, seed=0)
        assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.state_dict().items())
        return found

    def test_held_out_labels_decide(self, tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(contrast, "RATE", 1e-3)
        monkeypatch.setattr(contrast, "STEPS", 20)
        learnable = self.of(tiny_encoder, Y, TEXTS + POOL)
        random = self.of(tiny_encoder, np.random.default_rng(0).permutation(Y), TEXTS + POOL)
        assert learnable is not None and random is not None and learnable.evidence > random.evidence
        assert learnable.correct[1] == len(TEXTS) and learnable.correct[0] > 2 * random.correct[0]
        assert 1 / 3 < random.confidence < learnable.confidence <= 1.0

    def test_progress_counts_the_steps_of_all_encoders(self, tiny_encoder: str,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(contrast, "STEPS", 2)
        encoder, seen = load_encoder(tiny_encoder, 64), list[tuple[int, int]]()
        x = unit(encode(encoder, TEXTS + POOL).astype(np.float64))
        validate_contrast(encoder, TEXTS + POOL, x, Y, 3, 0, lambda *counts: seen.append(counts))
        assert seen == [(done, 6) for done in range(1, 7)]

    def test_better_pretrained_vectors_speak_against_it(self, tiny_encoder: str,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(contrast, "STEPS", 5)
        encoder, texts = load_encoder(tiny_encoder, 64), TEXTS + POOL
        topics = np.unique([*TOPICS, *tiny_texts(30, seed=1)[1]], return_inverse=True)[1]
        poor = np.random.default_rng(0).normal(size=(len(texts), 8))
        good = np.eye(3)[topics] + 0.1 * poor[:, :3]
        evidence = [validate_contrast(encoder, texts, unit(x), Y, 3, seed=0) for x in (poor, good)]
        assert evidence[0] is not None and evidence[1] is not None
        assert evidence[0].evidence > evidence[1].evidence and evidence[1].evidence < 0.0

    def test_there_is_none_without_a_pool_or_with_few_labels(self, tiny_encoder: str) -> None:
        assert self.of(tiny_encoder, Y, TEXTS) is None
        few = [i for k in range(3) for i in np.flatnonzero(k == Y)[:3]]
        assert self.of(tiny_encoder, Y[few], [TEXTS[i] for i in few] + POOL) is None


def trained(encoder: str, folder: Path | None = None, *, resume: bool = False, report: Report = silent,
            **changes: Any) -> TextClassifier:
    settings = {"epochs": 2, "epoch_steps": 3} | changes.pop("settings", {})
    clf = TextClassifier("lift", encoder, "laptop", settings=settings,
                         **{"minutes": 60, "names": "none"} | changes)
    return clf.fit(TEXTS, TOPICS, unlabelled=POOL, folder=folder, resume=resume, report=report)


def stops_at_step_4(event: Event) -> None:
    if isinstance(event, StepProgress) and event.step == 4:
        request_stop()


@pytest.fixture
def undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters of the pretrained vectors are not certain to be the classes; contrast has few steps."""
    monkeypatch.setattr(contrast, "STEPS", 5)
    monkeypatch.setattr("halflabel.methods.closed_form.cluster_evidence", lambda halves: 0.0)


@pytest.mark.usefixtures("undecided")
class TestInLift:
    def test_it_is_used_if_held_out_labels_are_likelier(self, tiny_encoder: str,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lift, "validate_contrast", lambda *args: HELPS)
        events: list[Event] = []
        clf, without = trained(tiny_encoder, report=events.append), trained(tiny_encoder, settings={"contrast": "off"})
        assert [event for event in events if isinstance(event, ContrastProgress)] == [
            ContrastProgress(step, 5) for step in range(1, 6)]
        assert lift.CONTRAST in clf.notices_ and lift.CONTRAST not in without.notices_
        assert isinstance(clf.model_, TrainedModel) and clf.model_.facts["start"]["contrast"]
        assert clf.model_.facts["outlook"]["expected"]["value"] == 0.75  # of encoders that saw a part of the labels
        assert not np.allclose(clf.predict_proba(TEST), without.predict_proba(TEST))

    def test_a_run_in_which_it_does_not_help_is_the_run_without_it(self, tiny_encoder: str,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lift, "validate_contrast", lambda *args: HELPS._replace(evidence=-8.1))
        clf, without = trained(tiny_encoder), trained(tiny_encoder, settings={"contrast": "off"})
        assert np.array_equal(clf.predict_proba(TEST), without.predict_proba(TEST))
        assert clf.notices_ == without.notices_ and clf.model_.facts["start"]["contrast"] is False

    @pytest.mark.parametrize("names_fit", [True, False])
    def test_class_names_are_weighed_against_it_and_not_used_with_it(self, tiny_encoder: str, names_fit: bool,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
        clusters: list[Any] = []

        def remember(*args: Any) -> HeldOutContrast:
            clusters.append(args[-1])
            return HELPS

        monkeypatch.setattr(lift, "validate_contrast", remember)
        monkeypatch.setattr("halflabel.methods.closed_form.names_fit_labels", lambda *args: names_fit)
        clf = trained(tiny_encoder, names="labels")
        assert lift.CONTRAST in clf.notices_ and clf.model_.facts["start"]["uses_names"] is False
        assert (clusters[0] is not gaussian_em and clusters[0].keywords["names"].shape[0] == 3) is names_fit

    @pytest.mark.parametrize(("evidence", "used"), [(4.9, False), (5.1, True)])
    def test_certain_clusters_need_evidence_for_it(self, tiny_encoder: str, evidence: float, used: bool,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("halflabel.methods.closed_form.cluster_evidence", lambda halves: 9.0)
        monkeypatch.setattr("halflabel.methods.closed_form.find_unknown_classes", lambda *args: None)
        monkeypatch.setattr(lift, "validate_contrast", lambda *args: HELPS._replace(evidence=evidence))
        assert trained(tiny_encoder).model_.facts["start"]["contrast"] is used

    @pytest.mark.parametrize("changes", [{"minutes": 4.9}, {"settings": {"wrong_labels": "drop"}},
                                         {"settings": {"contrast": "off"}}])
    def test_it_is_not_tried(self, tiny_encoder: str, changes: dict[str, Any],
                             monkeypatch: pytest.MonkeyPatch) -> None:
        tried: list[object] = []
        monkeypatch.setattr(lift, "validate_contrast", lambda *args: tried.append(args))
        trained(tiny_encoder, **changes)
        assert not tried

    def test_it_is_not_tried_if_the_pool_has_unknown_classes(self, tiny_encoder: str,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
        tried, fit = list[object](), lift.fit_closed_form
        monkeypatch.setattr(lift, "fit_closed_form", lambda *args, **rest: fit(*args, **rest)._replace(unknown=0.3))
        monkeypatch.setattr(lift, "validate_contrast", lambda *args: tried.append(args))
        assert any("without labels" in notice for notice in trained(tiny_encoder).notices_) and not tried

    def test_a_stopped_run_resumes_to_the_same_weights(self, tiny_encoder: str, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lift, "validate_contrast", lambda *args: HELPS)
        whole = trained(tiny_encoder, tmp_path / "whole")
        with pytest.raises(Interrupted):
            trained(tiny_encoder, tmp_path / "stopped", report=stops_at_step_4)
        resumed = trained(tiny_encoder, tmp_path / "stopped", resume=True)
        assert np.array_equal(whole.predict_proba(TEST), resumed.predict_proba(TEST))
        assert lift.CONTRAST in resumed.notices_


def test_the_best_temperature_makes_labels_likeliest_within_a_prior() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4000, 3))
    y = np.array([rng.choice(3, p=p) for p in softmax(2.0 * logits)])
    power, found = at_best_temperature(logits, y)
    assert power == pytest.approx(2.0, rel=0.1)
    assert found > at_best_temperature(logits, np.roll(y, 1))[1]
    certain, _ = at_best_temperature(np.eye(3), np.arange(3))  # labels alone would make it infinite
    assert 1.0 < certain < 5.0


def test_the_pool_is_labelled_on_the_new_vectors_at_the_held_out_confidence() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 40)
    x = unit(np.eye(3)[y] + 0.4 * rng.normal(size=(120, 3)))
    few = np.concatenate([np.flatnonzero(y == k)[:8] for k in range(3)])
    words = sparse.csr_matrix((len(few) + len(x), 0))
    fitted = fit_tuned(x[few], y[few], x, words, 3, HELPS, seed=0)
    assert fitted.soft.shape == (120, 3) and fitted.held_out == HELPS.correct and not fitted.trust
    assert float(fitted.soft.max(axis=1).mean()) == pytest.approx(HELPS.confidence, abs=0.02)
    logistic = logistic_regression(x[few], y[few], x, 3)
    right = [float((p.argmax(axis=1) == y).mean()) for p in (fitted.soft, logistic.logits(x))]
    assert right[0] > right[1] > 0.8  # neighbours correct some
