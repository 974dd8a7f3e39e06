"""The estimator keeps scikit-learn's conventions, and its audit adds up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone
from sklearn.utils.class_weight import compute_sample_weight

from conftest import tiny_texts
from halflabel import BadInput, TextClassifier, load
from halflabel.classifier import seed_of
from halflabel.data.corpus import Corpus
from halflabel.errors import SettingError
from halflabel.nn.pseudo_labels import class_weights
from halflabel.notices import EpochReport, Event

SHORT = {"epochs": 2, "epoch_steps": 5, "warmup": 60}


def quick(encoder: str, method: str = "bdd-f", **changes: object) -> TextClassifier:
    return TextClassifier(method, encoder, "frozen", settings=SHORT | changes)


def test_parameters_are_stored_and_cloned() -> None:
    clf = TextClassifier("bdd-s", "minilm", "frozen", settings={"T": 0.3}, random_state=7)
    copy = clone(clf)
    assert copy.get_params() == clf.get_params()
    assert copy.set_params(method="ce").method == "ce"


@pytest.mark.parametrize("mark", [None, float("nan"), -1, np.nan])
def test_marks_for_unlabelled_all_mean_the_same(mark: object, tiny_encoder: str) -> None:
    texts, labels = tiny_texts(4)
    pool, _ = tiny_texts(6, seed=1)
    codes = {"food": 0, "money": 1, "sport": 2}
    split = quick(tiny_encoder).fit(texts, [codes[name] for name in labels], unlabelled=pool)
    mixed = quick(tiny_encoder).fit(texts + pool, [*(codes[name] for name in labels), *[mark] * len(pool)])
    assert np.array_equal(split.predict_proba(pool), mixed.predict_proba(pool))


def test_frames_and_generators_are_read_as_lists_are(tiny_encoder: str) -> None:
    texts, labels = tiny_texts(4)
    (pool, truth), (held, true) = tiny_texts(6, seed=1), tiny_texts(3, seed=2)
    views = [(text,) for text in pool]
    plain = quick(tiny_encoder).fit(texts, labels, pool, dev=(held, true), truth=truth, views=views)
    other = quick(tiny_encoder).fit(
        pa.table({"n": range(12), "text": texts}), pa.array(labels), (text for text in pool),
        dev=(np.array(held)[:, None], true), truth=pa.array(truth), views=pa.table({"text": pool, "aug_0": pool}))
    assert other.model_.shape == plain.model_.shape and other.model_.shape.unlabelled == 18
    frame = pa.table({"text": held, "label": true})
    assert np.array_equal(other.predict_proba(frame), plain.predict_proba(held))
    assert np.array_equal(other.predict(iter(held)), plain.predict(held)) and len(other.predict(frame)) == 9
    assert other.score(frame, true) == plain.score(held, true)
    for call in (other.predict, other.predict_proba, lambda X: other.score(X, true), lambda X: other.fit(X, labels),
                 lambda X: other.fit(texts, labels, X), lambda X: other.fit(texts, labels, pool, dev=(X, true))):
        with pytest.raises(BadInput, match="columns 'a', 'b'"):
            call(pa.table({"a": held, "b": held}))


def test_the_audit_covers_every_text(tiny_encoder: str) -> None:
    texts, labels = tiny_texts(4)
    pool, _ = tiny_texts(6, seed=1)
    clf = quick(tiny_encoder, "bdd-s").fit(texts, labels, unlabelled=pool)
    assert clf.termination_condition_ == "all steps done" and clf.n_iter_ == 2
    assert clf.transduction_[:12].tolist() == labels and clf.labeled_iter_[:12].tolist() == [0] * 12
    assert all(name in clf.classes_ for name in clf.transduction_[12:])
    assert (clf.labeled_iter_[12:] >= SHORT["warmup"]).all()


def test_duplicate_and_empty_texts_are_left_out_and_said(tiny_encoder: str) -> None:
    texts, labels = tiny_texts(4)
    clf = quick(tiny_encoder)
    clf.fit([*texts, texts[0], ""], [*labels, labels[0], labels[0]], unlabelled=["", "win", "win"])
    assert clf.model_.shape.labelled == 12 and clf.model_.shape.unlabelled == 1
    assert len(clf.notices_) >= 3


def test_a_pool_text_with_a_known_label_is_no_pool_text(tiny_encoder: str) -> None:
    texts, labels = tiny_texts(4)
    clf = quick(tiny_encoder).fit(texts, labels, unlabelled=[*texts, "goal win match"])
    assert clf.model_.shape.unlabelled == 1


def test_the_truth_of_the_pool_is_only_measured(tiny_encoder: str) -> None:
    texts, labels = tiny_texts(4)
    pool, truth = tiny_texts(6, seed=1)
    events: list[Event] = []
    plain = quick(tiny_encoder, warmup=150).fit(texts, labels, unlabelled=pool)
    measured = quick(tiny_encoder, warmup=150).fit(texts, labels, unlabelled=pool, truth=truth, report=events.append)
    lying = quick(tiny_encoder, warmup=150).fit(texts, labels, unlabelled=pool, truth=truth[::-1])
    assert np.array_equal(plain.predict_proba(pool), measured.predict_proba(pool))
    assert np.array_equal(plain.predict_proba(pool), lying.predict_proba(pool))
    end = events[-1]
    assert isinstance(end, EpochReport) and end.end
    right = np.mean(measured.predict(pool) == np.array(truth))
    assert end.figures["pseudo_accuracy"] == pytest.approx(right, abs=0.05)


def test_a_dev_set_keeps_the_best_model(tiny_encoder: str, tmp_path: Path) -> None:
    texts, labels = tiny_texts(6)
    dev = tiny_texts(8, seed=2)
    clf = quick(tiny_encoder, epochs=4, epoch_steps=20).fit(texts, labels, unlabelled=tiny_texts(8, seed=1)[0],
                                                           dev=dev, folder=tmp_path / "run")
    scores = [line["dev"] for line in map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
              if "dev" in line]
    assert clf.score(*dev) == pytest.approx(max(scores))
    assert TextClassifier.load(tmp_path / "run").score(*dev) == pytest.approx(max(scores))


@pytest.mark.parametrize(("texts", "labels", "words"), [
    (["a b", "c d"], ["x", "x"], "only one class"),
    (["a b", "c d"], ["x"], "2 texts and 1 labels"),
    ("a b", ["x"], "give a list of texts"),
    (["a b", 3], ["x", "y"], r"text 2 is 3 \(int\)"),
    (["a b", "c d"], ["x", "-1"], "'-1'"),
    (["a b", "c d"], [None, None], "no label at all"),
    (["a b", "c d"], ["x", 1], "type"),
    (["a b", "c d"], [0.5, 1], "fraction"),
])
def test_bad_input_is_named(texts: list, labels: list, words: str, tiny_encoder: str) -> None:
    with pytest.raises(BadInput, match=words):
        quick(tiny_encoder).fit(texts, labels)


@pytest.mark.parametrize(("choice", "words"), [
    ({"method": "magic"}, "no method 'magic'"), ({"plan": "fast"}, "no plan 'fast'"),
    ({"settings": {"zeal": 1}}, "'zeal' is no setting"), ({"settings": {"m": -1}}, "m=-1 is out of range"),
    ({"settings": {"epochs": 1.5}}, "whole number"), ({"settings": {"schedule": "wild"}}, "constant or linear"),
    ({"minutes": -3, "plan": "laptop"}, "minutes=-3"), ({"settings": {"s": "big"}}, "s=big"),
    ({"encoder": "no/such/folder"}, "no/such/folder"),
])
def test_bad_choices_are_named(choice: dict, words: str, tiny_encoder: str) -> None:
    clf = TextClassifier(**({"method": "bdd-f", "encoder": tiny_encoder, "plan": "frozen"} | choice))
    with pytest.raises(BadInput, match=words):
        clf.fit(["goal win", "bread soup"], ["a", "b"])


def test_a_folder_that_exists_is_not_overwritten(tiny_encoder: str, tmp_path: Path) -> None:
    texts, labels = tiny_texts(3)
    clf = quick(tiny_encoder).fit(texts, labels)
    (tmp_path / "model").mkdir()
    with pytest.raises(BadInput, match="exists already"):
        clf.save(tmp_path / "model")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("precious")
    with pytest.raises(BadInput, match="not empty"):
        quick(tiny_encoder).fit(texts, labels, folder=tmp_path / "run")
    assert [f.name for f in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_resuming_with_other_texts_is_refused(tiny_encoder: str, tmp_path: Path) -> None:
    texts, labels = tiny_texts(3)
    quick(tiny_encoder).fit(texts, labels, folder=tmp_path / "run")
    with pytest.raises(BadInput, match="other texts or settings"):
        quick(tiny_encoder).fit(texts[::-1], labels[::-1], folder=tmp_path / "run", resume=True)
    with pytest.raises(BadInput, match="no run to resume"):
        quick(tiny_encoder).fit(texts, labels, folder=tmp_path / "none", resume=True)


@pytest.mark.parametrize("spoil", ["config.json", "model.safetensors", "newer", "torn", "nothing"])
def test_a_spoilt_model_folder_is_named(spoil: str, tiny_encoder: str, tmp_path: Path) -> None:
    texts, labels = tiny_texts(3)
    folder = tmp_path / "model"
    quick(tiny_encoder).fit(texts, labels).save(folder)
    if spoil == "newer":
        (folder / "config.json").write_text((folder / "config.json").read_text().replace('"format": 1', '"format": 99'))
    elif spoil == "torn":
        (folder / "config.json").write_text('{"format"')
    elif spoil == "nothing":
        folder = tmp_path / "elsewhere"
    else:
        (folder / spoil).unlink()
    with pytest.raises(BadInput, match=str(folder)):
        load(folder)


def test_weights_of_another_model_are_refused(tiny_encoder: str, tmp_path: Path) -> None:
    texts, labels = tiny_texts(3)
    for name, method in (("a", "ce"), ("b", "bdd-f")):
        quick(tiny_encoder, method).fit(texts, labels).save(tmp_path / name)
    (tmp_path / "a" / "model.safetensors").write_bytes((tmp_path / "b" / "model.safetensors").read_bytes())
    with pytest.raises(BadInput, match=r"model\.safetensors is damaged or was changed"):
        load(tmp_path / "a")
    (tmp_path / "a" / "checksums.json").unlink()  # as in folders of older versions
    with pytest.raises(BadInput, match="do not fit"):
        load(tmp_path / "a")


def test_unfitted_predictions_are_refused() -> None:
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        TextClassifier().predict(["a"])


def test_text_classifier_is_tagged_for_text() -> None:
    from sklearn.utils import get_tags

    tags = get_tags(TextClassifier())
    assert tags.input_tags.string and tags.input_tags.one_d_array and not tags.input_tags.two_d_array


def test_corpora_add_and_take() -> None:
    a = Corpus(["x", "y"], ["1", None], [("u",), ("v",)])
    assert (a + a).take([3, 0]).texts == ["y", "x"]
    assert a.labelled().texts == ["x"] and a.unlabelled().views == [("v",)]
    assert a.without_labels().labels == [None, None] and a.task == "multi-class"
    assert Corpus(["x"], [("1", "2")]).task == "multi-label"


class TestRandomState:
    def test_an_int_is_the_seed(self) -> None:
        assert seed_of(7) == seed_of(np.int64(7)) == 7

    @pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
    def test_a_generator_draws_the_seed_and_moves_on(self, make: Any) -> None:
        generator, same = make(3), make(3)
        first, second = seed_of(generator), seed_of(generator)
        assert first != second and (first, second) == (seed_of(same), seed_of(same))

    def test_none_draws_a_new_seed(self) -> None:
        assert len({seed_of(None) for _ in range(4)}) > 1

    @pytest.mark.parametrize("value", ["seven", 1.5, [1]])
    def test_anything_else_is_refused(self, value: Any) -> None:
        with pytest.raises(SettingError, match="random_state=.*whole number"):
            seed_of(value)

    def test_fit_accepts_a_generator(self, tiny_encoder: str) -> None:
        texts, labels = tiny_texts(3)
        a, b = (TextClassifier("ce", tiny_encoder, "frozen", settings={"epochs": 1, "epoch_steps": 2, "warmup": 2},
                               random_state=np.random.RandomState(5)).fit(texts, labels) for _ in range(2))
        assert np.array_equal(a.predict_proba(texts), b.predict_proba(texts))


class TestClassWeights:
    def test_balanced_is_that_of_scikit_learn_and_a_mapping_leaves_others_at_one(self) -> None:
        labels = ["a"] * 6 + ["b"] * 3 + ["c"]
        y = torch.eye(3)[[ord(label) - ord("a") for label in labels]]
        expected = compute_sample_weight("balanced", labels)
        assert np.allclose(class_weights("balanced", y, ["a", "b", "c"])[y.argmax(dim=1)], expected)
        assert class_weights({"b": 4.0}, y, ["a", "b", "c"]).tolist() == [1.0, 4.0, 1.0]

    @pytest.mark.parametrize("method", ["ce", "bdd-f", "lift"])
    def test_a_class_with_a_large_weight_is_predicted_more_often(self, tiny_encoder: str, method: str) -> None:
        texts, labels = tiny_texts(4)
        held, _ = tiny_texts(20, seed=1)
        labels = [*labels[:-3], "food", "money", "sport"]  # some are wrong, so that classes overlap

        def share(weights: object) -> float:
            clf = quick(tiny_encoder, method, warmup=5).set_params(class_weight=weights)
            clf.fit(texts, labels, held)
            return float(clf.predict_proba(held)[:, list(clf.classes_).index("money")].mean())

        assert share({"money": 0.05}) < share({"money": 1}) < share({"money": 20})

    @pytest.mark.parametrize(("method", "weights", "words"), [
        ("nb-em", "balanced", "the method nb-em does not take class w"), ("ce", "even", "'even' is no class weight"),
        ("logreg", {"food": 2}, "the method logreg does not take"), ("ce", {"food": 0}, "of 'food' is 0; give a"),
        ("ce", {"food": "2"}, "of 'food' is '2'"), ("ce", {"fodo": 2}, "'fodo', which no labelled text has")])
    def test_what_does_not_fit_is_refused(self, tiny_encoder: str, method: str, weights: object, words: str) -> None:
        texts, labels = tiny_texts(2)
        with pytest.raises(SettingError, match=words):
            TextClassifier(method, tiny_encoder, "frozen", class_weight=weights).fit(texts, labels)

    def test_several_labels_are_refused(self, tiny_encoder: str) -> None:
        with pytest.raises(SettingError, match="class weights are for one label per text"):
            TextClassifier(None, tiny_encoder, "frozen", class_weight="balanced").fit(["a", "b"], [["x"], ["x", "y"]])

    def test_a_saved_run_keeps_them_and_is_not_resumed_with_others(self, tiny_encoder: str, tmp_path: Path) -> None:
        texts, labels = tiny_texts(4)
        quick(tiny_encoder, "ce").set_params(class_weight={"food": 3}).fit(texts, labels, folder=tmp_path / "run")
        assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["class_weight"] == {"food": 3.0}
        assert load(tmp_path / "run").facts["class_weight"] == {"food": 3.0}
        with pytest.raises(BadInput):
            quick(tiny_encoder, "ce").fit(texts, labels, folder=tmp_path / "run", resume=True)
