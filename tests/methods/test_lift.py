"""The default methods: how far `lift` trusts the pool and what it reports; the closed form of `lift-ml`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.special import softmax

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.encoders.inference import encode
from halflabel.encoders.ngrams import fit_ngram_model
from halflabel.methods.closed_form_several import (
    SeveralLabels,
    fit_several_labels,
    label_means,
    logistic,
    refit_gaussians,
)
from halflabel.methods.lift import NO_CLUSTERS
from halflabel.methods.linear_models import LinearModel
from halflabel.nn.network import NormalizedLinear
from halflabel.persistence.model import TrainedModel

TEXTS, TOPICS = tiny_texts(6)
POOL, _ = tiny_texts(30, seed=1)
TEST, _ = tiny_texts(10, seed=2)
MEANINGLESS = ["even" if sum(map(ord, text)) % 2 else "odd" for text in TEXTS]


def fitted(encoder: str, plan: str, labels: list[str], pool: list[str]) -> TextClassifier:
    settings = {"epochs": 2, "epoch_steps": 6, "contrast": "off"} if plan == "laptop" else {}
    return TextClassifier("lift", encoder, plan, settings=settings, minutes=60).fit(TEXTS, labels, unlabelled=pool)


@pytest.mark.parametrize("plan", ["frozen", "laptop"])
def test_a_pool_that_does_not_help_is_ignored(tiny_encoder: str, plan: str,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.methods.closed_form.words_improve", lambda *args: False)
    monkeypatch.setattr("halflabel.methods.closed_form.cluster_evidence", lambda halves: -9.0)
    both, alone = (fitted(tiny_encoder, plan, MEANINGLESS, pool) for pool in (POOL, []))
    assert both.notices_ == [NO_CLUSTERS[False]] and not alone.notices_
    assert isinstance(both.model_, TrainedModel) and both.model_.words is not None  # it learned the network's answers
    assert both.model_.detector.unknown is None  # where clusters are not classes, none is an unknown class
    network = softmax(both.model_.scores(TEST) - both.model_.words.logits(TEST), axis=1)
    assert np.allclose(network, alone.predict_proba(TEST), atol=0.02)  # their random folds differ


def test_words_vote_as_the_trained_network_where_clusters_do_not_help(tiny_encoder: str,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[np.ndarray] = []

    def remember(texts: list[str], y: np.ndarray, *args: object) -> object:
        learned.append(y)
        return fit_ngram_model(texts, y, *args)  # type: ignore[arg-type]

    monkeypatch.setattr("halflabel.after_training.fit_ngram_model", remember)
    monkeypatch.setattr("halflabel.methods.closed_form.cluster_evidence", lambda halves: -9.0)
    settings = {"epochs": 2, "epoch_steps": 20, "encoder_rate": 5e-3, "contrast": "off"}
    clf = TextClassifier("lift", tiny_encoder, "laptop", minutes=60, settings=settings)
    clf.fit(TEXTS, MEANINGLESS, unlabelled=POOL)
    start = TextClassifier("lift", tiny_encoder, "frozen").fit(TEXTS, MEANINGLESS, unlabelled=POOL)
    network, closed_form = (replace(fit.model_, words=None).scores(POOL).argmax(axis=1) for fit in (clf, start))
    labels = learned[0][len(TEXTS) :].argmax(axis=1)
    assert (labels == network).mean() > 0.98 > (labels == closed_form).mean()


def test_words_may_help_where_clusters_do_not(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.methods.closed_form.words_improve", lambda *args: True)
    monkeypatch.setattr("halflabel.methods.closed_form.cluster_evidence", lambda halves: -9.0)
    clf = fitted(tiny_encoder, "laptop", MEANINGLESS, POOL)
    assert clf.notices_[0] == NO_CLUSTERS[True] and (clf.labeled_iter_[len(TEXTS) :] >= 0).any()


def test_a_pool_that_clusters_by_label_is_used(tiny_encoder: str) -> None:
    assert not set(fitted(tiny_encoder, "frozen", TOPICS, POOL).notices_) & set(NO_CLUSTERS.values())


def test_an_undecided_pool_counts_in_part_and_that_is_reported(tiny_encoder: str,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.methods.closed_form.cluster_evidence", lambda halves: 0.0)
    notices = fitted(tiny_encoder, "frozen", TOPICS, POOL).notices_
    assert [notice for notice in notices if "count for 30%" in notice]


def test_dropped_labels_are_counted_and_their_texts_join_the_pool(tiny_encoder: str,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.methods.wrong_labels.likely_wrong",
                        lambda x, y, pool, labels, seed: np.arange(len(y)) == 3)
    clf = TextClassifier("lift", tiny_encoder, "frozen", settings={"wrong_labels": "drop"})
    clf.fit(TEXTS, TOPICS, unlabelled=POOL)
    assert f"1 of {len(TEXTS)} labels are likely wrong" in clf.notices_[0]
    assert (clf.predict(TEXTS) == TOPICS).mean() > 0.9


Data = tuple[np.ndarray, np.ndarray, sparse.csr_matrix]


@pytest.fixture(scope="module")
def data() -> Data:
    """Vectors, labels and words of texts with one or two of four labels; every second text has a word of each."""
    rng = np.random.default_rng(0)
    y = np.eye(4)[rng.integers(0, 4, 620)]
    y = np.maximum(y, (rng.random((620, 1)) < 0.3) * np.eye(4)[rng.integers(0, 4, 620)])
    centres = np.linalg.qr(rng.normal(size=(16, 16)))[0][:4]
    x = y @ centres + 0.35 * rng.normal(size=(620, 16))
    return x / np.linalg.norm(x, axis=1, keepdims=True), y, sparse.csr_matrix(y * (rng.random(y.shape) < 0.5))


class TestSeveralLabels:
    @staticmethod
    def fit(x: np.ndarray, y: np.ndarray, words: sparse.csr_matrix, labelled: int = 20) -> SeveralLabels:
        return fit_several_labels(x[:labelled], y[:labelled], x[labelled:], words, seed=0)

    def test_pool_and_words_improve_on_the_labelled_texts_alone(self, data: Data) -> None:
        x, y, words = data
        fitted, alone = self.fit(x, y, words), logistic(x[:20], y[:20], 0.2)
        errors = [((scores > np.diagonal(np.quantile(scores, 1 - y.mean(axis=0), axis=0))) != y[20:]).mean()
                  for scores in (alone.logits(x[20:]), fitted.model.logits(x[20:]), fitted.soft)]
        assert errors[0] > errors[1] + 0.01 and errors[1] > errors[2]  # words are known of the pool alone

    def test_each_label_is_as_frequent_in_the_pool_as_in_labelled_texts(self, data: Data) -> None:
        x, y, words = data
        expected = (y[:20].sum(axis=0) + 0.5) / 21
        fitted = self.fit(x, y, words)
        assert np.allclose(fitted.soft.mean(axis=0), expected, atol=1e-3)
        assert np.allclose((1 / (1 + np.exp(-fitted.model.logits(x[20:])))).mean(axis=0), expected, atol=1e-3)

    def test_unknown_labels_do_not_count(self, data: Data) -> None:
        x, y, words = data
        unknown = y.copy()
        unknown[15:20, 0] = np.nan
        fewer, all_known = self.fit(x, unknown, words), self.fit(x, y, words)
        assert np.isfinite(fewer.model.weight).all() and not np.allclose(fewer.soft[:, 0], all_known.soft[:, 0])
        assert np.allclose(fewer.soft[:, 1:], all_known.soft[:, 1:], atol=1e-3)

    def test_without_a_pool_and_with_a_label_that_no_text_has(self, data: Data) -> None:
        x, y, words = data
        y = np.where(np.arange(4) == 3, 0.0, y)
        alone = fit_several_labels(x[:20], y[:20], x[:0], words[:20], seed=0)
        assert alone.soft.shape == (0, 4) and (alone.model.logits(x)[:, 3] < 0).all()
        assert (self.fit(x, y, words).soft[:, 3] < 0.5).all()

    @pytest.mark.parametrize("fit_head", [label_means, refit_gaussians])
    def test_heads_before_and_after_training_are_as_frequent_as_labelled_texts(
            self, data: Data, fit_head: Callable[..., LinearModel]) -> None:
        x, y, words = data
        model = fit_head(x, y[:20], self.fit(x, y, words).soft, None)
        p = 1 / (1 + np.exp(-model.logits(x[20:])))
        assert np.allclose(p.mean(axis=0), (y[:20].sum(axis=0) + 0.5) / 21, atol=1e-3)
        assert (p[y[20:] > 0].mean() - p[y[20:] == 0].mean()) > 0.2
        alone = fit_head(x[:20], y[:20], np.empty((0, 4)), None)
        assert np.isfinite(alone.weight).all() and np.isfinite(alone.bias).all()


SEVERAL = [(topic, "long") if i % 3 == 0 else (topic,) for i, topic in enumerate(TOPICS)]
STEPS = {"warmup": 4, "epochs": 2, "epoch_steps": 4}


class TestFineTuningForSeveralLabels:
    @pytest.mark.parametrize("pool", [POOL, []])
    def test_the_head_is_gaussians_of_the_trained_features(self, tiny_encoder: str, pool: list[str]) -> None:
        soft: list[np.ndarray] = []

        def refit(x: np.ndarray, y: np.ndarray, labels: np.ndarray, named: None) -> LinearModel:
            soft.append(labels)
            return refit_gaussians(x, y, labels, named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("halflabel.methods.lift.refit_gaussians", refit)
            clf = TextClassifier("lift-ml", tiny_encoder, settings=STEPS).fit(TEXTS, SEVERAL, unlabelled=pool)
        model = clf.model_
        assert isinstance(model, TrainedModel) and soft[0].shape == (len(pool), 4)
        f = model.classify(encode(model.encoder, [*TEXTS, *pool], dtype=torch.float32), [*TEXTS, *pool]).f
        y = np.array([[name in labels for name in clf.classes_] for labels in SEVERAL], dtype=np.float64)
        expected = refit_gaussians(f.double().numpy(), y, soft[0], None)
        head = model.network.head
        assert isinstance(head, NormalizedLinear)
        assert np.allclose(head.output.weight.detach().numpy().T, expected.weight, rtol=0.02, atol=0.3)

    def test_a_saved_model_has_the_head_that_was_fitted_last(self, tiny_encoder: str, tmp_path: Path) -> None:
        clf = TextClassifier("lift-ml", tiny_encoder, settings=STEPS).fit(TEXTS, SEVERAL, unlabelled=POOL,
                                                                          folder=tmp_path / "model")
        loaded = TextClassifier.load(tmp_path / "model")
        assert np.allclose(loaded.predict_proba(TEST), clf.predict_proba(TEST), atol=1e-5)

    def test_a_dev_set_scores_the_head_that_is_kept(self, tiny_encoder: str) -> None:
        clf = TextClassifier("lift-ml", tiny_encoder, settings=STEPS).fit(TEXTS, SEVERAL, unlabelled=POOL,
                                                                          dev=(TEXTS, SEVERAL))
        assert isinstance(clf.model_, TrainedModel) and 0.0 < clf.model_.facts["run"]["dev"] <= 1.0

    def test_class_names_alone_need_no_warm_up(self, tiny_encoder: str) -> None:
        names = {topic: topic for topic in sorted(set(TOPICS))}
        clf = TextClassifier("lift-ml", tiny_encoder, names=names, settings=STEPS).fit([], [], unlabelled=POOL)
        assert clf.predict_proba(TEST).shape == (30, 3) and clf.model_.facts["plan"]["warmup"] == 0
