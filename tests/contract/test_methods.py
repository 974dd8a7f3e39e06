"""The contract of every registered method, on frozen vectors and with a fine-tuned encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.errors import HalflabelError, SettingError
from halflabel.fitting import fit
from halflabel.methods import METHODS, find
from halflabel.training.checkpoint import FolderStore

MULTI_CLASS, MULTI_LABEL = (sorted(name for name, method in METHODS.items() if method.task == task)
                            for task in ("multi-class", "multi-label"))
SHORT = {"epochs": 3, "epoch_steps": 3, "warmup": 3, "labelled_batch": 4, "unlabelled_batch": 8}
POOL, _ = tiny_texts(8, seed=1)
pytestmark = pytest.mark.no_cover  # other tests run the same lines


class Run(NamedTuple):
    """A trained classifier and the folder of its run."""

    classifier: TextClassifier
    folder: Path


def classifier(method: str, plan: str, encoder: str, **changes: object) -> TextClassifier:
    settings = {} if find(method).no_steps else SHORT | changes
    return TextClassifier(method, encoder, plan, settings=settings, minutes=None if plan == "frozen" else 5.0)


def labelled(method: str, per_class: int = 4) -> tuple[list[str], list[Any]]:
    """Texts with labels of the kind that the method is for; every third text has a second label."""
    texts, topics = tiny_texts(per_class)
    if find(method).task == "multi-class":
        return texts, list(topics)
    return texts, [(topic, "long") if i % 3 == 0 else (topic,) for i, topic in enumerate(topics)]


@pytest.fixture(autouse=True, scope="module")
def no_time_budget() -> Iterator[None]:
    """No steps to measure the speed: the settings are short already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("halflabel.fitting.fit_to_minutes", lambda *_, **__: None)
        yield


