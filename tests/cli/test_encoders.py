"""`halflabel encoders`, and training with encoders by name, joined, and chosen by held-out labels."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_runner import Ran, runner, write_csv
from conftest import make_tiny_encoder, tiny_texts
from halflabel import TextClassifier
from halflabel.cli import choices
from halflabel.encoders import catalogue
from halflabel.encoders.catalogue import CATALOGUE, KnownEncoder, own_folder
from halflabel.errors import EncoderError, ModelError, SettingError
from halflabel.persistence.model import load
from halflabel.persistence.onnx_export import export

STEPS = {"epochs": 1, "epoch_steps": 2, "survey": 20}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


@pytest.fixture(scope="module")
def other_encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    import torch
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("other")
    make_tiny_encoder(folder)
    torch.manual_seed(3)
    BertModel(BertConfig.from_pretrained(folder, hidden_size=16), add_pooling_layer=False).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_csv(tmp_path / "labelled.csv", *tiny_texts(4))
    write_csv(tmp_path / "pool.csv", tiny_texts(12, seed=1)[0])
    return tmp_path


@pytest.fixture
def prefixed(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an encoder of the catalogue that is here and has a prefix."""
    digest = hashlib.sha256((Path(tiny_encoder) / "model.safetensors").read_bytes()).hexdigest()
    known = KnownEncoder("prefixed", "someone/prefixed", "0" * 40, digest, 0.1, 32, 40, "MIT", prefix="goal: ")
    monkeypatch.setitem(CATALOGUE, "prefixed", known)
    shutil.copytree(tiny_encoder, own_folder(known))
    return "prefixed"


class TestList:
    def test_speed_is_measured_once_and_kept(self, prefixed: str, cli: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in CATALOGUE if name not in ("gte-small", "minilm", prefixed)]:
            monkeypatch.delitem(CATALOGUE, name)
        monkeypatch.setattr(choices, "MINILM", prefixed)
        monkeypatch.setattr(catalogue.importlib.util, "find_spec", lambda name: None)
        before = json.loads(cli("encoders", "--json").out)
        assert [row["speed"] for row in before] == [None] * 3
        assert [row["here"] for row in before] == [None, None, "fetched"]
        assert cli("encoders", "--measure").code == 0
        done = cli("encoders")
        lines = done.out.splitlines()
        assert lines[0].split() == ["name", "size,", "M", "width", "tokens", "licence", "languages", "speed", "here"]
        assert lines[3].split() == ["prefixed", "0.1", "32", "40", "MIT", "English", "1.0", "fetched"]
        assert max(map(len, lines)) <= 80 and done.err == ""

    def test_get(self, prefixed: str, cli: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "is here already" in cli("encoders", "get", prefixed).out
        unknown = cli("encoders", "get", "no-such")
        assert unknown.code == 2 and unknown.lines == 1 and "choose one of minilm" in unknown.err
        offline = cli("encoders", "get", "e5-base")
        assert offline.code == 2 and offline.lines == 1 and "could not be downloaded" in offline.err
        assert cli("encoders", "--json", "get", prefixed).code == 2

        def interrupt(known: KnownEncoder, bar: bool | None) -> Path:
            raise KeyboardInterrupt

        monkeypatch.setattr(choices, "fetch", interrupt)
        stopped = cli("encoders", "get", "e5-base")
        assert stopped.code == 130 and stopped.err == "stopped; the same command resumes the download\n"


def test_a_saved_model_keeps_the_prefix(prefixed: str, tmp_path: Path) -> None:
    texts, labels = tiny_texts(4)
    classifier = TextClassifier("lift", prefixed, "frozen").fit(texts, labels)
    classifier.save(tmp_path / "model")
    assert load(tmp_path / "model").encoder.prefix == "goal: "
    again = TextClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(texts), classifier.predict_proba(texts))


