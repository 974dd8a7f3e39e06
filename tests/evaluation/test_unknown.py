"""Texts of no class: distances, thresholds that keep a stated share of known texts, and where they are used."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from cli_runner import Ran, runner, write_csv
from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.errors import ModelError, SettingError
from halflabel.evaluation.confidence import UnknownDetector
from halflabel.integrity import write_checksums
from halflabel.persistence.model_folder import read_unknown, write_unknown

KNOWN = tiny_texts(20, seed=3)[0]


@pytest.fixture(scope="module")
def model(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unknown") / "model"
    TextClassifier("lift", tiny_encoder, "frozen").fit(*tiny_texts(15), tiny_texts(30, seed=1)[0]).save(folder)
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


def blobs(rng: np.random.Generator, per_class: int, classes: range) -> tuple[np.ndarray, np.ndarray]:
    """Points around the axes of a space of twelve dimensions."""
    y = np.repeat(np.arange(len(classes)), per_class)
    return np.eye(12)[np.array(classes)[y]] + rng.normal(0.0, 0.25, (len(y), 12)), y


def test_unknown_texts_are_farther_even_if_the_pool_is_full_of_them() -> None:
    rng = np.random.default_rng(0)
    f, y = blobs(rng, 20, range(4))
    pool = np.concatenate([blobs(rng, 50, range(4))[0], blobs(rng, 100, range(8, 11))[0]])
    detector = UnknownDetector.fit(f, y, pool, 4)
    known, unknown = (detector.distances(blobs(rng, 200, classes)[0]) for classes in (range(4), range(8, 11)))
    assert (known[:, None] < unknown).mean() > 0.98
    assert (known <= detector.threshold(0.9)).mean() == pytest.approx(0.9, abs=0.06)
    assert (unknown <= detector.threshold(0.9)).mean() < 0.1


def test_a_text_near_an_unknown_class_of_the_pool_is_farther() -> None:
    rng = np.random.default_rng(0)
    f, y = blobs(rng, 20, range(4))
    pool = np.concatenate([blobs(rng, 50, range(4))[0], unknown := blobs(rng, 100, range(8, 10))[0]])
    number = np.repeat([0, 1, 2], [200, 100, 100])
    plain, detector = UnknownDetector.fit(f, y, pool, 4), UnknownDetector.fit(f, y, pool, 4, number)
    same = UnknownDetector.fit(f, y, pool, 4, np.zeros(400, dtype=int))
    assert detector.unknown is not None and detector.unknown.shape == (2, 12)
    assert same.unknown is None and (same.means == plain.means).all() and (same.held_out == plain.held_out).all()
    assert (plain.nearness(f) == 0.0).all()
    assert np.median(detector.distances(unknown) - plain.distances(unknown)) > 0.5
    assert (detector.distances(blobs(rng, 200, range(4))[0]) <= detector.threshold(0.9)).mean() > 0.8


def test_unknown_classes_of_the_pool_are_saved_and_folders_without_them_answer_as_before(tmp_path: Path) -> None:
    plain = UnknownDetector(np.eye(3, 4, dtype=np.float32), np.arange(5, dtype=np.float32))
    with_unknown = replace(plain, unknown=np.eye(4, dtype=np.float32)[3:], centre=np.full(4, 0.1, np.float32))
    f = np.random.default_rng(0).normal(size=(6, 4))
    for detector in (plain, with_unknown):
        write_unknown(tmp_path, detector)
        read = read_unknown(tmp_path, 3)
        assert read is not None and (read.distances(f) == detector.distances(f)).all()
    assert (with_unknown.distances(f) >= plain.distances(f)).all()
    tensors = {"means": plain.means, "held_out": plain.held_out, "unknown": np.eye(4, dtype=np.float32)[3:],
               "centre": np.full(4, 0.1, np.float32)}
    for name, wrong in (("centre", None), ("unknown", None), ("centre", np.zeros(3, np.float32)),
                        ("unknown", np.empty((0, 4), np.float32)), ("centre", np.full(4, np.nan, np.float32))):
        save_file({key: array for key, array in (tensors | {name: wrong}).items() if array is not None},
                  tmp_path / "unknown.safetensors")
        with pytest.raises(ModelError, match="does not fit 3 classes"):
            read_unknown(tmp_path, 3)


def test_the_threshold_is_the_conformal_quantile() -> None:
    detector = UnknownDetector(np.eye(2), np.arange(1.0, 20.0))  # 19 distances
    assert detector.threshold(0.95) == 19.0 and detector.threshold(0.5) == 10.0
    with pytest.raises(SettingError, match="at least 24 labelled texts, and this model was trained on 19"):
        detector.threshold(0.96)
    for coverage in (0.0, 1.0, 95.0):
        with pytest.raises(SettingError, match="between 0 and 1"):
            detector.threshold(coverage)


def test_a_classifier_abstains_more_at_a_lower_coverage(model: Path) -> None:
    classifier = TextClassifier.load(model)
    labels, distances = classifier.predict(KNOWN), classifier.unknown_scores(KNOWN)
    answered = {coverage: classifier.predict(KNOWN, coverage=coverage) for coverage in (0.5, 0.95)}
    for coverage, given in answered.items():
        kept = distances <= classifier.model_.detector.threshold(coverage)
        assert (given[kept] == labels[kept]).all() and all(label is None for label in given[~kept])
    assert sum(label is None for label in answered[0.95]) < sum(label is None for label in answered[0.5]) < len(KNOWN)


def test_the_command_leaves_unknown_texts_without_a_label(model: Path, tmp_path: Path, run: Ran) -> None:
    write_csv(tmp_path / "new.csv", KNOWN)
    done = run("predict", model, tmp_path / "new.csv", "--unknown", "--coverage", "0.5")
    rows = [json.loads(line) for line in done.out.splitlines()]
    without = [row for row in rows if row["label"] is None]
    assert done.code == 0 and 0 < len(without) < len(rows) and f"{len(without)} of 60 texts got no label" in done.err
    assert min(row["distance"] for row in without) > max(row["distance"] for row in rows if row["label"] is not None)
    run("predict", model, tmp_path / "new.csv", "--unknown", "--coverage", "0.5", "--out", tmp_path / "labels.csv")
    with open(tmp_path / "labels.csv", encoding="utf-8", newline="") as file:
        assert sum(row["label"] == "" for row in csv.DictReader(file)) == len(without)


def test_a_model_that_cannot_tell_refuses_in_one_sentence(model: Path, tmp_path: Path, run: Ran) -> None:
    older = tmp_path / "older"
    shutil.copytree(model, older)
    (older / "unknown.safetensors").unlink()
    write_checksums(older)
    done = run("predict", older, "--unknown", stdin="a text\n")
    assert done.code == 2 and done.lines == 1 and "train it again to recognise unknown texts" in done.err
    done = run("predict", model, "--coverage", "0.99", stdin="a text\n")
    assert done.code == 2 and done.lines == 1 and "needs at least 99 labelled texts" in done.err


def test_damaged_class_means_are_refused(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    (folder / "unknown.safetensors").unlink()
    with pytest.raises(ModelError, match=r"unknown\.safetensors is missing"):
        TextClassifier.load(folder)
    save_file({"means": np.full((3, 32), np.nan, np.float32), "held_out": np.zeros(3, np.float32)},
              folder / "unknown.safetensors")
    write_checksums(folder)
    with pytest.raises(ModelError, match="does not fit 3 classes"):
        TextClassifier.load(folder)
