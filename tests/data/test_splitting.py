"""Splits are exact, stratified, disjoint and reproducible."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halflabel.data.corpus import Corpus
from halflabel.data.splitting import split_corpus
from halflabel.errors import SettingError


def corpus(sizes: dict, bare: int = 0) -> Corpus:
    labels = [name for name, size in sizes.items() for _ in range(size)] + [None] * bare
    return Corpus([f"text {i}" for i in range(len(labels))], labels, source="t.csv")


def test_parts_are_exact_and_do_not_overlap() -> None:
    whole = corpus({"a": 60, "b": 30, "c": 10}, bare=5)
    split = split_corpus(whole, per_class=3, unlabelled=None, dev=10, test=0.2, seed=1)
    assert Counter(split.labelled.labels) == {"a": 3, "b": 3, "c": 3}
    assert Counter(split.test.labels) == {"a": 12, "b": 6, "c": 2}
    assert Counter(split.dev.labels) == {"a": 6, "b": 3, "c": 1}
    texts = split.labelled.texts + split.unlabelled.texts + split.dev.texts + split.test.texts
    assert sorted(texts) == sorted(whole.texts)


def test_removed_labels_are_only_in_truth() -> None:
    whole = corpus({0: 20, 1: 20}, bare=2)
    split = split_corpus(whole, per_class=2, unlabelled=30, seed=0)
    known = dict(zip(whole.texts, whole.labels, strict=True))
    assert split.unlabelled.labels == [None] * 30
    assert split.truth == [known[text] for text in split.unlabelled.texts]
    assert (len(split.dev), len(split.test)) == (0, 0)


def test_the_seed_decides() -> None:
    whole = corpus({"a": 50, "b": 50})
    first, again, other = (
        split_corpus(whole, per_class=5, unlabelled=20, dev=4, test=6, seed=seed) for seed in (3, 3, 4)
    )
    assert first == again
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert len(first.fingerprint) == 32


def test_more_labels_contain_the_fewer_and_the_test_set_stays() -> None:
    whole = corpus({"a": 50, "b": 50})
    few, many = (split_corpus(whole, per_class=n, unlabelled=10, test=20, seed=0) for n in (2, 7))
    assert set(few.labelled.texts) < set(many.labelled.texts)
    assert few.test == many.test
    assert few.fingerprint != many.fingerprint


def test_labelled_in_total_has_at_least_one_of_each_class() -> None:
    split = split_corpus(corpus({"a": 97, "b": 2, "c": 1}), per_class=None, labelled=10, unlabelled=None, seed=0)
    assert Counter(split.labelled.labels) == {"a": 8, "b": 1, "c": 1}


def test_multi_label_splits_are_random() -> None:
    whole = Corpus([str(i) for i in range(40)], [("a", "b") if i % 2 else ("a",) for i in range(40)])
    split = split_corpus(whole, per_class=None, labelled=10, unlabelled=20, dev=5, test=5, seed=0)
    assert [len(part) for part in (split.labelled, split.unlabelled, split.dev, split.test)] == [10, 20, 5, 5]


@settings(max_examples=100, deadline=None, database=None)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=6), st.data())
def test_any_sizes_add_up(sizes: list[int], data: st.DataObject) -> None:
    whole = corpus(dict(enumerate(sizes)))
    number = data.draw(st.integers(0, sum(sizes)))
    split = split_corpus(whole, per_class=None, labelled=len(sizes), unlabelled=None, test=0, seed=0)
    assert set(split.labelled.labels) == set(range(len(sizes)))
    if number + len(sizes) <= min(sizes):
        assert len(split_corpus(whole, per_class=1, unlabelled=0, test=number, seed=0).test) == number


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"per_class": 6}, "t.csv has 5 texts of 'b' left for labelled, not 6"),
        ({"per_class": 0}, "per_class=0"),
        ({"per_class": None}, "give either per_class .* or labelled"),
        ({"per_class": 1, "labelled": 3}, "give either per_class .* or labelled"),
        ({"per_class": None, "labelled": 1}, "fewer than one for each of 2 classes"),
        ({"per_class": None, "labelled": 16}, "t.csv has 15 labelled texts left for labelled=16"),
        ({"per_class": 1, "unlabelled": 14}, "t.csv has 13 texts left for unlabelled=14"),
        ({"per_class": 1, "dev": 16}, "dev=16"),
        ({"per_class": 1, "dev": -1}, "dev=-1"),
        ({"per_class": 1, "test": 1.5}, "test=1.5 is not a fraction"),
        ({"per_class": 1, "test": 15}, "t.csv has 0 texts of 'a' left"),
    ],
)
def test_impossible_splits_are_refused(options: dict, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        split_corpus(corpus({"a": 10, "b": 5}), **{"unlabelled": None, "seed": 0, **options})


def test_per_class_is_refused_for_multi_label() -> None:
    with pytest.raises(SettingError, match="several labels"):
        split_corpus(Corpus(["a"], [("x", "y")]), per_class=1, unlabelled=None, seed=0)
