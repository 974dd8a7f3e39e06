"""Naive Bayes with EM: equal to scikit-learn's without a pool, and EM never lowers its objective."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.naive_bayes import MultinomialNB

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.encoders.text_encoder import BagOfWords, words_of
from halflabel.methods.baselines import fit_em, log_posterior, m_step

SETTINGS = {"smooth": 0.5, "lambda1": 1.0, "rounds": 30, "tolerance": 0.0}


def bags(per_class: int, seed: int) -> tuple[sparse.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(3), per_class)
    topics = np.random.default_rng(0).dirichlet(np.full(40, 0.2), size=3)
    return sparse.csr_matrix(np.stack([rng.multinomial(12, topics[k]) for k in y]).astype(float)), np.eye(3)[y]


def test_without_a_pool_it_is_scikit_learns_naive_bayes() -> None:
    x, y = bags(6, 1)
    other, _ = bags(20, 2)
    ours = fit_em(x, y, other[:0], **SETTINGS)[0]
    reference = MultinomialNB(alpha=0.5).fit(x, y.argmax(axis=1))
    assert np.allclose(ours.words.T, reference.feature_log_prob_)
    assert np.allclose(ours.posterior(other), reference.predict_proba(other))


@pytest.mark.parametrize("lambda1", [1.0, 0.1])
def test_em_never_lowers_its_objective(lambda1: float) -> None:
    x, y = bags(2, 1)
    pool, _ = bags(40, 2)
    trace = fit_em(x, y, pool, **SETTINGS | {"lambda1": lambda1})[1]
    assert len(trace) > 3 and (np.diff(trace) > -1e-8 * np.abs(trace[:-1])).all() and trace[-1] > trace[0]


def test_the_m_step_maximises() -> None:
    x, y = bags(5, 1)
    best = m_step(x, y, 0.5)
    value = log_posterior(best, x, y, x[:0], 1.0, 0.5)
    rng = np.random.default_rng(3)
    for _ in range(20):
        words = best.words + 0.1 * rng.normal(size=best.words.shape)
        other = best._replace(words=words - np.log(np.exp(words).sum(axis=0)))
        assert log_posterior(other, x, y, x[:0], 1.0, 0.5) < value


def test_the_pool_helps_and_lambda_zero_leaves_it_out() -> None:
    x, y = bags(1, 1)
    pool, _ = bags(80, 2)
    test, wanted = bags(50, 3)
    right = {weight: (fit_em(x, y, pool, **SETTINGS | {"lambda1": weight})[0].posterior(test).argmax(axis=1)
                      == wanted.argmax(axis=1)).mean() for weight in (0.0, 1.0)}
    assert right[1.0] > right[0.0] + 0.02
    assert np.allclose(fit_em(x, y, pool, **SETTINGS | {"lambda1": 0.0})[0].words, m_step(x, y, 0.5).words)


def test_bags_are_scikit_learns_counts_and_tf_idf() -> None:
    texts, _ = tiny_texts(8)
    vectorizer = CountVectorizer(token_pattern=r"\b[^\W\d_]{3,30}\b", stop_words="english").fit(texts)
    counts = vectorizer.transform(texts)
    order = [vectorizer.vocabulary_[word] for word in BagOfWords.fit(texts, 10_000, tf_idf=False).words]
    assert np.allclose(BagOfWords.fit(texts, 10_000, tf_idf=False).matrix(texts).todense(), counts.todense()[:, order])
    weighted = TfidfTransformer(norm=None).fit_transform(counts).todense()[:, order]
    assert np.allclose(BagOfWords.fit(texts, 10_000, tf_idf=True).matrix(texts).todense(), weighted)


def test_a_bag_keeps_the_most_frequent_words_and_skips_the_others() -> None:
    bag = BagOfWords.fit(["bread bread soup", "bread soup 7up", "the oven"], 2, tf_idf=False)
    assert bag.words == ["bread", "soup"] and words_of("The 7up, bread2go!") == []
    assert bag.matrix(["oven", "soup soup"]).todense().tolist() == [[0, 0], [0, 2]]
    assert BagOfWords.fit(["12 34"], 5, tf_idf=True).width == 1


def test_the_run_reports_its_likelihood_and_labels_the_pool(tmp_path: Path) -> None:
    texts, labels = tiny_texts(3)
    pool, truth = tiny_texts(12, seed=1)
    clf = TextClassifier("nb-em", settings={"smooth": 0.1})
    clf.fit(texts, labels, unlabelled=pool, truth=truth, folder=tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    trace = [line["objective"] for line in lines if "round" in line]
    assert len(trace) >= 2 and trace == sorted(trace)
    assert lines[-1]["pseudo_accuracy"] == np.mean(clf.transduction_[len(texts):] == np.array(truth)) > 0.9
    assert (clf.labeled_iter_[len(texts):] == 1).all()
    assert json.loads((tmp_path / "run" / "encoder" / "vocabulary.json").read_text())[:1]
    assert clf.predict(["1 2 3"]).shape == (1,)


def test_an_unused_encoder_is_reported(tiny_encoder: str) -> None:
    texts, labels = tiny_texts(3)
    clf = TextClassifier("nb-em", tiny_encoder).fit(texts, labels)
    assert any("is not used" in notice for notice in clf.notices_)