class TestJoined:
    def test_train_and_predict(self, files: Path, tiny_encoder: str, other_encoder: str, cli: Ran) -> None:
        done = cli("train", files / "labelled.csv", "--unlabelled", files / "pool.csv", "--plan", "frozen",
                   "--encoder", f"{tiny_encoder},{other_encoder}", "--out", files / "run", "--json")
        assert done.code == 0 and json.loads(done.out)["encoder"] == f"{tiny_encoder},{other_encoder}"
        done = cli("predict", files / "run", files / "pool.csv")
        assert done.code == 0 and len(done.out.splitlines()) == 36
        model = load(files / "run")
        assert model.encoder.width == 48 and len(model.encoder.parts) == 2
        with pytest.raises(ModelError, match="several encoders"):
            export(model, files / "onnx", ["goal"])
        classifier = TextClassifier.load(files / "run")
        copy = pickle.loads(pickle.dumps(classifier))
        assert np.array_equal(copy.predict_proba(["goal"]), classifier.predict_proba(["goal"]))

    def test_further_encoders_teach_the_first(self, tiny_encoder: str, other_encoder: str) -> None:
        texts, labels = tiny_texts(4)
        pool = tiny_texts(12, seed=1)[0]

        def fitted(encoder: str) -> Any:
            classifier = TextClassifier("lift", encoder, "laptop", settings=STEPS | {"epochs": 0})
            return classifier.fit(texts, labels, unlabelled=pool).model_

        alone, taught = fitted(tiny_encoder), fitted(f"{tiny_encoder},{other_encoder}")
        assert taught.encoder.width == 32 and len(taught.encoder.parts) == 1
        assert not np.allclose(taught.scores(pool), alone.scores(pool))
        teacher = TextClassifier("lift", f"{tiny_encoder},{other_encoder}", "frozen")
        p = teacher.fit(texts, labels, unlabelled=pool).predict_proba(pool)
        assert (taught.scores(pool).argmax(axis=1) == p.argmax(axis=1)).mean() > 0.7
        TextClassifier("lift", f"{tiny_encoder},{other_encoder}", "laptop", settings=STEPS).fit(
            texts, labels, unlabelled=pool)

    def test_other_methods_fine_tune_one_encoder(self, tiny_encoder: str, other_encoder: str) -> None:
        with pytest.raises(SettingError, match="fine-tunes one encoder"):
            TextClassifier("bdd-f", f"{tiny_encoder},{other_encoder}").fit(*tiny_texts(2))


class TestAuto:
    def test_the_choice_is_reported_saved_and_resumed(self, files: Path, tiny_encoder: str, other_encoder: str,
                                                      cli: Ran) -> None:
        arguments = ("train", files / "labelled.csv", "--plan", "frozen", "--encoder",
                     f"auto:{tiny_encoder},{other_encoder}", "--out", files / "run", "--json")
        done = cli(*arguments)
        said = json.loads(done.out)
        assert said["encoder"] in (tiny_encoder, other_encoder)
        assert any(notice.startswith(f"--encoder auto takes {said['encoder']}") for notice in said["notices"])
        assert f"notice: --encoder auto takes {said['encoder']}" in done.err
        assert cli(*arguments, "--resume").code == 0

    def test_a_resumed_run_keeps_its_encoder(self, files: Path, tiny_encoder: str, other_encoder: str,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
        from halflabel import fitting

        texts, labels = tiny_texts(4)
        classifier = TextClassifier("ce", f"auto:{tiny_encoder},{other_encoder}", "frozen",
                                    settings={"epochs": 2, "epoch_steps": 2, "warmup": 2})

        def stop(*args: object, **named: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as broken:
            broken.setattr(fitting, "train", stop)
            with pytest.raises(KeyboardInterrupt):
                classifier.fit(texts, labels, folder=files / "run")
        chosen = json.loads((files / "run" / "config.json").read_text())["encoder"]
        monkeypatch.setattr(fitting, "choose_encoder", stop)
        classifier.fit(texts, labels, folder=files / "run", resume=True)
        assert classifier.model_.facts["encoder"] == chosen


def test_an_encoder_that_cannot_be_fetched_leaves_nothing(files: Path, cli: Ran) -> None:
    done = cli("train", files / "labelled.csv", "--encoder", "e5-small", "--out", files / "run")
    assert done.code == 2 and done.lines == 1 and "halflabel encoders get e5-small" in done.err
    assert not (files / "run").exists()
    with pytest.raises(EncoderError, match="minilm,e5-small|e5-small"):
        TextClassifier("lift", "minilm,e5-small", "frozen").fit(*tiny_texts(2))
