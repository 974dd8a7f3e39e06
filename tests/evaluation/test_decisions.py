"""Decisions: what each rule is fitted on, and that it survives a round trip through JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import f1_score

from halflabel.errors import SettingError
from halflabel.evaluation import decisions
from halflabel.evaluation.decisions import RULES, Calibration, Decision, DecisionRule, best_threshold, cut, evidence

RNG = np.random.default_rng(0)
PRIOR = np.array([0.5, 0.1, 0.02, 0.0])
COSINES = RNG.uniform(-1, 1, (500, 4)).astype(np.float32)


def angular(scores: np.ndarray = COSINES) -> Decision:
    return Decision.fit(scores, PRIOR, source="500 unlabelled texts", logits=False, slope=20.0, chosen="prior-quantile")


def test_calibrated_probabilities_have_the_labelled_frequencies_as_means() -> None:
    p = angular().probabilities(COSINES)
    assert p.mean(axis=0) == pytest.approx(PRIOR, abs=1e-6) and (p[:, 3] == 0).all()
    assert (np.argsort(p[:, 0]) == np.argsort(evidence(COSINES, logits=False)[:, 0])).all()


def test_log_odds_are_their_sigmoid() -> None:
    calibration = Calibration.fit(COSINES, PRIOR, logits=True, slope=1.0)
    assert calibration(COSINES) == pytest.approx(1 / (1 + np.exp(-COSINES.astype(np.float64))))


def test_the_mean_of_log_odds_gets_labels_as_often_as_labelled_texts() -> None:
    calibration = Calibration.fit(COSINES, PRIOR, logits=True, slope=0.5)
    assert calibration(COSINES).mean(axis=0) == pytest.approx(PRIOR, abs=1e-6)
    assert calibration.log_odds(COSINES)[:, 0] == pytest.approx(0.5 * (COSINES[:, 0] - calibration.offset[0]), abs=1e-6)


def test_prior_quantile_gives_each_label_its_share_of_the_pool() -> None:
    decision = angular()
    assert decision(COSINES).sum(axis=0).tolist() == [250, 50, 10, 0]
    assert decision(COSINES[:50]).sum() < decision(COSINES).sum()


def test_a_small_pool_does_not_exclude_a_rare_label() -> None:
    small = COSINES[:10]
    decision = Decision.fit(small, PRIOR, source="", logits=False, slope=20.0, chosen="prior-quantile")
    assert not decision(small)[:, 2].any()
    sure = small[:1].copy()
    sure[0] = [-1.0, -1.0, 1.0, 1.0]
    assert decision(sure).tolist() == [[False, False, True, False]]


def test_fixed_is_one_half_and_top_k_the_average_number_of_labels() -> None:
    decision = angular()
    assert (decision(COSINES, "fixed") == (decision.probabilities(COSINES) >= 0.5)).all()
    assert decision.rule("top-k").k == 1 and (decision(COSINES, "top-k").sum(axis=1) == 1).all()
    often = np.array([0.9, 0.8, 0.5, 0.0])
    assert Decision.fit(COSINES, often, source="", logits=True, slope=1.0, chosen="fixed").rule("top-k").k == 2


def test_thresholds_lie_between_values_also_for_ties() -> None:
    p = np.array([0.8, 0.2, 0.6, 0.6, 0.4])
    assert [cut(p, count) for count in range(6)] == pytest.approx([0.9, 0.7, 0.5, 0.5, 0.3, 0.1])
    assert cut(np.full(3, 0.4), 2) == pytest.approx(0.2) and cut(np.full(3, 0.4), 0) == pytest.approx(0.6)
    decision, p = angular(), angular().probabilities(COSINES)
    for name in ("dev-global", "dev-per-label"):
        decision = decision.tuned(name, COSINES, COSINES > 0.3, "")
    for name in ("prior-quantile", "dev-global", "dev-per-label"):
        nearest = np.abs(p - decision.rule(name).thresholds)[:, :3].min(axis=0)
        assert (nearest > 1e-9).all(), name


def test_best_threshold_has_the_best_f1() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        p, truth = rng.integers(0, 8, 40) / 8, rng.random(40) < 0.3
        truth[0] = True
        found = f1_score(truth, p >= best_threshold(p, truth))
        assert found == pytest.approx(max(f1_score(truth, p >= cut) for cut in np.unique(p)))
    assert best_threshold(np.ones(3), np.zeros(3, dtype=bool)) == np.inf


@pytest.mark.parametrize("name", RULES)
def test_every_rule_can_be_tuned_and_saved(name: str) -> None:
    truth = COSINES > 0.3
    tuned = angular().tuned(name, COSINES, truth, "dev.csv")
    again = Decision.from_json(json.loads(json.dumps(tuned.to_json(), allow_nan=False)), len(tuned.prior))
    assert again.chosen == name and (again(COSINES) == tuned(COSINES)).all()
    assert again.rule().fitted_on == tuned.rule().fitted_on != ""
    if name.startswith("dev"):
        before = angular()(COSINES, "fixed")
        assert f1_score(truth, tuned(COSINES), average="micro") >= f1_score(truth, before, average="micro")


def test_dev_per_label_is_at_least_as_good_for_each_label_as_dev_global() -> None:
    truth = COSINES + RNG.normal(0, 0.3, COSINES.shape) > [0.0, 0.3, 0.6, 2.0]
    one, each = (angular().tuned(name, COSINES, truth, "")(COSINES) for name in ("dev-global", "dev-per-label"))
    scores = [f1_score(truth, found, average=None, zero_division=0) for found in (one, each)]
    assert (scores[1] >= scores[0] - 1e-12).all() and scores[1].sum() > scores[0].sum()


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(SettingError, match="halflabel tune"):
        angular()(COSINES, "dev-global")
    with pytest.raises(SettingError, match="no decision 'magic', only prior-quantile, fixed, top-k; choose"):
        angular()(COSINES, "magic")
    with pytest.raises(SettingError, match="choose one of prior-quantile"):
        angular().tuned("magic", COSINES, COSINES > 0, "")


def test_a_rule_is_added_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(decisions.POOL_RULES, "mean", lambda data: DecisionRule(
        "mean", data.p.mean(axis=0), fitted_on=data.source))
    decision = angular()
    assert (decision(COSINES, "mean") == (decision.probabilities(COSINES) >= decision.rule("mean").thresholds)).all()
    assert decision.rule("mean").fitted_on == "500 unlabelled texts"
