"""`halflabel update`, and the labels of several annotators."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_runner import Done, Ran, runner, write_csv, write_jsonl
from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.data.annotators import krippendorff_alpha, merge_annotators
from halflabel.data.corpus import Corpus
from halflabel.errors import DataError
from halflabel.label_errors import cross_fitted, estimate_accuracy
from halflabel.processes import Interrupted

TEXTS, LABELS = tiny_texts(6)
MORE, MORE_LABELS = tiny_texts(8, seed=3)
TWO = [label in ("food", "money") for label in LABELS]  # the classes of the model


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Path:
    """A run with two of three classes."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    texts, labels = zip(*((t, y) for t, y, two in zip(TEXTS, LABELS, TWO, strict=True) if two), strict=True)
    TextClassifier("lift", tiny_encoder, "frozen", random_state=3).fit(
        list(texts), list(labels), tiny_texts(10, seed=5)[0], folder=folder)
    return folder


@pytest.fixture
def here(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, tmp_path / "model")
    write_csv(tmp_path / "more.csv", MORE, MORE_LABELS)
    write_csv(tmp_path / "pool.csv", tiny_texts(10, seed=5)[0])
    return tmp_path


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def kept_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "labelled.jsonl").read_text().splitlines()]


def report_of(done: Done) -> dict[str, Any]:
    assert done.code == 0, done
    return json.loads(done.out)


class TestUpdate:
    def test_old_and_new_labels_and_a_new_class(self, here: Path, cli: Ran) -> None:
        before = files_of(here / "model")
        report = report_of(cli("update", "model", "more.csv", "--unlabelled", "pool.csv", "--out", "newer", "--json"))
        assert (report["n_labelled_before"], report["n_labelled"], report["new_classes"]) == (12, 36, ["sport"])
        assert 0 < report["accuracy_before"] <= 1 and 0 < report["accuracy"] <= 1
        assert files_of(here / "model") == before, "another folder leaves the model alone"
        old, new = (TextClassifier.load(here / name) for name in ("model", "newer"))
        pool = tiny_texts(10, seed=5)[0]
        assert report["n_compared"] == 30 and report["n_changed"] == (old.predict(pool) != new.predict(pool)).sum() > 0
        change = report["changed"][0]
        assert (old.predict([change["text"]])[0], new.predict([change["text"]])[0]) == (change["before"],
                                                                                        change["after"])
        # the same as training on all of it from the start, with the settings of the model
        kept = kept_rows(here / "newer")
        whole = TextClassifier("lift", new.model_.facts["encoder"], "frozen", random_state=3).fit(
            [row["text"] for row in kept], [row["label"] for row in kept], pool)
        np.testing.assert_allclose(whole.predict_proba(pool), new.predict_proba(pool), atol=1e-6)

    def test_in_place_with_corrected_labels(self, here: Path, cli: Ran) -> None:
        first = TEXTS[TWO.index(True)]
        write_jsonl(here / "fixed.jsonl", [{"text": first, "label": "sport"},
                                           *({"text": t, "label": y} for t, y in zip(MORE, MORE_LABELS, strict=True))])
        done = cli("update", "model", "fixed.jsonl", "--dev", "more.csv")
        assert done.code == 0 and "12 texts before, 36 now" in done.out and "new classes  sport" in done.out
        assert "1 earlier label is replaced by fixed.jsonl" in done.err
        assert "model was trained with 30 unlabelled texts, and now there are none" in done.err
        kept = {row["text"]: row["label"] for row in kept_rows(here / "model")}
        assert kept[first] == "sport" and len(kept) == 36
        assert set(TextClassifier.load(here / "model").classes_) == {"food", "money", "sport"}
        assert not [path for path in here.iterdir() if path.name.startswith(".")], "nothing is left behind"

    def test_what_stops_training_leaves_the_model_as_it_was(self, here: Path, cli: Ran, monkeypatch: Any) -> None:
        before = files_of(here / "model")
        monkeypatch.setattr("halflabel.persistence.model.write_checksums", interrupt)
        done = cli("update", "model", "more.csv", "--quiet")
        assert done.code == 130 and files_of(here / "model") == before
        assert sorted(path.name for path in here.iterdir()) == ["cache", "model", "more.csv", "pool.csv"]

    def test_labels_that_are_not_kept_have_to_be_given(self, here: Path, cli: Ran) -> None:
        (here / "model/labelled.jsonl").unlink()
        done = cli("update", "model", "more.csv")
        assert (done.code, done.lines) == (2, 1) and "model does not keep its labelled texts" in done.err
        write_csv(here / "old.csv", TEXTS[:9], LABELS[:9])
        report = report_of(cli("update", "model", "more.csv", "--labelled", "old.csv", "--json", "--quiet"))
        assert report["n_labelled"] == 9 + 24 and not (here / "model/labelled.jsonl").exists(), "still not kept"

    @pytest.mark.parametrize(("arguments", "words"), [
        (["nowhere", "more.csv"], "nowhere"),
        (["model", "numbers.csv"], "use one type for all"),
        (["model", "more.csv", "--out", "full"], "full is not empty"),
        (["model", "more.csv", "--out", "full", "--force"], "does not look like a run"),
        (["saved", "more.csv"], "saved has no run.json"),
        (["model", "model/labelled.jsonl"], "it is an input"),
        (["model", "more.csv", "--annotator-column", "who"], "no column 'who'"),
    ])
    def test_one_sentence_and_nothing_changed(self, arguments: list[str], words: str, here: Path, cli: Ran) -> None:
        write_csv(here / "numbers.csv", ["one text", "another"], [1, 2])
        (here / "full").mkdir()
        (here / "full" / "notes.txt").write_text("mine")
        shutil.copytree(here / "model", here / "saved")
        (here / "saved" / "run.json").unlink()
        before = files_of(here)
        done = cli("update", *arguments, "--quiet")
        assert done.code == 2 and done.lines == 1 and words in done.err, done
        assert {name: data for name, data in files_of(here).items() if not name.startswith("cache")} == {
            name: data for name, data in before.items() if not name.startswith("cache")}


