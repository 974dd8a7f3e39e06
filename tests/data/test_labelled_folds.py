"""Folds hold out only labelled rows; with several labels, each fold has its share of each label."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import tiny_texts
from halflabel import LabelledFolds, TextClassifier
from halflabel.data.corpus import Corpus, sample
from halflabel.data.splitting import iterative_stratification, split_corpus
from halflabel.errors import DataError, SettingError


def test_unlabelled_rows_are_always_in_train() -> None:
    labels = ["a", "b", None, float("nan"), "a", "b", -1, "a", "b", ""]
    bare, held = {2, 3, 6, 9}, []
    for train, test in LabelledFolds(3).split([""] * 10, labels):
        assert bare <= set(train.tolist()) and not set(train) & set(test)
        assert Counter(labels[i] for i in test) == {"a": 1, "b": 1}
        held += test.tolist()
    assert sorted(held) == sorted(set(range(10)) - bare)


def test_the_seed_decides() -> None:
    labels = ["a", "b"] * 20
    first, again, other = ([test.tolist() for _, test in LabelledFolds(4, random_state=seed).split(labels, labels)]
                           for seed in (1, 1, 2))
    assert first == again != other


def test_impossible_folds_are_refused() -> None:
    with pytest.raises(SettingError, match="n_splits=1"):
        LabelledFolds(1)
    with pytest.raises(DataError, match="2 labelled texts cannot be held out in 5 folds"):
        list(LabelledFolds(5).split(["x"] * 4, ["a", "b", None, None]))


def test_cross_validation_and_grid_search(tiny_encoder: str) -> None:
    from sklearn.model_selection import GridSearchCV, cross_val_score

    texts, labels = tiny_texts(6)
    pool = tiny_texts(6, seed=1)[0]
    X, y = [*texts, *pool], [*labels, *([None] * len(pool))]
    settings = {"epochs": 1, "epoch_steps": 5, "warmup": 60}
    clf = TextClassifier("bdd-s", tiny_encoder, "frozen", settings=settings)
    folds = LabelledFolds(3)
    scores = cross_val_score(clf, X, y, cv=folds, error_score="raise")
    assert scores.shape == (3,) and ((scores >= 0) & (scores <= 1)).all()
    search = GridSearchCV(clf, {"method": ["ce", "bdd-s"]}, cv=folds, error_score="raise").fit(X, y)
    assert search.best_params_["method"] in ("ce", "bdd-s") and len(search.predict(texts)) == len(texts)


def test_each_part_has_its_share_of_each_label() -> None:
    corpus = sample("train", "tags")
    split = split_corpus(corpus, per_class=None, labelled=100, unlabelled=None, dev=0.1, test=0.2, seed=0)
    sizes = [len(part) for part in (split.labelled, split.dev, split.test)]
    assert sizes == [100, round(0.1 * len(corpus)), round(0.2 * len(corpus))]

    def counts(part: Corpus) -> Counter[str]:
        return Counter(name for label in part.labels for name in label)

    whole = counts(corpus)
    for part in (split.labelled, split.dev, split.test):
        share = len(part) / len(corpus)
        worst = max(abs(counts(part)[name] - share * number) for name, number in whole.items())
        drawn = np.random.default_rng(0).permutation(len(corpus))[: len(part)].tolist()
        random = max(abs(counts(corpus.take(drawn))[name] - share * number) for name, number in whole.items())
        assert worst < 4.0 and worst < random


@settings(max_examples=60, deadline=None, database=None)
@given(st.lists(st.lists(st.sampled_from("abcd"), unique=True).map(tuple), max_size=40), st.data())
def test_parts_are_exact_and_contain_every_row_once(labels: list[tuple[str, ...]], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(labels)), min_size=2, max_size=2)))
    sizes = [cuts[0], cuts[1] - cuts[0], len(labels) - cuts[1]]
    parts = iterative_stratification(labels, sizes, range(len(labels)))
    assert [len(part) for part in parts] == sizes
    assert sorted(row for part in parts for row in part) == list(range(len(labels)))
