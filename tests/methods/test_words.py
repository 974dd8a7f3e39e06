"""The vote of words: a linear model on n-grams beside the network of `lift` and `lift-ml`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.encoders.ngrams import fit_ngram_model
from halflabel.errors import ModelError, OutputError
from halflabel.integrity import write_checksums
from halflabel.persistence.model import TrainedModel, load
from halflabel.persistence.model_folder import write_words
from halflabel.persistence.onnx_export import export
from halflabel.persistence.onnx_model import OnnxModel

NEW = tiny_texts(15, seed=5)[0]
POOL = tiny_texts(40, seed=1)[0]


@pytest.fixture(scope="module")
def models(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainedModel]:
    """One for one label per text, one for several; of the second, a label of one text is unknown."""
    texts, topics = tiny_texts(8)
    several = np.array([[topic == "food", topic == "sport", topic != "money"] for topic in topics], dtype=float)
    several[0, 1] = np.nan
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HALFLABEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        trained = {method: TextClassifier(method, tiny_encoder, "frozen").fit(texts, labels, POOL).model_
                   for method, labels in (("lift", topics), ("lift-ml", several))}
    assert all(isinstance(model, TrainedModel) for model in trained.values())
    return trained  # type: ignore[return-value]


@pytest.fixture(params=["lift", "lift-ml"])
def either(models: dict[str, TrainedModel], request: pytest.FixtureRequest) -> TrainedModel:
    return models[request.param]


@pytest.fixture
def model(models: dict[str, TrainedModel]) -> TrainedModel:
    return models["lift"]


@pytest.fixture
def several(models: dict[str, TrainedModel]) -> TrainedModel:
    return models["lift-ml"]


def test_scores_are_those_of_the_network_and_of_the_words(either: TrainedModel) -> None:
    assert either.words is not None
    others = replace(either, words=None).scores(NEW)
    assert np.allclose(either.scores(NEW), others + either.words.logits(NEW), atol=1e-3)
    assert np.abs(either.words.logits(NEW)).max() > 0.1


def test_probabilities_of_several_labels_are_the_mean_of_both_votes(several: TrainedModel) -> None:
    calibration = several.rules.calibration
    assert calibration.logits and calibration.slope == 0.5 and several.rules.chosen == "prior-quantile"
    assert several.rules.rule("prior-quantile").fitted_on == "120 unlabelled texts"
    new, topics = tiny_texts(15, seed=5)
    scores = several.scores(new)
    assert np.allclose(calibration.log_odds(scores), (scores - calibration.offset) / 2)
    truth = np.array([[topic == "food", topic == "sport", topic != "money"] for topic in topics])
    for rule in ("fixed", "prior-quantile"):
        assert (several.rules(scores, rule) == truth).mean() > 0.8
    often = several.probabilities(POOL).mean(axis=0)
    assert np.abs(often - several.rules.prior).max() < 0.15


def test_words_of_the_pool_move_a_prediction(model: TrainedModel) -> None:
    topic = [text for text, label in zip(*tiny_texts(40, seed=1), strict=True) if label == "sport"]
    words = " ".join(topic).split()
    assert model.words is not None
    assert model.classes.names[int(model.words.logits([" ".join(words)]).argmax())] == "sport"


def test_a_saved_model_predicts_the_same(either: TrainedModel, tmp_path: Path) -> None:
    either.save(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["format"] == (
        3 if either.method == "lift" else 2)
    again = load(tmp_path / "model")
    assert np.array_equal(again.scores(NEW), either.scores(NEW))
    assert np.array_equal(again.probabilities(NEW), either.probabilities(NEW))


@pytest.mark.parametrize("damage", ["missing", "cut", "of another model"])
def test_damaged_words_are_refused(model: TrainedModel, tmp_path: Path, damage: str) -> None:
    model.save(tmp_path / "model")
    file = tmp_path / "model" / "words.safetensors"
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    else:
        from safetensors.numpy import load_file, save_file

        tensors = load_file(file)
        save_file(tensors | {"bias": np.zeros(7, np.float32), "weights": np.zeros((len(tensors["buckets"]), 7),
                                                                                np.float16)}, file)
    write_checksums(tmp_path / "model")
    with pytest.raises(ModelError, match=r"words\.safetensors"):
        load(tmp_path / "model")


@pytest.mark.parametrize("method", ["lift", "lift-ml"])
def test_without_a_pool_words_have_no_vote(tiny_encoder: str, method: str) -> None:
    texts, topics = tiny_texts(4)
    labels = topics if method == "lift" else [[topic] for topic in topics]
    alone = TextClassifier(method, tiny_encoder, "frozen").fit(texts, labels).model_
    assert isinstance(alone, TrainedModel)
    assert alone.words is None and alone.config()["format"] == 1
    if method == "lift-ml":
        calibration = alone.rules.calibration
        assert alone.rules.chosen == "fixed" and calibration.slope == 1.0 and not calibration.offset.any()


def test_with_other_methods_words_have_no_vote(tiny_encoder: str) -> None:
    other = TextClassifier("ce", tiny_encoder, "frozen", settings={"epochs": 1, "epoch_steps": 2, "warmup": 2}).fit(
        *tiny_texts(4), POOL).model_
    assert isinstance(other, TrainedModel) and other.words is None


def test_an_export_predicts_the_same(either: TrainedModel, tmp_path: Path) -> None:
    parity = export(either, tmp_path / "onnx", NEW)
    assert parity.probabilities < 1e-4 and parity.same_labels == 1.0
    exported = OnnxModel(tmp_path / "onnx")
    assert np.allclose(exported.probabilities(NEW), either.probabilities(NEW), atol=0.02)
    assert exported.facts["format"] == (4 if either.method == "lift" else 3) and exported.words is not None
    vectors, scores = exported._run(["vectors", "scores"], NEW, None)
    neighbours = 0.0 if exported.neighbours is None else exported.neighbours.logits(vectors)
    assert np.allclose(exported.scores(NEW), scores + neighbours + exported.words.logits(NEW), atol=1e-4)
    (tmp_path / "onnx" / "words.safetensors").unlink()
    write_checksums(tmp_path / "onnx")
    with pytest.raises(ModelError, match="export the model again"):
        OnnxModel(tmp_path / "onnx")


def test_a_full_disk_is_reported_with_the_file(model: TrainedModel, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("halflabel.persistence.model_folder.save_file", full)
    assert model.words is not None
    with pytest.raises(OutputError, match=r"words\.safetensors could not be written \(No space left on device\)"):
        write_words(tmp_path, model.words)
    assert not list(tmp_path.iterdir())


def test_held_out_texts_are_not_learned() -> None:
    texts = ["red apple", "red cherry", "blue sky", "blue sea", "red sky", "green leaf", "green leaf too"]
    y = np.eye(3)[[0, 0, 1, 1, 0, 2, 2]]
    fitted = fit_ngram_model(texts, y, [np.array([5, 6])], "multi-class")
    assert fitted is not None
    words, held_out = fitted
    assert words.logits(texts).argmax(axis=1).tolist() == [0, 0, 1, 1, 0, 2, 2]
    assert held_out.shape == (2, 3) and (held_out.argmax(axis=1) != 2).all()
    assert fit_ngram_model(["one", "two"], np.eye(2), [], "multi-class") is None


def test_unknown_labels_do_not_count() -> None:
    texts = ["red apple", "red cherry", "blue sky", "blue sea", "red sky"]
    y = np.array([[1, 1], [1, 0], [0, 1], [0, 0], [1, 1]], dtype=float)

    def logits(changed: float) -> np.ndarray:
        labels = y.copy()
        labels[4, 1] = changed
        fitted = fit_ngram_model(texts, labels, [], "multi-label")
        assert fitted is not None
        return fitted[0].logits(texts)

    unknown, yes, no = logits(np.nan), logits(1.0), logits(0.0)
    assert np.isfinite(unknown).all() and np.allclose(unknown[:, 0], yes[:, 0], atol=0.05)
    assert no[4, 1] < unknown[4, 1] < yes[4, 1]


def test_a_rare_label_has_log_odds_of_its_frequency() -> None:
    texts = tiny_texts(100, seed=3)[0]
    y = np.stack([np.full(len(texts), 1e-4), np.arange(len(texts)) % 2], axis=1)
    fitted = fit_ngram_model(texts, y, [np.arange(0, len(texts), 2)], "multi-label")
    assert fitted is not None
    model, held_out = fitted
    assert np.abs(model.logits(texts)[:, 0] - held_out[:, 0].mean()).max() < 1.5
    assert -10.5 < model.logits(texts)[:, 0].mean() < -6.0