@pytest.fixture(params=["frozen", "laptop"])
def plan(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def trained(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Run]:
    """One run of each method under each plan, shared by the tests that only read it."""
    @cache
    def train(method: str, plan: str) -> Run:
        folder = tmp_path_factory.mktemp("runs")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HALFLABEL_CACHE", str(folder / "cache"))
            fitted = classifier(method, plan, tiny_encoder)
            fitted.fit(*labelled(method), unlabelled=POOL, folder=folder / "run")
        return Run(fitted, folder / "run")
    return train


@pytest.mark.parametrize("method", MULTI_CLASS)
class TestOneLabel:
    def test_probabilities_and_labels(self, method: str, plan: str, trained: Callable[[str, str], Run]) -> None:
        clf = trained(method, plan).classifier
        p = clf.predict_proba(POOL)
        assert p.shape == (24, 3) and np.allclose(p.sum(axis=1), 1.0) and (p >= 0).all()
        assert clf.classes_.tolist() == ["food", "money", "sport"]
        assert (clf.predict(POOL) == clf.classes_[p.argmax(axis=1)]).all()

    def test_labels_keep_their_meaning_in_any_order(self, method: str, tiny_encoder: str) -> None:
        texts, topics = tiny_texts(8)
        renamed = {"food": "z last", "money": "a first", "sport": "m middle"}
        labels = [renamed[topic] for topic in topics]
        clf = classifier(method, "frozen", tiny_encoder, warmup=150, token_drop=0.0,
                         head_rate=1e-3).fit(texts, labels)
        assert clf.classes_.tolist() == ["a first", "m middle", "z last"]
        assert clf.score(texts, labels) > 0.6

    def test_fewer_texts_than_a_batch(self, method: str, plan: str, tiny_encoder: str) -> None:
        clf = classifier(method, plan, tiny_encoder, epochs=1)
        clf.fit(["goal match", "bread soup"], [1, 0], unlabelled=["team win"])
        assert clf.predict(["goal"]).dtype.kind == "i"


@pytest.mark.parametrize("method", MULTI_LABEL)
class TestSeveralLabels:
    def test_probabilities_and_labels(self, method: str, plan: str, trained: Callable[[str, str], Run]) -> None:
        clf, labels = trained(method, plan).classifier, labelled(method)[1]
        p = clf.predict_proba(POOL)
        assert p.shape == (24, 4) and (p >= 0).all() and (p <= 1).all()
        assert clf.classes_.tolist() == ["food", "long", "money", "sport"]
        predicted = clf.predict(POOL, decision="fixed")
        assert [set(names) for names in predicted] == [set(clf.classes_[row >= 0.5]) for row in p]
        assert clf.transduction_[0] == labels[0] and len(clf.transduction_) == 36

    def test_labels_keep_their_meaning_in_any_order(self, method: str, tiny_encoder: str) -> None:
        texts, topics = tiny_texts(8)
        renamed = {"food": ("z last",), "money": ("a first", "m middle"), "sport": ("m middle",)}
        labels = [renamed[topic] for topic in topics]
        clf = classifier(method, "frozen", tiny_encoder, warmup=200, token_drop=0.0).fit(texts, labels)
        assert clf.classes_.tolist() == ["a first", "m middle", "z last"]
        assert clf.score(texts, labels) > 0.6

    def test_fewer_texts_than_a_batch(self, method: str, plan: str, tiny_encoder: str) -> None:
        y = np.array([[1, 0, 0], [0, 1, 0]])
        clf = classifier(method, plan, tiny_encoder, epochs=1)
        clf.fit(["goal match", "bread soup"], y, unlabelled=["team win"])
        assert clf.predict(["goal"]).shape == (1, 3) and not clf.predict(["goal"])[0, 2]


@pytest.mark.parametrize("method", sorted(METHODS))
class TestContract:
    def test_saved_and_loaded_is_the_same(self, method: str, plan: str, tmp_path: Path,
                                          trained: Callable[[str, str], Run]) -> None:
        clf = trained(method, plan).classifier
        clf.save(tmp_path / "model")
        loaded = TextClassifier.load(tmp_path / "model")
        assert loaded.classes_.tolist() == clf.classes_.tolist()
        assert list(loaded.predict(POOL)) == list(clf.predict(POOL))
        assert np.array_equal(loaded.predict_proba(POOL), clf.predict_proba(POOL))
        assert not [file for file in (tmp_path / "model").rglob("*") if file.suffix in (".pkl", ".bin", ".pt")]

    def test_a_killed_run_resumes_to_the_same_weights(  # and so the same seed gives the same numbers
            self, method: str, plan: str, tiny_encoder: str, tmp_path: Path, trained: Callable[[str, str], Run],
            monkeypatch: pytest.MonkeyPatch) -> None:
        whole, folder = trained(method, plan), tmp_path / "killed"
        run = partial(TextClassifier.fit, X=labelled(method)[0], y=labelled(method)[1], unlabelled=POOL, folder=folder)
        with monkeypatch.context() as patch:
            patch.setattr("halflabel.classifier.fit", partial(fit, checkpoint_seconds=0.0))
            patch.setattr(FolderStore, "checkpoint", killed_at(7, FolderStore.checkpoint))
            if find(method).no_steps:  # nothing to checkpoint: it is killed when the model is about to be written
                patch.setattr(FolderStore, "model", killed)
            with pytest.raises(Killed):
                run(classifier(method, plan, tiny_encoder))
        resumed = run(classifier(method, plan, tiny_encoder), resume=True)
        expected, state = (clf.model_.network.state_dict() for clf in (whole.classifier, resumed))
        assert expected.keys() == state.keys() and all(torch.equal(expected[name], state[name]) for name in expected)
        assert (whole.folder / "metrics.jsonl").read_text() == (folder / "metrics.jsonl").read_text()
        assert whole.classifier.labeled_iter_.tolist() == resumed.labeled_iter_.tolist()
        assert list(whole.classifier.transduction_) == list(resumed.transduction_)
        assert np.array_equal(whole.classifier.predict_proba(POOL), resumed.predict_proba(POOL))

    def test_without_a_pool(self, method: str, plan: str, tiny_encoder: str) -> None:
        texts, labels = labelled(method, 3)
        clf = classifier(method, plan, tiny_encoder, epochs=1).fit(texts, labels)
        assert len(clf.predict(texts)) == 9 and clf.labeled_iter_.tolist() == [0] * 9

    def test_every_setting_has_its_limits(self, method: str, tiny_encoder: str, tmp_path: Path) -> None:
        labels = [("x",), ("y",)] if find(method).task == "multi-label" else ["x", "y"]
        for name in [*find(method).defaults, "zeal"]:
            clf = TextClassifier(method, tiny_encoder, "frozen", settings={name: -7})
            with pytest.raises(HalflabelError, match=f"{name}=-7" if name != "zeal" else "'zeal'"):
                clf.fit(["a b", "c d"], labels, folder=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_the_defaults_are_within_the_limits(self, method: str) -> None:
        find(method).check(find(method).defaults)
        for name, default in find(method).defaults.items():
            with pytest.raises(SettingError, match=f"{name}=.* {method}; give"):
                find(method).check({name: 7 if isinstance(default, str) else "seven"})


@pytest.mark.parametrize("method", ["ce", "bce"])  # what comes before the method is the same for all
@pytest.mark.parametrize(("texts", "labels", "message"), [
    (["a b", "c d"], ["x", "x"], "only one class|for sets of labels"),
    (["a b", "c d"], ["x"], "2 texts and 1 label"), (["a b", 3], ["x", "y"], "text 2 "),
    (["a b", "c d"], [None, None], "no label|for sets of labels"),
])
def test_bad_texts_are_refused_before_anything_is_written(
        method: str, texts: list[Any], labels: list[Any], message: str, tiny_encoder: str, tmp_path: Path) -> None:
    with pytest.raises(HalflabelError, match=message):
        classifier(method, "frozen", tiny_encoder).fit(texts, labels, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Killed(Exception):
    """Takes the place of SIGKILL."""


def killed(self: FolderStore, tensors: dict[str, torch.Tensor]) -> None:
    raise Killed


def killed_at(last: int, checkpoint: Callable[..., None]) -> Callable[..., None]:
    """`FolderStore.checkpoint`, after which the process ends at some step."""
    def checkpoint_and_die(self: FolderStore, step: int, tensors: dict[str, torch.Tensor], position: dict[str, Any],
                           ) -> None:
        checkpoint(self, step, tensors, position)
        if step >= last:
            raise Killed
    return checkpoint_and_die
