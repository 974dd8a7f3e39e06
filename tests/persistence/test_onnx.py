"""Exported models: the same predictions without torch; damaged folders are refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cli_runner import FAST, Ran, runner, write_csv, write_jsonl
from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.errors import MissingExtra, ModelError, OutputError, SettingError
from halflabel.persistence.onnx_export import export, with_backend
from halflabel.persistence.onnx_model import OnnxModel

TEXTS = tiny_texts(15, seed=5)[0]


@pytest.fixture
def model(exported_model: Path) -> Path:
    return exported_model / "model"


@pytest.fixture
def exported(exported_model: Path) -> Path:
    return exported_model / "onnx"


@pytest.fixture(scope="module")
def tags(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model for several labels (`model`) and its export (`onnx`)."""
    texts, labels = tiny_texts(6)
    settings = {"epochs": 2, "epoch_steps": 8, "warmup": 100}
    clf = TextClassifier("bdd-ml", tiny_encoder, "frozen", settings=settings)
    clf.fit(texts, [(label, "long") if len(text) > 50 else (label,) for text, label in zip(texts, labels, strict=True)],
            tiny_texts(8, seed=1)[0])
    folder = tmp_path_factory.mktemp("tags")
    clf.save(folder / "model")
    parity = export(clf.model_, folder / "onnx", TEXTS)
    assert parity.probabilities < 1e-4 and parity.same_labels == 1.0
    return folder


