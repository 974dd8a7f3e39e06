"""The default method leaves out a pool that nothing speaks for, says so, and then ends where labels alone do."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.methods.lift import UNHEARD

TEXTS, TOPICS = tiny_texts(6)
POOL, _ = tiny_texts(30, seed=1)
TEST, _ = tiny_texts(10, seed=2)
MEANINGLESS = ["even" if sum(map(ord, text)) % 2 else "odd" for text in TEXTS]


def fitted(encoder: str, plan: str, labels: list[str], pool: list[str]) -> TextClassifier:
    settings = {"epochs": 2, "epoch_steps": 6} if plan == "laptop" else {}
    return TextClassifier("lift", encoder, plan, settings=settings, minutes=60).fit(TEXTS, labels, unlabelled=pool)


@pytest.mark.parametrize("plan", ["frozen", "laptop"])
def test_labels_that_are_not_in_the_pool_decide_alone(tiny_encoder: str, plan: str,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.methods.closed_form.words_help", lambda *of: False)
    both, alone = (fitted(tiny_encoder, plan, MEANINGLESS, pool) for pool in (POOL, []))
    assert both.notices_ == [UNHEARD[False]] and not alone.notices_
    assert np.array_equal(both.predict(TEST), alone.predict(TEST))
    assert np.allclose(both.predict_proba(TEST), alone.predict_proba(TEST), atol=0.02)  # folds are drawn anew


def test_words_may_be_heard_where_groups_are_not(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.methods.closed_form.words_help", lambda *of: True)
    clf = fitted(tiny_encoder, "laptop", MEANINGLESS, POOL)
    assert clf.notices_[0] == UNHEARD[True] and (clf.labeled_iter_[len(TEXTS) :] >= 0).any()


def test_topics_that_are_in_the_pool_are_heard(tiny_encoder: str) -> None:
    assert not set(fitted(tiny_encoder, "frozen", TOPICS, POOL).notices_) & set(UNHEARD.values())
