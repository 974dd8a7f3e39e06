"""N-grams by numpy are those of scikit-learn."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.sparse import hstack
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from conftest import tiny_texts
from halflabel.encoders.ngrams import (
    KINDS,
    PART_LENGTHS,
    Kind,
    distinct_words,
    most_frequent,
    occurrences,
    tf_idf_matrix,
)

TEXTS = [*tiny_texts(4)[0], "", "a", "Don't stop: 3.5 % -- or else!", "two\nlines\t and\u00a0 more", "Ärger über Öl",
         "ein ein ein"]
WORDS = {"ngram_range": (1, 2), "token_pattern": r"\w+"}
within_words = CountVectorizer(analyzer="char_wb", ngram_range=(4, 4)).build_analyzer()  # shorter words as a whole
FOUR = {"analyzer": lambda text: [ngram for ngram in within_words(text) if len(ngram) == 4]}
words_of = CountVectorizer(token_pattern=r"\w+").build_analyzer()


def phrases(text: str) -> list[tuple[str, ...]]:
    """Triples of words, the same with a gap, and the first and last one and two words."""
    words = words_of(text)
    triples = list(zip(words, words[1:], words[2:], strict=False))
    edges = [("first", *words[:1]), ("last", *words[-1:])] if words else []
    edges += [("first", *words[:2]), ("last", *words[-2:])] if len(words) > 1 else []
    return [*triples, *((left, "", right) for left, _, right in triples), *edges]


PHRASES = {"analyzer": phrases}
REFERENCES = {"static": [WORDS, FOUR, PHRASES], "words": [WORDS],
              "characters": [{"analyzer": "char_wb", "ngram_range": (3, 5)}]}


def counts(texts: list[str], kind: Kind) -> list[list[int]]:
    """For each text, how often each of its n-grams occurs in it, in rising order."""
    rows, buckets = occurrences(texts, kind)
    return [sorted(Counter(buckets[rows == i].tolist()).values()) for i in range(len(texts))]


@pytest.mark.parametrize("kind", KINDS)
def test_each_text_has_the_ngrams_of_scikit_learn(kind: Kind) -> None:
    expected = hstack([CountVectorizer(**options).fit_transform(TEXTS) for options in REFERENCES[kind]], format="csr")
    assert counts(TEXTS, kind) == [sorted(expected[i].data.tolist()) for i in range(len(TEXTS))]


@pytest.mark.parametrize("kind", KINDS)
def test_ngrams_do_not_depend_on_other_texts(kind: Kind) -> None:
    rows, buckets = occurrences(TEXTS, kind)
    for i, text in enumerate(TEXTS):
        assert sorted(occurrences([text], kind).buckets) == sorted(buckets[rows == i])


@pytest.mark.parametrize("kind", KINDS)
def test_equal_ngrams_have_equal_buckets_whatever_their_case(kind: Kind) -> None:
    assert occurrences(["Late GOAL"], kind).buckets.tolist() == occurrences(["late goal"], kind).buckets.tolist()
    assert occurrences(["goal late"], kind).buckets.tolist() != occurrences(["late goal"], kind).buckets.tolist()


def test_ideographs_and_emoji_are_words_by_themselves() -> None:
    assert len(occurrences(["東京都"], "words").rows) == 5  # three words and two pairs
    assert len(occurrences(["fun🦔🦔"], "words").rows) == 5
    assert len(occurrences(["हिन्दी"], "words").rows) == 1  # vowel signs are parts of a word


def test_distinct_words_are_those_of_the_ngrams() -> None:
    words = distinct_words(["Late goal, late!", "", "東京 fun🦔"])
    assert words == ["fun", "goal", "late", "京", "東", "🦔"]
    assert occurrences(words, "words").rows.tolist() == list(range(6))


@pytest.mark.parametrize("kind", KINDS)
def test_tf_idf_has_the_values_of_scikit_learn(kind: Kind) -> None:
    expected = hstack([TfidfVectorizer(**options, min_df=2, sublinear_tf=True, dtype=np.float32).fit_transform(TEXTS)
                       * length for options, length in zip(REFERENCES[kind], PART_LENGTHS, strict=False)])
    features = most_frequent(kind, TEXTS, number=10_000)
    assert features is not None
    x = tf_idf_matrix(features, TEXTS)
    assert x.shape == expected.shape
    assert np.allclose((x @ x.T).toarray(), (expected @ expected.T).toarray(), atol=1e-5)
