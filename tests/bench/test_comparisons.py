"""Ranks and paired tests against values by hand and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from halflabel.bench.comparisons import (
    PairedTest,
    average_ranks,
    hierarchical_interval,
    holm,
    paired_test,
    sign_flip_p,
)

SCORES = {"a": {"x": 0.9, "y": 0.5}, "b": {"x": 0.8, "y": 0.5}, "c": {"x": 0.8, "y": 0.7}, "d": {"x": 0.1, "y": 0.1}}


def test_equal_scores_share_the_better_rank() -> None:
    assert average_ranks(SCORES) == {"a": 1.5, "b": 2.0, "c": 1.5, "d": 4.0}


def test_lower_scores_win_where_lower_is_better() -> None:
    assert average_ranks(SCORES, True) == {"a": 3.0, "b": 2.0, "c": 3.0, "d": 1.0}
    assert average_ranks(SCORES, {"y"}) == {"a": 1.5, "b": 2.0, "c": 3.0, "d": 2.5}


def test_a_missing_score_is_last_or_left_out() -> None:
    scores = {"a": {"x": 1.0, "y": 1.0}, "b": {"x": 2.0}, "c": {"x": 0.0, "y": 2.0}, "d": {}}
    assert average_ranks(scores) == {"a": 2.0, "b": 2.0, "c": 2.0, "d": 3.5}
    left = average_ranks(scores, missing="left out")
    assert (left["a"], left["b"], left["c"]) == (2.0, 1.0, 2.0) and math.isnan(left["d"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 4), min_size=4, max_size=4), min_size=1, max_size=6), st.booleans())
def test_ranks_agree_with_scipy(columns: list[list[int]], low: bool) -> None:
    scores = {f"m{i}": {str(j): float(column[i]) for j, column in enumerate(columns)} for i in range(4)}
    wanted = np.mean([stats.rankdata(np.array(c) * (1 if low else -1), "min") for c in columns], axis=0)
    assert list(average_ranks(scores, low).values()) == pytest.approx(wanted.tolist())


def test_five_seeds_by_hand() -> None:
    found = paired_test([0.9, 0.8, 0.7, 0.95, 0.6], [0.8, 0.75, 0.72, 0.9, 0.5])
    # differences 0.10 0.05 -0.02 0.05 0.10, sum 0.28: as far or farther are no flip and -0.02 flipped, both with their
    # mirrors: 4 of 32
    assert found.n == 5 and found.difference == pytest.approx(0.056) and found.p == pytest.approx(4 / 32)
    assert found.deviation == pytest.approx(np.std([0.10, 0.05, -0.02, 0.05, 0.10], ddof=1))
    interval = stats.ttest_rel([0.9, 0.8, 0.7, 0.95, 0.6], [0.8, 0.75, 0.72, 0.9, 0.5]).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_few_seeds_bound_p_from_below() -> None:
    assert paired_test([2.0] * 5, [1.0] * 5).p == 2 / 32 and paired_test([2.0] * 3, [1.0] * 3).p == 2 / 8
    one = paired_test([2.0], [1.5])
    assert (one.difference, one.n, one.p, one.low, one.high) == (0.5, 1, 1.0, -math.inf, math.inf)
    assert math.isnan(one.deviation)


def test_equal_scores_are_no_difference() -> None:
    same = paired_test([0.3, 0.4, 0.5], [0.3, 0.4, 0.5])
    assert (same.difference, same.deviation, same.p, same.low, same.high) == (0.0, 0.0, 1.0, 0.0, 0.0)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=8))
def test_all_sign_flips_are_enumerated(d: list[int]) -> None:
    flips = np.array(np.meshgrid(*[[-1, 1]] * len(d))).reshape(len(d), -1)
    means = np.abs(np.array(d) @ flips)
    assert sign_flip_p(np.array(d, dtype=float)) == pytest.approx(np.mean(means >= abs(sum(d)) - 1e-9))


def test_the_order_of_the_methods_changes_the_sign_alone() -> None:
    a, b = [0.5, 0.7, 0.6, 0.8], [0.4, 0.65, 0.66, 0.7]
    there, back = paired_test(a, b), paired_test(b, a)
    assert there.p == back.p and there.difference == -back.difference and there.low == pytest.approx(-back.high)


def test_many_differences_are_tested_by_a_sample_of_signs() -> None:
    d = np.random.default_rng(1).normal(0.2, 1.0, 40)
    assert sign_flip_p(d) == sign_flip_p(d) == pytest.approx(stats.ttest_1samp(d, 0.0).pvalue, abs=0.02)


def test_scores_without_a_partner_are_a_mistake() -> None:
    with pytest.raises(AssertionError, match="for each seed"):
        paired_test([1.0], [])


def test_holm_corrects_for_the_number_of_tests() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([0.02]) == [0.02] and holm([]) == []


def test_many_seeds_on_two_sets_that_disagree_show_nothing() -> None:
    rng = np.random.default_rng(0)
    agree = {name: 0.02 + 0.005 * rng.standard_normal(50) for name in "abcd"}
    disagree = {"a": 0.05 + 0.005 * rng.standard_normal(50), "b": -0.01 + 0.005 * rng.standard_normal(50)}
    low, high = hierarchical_interval(agree)
    assert 0.015 < low < high < 0.025
    low, high = hierarchical_interval(disagree)
    assert low < 0 < high and sign_flip_p(np.concatenate(list(disagree.values()))) < 0.001


def test_what_is_detectable_is_found_four_times_in_five() -> None:
    rng = np.random.default_rng(2)
    noise = rng.standard_normal((2000, 15))
    effects = [PairedTest(0.0, row.std(ddof=1), 15, 1.0, 0.0, 0.0).detectable for row in noise[:50]]
    found = stats.ttest_1samp(noise + np.mean(effects), 0.0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.05)
