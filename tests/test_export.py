"""Exported models: the same answers, without torch; bad folders end in a sentence."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cli_runner import FAST, Ran, runner, write_csv
from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.export import export, with_backend
from halflabel.exported import Exported
from halflabel.types import BadInput

TEXTS = tiny_texts(15, seed=5)[0]


@pytest.fixture(scope="module")
def model(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with balanced angles."""
    texts, labels = tiny_texts(6)
    settings = {"epochs": 2, "epoch_steps": 8, "warmup": 20}
    clf = TextClassifier("bdd-s", tiny_encoder, "frozen", settings=settings)
    clf.fit(texts, labels, tiny_texts(8, seed=1)[0])
    folder = tmp_path_factory.mktemp("exports") / "model"
    clf.save(folder)
    return folder


@pytest.fixture(scope="module")
def exported(model: Path) -> Path:
    folder = model.parent / "onnx"
    found = export(TextClassifier.load(model).model_, folder, TEXTS)
    assert found.texts == 45 and found.probabilities < 1e-5 and found.same_labels == 1.0
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


def test_the_graph_answers_like_the_model(model: Path, exported: Path) -> None:
    clf, graph = TextClassifier.load(model), Exported(exported)
    assert not np.allclose(clf.model_.network.angles.stretch().numpy(), 1.0)
    assert np.allclose(graph.probabilities(TEXTS), clf.predict_proba(TEXTS), atol=1e-3)
    few = TEXTS[:31]  # as few as that are encoded in fp32 by the model as well
    assert graph.predict(few) == clf.predict(few).tolist() and graph.vectors(TEXTS).shape == (45, 32)
    assert graph.scores([]).shape == (0, 3) and graph.predict([]) == []
    assert sorted(file.name for file in exported.iterdir()) == ["export.json", "model.onnx", "tokenizer.json"]


def test_long_and_odd_texts_are_tokenised_alike(model: Path, exported: Path) -> None:
    odd = ["", " ", "goal " * 500, "🦔 unknown", "Bread\n\tSOUP"]
    encoder, graph = TextClassifier.load(model).model_.encoder, Exported(exported)
    assert [one.tolist() for one in graph.tokens(odd)] == [one.tolist() for one in encoder.tokens(odd)]


def test_neither_torch_nor_transformers_is_imported(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("goal match\nbread soup\n")
    code = ("import sys; from halflabel.exported import Exported; "
            f"print(Exported({str(exported)!r}).predict(['goal match win', 'bread soup oven'])); "
            f"sys.argv = ['halflabel', 'predict', {str(exported)!r}, {str(tmp_path / 'texts.txt')!r}]\n"
            "from halflabel.cli import main\n"
            "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
            "print([m for m in ('torch', 'transformers', 'sklearn') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == str(Exported(exported).predict(["goal match win", "bread soup oven"])) and lines[-1] == "[]"
    assert [json.loads(line)["text"] for line in lines[1:3]] == ["goal match", "bread soup"]


def test_int8_is_smaller_and_says_what_it_costs(model: Path, run: Ran, tmp_path: Path) -> None:
    write_csv(tmp_path / "texts.csv", TEXTS)
    out = tmp_path / "int8"
    done = run("export", model, "--onnx", out, "--int8", "--texts", tmp_path / "texts.csv", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["texts"] == 45 and found["min_cosine"] > 0.98 and found["same_labels"] >= 0.9
    assert json.loads((out / "export.json").read_text())["parity"]["same_labels"] == found["same_labels"]
    assert b"MatMulInteger" in (out / "model.onnx").read_bytes()


def test_export_predict_and_evaluate_by_command(model: Path, exported: Path, run: Ran, tmp_path: Path) -> None:
    texts, labels = tiny_texts(3, seed=7)
    write_csv(tmp_path / "test.csv", texts, labels)
    measured = [json.loads(run("evaluate", folder, tmp_path / "test.csv", "--json").out)
                for folder in (model, exported)]
    assert measured[0] == measured[1]
    assert json.loads(run("info", exported, "--json").out)["parity"]["same_labels"] == 1.0
    done = run("predict", exported, tmp_path / "test.csv", "--all")
    assert done.code == 0 and len(json.loads(done.out.splitlines()[0])["probabilities"]) == 3


def test_a_backend_is_made_once_and_kept(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = TextClassifier.load(model).model_
    first = with_backend(fitted, "onnx", TEXTS)
    assert isinstance(first, Exported)
    monkeypatch.setattr("halflabel.export.export", None)
    again = with_backend(fitted, "onnx", TEXTS)
    assert np.array_equal(again.scores(TEXTS), first.scores(TEXTS))
    assert with_backend(fitted, "compile", TEXTS).backend == "compile"


@pytest.mark.parametrize(("arguments", "sentence"), [
    (("predict", "{model}", "{file}", "--backend", "gpu"), "no backend 'gpu'"),
    (("predict", "{onnx}", "{file}", "--backend", "torch"), "only ONNX Runtime"),
    (("export", "{model}", "--onnx", "{model}"), "exists already"),
    (("export", "{onnx}", "--onnx", "{onnx}2"), "holds no halflabel model"),
    (("export", "{model}", "--onnx", "{onnx}2", "--texts", "{empty}"), "empty"),
])
def test_what_cannot_be_done_is_said(arguments: tuple[str, ...], sentence: str, model: Path, exported: Path, run: Ran,
                                     tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("goal\n")
    (tmp_path / "empty.txt").write_text("")
    places = {"model": model, "onnx": exported, "file": tmp_path / "texts.txt", "empty": tmp_path / "empty.txt"}
    done = run(*(argument.format(**places) for argument in arguments))
    assert done.code == 2 and sentence in done.err and done.lines == 1 and "Traceback" not in done.err
    assert not Path(f"{exported}2").exists()


@pytest.mark.parametrize(("name", "content", "sentence"), [
    ("export.json", b"{}", "not the description"), ("export.json", b'{"format": 99}', "newer halflabel"),
    ("model.onnx", b"torn", "not a whole ONNX graph"), ("tokenizer.json", b"torn", "not a whole tokenizer"),
])
def test_a_torn_export_is_named(name: str, content: bytes, sentence: str, exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "torn"
    shutil.copytree(exported, folder)
    (folder / name).write_bytes(content)
    with pytest.raises(BadInput, match=sentence):
        Exported(folder)


def test_a_folder_without_an_export_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no exported model"):
        Exported(tmp_path)


def test_missing_packages_are_named(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("halflabel.export.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install 'halflabel\[onnx\]'"):
        export(TextClassifier.load(model).model_, tmp_path / "out", TEXTS)


def test_training_by_command_names_the_time_it_will_take(run: Ran, tiny_encoder: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "texts.csv", *tiny_texts(4))
    done = run("train", tmp_path / "texts.csv", "--encoder", tiny_encoder, "--method", "ce", *FAST, "--plan", "laptop",
               "--out", tmp_path / "run")
    assert done.code == 0 and "about 1 min for" in done.err
