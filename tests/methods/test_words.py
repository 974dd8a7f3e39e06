"""The vote of words: a linear model on n-grams beside the network of `lift`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.encoders.ngrams import fit_ngram_model
from halflabel.errors import ModelError
from halflabel.integrity import write_checksums
from halflabel.persistence.model import TrainedModel, load
from halflabel.persistence.onnx_export import export
from halflabel.persistence.onnx_model import OnnxModel

NEW = tiny_texts(15, seed=5)[0]
POOL = tiny_texts(40, seed=1)[0]


@pytest.fixture(scope="module")
def model(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HALFLABEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        trained = TextClassifier("lift", tiny_encoder, "frozen").fit(*tiny_texts(4), POOL).model_
    assert isinstance(trained, TrainedModel)
    return trained


def test_scores_are_those_of_the_network_and_of_the_words(model: TrainedModel) -> None:
    assert model.words is not None
    network = model.network.classify(torch.from_numpy(model.vectors(NEW))).scores.detach().numpy()
    assert np.allclose(model.scores(NEW), network + model.words.logits(NEW), atol=1e-3)
    assert np.abs(model.words.logits(NEW)).max() > 0.1
    assert np.allclose(model.probabilities(NEW).sum(axis=1), 1.0)


def test_words_of_the_pool_move_a_prediction(model: TrainedModel) -> None:
    topic = [text for text, label in zip(*tiny_texts(40, seed=1), strict=True) if label == "sport"]
    words = " ".join(topic).split()
    assert model.words is not None
    assert model.classes.names[int(model.words.logits([" ".join(words)]).argmax())] == "sport"


def test_a_saved_model_predicts_the_same(model: TrainedModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["format"] == 2
    assert np.array_equal(load(tmp_path / "model").scores(NEW), model.scores(NEW))


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


def test_without_a_pool_or_with_other_methods_words_have_no_vote(tiny_encoder: str) -> None:
    alone = TextClassifier("lift", tiny_encoder, "frozen").fit(*tiny_texts(4)).model_
    other = TextClassifier("ce", tiny_encoder, "frozen", settings={"epochs": 1, "epoch_steps": 2, "warmup": 2}).fit(
        *tiny_texts(4), POOL).model_
    assert isinstance(alone, TrainedModel) and isinstance(other, TrainedModel)
    assert alone.words is None and other.words is None
    assert alone.config()["format"] == 1


def test_an_export_predicts_the_same(model: TrainedModel, tmp_path: Path) -> None:
    parity = export(model, tmp_path / "onnx", NEW)
    assert parity.probabilities < 1e-4 and parity.same_labels == 1.0
    exported = OnnxModel(tmp_path / "onnx")
    assert exported.facts["format"] == 3 and exported.words is not None
    assert np.allclose(exported.scores(NEW), exported._run("scores", NEW, None) + exported.words.logits(NEW))
    (tmp_path / "onnx" / "words.safetensors").unlink()
    write_checksums(tmp_path / "onnx")
    with pytest.raises(ModelError, match="export the model again"):
        OnnxModel(tmp_path / "onnx")


def test_held_out_texts_are_not_learned() -> None:
    texts = ["red apple", "red cherry", "blue sky", "blue sea", "red sky", "green leaf", "green leaf too"]
    y = np.eye(3)[[0, 0, 1, 1, 0, 2, 2]]
    fitted = fit_ngram_model(texts, y, np.array([5, 6]))
    assert fitted is not None
    words, held_out = fitted
    assert words.logits(texts).argmax(axis=1).tolist() == [0, 0, 1, 1, 0, 2, 2]
    assert held_out.shape == (2, 3) and (held_out.argmax(axis=1) != 2).all()
    assert fit_ngram_model(["one", "two"], np.eye(2), np.array([], dtype=np.int64)) is None
