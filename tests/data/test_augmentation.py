"""Word edits change uninformative words and keep what a text is about."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halflabel.data import augmentation
from halflabel.data.augmentation import WORD, WordEdits
from halflabel.errors import SettingError

COMMON = "the of and to in is it that for on with as this was at by".split()
RARE = "printer invoice router password salary keyboard holiday server monitor refund".split()


def sample(number: int, words: int = 20, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join([*rng.choice(COMMON, words - 1), rng.choice(RARE)]) + "." for _ in range(number)]


def test_the_same_seed_and_text_give_the_same_view() -> None:
    texts = sample(50)
    edits = WordEdits.fit(texts, seed=0)
    assert edits.views(texts, 7) == edits.views(texts[::-1], 7)[::-1]
    assert edits.views(texts, 7) != edits.views(texts, 8)


def test_the_informative_word_stays_and_common_words_change() -> None:
    texts = sample(200)
    views = WordEdits.fit(texts, seed=0).views(texts, 0)
    informative = [text.rstrip(".").split()[-1] for text in texts]
    assert all(word in view for word, view in zip(informative, views, strict=True))
    pairs = [(a.split(), b.split()) for a, b in zip(texts, views, strict=True)]
    changed = np.mean([x != y for a, b in pairs if len(a) == len(b) for x, y in zip(a, b, strict=True)])
    assert 0.1 < changed < 0.5


def test_negations_numbers_and_label_words_are_neither_edited_nor_inserted() -> None:
    texts = [f"it does not work and i don't know why 42 of the refund items {w} no" for w in RARE[:-1]] * 3
    edits = WordEdits.fit(texts, seed=0, keep=["Refund items"], p=1.0)
    for view in edits.views(texts, 1):
        words = view.split()
        assert [words.count(w) for w in ("not", "don't", "42", "refund", "items", "no")] == [1] * 6


def test_punctuation_and_capitals_stay() -> None:
    text = "The cat, the dog and (the) bird: all of the zoo!"
    edits = WordEdits.fit([text, *sample(30)], seed=0)
    for i in range(20):
        view = edits.view(text, np.random.default_rng(i))
        assert [mark for mark in view if mark in ",():!"] == list(",():!")
    assert any(
        view[:1].isupper() and view[:3] != "The"
        for view in edits.views([text + "!" * i for i in range(20)], 0)
    )


@pytest.mark.parametrize("text", ["", " ", "word", "...", "Hello!", "你好世界"])
def test_fewer_than_two_words_are_unchanged(text: str) -> None:
    assert WordEdits.fit(sample(10), seed=0, p=1.0).view(text, np.random.default_rng(0)) == text


def test_equally_informative_words_are_edited_evenly() -> None:
    edits = WordEdits.fit(["aa bb cc dd"], seed=0, p=0.5)
    assert edits._edit_probabilities(["aa", "bb", "cc", "dd"]).tolist() == [0.5] * 4
    assert len({edits.view("aa bb cc dd", np.random.default_rng(i)) for i in range(20)}) > 5


def test_edit_probabilities_follow_the_rule() -> None:
    edits = WordEdits({"a": 0.0, "b": 1.0, "c": 2.0}, 2.0, [], np.zeros(0), frozenset(), 0.3)
    assert edits._edit_probabilities(["a", "b", "c"]) == pytest.approx([0.3 * 3 * 2 / 3, 0.3 * 3 * 1 / 3, 0.0])


def test_p_zero_changes_nothing_and_p_beyond_one_is_refused() -> None:
    texts = sample(5)
    assert WordEdits.fit(texts, seed=0, p=0.0).views(texts, 0) == texts
    with pytest.raises(SettingError, match="p=2"):
        WordEdits.fit(texts, seed=0, p=2)


def test_a_text_is_never_deleted_entirely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmentation, "DELETED", 1.0)
    assert WordEdits.fit(["aa bb"], seed=0, p=1.0).view("aa bb", np.random.default_rng(0)) == "aa bb"


def test_fitting_on_no_texts_is_no_error() -> None:
    edits = WordEdits.fit([], seed=0, p=1.0)
    assert WORD.findall(edits.view("one word here", np.random.default_rng(0)))


def test_a_large_pool_is_sampled_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmentation, "MAX_FIT_TEXTS", 20)
    texts = [f"common word{chr(97 + i % 26)} number" for i in range(60)]
    first, again, other = (WordEdits.fit(texts, seed=seed).idf for seed in (0, 0, 1))
    assert first == again != other


@settings(max_examples=150, deadline=None, database=None)
@given(st.text(max_size=80), st.integers(0, 5))
def test_a_view_has_a_word_if_the_text_has_one(text: str, seed: int) -> None:
    view = WordEdits.fit(["a b c d", text, "b c a"], seed=0, p=1.0).views([text], seed)[0]
    assert bool(WORD.search(view)) == bool(WORD.search(text))


def test_a_thousand_texts_take_seconds() -> None:
    texts = sample(1000, words=40)
    start = time.process_time()
    views = WordEdits.fit(texts, seed=0).views(texts, 0)
    assert len(views) == 1000
    assert time.process_time() - start < 1.5