def already_exported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporting takes seconds; here the graph of an earlier export of the same model is copied instead."""
    monkeypatch.setattr("halflabel.persistence.onnx_export.write_graph",
                        lambda model, file, texts: shutil.copy(folder / "model.onnx", file))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


def test_the_graph_predicts_like_the_model(model: Path, exported: Path) -> None:
    parity = json.loads((exported / "export.json").read_text())["parity"]
    assert parity["texts"] == 45 and parity["max_probability_difference"] < 1e-5 and parity["same_labels"] == 1.0
    clf, graph = TextClassifier.load(model), OnnxModel(exported)
    assert not np.allclose(clf.model_.network.angles.slopes().numpy(), 1.0)
    assert np.allclose(graph.probabilities(TEXTS), clf.predict_proba(TEXTS), atol=1e-3)
    few = TEXTS[:31]  # as few as that are encoded in fp32 by the model as well
    assert graph.predict(few) == clf.predict(few).tolist() and graph.vectors(TEXTS).shape == (45, 32)
    assert graph.scores([]).shape == (0, 3) and graph.predict([]) == []
    assert sorted(file.name for file in exported.iterdir()) == ["checksums.json", "export.json", "model.onnx",
                                                                 "tokenizer.json"]


def test_an_export_is_loaded_as_a_classifier(model: Path, exported: Path, tags: Path, tmp_path: Path) -> None:
    for folder, export_folder in ((model, exported), (tags / "model", tags / "onnx")):
        clf, graph = TextClassifier.load(folder), TextClassifier.load(export_folder)
        few = TEXTS[:31]
        assert graph.method_ == clf.method_ and (graph.classes_ == clf.classes_).all()
        assert np.array_equal(graph.predict(few), clf.predict(few))
        assert np.allclose(graph.predict_proba(few), clf.predict_proba(few), atol=1e-4)
        assert np.allclose(graph.decision_function(few), clf.decision_function(few), atol=1e-2)
        for refused in (lambda graph=graph: graph.save(tmp_path / "copy"), graph.__getstate__):
            with pytest.raises(OutputError, match="copy the folder"):
                refused()
    assert not (tmp_path / "copy").exists()


def test_a_classifier_on_a_matrix_is_exported_as_one(tiny_encoder: str, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch, tags: Path) -> None:
    y = np.eye(4, dtype=int)[np.arange(12) % 4]
    clf = TextClassifier("bdd-ml", tiny_encoder, "frozen", settings={"epochs": 1, "epoch_steps": 4, "warmup": 20})
    clf.fit(tiny_texts(4)[0], y)
    already_exported(tags / "onnx", monkeypatch)
    monkeypatch.setattr("halflabel.persistence.onnx_export.TOLERANCE", 1.0)
    export(clf.model_, tmp_path / "onnx", TEXTS)
    assert TextClassifier.load(tmp_path / "onnx").predict(TEXTS).shape == (45, 4)


def test_a_prefix_is_exported(model: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clf = TextClassifier.load(model)
    before, clf.model_.encoder.prefix = clf.predict_proba(TEXTS), "goal match "
    already_exported(exported, monkeypatch)
    assert export(clf.model_, tmp_path / "onnx", TEXTS).probabilities < 1e-4
    assert np.allclose(TextClassifier.load(tmp_path / "onnx").predict_proba(TEXTS), clf.predict_proba(TEXTS), atol=1e-3)
    assert not np.allclose(clf.predict_proba(TEXTS), before, atol=1e-3)
    about = json.loads((tmp_path / "onnx" / "export.json").read_text())
    assert about["prefix"] == "goal match " and about["format"] == 2  # older versions would ignore the prefix
    assert json.loads((exported / "export.json").read_text())["format"] == 1


def test_onnxruntime_writes_nothing_into_the_home_folder(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("goal match\n")
    (tmp_path / "home").mkdir()
    hidden = ("HOME", "XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run([sys.executable, "-m", "halflabel", "predict", str(exported), str(tmp_path / "new.txt")],
                          env=environment | {"HOME": str(tmp_path / "home")}, capture_output=True, text=True,
                          check=True)
    assert json.loads(done.stdout)["text"] == "goal match"
    assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file()]


def test_long_and_unusual_texts_have_the_same_tokens(model: Path, exported: Path) -> None:
    odd = ["", " ", "goal " * 500, "🦔 unknown", "Bread\n\tSOUP"]
    encoder, graph = TextClassifier.load(model).model_.encoder, OnnxModel(exported)
    assert [one.tolist() for one in graph.tokens(odd)] == [one.tolist() for one in encoder.tokens(odd)]


def test_neither_torch_nor_transformers_is_imported(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("goal match\nbread soup\n")
    code = ("import sys; from halflabel.persistence.onnx_model import OnnxModel; "
            f"print(OnnxModel({str(exported)!r}).predict(['goal match win', 'bread soup oven'])); "
            f"sys.argv = ['halflabel', 'predict', {str(exported)!r}, {str(tmp_path / 'texts.txt')!r}]\n"
            "from halflabel.cli import main\n"
            "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
            "print([m for m in ('torch', 'transformers', 'sklearn') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == str(OnnxModel(exported).predict(["goal match win", "bread soup oven"])) and lines[-1] == "[]"
    assert [json.loads(line)["text"] for line in lines[1:3]] == ["goal match", "bread soup"]


def test_several_labels_are_predicted_like_the_model(tags: Path) -> None:
    clf, graph, few = TextClassifier.load(tags / "model"), OnnxModel(tags / "onnx"), TEXTS[:31]
    facts = json.loads((tags / "onnx" / "export.json").read_text())
    assert facts["task"] == graph.task == "multi-label"
    assert facts["decision"] == json.loads((tags / "model" / "decision.json").read_text())
    assert np.allclose(graph.scores(few), clf.model_.scores(few), atol=1e-5)
    p = graph.probabilities(few)
    assert np.allclose(p, clf.predict_proba(few), atol=1e-4) and not np.allclose(p.sum(axis=1), 1.0)
    pool = tiny_texts(8, seed=1)[0]  # which the thresholds were fitted on
    assert graph.predict(pool) == clf.predict(pool).tolist() and graph.predict(TEXTS) == clf.predict(TEXTS).tolist()
    assert len({len(labels) for labels in graph.predict(TEXTS)}) > 1
    fixed = graph.classes.names_of(graph.rules(graph.scores(few), "fixed"))
    assert fixed == clf.predict(few, decision="fixed").tolist() and graph.predict([]) == []


@pytest.mark.no_cover  # which doubles the time of an export, and other tests run the same lines
@pytest.mark.parametrize(("method", "depths"), [("sdrl", 1), ("metaexpert-ml", 4)])
def test_relation_networks_and_experts_can_be_exported(method: str, depths: int, tiny_encoder: str,
                                                       tmp_path: Path) -> None:
    texts, labels = tiny_texts(4)
    clf = TextClassifier(method, tiny_encoder, "frozen", settings={"epochs": 1, "epoch_steps": 4, "warmup": 20})
    clf.fit(texts, [(label,) for label in labels], TEXTS)
    parity = export(clf.model_, tmp_path / "onnx", TEXTS)
    assert parity.probabilities < 1e-4 and parity.same_labels == 1.0
    graph = OnnxModel(tmp_path / "onnx")
    assert np.allclose(graph.probabilities(TEXTS[:9]), clf.predict_proba(TEXTS[:9]), atol=1e-4)
    assert graph.vectors(texts).shape == (12, depths * 32)


def test_several_labels_need_neither_torch_nor_scipy(tags: Path) -> None:
    code = ("import sys; from halflabel.persistence.onnx_model import OnnxModel; "
            f"print(OnnxModel({str(tags / 'onnx')!r})"
            ".predict(['goal match win'])); "
            "print([m for m in ('torch', 'transformers', 'sklearn', 'scipy', 'pyarrow') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(OnnxModel(tags / "onnx").predict(["goal match win"])), "[]"]


def test_several_labels_by_command(tags: Path, run: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    already_exported(tags / "onnx", monkeypatch)
    texts, labels = tiny_texts(3, seed=7)
    write_jsonl(tmp_path / "test.jsonl", [{"text": text, "labels": [label]} for text, label in
                                          zip(texts, labels, strict=True)])
    measured = [json.loads(run("evaluate", tags / name, tmp_path / "test.jsonl", "--decision", "fixed", "--json").out)
                for name in ("model", "onnx")]
    assert measured[0] == measured[1] and measured[0]["decision"] == "fixed" and "lrap" in measured[0]
    said = [run("predict", tags / "model", tmp_path / "test.jsonl", *more).out for more in ((), ("--backend", "onnx"))]
    shown = [[json.loads(line) for line in out.splitlines()] for out in said]
    assert [row["text"] for row in shown[1]] == texts and shown[0][0].keys() == shown[1][0].keys()
    about = json.loads(run("info", tags / "onnx", "--json").out)
    assert about["decision"] == "prior-quantile" and about["decision_fitted_on"] == "24 unlabelled texts"
    refused = run("predict", tags / "onnx", tmp_path / "test.jsonl", "--decision", "dev-global")
    assert refused.code == 2 and "has no decision 'dev-global'" in refused.err and refused.lines == 1


def test_shards_of_an_exported_model_are_resumed(exported: Path, run: Ran, tmp_path: Path) -> None:
    write_csv(tmp_path / "texts.csv", TEXTS)
    arguments = ("predict", exported, tmp_path / "texts.csv", "--shard", "20", "--out", tmp_path / "out")
    assert run(*arguments).code == 0 and len(list((tmp_path / "out").glob("part-*"))) == 3
    (tmp_path / "out" / "part-00000-000000000040.jsonl").unlink()
    done = run(*arguments, "--resume")
    assert done.code == 0 and len((tmp_path / "out" / "part-00000-000000000040.jsonl").read_text().splitlines()) == 5


def test_a_missing_and_a_damaged_decision_are_refused(exported: Path, tags: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="nothing to decide"):
        _ = OnnxModel(exported).rules
    folder = tmp_path / "torn"
    shutil.copytree(tags / "onnx", folder)
    facts = json.loads((folder / "export.json").read_text())
    (folder / "export.json").write_text(json.dumps(facts | {"decision": "argmax"}))
    (folder / "checksums.json").unlink()
    with pytest.raises(ModelError, match="no valid decision"):
        OnnxModel(folder)


@pytest.mark.parametrize("backend", ["compile", "onnx", None])
def test_bags_of_words_cannot_be_exported(backend: str | None, run: Ran, tmp_path: Path) -> None:
    texts, labels = tiny_texts(4)
    TextClassifier("nb-em", plan="frozen").fit(texts, labels, tiny_texts(4, seed=1)[0]).save(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("goal\n")
    done = (run("predict", tmp_path / "model", tmp_path / "texts.txt", "--backend", backend) if backend
            else run("export", tmp_path / "model", "--onnx", tmp_path / "out"))
    assert done.code == 2 and "counts words" in done.err and done.lines == 1 and not (tmp_path / "out").exists()


def test_int8_reports_its_difference(model: Path, run: Ran, tmp_path: Path) -> None:
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


def test_a_backend_is_exported_once_and_cached(model: Path, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    already_exported(exported, monkeypatch)
    fitted = TextClassifier.load(model).model_
    first = with_backend(fitted, "onnx", TEXTS)
    assert isinstance(first, OnnxModel)
    with monkeypatch.context() as patch:
        patch.setattr("halflabel.persistence.onnx_export.export", None)
        again = with_backend(fitted, "onnx", TEXTS)
        assert np.array_equal(again.scores(TEXTS), first.scores(TEXTS))
    assert with_backend(fitted, "compile", TEXTS).backend == "compile"
    (first.folder / "model.onnx").write_bytes(b"torn")
    assert np.array_equal(with_backend(fitted, "onnx", TEXTS).scores(TEXTS), first.scores(TEXTS))


@pytest.mark.parametrize(("arguments", "message"), [
    (("predict", "{model}", "{file}", "--backend", "gpu"), "no backend 'gpu'"),
    (("predict", "{onnx}", "{file}", "--backend", "torch"), "only ONNX Runtime"),
    (("export", "{model}", "--onnx", "{model}"), "exists already"),
    (("export", "{onnx}", "--onnx", "{onnx}2"), "only a trained one can be exported"),
    (("export", "{model}", "--onnx", "{onnx}2", "--texts", "{empty}"), "empty"),
])
def test_impossible_requests_are_refused(arguments: tuple[str, ...], message: str, model: Path, exported: Path,
                                         run: Ran, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("goal\n")
    (tmp_path / "empty.txt").write_text("")
    places = {"model": model, "onnx": exported, "file": tmp_path / "texts.txt", "empty": tmp_path / "empty.txt"}
    done = run(*(argument.format(**places) for argument in arguments))
    assert done.code == 2 and message in done.err and done.lines == 1 and "Traceback" not in done.err
    assert not Path(f"{exported}2").exists()


@pytest.mark.parametrize(("name", "content", "message"), [
    ("export.json", b"{}", "has no entry 'format'"), ("export.json", b'{"format"', "is not valid JSON"),
    ("export.json", b'{"format": 1}', "has no entry 'method'"),
    ("export.json", b'{"format": 99}', "newer version"),
    ("model.onnx", b"torn", "not a complete ONNX graph"), ("tokenizer.json", b"torn", "not a complete tokenizer"),
])
def test_a_damaged_export_is_named(name: str, content: bytes, message: str, exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "torn"
    shutil.copytree(exported, folder)
    (folder / name).write_bytes(content)
    (folder / "checksums.json").unlink()
    with pytest.raises(ModelError, match=message):
        OnnxModel(folder)


def test_a_folder_without_an_export_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no exported model"):
        OnnxModel(tmp_path)


def test_missing_packages_are_named(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("halflabel.persistence.onnx_export.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'halflabel\[onnx\]'"):
        export(TextClassifier.load(model).model_, tmp_path / "out", TEXTS)


def test_training_by_command_estimates_its_time(run: Ran, tiny_encoder: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "texts.csv", *tiny_texts(4))
    done = run("train", tmp_path / "texts.csv", "--encoder", tiny_encoder, "--method", "ce", *FAST, "--plan", "laptop",
               "--out", tmp_path / "run")
    assert done.code == 0 and "about 1 min for" in done.err
