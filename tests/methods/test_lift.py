"""The default method ignores a pool that does not help, reports it, and is then the same as without one."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.methods.lift import NO_CLUSTERS

TEXTS, TOPICS = tiny_texts(6)
POOL, _ = tiny_texts(30, seed=1)
TEST, _ = tiny_texts(10, seed=2)
MEANINGLESS = ["even" if sum(map(ord, text)) % 2 else "odd" for text in TEXTS]


def fitted(encoder: str, plan: str, labels: list[str], pool: list[str]) -> TextClassifier:
    settings = {"epochs": 2, "epoch_steps": 6} if plan == "laptop" else {}
    return TextClassifier("lift", encoder, plan, settings=settings, minutes=60).fit(TEXTS, labels, unlabelled=pool)


@pytest.mark.parametrize("plan", ["frozen", "laptop"])
def test_a_pool_that_does_not_help_is_ignored(tiny_encoder: str, plan: str,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.methods.closed_form.words_improve", lambda *args: False)
    both, alone = (fitted(tiny_encoder, plan, MEANINGLESS, pool) for pool in (POOL, []))
    assert both.notices_ == [NO_CLUSTERS[False]] and not alone.notices_
    assert np.array_equal(both.predict(TEST), alone.predict(TEST))
    assert np.allclose(both.predict_proba(TEST), alone.predict_proba(TEST), atol=0.02)  # their random folds differ


def test_words_may_help_where_clusters_do_not(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.methods.closed_form.words_improve", lambda *args: True)
    clf = fitted(tiny_encoder, "laptop", MEANINGLESS, POOL)
    assert clf.notices_[0] == NO_CLUSTERS[True] and (clf.labeled_iter_[len(TEXTS) :] >= 0).any()


def test_a_pool_that_clusters_by_label_is_used(tiny_encoder: str) -> None:
    assert not set(fitted(tiny_encoder, "frozen", TOPICS, POOL).notices_) & set(NO_CLUSTERS.values())