def interrupt(*_: Any) -> None:
    raise Interrupted


class TestKeptLabels:
    def test_only_if_they_are_wanted(self, here: Path, tiny_encoder: str, cli: Ran) -> None:
        for option, kept in (("--keep-labels", True), ("--no-keep-labels", False)):
            done = cli("train", "more.csv", "--plan", "frozen", "--encoder", tiny_encoder, option, "--out",
                       f"run{kept}")
            assert done.code == 0 and (here / f"run{kept}/labelled.jsonl").exists() is kept


class TestAnnotators:
    def test_majority_and_ties(self) -> None:
        corpus = Corpus(["a", "a", "a", "b", "b", "c", "d", "a"], ["x", "y", "x", "x", "y", "y", None, "x"], [], "f")
        merged, notices = merge_annotators(corpus, ["ann", "bob", "cy", "ann", "bob", "cy", "ann", "bob"])
        assert list(zip(merged.texts, merged.labels, strict=True)) == [("a", "x"), ("c", "y"), ("d", None)]
        assert "3 annotators labelled 3 texts in f, 2 of them more than once" in notices[0]
        assert "the same label for 1" in notices[0], "the last label of an annotator counts"
        assert notices[1] == "1 text in f was left out because its annotators disagree without a majority"

    def test_several_labels_one_by_one(self) -> None:
        corpus = Corpus(["a"] * 3 + ["b"] * 2, [("x", "y"), ("y",), ("y", "z"), ("x",), ()])
        merged, notices = merge_annotators(corpus, [1, 2, 3, 1, 2])
        assert merged.texts == ["a"] and merged.labels == [("y",)] and len(notices) == 2

    def test_labels_of_two_kinds_are_refused(self) -> None:
        with pytest.raises(DataError, match="use one type for all"):
            merge_annotators(Corpus(["a", "a"], ["x", 1]), ["ann", "bob"])

    def test_alpha_of_a_published_example(self) -> None:
        """Krippendorff (2011), "Computing Krippendorff's alpha-reliability", section C: nominal data, 0.743."""
        rows = ["1 2 3 3 2 1 4 1 2 . . .", "1 2 3 3 2 2 4 1 2 5 . 3", ". 3 3 3 2 3 4 2 2 5 1 .",
                "1 2 3 3 2 4 4 1 2 5 1 ."]
        units = [[value for value in column if value != "."] for column in zip(*map(str.split, rows), strict=True)]
        assert krippendorff_alpha([unit for unit in units if len(unit) > 1]) == pytest.approx(0.743, abs=5e-4)
        assert krippendorff_alpha([["x", "x"], ["x", "x"]]) == 1.0

    def test_train_and_check_merge_them(self, here: Path, tiny_encoder: str, cli: Ran) -> None:
        rows = [{"text": t, "label": y, "who": who} for t, y in zip(MORE, MORE_LABELS, strict=True)
                for who in ("ann", "bob", "cy")]
        rows[0]["label"] = "sport" if rows[0]["label"] != "sport" else "food"
        write_jsonl(here / "three.jsonl", rows)
        done = cli("train", "three.jsonl", "--annotator-column", "who", "--plan", "frozen", "--encoder", tiny_encoder,
                   "--out", "run")
        assert done.code == 0 and "3 annotators labelled 24 texts" in done.err and "alpha 0.9" in done.err
        kept = {row["text"]: row["label"] for row in kept_rows(here / "run")}
        assert kept == dict(zip(MORE, MORE_LABELS, strict=True))
        done = cli("check", "three.jsonl", "--annotator-column", "who", "--no-tokens")
        assert done.code == 0 and "note: 3 annotators labelled 24 texts" in done.out and "duplicate" not in done.out


class TestEstimate:
    def test_more_labels_and_the_same_texts(self) -> None:
        rng = np.random.default_rng(0)
        y = np.arange(60) % 3
        x = np.eye(3)[y] + rng.normal(0, 0.7, (60, 3))
        labels, few = [str(k) for k in y], np.arange(60) < 6
        before, after = (estimate_accuracy(x, labels, fit_on=rows) for rows in (few, None))
        assert before is not None and after is not None and 0.3 < before < after
        sets = [("even",) * (k % 2 == 0) + ("big",) * (k > 0) for k in y.tolist()]
        assert (estimate_accuracy(x, sets) or 0) > 0.8 and estimate_accuracy(x[:9], labels[:9]) is None

    def test_one_class_to_fit_on_is_predicted_everywhere(self) -> None:
        y = np.array([0, 0, 1, 1])
        p = cross_fitted(np.eye(4), y, 2, fit_on=y == 0)
        assert p.tolist() == [[1.0, 0.0]] * 4
