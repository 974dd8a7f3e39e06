"""`halflabel check --model`: labels that are likely wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_runner import Ran, runner, write_csv, write_jsonl
from conftest import tiny_texts
from halflabel.classifier import TextClassifier


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


@pytest.fixture
def model(tmp_path: Path, tiny_encoder: str) -> Path:
    settings = {"epochs": 1, "epoch_steps": 2, "warmup": 2}
    TextClassifier("ce", tiny_encoder, "frozen", settings=settings).fit(*tiny_texts(2), folder=tmp_path / "model")
    return tmp_path / "model"


def test_wrong_labels_are_listed(tmp_path: Path, model: Path, cli: Ran) -> None:
    texts, labels = tiny_texts(30)
    wrong = {texts[i]: labels[i] for i in (0, 10)}
    assert wrong == {texts[0]: "food", texts[10]: "money"}
    labels[0], labels[10] = "money", "sport"
    write_csv(tmp_path / "labelled.csv", texts, labels)
    done = cli("check", tmp_path / "labelled.csv", "--model", model, "--no-tokens", "--json")
    report = json.loads(done.out)
    found = {error["text"]: error for error in report["label_errors"]}
    assert done.code == 0 and wrong.keys() <= found.keys()
    for text, label in wrong.items():
        assert found[text]["given"] == labels[texts.index(text)] and found[text]["suggested"] == label
        assert 0 < found[text]["score"] <= 1
    assert any("labels may be wrong" in finding["what"] for finding in report["findings"])
    shown = cli("check", tmp_path / "labelled.csv", "--model", model, "--no-tokens").out
    assert "suggested" in shown and "labels may be wrong; look at these texts again" in shown


def test_several_labels_are_not_examined(tmp_path: Path, model: Path, cli: Ran) -> None:
    texts, labels = tiny_texts(4)
    write_jsonl(tmp_path / "tags.jsonl", [{"text": t, "label": [y]} for t, y in zip(texts, labels, strict=True)])
    done = cli("check", tmp_path / "tags.jsonl", "--model", model, "--no-tokens", "--json")
    report = json.loads(done.out)
    assert "label_errors" not in report and any("several labels" in finding["what"] for finding in report["findings"])


def test_a_folder_without_a_model(tmp_path: Path, cli: Ran) -> None:
    write_csv(tmp_path / "labelled.csv", *tiny_texts(4))
    done = cli("check", tmp_path / "labelled.csv", "--model", tmp_path, "--no-tokens")
    assert done.code == 2 and "contains no halflabel model" in done.out
