"""The commands with several labels for each text, with a tiny encoder and no extra flag."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cli_runner import FAST, Ran, runner, write_csv, write_jsonl
from conftest import tiny_texts
from halflabel.data.readers.read import read


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


def rows(per_class: int, seed: int = 0) -> list[dict]:
    texts, labels = tiny_texts(per_class, seed)
    return [{"text": text, "labels": [name, "long"] if len(text) > 50 else [name]}
            for text, name in zip(texts, labels, strict=True)]


@pytest.fixture
def model(tmp_path: Path, tiny_encoder: str, cli: Ran) -> Path:
    write_jsonl(tmp_path / "labelled.jsonl", rows(8))
    write_jsonl(tmp_path / "test.jsonl", rows(6, seed=2))
    write_csv(tmp_path / "pool.csv", tiny_texts(10, seed=1)[0])
    done = cli("train", tmp_path / "labelled.jsonl", "--unlabelled", tmp_path / "pool.csv", "--out", tmp_path / "model",
               "--encoder", tiny_encoder, *FAST, "--set", "warmup=100")
    assert done.code == 0 and "lift-ml" in done.out and "prior-quantile, fitted on 30 unlabelled texts" in done.out
    return tmp_path / "model"


def test_evaluate_tune_and_evaluate_again(model: Path, cli: Ran) -> None:
    test = model.parent / "test.jsonl"
    first = json.loads(cli("evaluate", model, test, "--json").out)
    wanted = {"micro_f1", "macro_f1", "ranking_loss", "lrap", "decision", "n", "empty", "coverage", "per_label"}
    assert wanted <= first.keys() and first["decision"] == "prior-quantile" and first["n"] == 18
    assert json.loads(cli("evaluate", model, test, "--decision", "fixed", "--json").out)["decision"] == "fixed"
    refused = cli("evaluate", model, test, "--decision", "dev-global")
    assert refused.code == 2 and "halflabel tune" in refused.err and refused.lines == 1
    weights = (model / "model.safetensors").read_bytes()
    said = json.loads(cli("tune", model, "--dev", test, "--decision", "dev-per-label", "--json").out)
    assert said["was"] == "prior-quantile" and said["after"]["macro_f1"] >= said["before"]["macro_f1"]
    second = json.loads(cli("evaluate", model, test, "--json").out)
    assert second["decision"] == "dev-per-label" and second["macro_f1"] == pytest.approx(said["after"]["macro_f1"])
    assert second["lrap"] == first["lrap"] and (model / "model.safetensors").read_bytes() == weights
    shown = cli("evaluate", model, test)
    assert "decision" in shown.out and "texts without a label" in shown.out and "LRAP" in shown.out
    about = json.loads(cli("info", model, "--json").out)
    assert about["decision"] == "dev-per-label" and "18 texts of" in about["decision_fitted_on"]
    assert about["task"] == "multi-label" and about["hard_labels"] == []


def test_labels_that_training_never_saw_are_missed_and_named(model: Path, cli: Ran) -> None:
    test = rows(6, seed=2)
    write_jsonl(model.parent / "known.jsonl", test)
    for row in test[:3]:
        row["labels"].append("chess")
    write_jsonl(model.parent / "new.jsonl", test)
    known, both = (json.loads(cli("evaluate", model, model.parent / name, "--json").out)
                   for name in ("known.jsonl", "new.jsonl"))
    assert known["unseen"] == [] and both["unseen"] == ["chess"]
    assert both["per_label"]["chess"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "n": 3, "predicted": 0}
    said = sum(row["predicted"] for row in both["per_label"].values())
    true = sum(row["n"] for row in known["per_label"].values())
    assert both["micro_f1"] == pytest.approx(known["micro_f1"] * (said + true) / (said + true + 3))
    assert both["macro_f1"] == pytest.approx(known["macro_f1"] * 4 / 5)
    assert both["lrap"] < known["lrap"]
    assert both["coverage"] > known["coverage"] and both["empty"] == known["empty"]
    done = cli("evaluate", model, model.parent / "new.jsonl")
    assert done.code == 0 and "1 of the labels in" in done.err and "counts as missed: chess" in done.err


def test_tune_counts_labels_that_training_never_saw_as_missed(model: Path, cli: Ran) -> None:
    dev = rows(6, seed=2)
    write_jsonl(model.parent / "known.jsonl", dev)
    for row in dev[:3]:
        row["labels"].append("chess")
    write_jsonl(model.parent / "new.jsonl", dev)
    known, new = (json.loads(cli("tune", model, "--dev", model.parent / name, "--json").out)
                  for name in ("known.jsonl", "new.jsonl"))
    assert "counts as missed: chess" in new["notices"][0] and not known["notices"]
    assert new["before"]["macro_f1"] == pytest.approx(known["after"]["macro_f1"] * 4 / 5)
    write_jsonl(model.parent / "other.jsonl", [{"text": "rook", "labels": ["chess"]}])
    refused = cli("tune", model, "--dev", model.parent / "other.jsonl")
    assert refused.code == 2 and "the label 'chess' is unknown" in refused.err


def test_predictions_can_be_read_back(model: Path, cli: Ran) -> None:
    test = model.parent / "test.jsonl"
    lines = [json.loads(line) for line in cli("predict", model, test, "--all").out.splitlines()]
    assert lines[0].keys() == {"text", "labels", "scores", "probabilities"} and len(lines) == 18
    assert all(row["scores"] == sorted(row["scores"], reverse=True) for row in lines)
    assert all(row["probabilities"][name] == score for row in lines
               for name, score in zip(row["labels"], row["scores"], strict=True))
    table = list(csv.DictReader(io.StringIO(cli("predict", model, test, "--format", "csv").out)))
    assert [json.loads(row["labels"]) for row in table] == [row["labels"] for row in lines]
    done = cli("predict", model, test, "--out", model.parent / "p.parquet")
    assert done.code == 0
    assert pq.read_table(model.parent / "p.parquet")["labels"].to_pylist() == [row["labels"] for row in lines]
    again = read(model.parent / "p.parquet")
    assert again.task == "multi-label" and list(again.labels[0] or ()) == lines[0]["labels"]


def test_texts_without_a_label_are_counted(model: Path, cli: Ran) -> None:
    fields = json.loads((model / "decision.json").read_text()) | {"chosen": "fixed"}
    fields["rules"]["fixed"]["thresholds"] = [None] * 4
    (model / "decision.json").write_text(json.dumps(fields))
    (model / "checksums.json").unlink()
    assert "18 of 18 texts got no label (decision: fixed)" in cli("predict", model, model.parent / "test.jsonl").err
    assert json.loads(cli("evaluate", model, model.parent / "test.jsonl", "--json").out)["empty"] == 18


@pytest.mark.parametrize(("content", "words"), [
    ("{", "decision.json is not valid JSON"), ("{}", "no valid decision"), (None, "not finished")])
def test_a_spoilt_decision_is_named(content: str | None, words: str, model: Path, cli: Ran) -> None:
    if content is None:
        (model / "decision.json").unlink()
    else:
        (model / "decision.json").write_text(content)
    changed = cli("predict", model, model.parent / "test.jsonl")
    assert changed.code == 2 and changed.lines == 1 and ("damaged" if content else "missing") in changed.err
    (model / "checksums.json").unlink()
    done = cli("predict", model, model.parent / "test.jsonl")
    assert done.code == 2 and words in done.err and done.lines == 1 and done.out == ""


def test_what_does_not_fit_is_refused_before_any_work(model: Path, tiny_encoder: str, cli: Ran) -> None:
    folder = model.parent
    done = cli("train", folder / "labelled.jsonl", "--out", folder / "other", "--method", "ce")
    assert done.code == 2 and "choose one of am-ml, asl, bce" in done.err and not (folder / "other").exists()
    done = cli("tune", model, "--dev", folder / "test.jsonl", "--decision", "guess")
    assert done.code == 2 and "no decision 'guess'" in done.err
    write_csv(folder / "one.csv", *tiny_texts(3))
    cli("train", folder / "one.csv", "--out", folder / "one", "--method", "ce", "--encoder", tiny_encoder, *FAST)
    done = cli("predict", folder / "one", folder / "test.jsonl", "--decision", "fixed")
    assert done.code == 2 and "nothing to decide" in done.err
