"""`halflabel suggest` and `TextClassifier.suggest`, with a tiny encoder."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from cli_runner import Ran, runner, write_csv, write_jsonl
from conftest import tiny_texts
from halflabel import suggestions
from halflabel.active_learning import STRATEGIES
from halflabel.classifier import TextClassifier
from halflabel.data.pool import open_pool
from halflabel.errors import DataError, SettingError

FAST = {"epochs": 1, "epoch_steps": 5, "warmup": 200}
COLUMNS = ["text", "guess", "probability", "reason"]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Path:
    """A run with three classes, trained once."""
    folder = tmp_path_factory.mktemp("model") / "model"
    TextClassifier("ce", tiny_encoder, "frozen", settings=FAST).fit(*tiny_texts(8), folder=folder)
    return folder


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Path:
    """A run with several labels per text."""
    folder = tmp_path_factory.mktemp("tagger") / "model"
    texts, labels = tiny_texts(8)
    tags = [[label, "long"] if len(text) > 50 else [label] for text, label in zip(texts, labels, strict=True)]
    TextClassifier("bce", tiny_encoder, "frozen", settings=FAST).fit(texts, tags, folder=folder)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "pool.csv", tiny_texts(20, seed=1)[0])
    write_csv(tmp_path / "trained.csv", tiny_texts(8)[0])
    (tmp_path / "empty").mkdir()
    return tmp_path


def rows(file: Path) -> list[dict[str, str]]:
    with open(file, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


BAD = {
    "nothing left": (["MODEL", "trained.csv"], "trained.csv: no text is left to label"),
    "no texts wanted": (["MODEL", "pool.csv", "--n", "0"], "--n 0 is not a number of texts"),
    "unknown strategy": (["MODEL", "pool.csv", "--strategy", "magic"], "no strategy 'magic'"),
    "no model": (["pool.csv"], "name a model before the pool"),
    "no pool": (["MODEL"], "name a pool after the model"),
    "another folder": (["empty", "pool.csv"], "empty is not the folder of a model"),
    "an encoder as model": (["ENCODER", "pool.csv"], "config.json"),
    "a model and an encoder": (["MODEL", "pool.csv", "--encoder", "minilm"], "leave out --encoder"),
    "doubt without a model": (["pool.csv", "--encoder", "ENCODER", "--strategy", "uncertainty"], "needs a model"),
    "missing pool": (["MODEL", "nowhere.csv"], "nowhere.csv"),
    "unknown format": (["MODEL", "pool.csv", "--out", "next.doc"], "next.doc"),
    "the pool as output": (["MODEL", "pool.csv", "--out", "pool.csv", "--force"], "it is an input"),
    "an output that exists": (["MODEL", "pool.csv", "--out", "trained.csv"], "trained.csv exists already"),
}


class TestCommand:
    def test_rows_of_text_guess_probability_and_reason(self, here: Path, model: Path, cli: Ran) -> None:
        done = cli("suggest", model, "pool.csv", "--n", 12, "--out", "next.csv")
        assert (done.code, done.out) == (0, "12 texts to label written to next.csv\n")
        found = rows(here / "next.csv")
        assert len({row["text"] for row in found}) == 12 and list(found[0]) == COLUMNS
        assert {row["text"] for row in found} <= set(tiny_texts(20, seed=1)[0])
        assert {row["guess"] for row in found} <= {"food", "money", "sport"}
        assert all(1 / 3 < float(row["probability"]) <= 1 for row in found)
        predicted = cli("predict", model, "next.csv").out.splitlines()
        assert [json.loads(line)["label"] for line in predicted] == [row["guess"] for row in found]
        words = ("uncertain between ", "far from labelled texts", "rare class: ", "covers a dense region")
        assert all(row["reason"].startswith(words) for row in found)

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_the_seed_decides(self, strategy: str, here: Path, model: Path, cli: Ran) -> None:
        same = [cli("suggest", model, "pool.csv", "--n", 9, "--strategy", strategy, "--seed", 5) for _ in range(2)]
        assert same[0].code == 0 and same[0].out == same[1].out and len(same[0].out.splitlines()) == 9

    def test_uncertainty_is_by_margin(self, here: Path, model: Path, cli: Ran) -> None:
        lines = cli("suggest", model, "pool.csv", "--n", 5, "--strategy", "uncertainty").out.splitlines()
        texts, _ = tiny_texts(20, seed=1)
        p = np.sort(TextClassifier.load(model).predict_proba(texts), axis=1)
        smallest = np.argsort(p[:, -1] - p[:, -2])[:5]
        assert {json.loads(line)["text"] for line in lines} == {texts[i] for i in smallest}
        assert all(json.loads(line)["reason"].startswith("uncertain between ") for line in lines)

    def test_labelled_texts_are_left_out(self, here: Path, model: Path, cli: Ran) -> None:
        texts = tiny_texts(20, seed=1)[0]
        write_csv(here / "done.csv", texts[:50], ["sport"] * 50)
        done = cli("suggest", model, "pool.csv", "trained.csv", "--labelled", "done.csv", "--n", 10, "--out", "a.jsonl")
        assert done.code == 0
        found = [json.loads(line)["text"] for line in (here / "a.jsonl").read_text().splitlines()]
        assert sorted(found) == sorted(texts[50:])

    def test_more_than_the_pool_has(self, here: Path, model: Path, cli: Ran) -> None:
        done = cli("suggest", model, "pool.csv", "--n", 99)
        assert done.code == 0 and len(done.out.splitlines()) == 60
        assert done.err == "notice: only 60 texts are left to label in pool.csv, so all are suggested\n"

    @pytest.mark.parametrize("strategy", ["balanced", "diverse", "random"])
    def test_a_start_without_a_model(self, strategy: str, here: Path, tiny_encoder: str, cli: Ran) -> None:
        done = cli("suggest", "pool.csv", "--encoder", tiny_encoder, "--n", 6, "--strategy", strategy)
        found = [json.loads(line) for line in done.out.splitlines()]
        assert done.code == 0 and len({row["text"] for row in found}) == 6
        assert all(row["guess"] is None and row["probability"] is None for row in found)
        reason = "random sample" if strategy == "random" else "covers a dense region"
        assert {row["reason"] for row in found} == {reason}

    def test_several_labels(self, here: Path, tagger: Path, cli: Ran) -> None:
        done = cli("suggest", tagger, "pool.csv", "--n", 8, "--strategy", "uncertainty")
        found = [json.loads(line) for line in done.out.splitlines()]
        assert done.code == 0 and len(found) == 8
        names = {"food", "money", "sport", "long"}
        assert all(isinstance(row["guess"], list) and set(row["guess"]) <= names for row in found)
        assert {row["reason"] for row in found} <= {f"uncertain about {name}" for name in names}
        assert cli("suggest", tagger, "pool.csv", "--n", 8, "--out", "next.csv").code == 0

    def test_labels_in_the_pool_do_not_matter(self, here: Path, model: Path, cli: Ran) -> None:
        write_jsonl(here / "pool.jsonl", [{"text": text, "label": "x"} for text in tiny_texts(4, seed=1)[0]])
        done = cli("suggest", model, "pool.jsonl", "--n", 3)
        assert (done.code, done.err) == (0, "")

    @pytest.mark.parametrize("case", BAD)
    def test_one_sentence_and_nothing_written(self, case: str, here: Path, model: Path, tiny_encoder: str,
                                              cli: Ran) -> None:
        arguments, words = BAD[case]
        places = {"MODEL": str(model), "ENCODER": tiny_encoder}
        before = sorted(here.glob("*.*"))
        done = cli("suggest", *(places.get(argument, argument) for argument in arguments))
        assert done.code == 2 and done.err.startswith("error: ") and words in done.err, done
        assert done.lines == 1 and not done.out and sorted(here.glob("*.*")) == before


class TestClassifier:
    def test_after_fit_and_after_load(self, tiny_encoder: str, tmp_path: Path) -> None:
        texts, labels = tiny_texts(8)
        pool = [*texts, *tiny_texts(10, seed=1)[0]]
        clf = TextClassifier("ce", tiny_encoder, "frozen", settings=FAST).fit(texts, labels, folder=tmp_path / "run")
        fitted, loaded = (which.suggest(pool, n=10) for which in (clf, TextClassifier.load(tmp_path / "run")))
        assert fitted == loaded and len(fitted) == 10
        assert not {suggestion.text for suggestion in fitted} & set(texts)
        assert fitted[0]._fields == tuple(COLUMNS)

    def test_a_pool_on_disk_gives_the_same(self, model: Path, here: Path) -> None:
        clf = TextClassifier.load(model)
        on_disk = open_pool(here / "pool.csv")[0].texts
        assert clf.suggest(on_disk, 7) == clf.suggest(tiny_texts(20, seed=1)[0], 7)

    def test_bad_input(self, model: Path) -> None:
        clf = TextClassifier.load(model)
        with pytest.raises(DataError, match="no text left to label"):
            clf.suggest([])
        with pytest.raises(SettingError, match="n=0"):
            clf.suggest(["goal"], 0)
        with pytest.raises(SettingError, match="no strategy 'magic'"):
            clf.suggest(["goal"], strategy="magic")


def test_vectors_of_a_large_pool_are_never_in_memory_together(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggestions, "SHORTLIST", 20)
    monkeypatch.setattr(suggestions, "CHUNK", 16)
    opened, sizes = TextClassifier.load(model).model_, []

    def vectors(texts: list[str]) -> np.ndarray:
        sizes.append(len(texts))
        return opened.vectors(texts)

    texts = tiny_texts(100, seed=1)[0]
    for strategy in STRATEGIES:
        found, _ = suggestions.suggest(texts, 8, strategy, model=opened, vectors=vectors)
        assert len(found) == 8
    assert max(sizes) == 20
