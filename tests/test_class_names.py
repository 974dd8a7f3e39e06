"""Class names: validated, turned into vectors, used if they match the labels, enough without labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cli_runner import Ran, runner, write_csv, write_jsonl
from conftest import TOPICS, tiny_texts
from halflabel import TextClassifier
from halflabel.class_names import (
    choose_names,
    classes_with_names,
    name_vectors,
    parse_names,
    phrases_for,
    words_of_label,
)
from halflabel.data.labels import Classes
from halflabel.encoders.loading import load_encoder
from halflabel.errors import DataError, SettingError
from halflabel.methods import METHODS
from halflabel.methods.bdd import CosineHead
from halflabel.methods.closed_form import fit_closed_form
from halflabel.methods.closed_form_several import SeveralLabels, fit_several_labels
from halflabel.methods.label_smoothing import word_features
from halflabel.methods.metaexpert import ExpertHead
from halflabel.nn.network import Linear
from halflabel.types import Shape

NAMES = {topic: " ".join(words.split()[:4]) for topic, words in TOPICS.items()}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


@pytest.mark.parametrize(("label", "words"), [
    ("card_declined", "card declined"), ("Sci/Tech", "Sci Tech"), ("are_you_a_bot", "are you a bot"),
    ("billingIssue", "billing Issue"), ("tag07", None), ("cs.CL", None), (3, None), (True, None), ("x1", None),
    ("---", None),
])
def test_labels_that_read_as_words(label: Any, words: str | None) -> None:
    assert words_of_label(label) == (words if label is not True else "True")


@pytest.mark.parametrize(("content", "message"), [
    (["a", "b"], "not a mapping"), ({"a": ""}, "'a' is empty"), ({"a": []}, "'a' is empty"), ({"a": [1]}, "not a text"),
    ({"a": "same", "b": ["other", "Same "]}, "'a' and 'b' have the same name"), ("text", "not a mapping"),
])
def test_names_that_cannot_be_used(content: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_names(content, "names.json")


def test_names_extend_the_classes() -> None:
    for labels in (["b", "a", None], [("b", "a"), (), None]):
        classes, notices = classes_with_names(labels, {"a": ["x"], "c": ["y"]})
        assert classes.names == ("a", "b", "c") and "'c'" in notices[0]
    assert phrases_for(classes, {"a": ["x", "z"], "c": ["y"]}) == [["x", "z"], ["b"], ["y"]]
    with pytest.raises(SettingError, match="a name for 'c', which no labelled text has; known labels are 1, 2"):
        classes_with_names([1, 2], {"c": ["y"]})


def test_opaque_labels_are_not_used_as_names() -> None:
    names, notices = choose_names("labels", ["sport", "tag07"])
    assert names == {} and "'tag07' does not read as words" in notices[0]
    assert choose_names("labels", ["late_fee", "refund"])[0] == {"late_fee": ["late fee"], "refund": ["refund"]}
    assert choose_names("labels", []) == ({}, [])


def test_vectors_are_unit_means_over_phrases_and_templates(tiny_encoder: str) -> None:
    encoder = load_encoder(tiny_encoder).eval()
    both, first = name_vectors(encoder, [["goal", "match"], ["bread"]]), name_vectors(encoder, [["goal"], ["bread"]])
    assert both.shape == (2, 32) and np.allclose(np.linalg.norm(both, axis=1), 1.0)
    assert np.allclose(both[1], first[1]) and not np.allclose(both[0], first[0])


def clusters(rng: np.random.Generator, centres: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    y = rng.integers(0, len(centres), number)
    x = centres[y] + 0.5 * rng.normal(size=(number, centres.shape[1])) / np.sqrt(centres.shape[1])
    return x / np.linalg.norm(x, axis=1, keepdims=True), y


class TestClosedForm:
    @pytest.fixture
    def data(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(0)
        centres = np.linalg.qr(rng.normal(size=(24, 4)))[0].T
        names = centres + 0.5 * rng.normal(size=centres.shape) / np.sqrt(24)
        pool, truth = clusters(rng, centres, 400)
        x, y = clusters(rng, centres, 100)
        rows = np.array([np.flatnonzero(y == k)[i] for i in range(2) for k in range(4)])
        x, y = x[rows], y[rows]
        return {"pool": pool, "truth": truth, "x": x, "y": y, "names": names}

    def fit(self, data: dict[str, np.ndarray], labelled: int, names: np.ndarray | None) -> Any:
        words = word_features([f"w{i}" for i in range(labelled + 400)])
        return fit_closed_form(data["x"][:labelled], data["y"][:labelled], data["pool"], words, 4, seed=0, names=names)

    def accuracy(self, fitted: Any, data: dict[str, np.ndarray]) -> float:
        return float((fitted.soft.argmax(axis=1) == data["truth"]).mean())

    def test_names_and_a_pool_are_enough(self, data: dict[str, np.ndarray]) -> None:
        fitted = self.fit(data, 0, data["names"])
        assert fitted.uses_names and self.accuracy(fitted, data) > 0.9
        assert np.allclose(fitted.soft.sum(axis=1), 1.0, atol=1e-5)

    @pytest.mark.parametrize("labelled", [4, 8])  # one and two per class
    def test_names_that_do_not_match_the_labels_are_not_used(self, data: dict[str, np.ndarray], labelled: int) -> None:
        meaningless = np.random.default_rng(1).normal(size=data["names"].shape)
        none = self.fit(data, labelled, None)
        assert self.fit(data, labelled, data["names"]).uses_names and self.accuracy(none, data) > 0.9
        for names in (data["names"][[1, 2, 3, 0]], meaningless):
            unused = self.fit(data, labelled, names)
            assert not unused.uses_names and np.array_equal(unused.soft, none.soft)


class TestSeveralLabels:
    """Names in the closed form of `lift-ml`."""

    @pytest.fixture
    def data(self) -> dict[str, np.ndarray]:
        """Texts with one or two of six labels; the first twelve are labelled."""
        rng = np.random.default_rng(0)
        centres = np.linalg.qr(rng.normal(size=(32, 6)))[0].T
        y = np.eye(6)[rng.integers(0, 6, 512)]
        y = np.maximum(y, (rng.random((512, 1)) < 0.5) * np.eye(6)[rng.integers(0, 6, 512)])
        x = y @ centres + 0.8 * rng.normal(size=(512, 32)) / np.sqrt(32)
        names = centres + 0.6 * rng.normal(size=centres.shape) / np.sqrt(32)
        return {"x": x / np.linalg.norm(x, axis=1, keepdims=True), "y": y, "names": names}

    @staticmethod
    def fit(data: dict[str, np.ndarray], labelled: int, names: np.ndarray | None, **settings: float) -> SeveralLabels:
        x, y = data["x"], data["y"][:labelled]
        words = word_features([f"w{i}" for i in range(labelled + 500)])
        return fit_several_labels(x[:labelled], y, x[12:], words, seed=0, names=names, **settings)  # type: ignore[arg-type]

    @staticmethod
    def right(fitted: SeveralLabels, data: dict[str, np.ndarray]) -> float:
        """The share of texts whose most probable label they have."""
        return float(data["y"][12:][np.arange(500), fitted.soft.argmax(axis=1)].mean())

    def test_names_and_a_pool_are_enough(self, data: dict[str, np.ndarray]) -> None:
        fitted, fewer = self.fit(data, 0, data["names"]), self.fit(data, 0, data["names"], labels_per_text=1.0)
        assert fitted.names is not None and self.right(fitted, data) > 0.9
        assert fitted.soft.sum(axis=1).mean() == pytest.approx(2.0, abs=0.01)
        assert fewer.soft.sum(axis=1).mean() == pytest.approx(1.0, abs=0.01)

    def test_two_labels_are_not_both_expected_everywhere(self, data: dict[str, np.ndarray]) -> None:
        some = {"x": data["x"], "y": data["y"][:, :2]}
        assert self.fit(some, 0, data["names"][:2]).soft.mean() == pytest.approx(0.5, abs=0.01)

    def test_names_help_where_labels_are_few(self, data: dict[str, np.ndarray]) -> None:
        none, named = self.fit(data, 4, None), self.fit(data, 4, data["names"])
        assert named.names is not None and self.right(named, data) > self.right(none, data) + 0.1

    @pytest.mark.parametrize("labelled", [4, 12])
    def test_names_that_do_not_match_the_labels_are_not_used(self, data: dict[str, np.ndarray], labelled: int) -> None:
        meaningless, none = np.random.default_rng(1).normal(size=(6, 32)), self.fit(data, labelled, None)
        for names in (np.roll(data["names"], 1, axis=0), meaningless):
            unused = self.fit(data, labelled, names)
            assert unused.names is None and np.array_equal(unused.soft, none.soft)

    def test_each_name_is_trusted_by_its_own_label(self, data: dict[str, np.ndarray]) -> None:
        swapped = self.fit(data, 12, data["names"][[0, 1, 2, 3, 5, 4]]).names
        assert swapped is not None and swapped.slopes[4:].max() < swapped.slopes[:4].min()

    def test_a_label_that_only_has_a_name(self, data: dict[str, np.ndarray]) -> None:
        without = data["y"][:, 5] == 0
        few = {"x": np.concatenate([data["x"][without][:12], data["x"][12:]]),
               "y": np.concatenate([data["y"][without][:12], data["y"][12:]])}
        fitted = self.fit(few, 12, data["names"])
        assert fitted.names is not None and 0.05 < fitted.names.prior[5] < 0.2
        most = np.argsort(-fitted.soft[:, 5])[:30]
        assert few["y"][12:][most, 5].mean() > 0.8

    def test_unknown_labels_and_no_pool(self, data: dict[str, np.ndarray]) -> None:
        y = data["y"][:12].copy()
        y[:3] = np.nan
        alone = fit_several_labels(data["x"][:12], y, data["x"][:0], word_features(["w"] * 12), seed=0,
                                   names=data["names"])
        assert alone.names is not None and np.isfinite(alone.model.weight).all() and alone.soft.shape == (0, 6)


class TestInitialHead:
    """Methods with a head start from the class names."""

    def test_which_methods_take_names(self) -> None:
        without = {"label-spreading", "logreg", "nb-em", "sdrl", "self-training", "vampire"}
        assert {name for name, method in METHODS.items() if not method.takes_names} == without

    @pytest.mark.parametrize(("make", "layers"), [(Linear, 1), (CosineHead, 1), (ExpertHead, 4)])
    def test_scores_are_those_of_the_nearest_name(self, make: Any, layers: int) -> None:
        rng = np.random.default_rng(0)
        centres = np.linalg.qr(rng.normal(size=(24, 4)))[0].T
        x, y = clusters(rng, centres, 200)
        head = make(Shape(labels=4, width=24 * layers, labelled=4, unlabelled=4))
        h, names = (torch.from_numpy(part).float() for part in (x + 3.0, centres - 1.0))  # centres of their own
        h, names = (torch.cat([*[torch.randn_like(part)] * (layers - 1), part], dim=1) for part in (h, names))
        head.start_from_names(names, h)
        with torch.no_grad():
            assert (head(head.features(h)).argmax(dim=1).numpy() == y).mean() > 0.95

    def test_more_classes_than_features(self) -> None:
        head = Linear(Shape(labels=150, width=200, labelled=4, unlabelled=4))
        names = torch.from_numpy(np.random.default_rng(0).normal(size=(150, 200))).float()
        head.start_from_names(names, names)
        with torch.no_grad():
            assert (head(head.features(names)).argmax(dim=1) == torch.arange(150)).float().mean() > 0.95

    @pytest.mark.parametrize("method", ["ce", "bdd-f", "metaexpert"])
    def test_names_before_the_first_step(self, tiny_encoder: str, method: str) -> None:
        texts, labels = tiny_texts(1)
        pool, truth = tiny_texts(30, seed=1)
        nothing = {"epochs": 0, "warmup": 0}
        classifier = TextClassifier(method, tiny_encoder, "frozen", settings=nothing, names=NAMES)
        classifier.fit(texts, labels, unlabelled=pool)
        assert (classifier.predict(pool) == truth).mean() > 0.5  # chance is a third
        assert any("first weights" in notice for notice in classifier.notices_)

    @pytest.mark.parametrize("method", ["bce", "am-ml", "bdd-ml", "asl"])
    def test_several_labels(self, tiny_encoder: str, method: str) -> None:
        texts, labels = tiny_texts(3)
        pool, truth = tiny_texts(30, seed=1)
        classifier = TextClassifier(method, tiny_encoder, "frozen", settings={"epochs": 0, "warmup": 0}, names=NAMES)
        classifier.fit(texts, [(label,) for label in labels], unlabelled=pool)
        assert any("first weights" in notice for notice in classifier.notices_)
        assert (classifier.classes_[classifier.predict_proba(pool).argmax(axis=1)] == truth).mean() > 0.5


class TestClassifier:
    def test_without_any_label(self, tiny_encoder: str) -> None:
        pool, _ = tiny_texts(20, seed=1)
        classifier = TextClassifier(encoder=tiny_encoder, plan="frozen", names=NAMES).fit([], [], unlabelled=pool)
        assert classifier.classes_.tolist() == sorted(TOPICS) and len(set(classifier.predict(pool))) > 1
        assert any("class names are used" in notice for notice in classifier.notices_)

    def test_fine_tuning_without_any_label(self, tiny_encoder: str, tmp_path: Path) -> None:
        pool, _ = tiny_texts(12, seed=1)
        short = {"epochs": 1, "epoch_steps": 3, "unlabelled_batch": 4}
        classifier = TextClassifier(encoder=tiny_encoder, names=NAMES, settings=short).fit([], [], unlabelled=pool)
        assert np.isfinite(classifier.predict_proba(pool)).all()
        classifier.save(tmp_path / "model")
        assert list(TextClassifier.load(tmp_path / "model").predict(pool)) == list(classifier.predict(pool))

    def test_several_labels_without_any_label(self, tiny_encoder: str, tmp_path: Path) -> None:
        pool, truth = tiny_texts(20, seed=1)
        classifier = TextClassifier("lift-ml", tiny_encoder, "frozen", names=NAMES, settings={"labels_per_text": 1.0})
        classifier.fit([], [], unlabelled=pool)
        p = classifier.predict_proba(pool)
        assert classifier.method_ == "lift-ml" and (classifier.classes_[p.argmax(axis=1)] == truth).mean() > 0.5
        assert 0.5 < np.mean([len(labels) for labels in classifier.predict(pool)]) < 2.0
        notices = " / ".join(classifier.notices_)
        assert "class names are used" in notices and "1 are expected" in notices and "hardly be learnt" not in notices
        classifier.save(tmp_path / "model")
        assert list(TextClassifier.load(tmp_path / "model").predict(pool)) == list(classifier.predict(pool))

    def test_a_matrix_without_rows_says_that_there_are_several_labels(self, tiny_encoder: str) -> None:
        pool, _ = tiny_texts(12, seed=1)
        names = dict(enumerate(NAMES.values()))
        short = {"epochs": 1, "epoch_steps": 3, "unlabelled_batch": 4}
        classifier = TextClassifier(encoder=tiny_encoder, names=names, settings=short)
        classifier.fit([], np.empty((0, 3)), unlabelled=pool)
        assert classifier.method_ == "lift-ml" and classifier.predict(pool).shape == (36, 3)
        with pytest.raises(SettingError, match="a name for '3', which no column of the label matrix is"):
            TextClassifier(encoder=tiny_encoder, names=names | {3: "x"}).fit([], np.empty((0, 3)), unlabelled=pool)

    def test_several_labels_of_which_one_only_has_a_name(self, tiny_encoder: str) -> None:
        texts, labels = tiny_texts(6)
        keep = [i for i, label in enumerate(labels) if label != "food"]
        pool, _ = tiny_texts(20, seed=1)
        classifier = TextClassifier("lift-ml", tiny_encoder, "frozen", names=NAMES)
        classifier.fit([texts[i] for i in keep], [(labels[i],) for i in keep], unlabelled=pool)
        assert any("'food'" in notice for notice in classifier.notices_)
        assert any("food" in labels for labels in classifier.predict(pool))
        assert not any("hardly be learnt" in notice for notice in classifier.notices_)

    def test_several_labels_that_read_as_words_are_names_by_default(self, tiny_encoder: str) -> None:
        texts, labels = tiny_texts(4)
        several = [(label,) for label in labels]
        default, none, used = (TextClassifier("lift-ml", tiny_encoder, "frozen", names=names).fit(texts, several)
                               for names in (None, "none", "labels"))
        assert np.array_equal(default.predict_proba(texts), used.predict_proba(texts))
        assert "uses_names" in default.model_.facts["start"] and not none.model_.facts["start"]
        opaque = [(f"tag0{len(label)}",) for label in labels]
        assert not TextClassifier("lift-ml", tiny_encoder, "frozen").fit(texts, opaque).model_.facts["start"]

    def test_a_class_that_only_has_a_name(self, tiny_encoder: str) -> None:
        texts, labels = tiny_texts(3)
        keep = [i for i, label in enumerate(labels) if label != "food"]
        pool, _ = tiny_texts(10, seed=1)
        classifier = TextClassifier(encoder=tiny_encoder, plan="frozen", names=NAMES)
        classifier.fit([texts[i] for i in keep], [labels[i] for i in keep], unlabelled=pool)
        assert "food" in classifier.classes_ and any("'food'" in notice for notice in classifier.notices_)

    def test_methods_that_do_not_use_names_refuse_them(self, tiny_encoder: str) -> None:
        texts, labels = tiny_texts(3)
        with pytest.raises(SettingError, match="nb-em does not use class names; choose lift"):
            TextClassifier("nb-em", names=NAMES).fit(texts, labels)
        with pytest.raises(SettingError, match="sdrl does not use class names; choose lift"):
            TextClassifier("sdrl", names=NAMES).fit(texts, [(label,) for label in labels])

    def test_no_label_and_no_name(self, tiny_encoder: str) -> None:
        with pytest.raises(DataError, match="no label at all"):
            TextClassifier(encoder=tiny_encoder).fit([], [], unlabelled=["a text"])


class TestCommand:
    def test_train_predict_and_resume_without_labels(self, tmp_path: Path, tiny_encoder: str, cli: Ran) -> None:
        pool, _ = tiny_texts(15, seed=1)
        write_csv(tmp_path / "pool.csv", pool)
        (tmp_path / "names.json").write_text(json.dumps(NAMES))
        arguments = ("train", "--names", tmp_path / "names.json", "--unlabelled", tmp_path / "pool.csv", "--plan",
                     "frozen", "--encoder", tiny_encoder, "--out", tmp_path / "model")
        done = cli(*arguments)
        assert done.code == 0, done.err
        predicted = cli("predict", tmp_path / "model", tmp_path / "pool.csv")
        assert predicted.code == 0 and len(predicted.out.splitlines()) == 45
        assert cli(*arguments, "--resume").code == 0

    def test_several_labels_without_labels(self, tmp_path: Path, tiny_encoder: str, cli: Ran) -> None:
        write_csv(tmp_path / "pool.csv", tiny_texts(15, seed=1)[0])
        (tmp_path / "names.json").write_text(json.dumps(NAMES))
        done = cli("train", "--names", tmp_path / "names.json", "--unlabelled", tmp_path / "pool.csv", "--several",
                   "--plan", "frozen", "--encoder", tiny_encoder, "--out", tmp_path / "model")
        assert done.code == 0, done.err
        line = "class names used for 3 of 3 labels"
        assert line in done.out and line in cli("info", tmp_path / "model").out
        assert "no label tells how many labels a text has" in done.err
        predicted = cli("predict", tmp_path / "model", tmp_path / "pool.csv")
        assert predicted.code == 0 and isinstance(json.loads(predicted.out.splitlines()[0])["labels"], list)
        more = [{"text": text, "labels": [label]} for text, label in zip(*tiny_texts(3), strict=True)]
        write_jsonl(tmp_path / "more.jsonl", more)
        updated = cli("update", tmp_path / "model", tmp_path / "more.jsonl", "--unlabelled", tmp_path / "pool.csv",
                      "--json")
        assert updated.code == 0, updated.err
        assert (json.loads(updated.out)["n_labelled_before"], json.loads(updated.out)["n_labelled"]) == (0, 9)

    def test_names_of_several_labels_that_do_not_fit(self, tmp_path: Path, tiny_encoder: str, cli: Ran) -> None:
        texts, labels = tiny_texts(4)
        write_jsonl(tmp_path / "a.jsonl", [{"text": text, "labels": [label]}
                                           for text, label in zip(texts, labels, strict=True)])
        write_csv(tmp_path / "pool.csv", tiny_texts(10, seed=1)[0])
        meanings = list(NAMES.values())
        (tmp_path / "names.json").write_text(json.dumps(dict(zip(NAMES, meanings[1:] + meanings[:1], strict=True))))
        done = cli("train", tmp_path / "a.jsonl", "--unlabelled", tmp_path / "pool.csv", "--names",
                   tmp_path / "names.json", "--method", "lift-ml", "--plan", "frozen", "--encoder", tiny_encoder,
                   "--out", tmp_path / "model")
        assert done.code == 0 and "the names are not used" in done.err
        assert "class names not used" in done.out and "class names not used" in cli("info", tmp_path / "model").out

    @pytest.mark.parametrize(("option", "used"), [
        ((), True), (("--names", "labels"), True), (("--names", "none"), False),
    ])
    def test_the_labels_as_names(self, tmp_path: Path, tiny_encoder: str, cli: Ran, option: tuple[str, ...],
                                 used: bool) -> None:
        texts, labels = tiny_texts(4)
        write_csv(tmp_path / "a.csv", texts, labels)
        write_csv(tmp_path / "pool.csv", tiny_texts(10, seed=1)[0])
        done = cli("train", tmp_path / "a.csv", "--unlabelled", tmp_path / "pool.csv", *option, "--plan", "frozen",
                   "--encoder", tiny_encoder, "--out", tmp_path / "model")
        assert done.code == 0 and ("class names" in done.out.split("would help")[0]) == used
        described = cli("info", tmp_path / "model").out
        for line in ("trusted ", "expected ", "would help "):
            assert line in done.out and line in described
        facts = json.loads(cli("info", tmp_path / "model", "--json").out)["outlook"]
        assert facts["names_given"] == used and facts["expected"]["held_out"] == 12

    @pytest.mark.parametrize(("content", "arguments", "message"), [
        ("{}", ("--unlabelled", "pool.csv"), "no label at all"),
        ("[1]", ("--unlabelled", "pool.csv"), "names.json is not a mapping"),
        ("{", ("--unlabelled", "pool.csv"), "names.json is not valid JSON"),
        ('{"a": " ", "b": "x"}', ("--unlabelled", "pool.csv"), "the name of 'a' is empty"),
        ('{"a": "x", "b": "x"}', ("--unlabelled", "pool.csv"), "have the same name"),
        ('{"a": "x", "b": "y"}', (), "nothing to learn from"),
        ('{"a": "x", "b": "y"}', ("--unlabelled", "pool.csv", "--method", "nb-em"), "does not use class names"),
        ('{"a": "x", "b": "y"}', ("--unlabelled", "pool.csv", "--method", "ce"), "ce needs labelled texts"),
        ("{}", ("--unlabelled", "pool.csv", "--several"), "no label at all"),
        ('{"a": "x"}', ("--unlabelled", "pool.csv", "--several"), "only one class"),
        ("[1]", ("--unlabelled", "pool.csv", "--several"), "names.json is not a mapping"),
        ('{"a": [], "b": "x"}', ("--unlabelled", "pool.csv", "--several"), "the name of 'a' is empty"),
        ('{"a": "x", "b": " X"}', ("--unlabelled", "pool.csv", "--several"), "have the same name"),
        ('{"a": "x", "b": "y"}', ("--unlabelled", "pool.csv", "--several", "--method", "ce"), "for one label for each"),
        ('{"a": "x", "b": "y"}', ("--unlabelled", "pool.csv", "--method", "bdd-ml"), "bdd-ml needs labelled texts"),
        ('{"a": "x", "b": "y"}', ("one.csv", "--several"), "one label for each text, but several are asked for"),
        ('{"a": "x", "b": "y"}', ("--unlabelled", "pool.csv", "--several", "--set", "labels_per_text=0"),
         "labels_per_text=0 is out of range"),
    ])
    def test_bad_input(self, tmp_path: Path, tiny_encoder: str, cli: Ran, monkeypatch: pytest.MonkeyPatch, content: str,
                       arguments: tuple[str, ...], message: str) -> None:
        monkeypatch.chdir(tmp_path)
        write_csv(tmp_path / "pool.csv", tiny_texts(4, seed=1)[0])
        write_csv(tmp_path / "one.csv", ["goal match", "bread soup"], ["a", "b"])
        (tmp_path / "names.json").write_text(content)
        done = cli("train", "--names", "names.json", *arguments, "--plan", "frozen", "--encoder", tiny_encoder, "--out",
                   "model")
        assert done.code == 2 and message in done.err and done.lines == 1
        assert not (tmp_path / "model").exists()


def test_numbers_as_labels_take_names_by_their_digits() -> None:
    names = {"0": ["negative"], "1": ["positive"]}
    classes, _ = classes_with_names([0, 1], names)
    assert classes == Classes((0, 1)) and phrases_for(classes, names) == [["negative"], ["positive"]]
