"""What every registered method must do, frozen and fine-tuned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import tiny_texts
from halflabel import BadInput, TextClassifier
from halflabel.methods.registry import METHODS, find
from halflabel.training import loop
from halflabel.training.checkpoint import FolderStore

NAMES = {task: sorted(name for name, method in METHODS.items() if method.task == task)
         for task in ("multi-class", "multi-label")}
SHORT = {"epochs": 3, "epoch_steps": 6, "warmup": 4, "labelled_batch": 4, "unlabelled_batch": 8}


def classifier(method: str, plan: str, encoder: str, **changes: object) -> TextClassifier:
    settings = {} if find(method).closed else SHORT | changes
    return TextClassifier(method, encoder, plan, settings=settings, minutes=None if plan == "frozen" else 5.0)


@pytest.fixture(params=["frozen", "laptop"])
def plan(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def labelled(method: str, per_class: int) -> tuple[list[str], list]:
    """Texts with labels of the kind that the method learns; every third text of a topic has a second label."""
    texts, topics = tiny_texts(per_class)
    if METHODS[method].task == "multi-class":
        return texts, list(topics)
    return texts, [(topic, "long") if i % 3 == 0 else (topic,) for i, topic in enumerate(topics)]


@pytest.mark.parametrize("method", NAMES["multi-class"])
class TestOneLabel:
    def test_probabilities_and_labels(self, method: str, plan: str, tiny_encoder: str) -> None:
        texts, labels = tiny_texts(5)
        pool, _ = tiny_texts(10, seed=1)
        clf = classifier(method, plan, tiny_encoder).fit(texts, labels, unlabelled=pool)
        p = clf.predict_proba(pool)
        assert p.shape == (30, 3) and np.allclose(p.sum(axis=1), 1.0) and (p >= 0).all()
        assert clf.classes_.tolist() == ["food", "money", "sport"]
        assert (clf.predict(pool) == clf.classes_[p.argmax(axis=1)]).all()

    def test_labels_keep_their_meaning_in_any_order(self, method: str, tiny_encoder: str) -> None:
        texts, labels = tiny_texts(8)
        renamed = {"food": "z last", "money": "a first", "sport": "m middle"}
        labels = [renamed[name] for name in labels]
        clf = classifier(method, "frozen", tiny_encoder, warmup=150, token_drop=0.0,
                         head_rate=1e-3).fit(texts, labels)
        assert clf.classes_.tolist() == ["a first", "m middle", "z last"]
        assert clf.score(texts, labels) > 0.6

    def test_fewer_texts_than_a_batch(self, method: str, plan: str, tiny_encoder: str) -> None:
        clf = classifier(method, plan, tiny_encoder).fit(["goal match", "bread soup"], [1, 0], unlabelled=["team win"])
        assert clf.predict(["goal"]).dtype.kind == "i"


@pytest.mark.parametrize("method", NAMES["multi-label"])
class TestSeveralLabels:
    def test_probabilities_and_labels(self, method: str, plan: str, tiny_encoder: str) -> None:
        texts, labels = labelled(method, 5)
        pool, _ = tiny_texts(10, seed=1)
        clf = classifier(method, plan, tiny_encoder).fit(texts, labels, unlabelled=pool)
        p = clf.predict_proba(pool)
        assert p.shape == (30, 4) and (p >= 0).all() and (p <= 1).all()
        assert clf.classes_.tolist() == ["food", "long", "money", "sport"]
        found = clf.predict(pool, decision="fixed")
        assert [set(names) for names in found] == [set(clf.classes_[row >= 0.5]) for row in p]
        assert clf.transduction_[0] == labels[0] and len(clf.transduction_) == 45

    def test_labels_keep_their_meaning_in_any_order(self, method: str, tiny_encoder: str) -> None:
        texts, topics = tiny_texts(8)
        renamed = {"food": ("z last",), "money": ("a first", "m middle"), "sport": ("m middle",)}
        labels = [renamed[name] for name in topics]
        clf = classifier(method, "frozen", tiny_encoder, warmup=200, token_drop=0.0).fit(texts, labels)
        assert clf.classes_.tolist() == ["a first", "m middle", "z last"]
        assert clf.score(texts, labels) > 0.6

    def test_fewer_texts_than_a_batch(self, method: str, plan: str, tiny_encoder: str) -> None:
        y = np.array([[1, 0, 0], [0, 1, 0]])
        clf = classifier(method, plan, tiny_encoder).fit(["goal match", "bread soup"], y, unlabelled=["team win"])
        assert clf.predict(["goal"]).shape == (1, 3) and not clf.predict(["goal"])[0, 2]


@pytest.mark.parametrize("method", sorted(METHODS))
class TestContract:
    def test_same_seed_same_numbers(self, method: str, plan: str, tiny_encoder: str) -> None:
        texts, labels = labelled(method, 4)
        pool, _ = tiny_texts(8, seed=1)
        first, second = (classifier(method, plan, tiny_encoder).fit(texts, labels, unlabelled=pool) for _ in range(2))
        assert np.array_equal(first.predict_proba(pool), second.predict_proba(pool))

    def test_saved_and_loaded_is_the_same(self, method: str, plan: str, tiny_encoder: str, tmp_path: Path) -> None:
        texts, labels = labelled(method, 4)
        pool, _ = tiny_texts(8, seed=1)
        clf = classifier(method, plan, tiny_encoder).fit(texts, labels, unlabelled=pool)
        clf.save(tmp_path / "model")
        again = TextClassifier.load(tmp_path / "model")
        assert again.classes_.tolist() == clf.classes_.tolist()
        assert list(again.predict(pool)) == list(clf.predict(pool))
        assert np.array_equal(again.predict_proba(pool), clf.predict_proba(pool))
        assert not [f for f in (tmp_path / "model").rglob("*") if f.suffix in (".pkl", ".bin", ".pt")]

    def test_stopped_and_resumed_ends_with_the_same_weights(
            self, method: str, plan: str, tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        texts, labels = labelled(method, 4)
        pool, _ = tiny_texts(8, seed=1)
        whole = classifier(method, plan, tiny_encoder).fit(texts, labels, unlabelled=pool, folder=tmp_path / "whole")
        monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
        if find(method).closed:  # no steps: it dies when all is fitted and the model is about to be written
            monkeypatch.setattr(FolderStore, "model", dying)
        monkeypatch.setattr(FolderStore, "checkpoint", dying_after(FolderStore.checkpoint, steps=11))
        with pytest.raises(Killed):
            classifier(method, plan, tiny_encoder).fit(texts, labels, unlabelled=pool, folder=tmp_path / "killed")
        monkeypatch.undo()
        monkeypatch.setenv("HALFLABEL_CACHE", str(tmp_path / "cache"))
        resumed = classifier(method, plan, tiny_encoder).fit(texts, labels, unlabelled=pool,
                                                             folder=tmp_path / "killed", resume=True)
        a, b = whole.model_.network.state_dict(), resumed.model_.network.state_dict()
        assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        assert (tmp_path / "whole" / "metrics.jsonl").read_text() == (tmp_path / "killed" / "metrics.jsonl").read_text()
        assert whole.labeled_iter_.tolist() == resumed.labeled_iter_.tolist()
        assert list(whole.transduction_) == list(resumed.transduction_)
        assert list(whole.predict(pool)) == list(resumed.predict(pool))

    def test_without_a_pool(self, method: str, plan: str, tiny_encoder: str) -> None:
        texts, labels = labelled(method, 3)
        clf = classifier(method, plan, tiny_encoder).fit(texts, labels)
        assert len(clf.predict(texts)) == 9 and clf.labeled_iter_.tolist() == [0] * 9

    @pytest.mark.parametrize(("texts", "labels", "words"), [
        (["a b", "c d"], ["x", "x"], "only one label|for sets of labels"),
        (["a b", "c d"], ["x"], "2 texts and 1 labels"), (["a b", 3], ["x", "y"], "text 2 is int"),
        (["a b", "c d"], [None, None], "no label at all|for sets of labels"),
    ])
    def test_bad_texts_are_named_before_anything_is_written(
            self, method: str, texts: list, labels: list, words: str, tiny_encoder: str, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match=words):
            classifier(method, "frozen", tiny_encoder).fit(texts, labels, folder=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_every_setting_has_its_limits(self, method: str, tiny_encoder: str, tmp_path: Path) -> None:
        labels = [("x",), ("y",)] if find(method).task == "multi-label" else ["x", "y"]
        for name in [*find(method).defaults, "zeal"]:
            clf = TextClassifier(method, tiny_encoder, "frozen", settings={name: -7})
            with pytest.raises(BadInput, match=f"{name}=-7" if name != "zeal" else "'zeal' is no setting"):
                clf.fit(["a b", "c d"], labels, folder=tmp_path / "run")
        assert not (tmp_path / "run").exists()


class Killed(Exception):
    """Stands for SIGKILL at a given step."""


def dying(self: FolderStore, tensors: dict) -> None:
    raise Killed


def dying_after(checkpoint, steps: int):
    def dying(self: FolderStore, step: int, tensors: dict, notes: dict) -> None:
        checkpoint(self, step, tensors, notes)
        if step >= steps:
            raise Killed
    return dying
