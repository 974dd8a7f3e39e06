"""The vote of neighbours: labels of the nearest pool texts beside network and words of `lift`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.encoders.neighbours import (
    FLOOR,
    MAX_NUMBERS,
    MAX_TEXTS,
    NEIGHBOURS,
    NeighbourVote,
    largest,
    texts_to_keep,
)
from halflabel.errors import ModelError
from halflabel.integrity import write_checksums
from halflabel.persistence.model import TrainedModel, load
from halflabel.persistence.onnx_export import export
from halflabel.persistence.onnx_model import OnnxModel

NEW = tiny_texts(15, seed=5)[0]
POOL = tiny_texts(40, seed=1)[0]


def two_groups(number: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Vectors around two directions, and their labels as probabilities."""
    rng = np.random.default_rng(0)
    columns = np.arange(number) % 2
    return np.eye(8)[columns] + 0.1 * rng.normal(size=(number, 8)), np.eye(2)[columns]


class TestVote:
    def test_it_is_the_logarithm_of_the_neighbours_share(self) -> None:
        h, y = two_groups()
        vote = NeighbourVote.of(h, y)
        logits = vote.logits(np.eye(8)[:2])
        assert logits.argmax(axis=1).tolist() == [0, 1]
        assert np.exp(logits).max() == pytest.approx(1.0 + FLOOR, abs=1e-4)
        assert np.allclose(vote.scaled(3.0).logits(h), 3.0 * vote.logits(h), rtol=1e-5)

    def test_the_length_of_vectors_does_not_matter(self) -> None:
        h, y = two_groups()
        lengths = np.linspace(0.5, 20.0, len(h))[:, None]
        longer = NeighbourVote.of(lengths * h, y).logits(7.0 * h)
        assert np.allclose(longer, NeighbourVote.of(h, y).logits(h), atol=1e-4)

    def test_rounding_does_not_make_it_jump(self) -> None:
        """The neighbour that is about to be none any more has almost no weight."""
        angle = np.linspace(0.0, 1.5, 2 * NEIGHBOURS)
        h = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        y = np.eye(2)[np.arange(len(h)) % 2]
        vote = NeighbourVote(np.zeros(2, np.float32), h.astype(np.float32), y.astype(np.float32))
        along = np.linspace(0.2, 1.3, 20_001)
        logits = vote.logits(np.stack([np.cos(along), np.sin(along)], axis=1))
        assert np.abs(np.diff(logits, axis=0)).max() < 0.01
        assert np.ptp(logits, axis=0).max() > 0.05

    @pytest.mark.parametrize("columns", [17, 64, 600, 1000, 1023])
    def test_the_largest_values_are_found(self, columns: int) -> None:
        values = np.random.default_rng(0).normal(size=(50, columns)).astype(np.float32)
        found = np.take_along_axis(values, largest(values, 16), axis=1)
        assert np.array_equal(np.sort(found, axis=1), np.sort(values, axis=1)[:, -16:])

    def test_texts_can_be_left_out(self) -> None:
        h, y = two_groups()
        rows = np.flatnonzero(y[:, 1])
        assert np.exp(NeighbourVote.of(h, y).without(rows).logits(h))[:, 1] == pytest.approx(FLOOR, abs=1e-5)

    def test_a_text_may_be_no_neighbour_of_itself(self) -> None:
        h, y = two_groups()
        odd = y.copy()
        odd[0] = y[1]  # a label unlike that of its neighbours
        vote = NeighbourVote.of(h, odd)
        others = replace(vote, skips_itself=True)
        assert vote.logits(h[:1])[0, 1] > -2.0 > others.logits(h[:1])[0, 1]
        assert np.allclose(others.logits(h[:1]), vote.without(np.array([0])).logits(h[:1]), atol=1e-4)

    def test_fewer_texts_than_neighbours(self) -> None:
        h, y = two_groups(4)
        assert NeighbourVote.of(h, y).logits(h).shape == (4, 2)
        assert np.isfinite(NeighbourVote.of(np.ones((3, 8)), np.eye(2)[[0, 1, 1]]).logits(np.ones((2, 8)))).all()

    def test_its_size_is_limited(self) -> None:
        assert texts_to_keep(384, 4) == MAX_TEXTS
        assert texts_to_keep(768, 1000) * 1768 <= MAX_NUMBERS


@pytest.fixture(scope="module")
def model(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HALFLABEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        trained = TextClassifier("lift", tiny_encoder, "frozen").fit(*tiny_texts(8), POOL).model_
    assert isinstance(trained, TrainedModel)
    return trained


def test_scores_are_those_of_network_words_and_neighbours(model: TrainedModel) -> None:
    assert model.words is not None and model.neighbours is not None
    assert model.neighbours.vectors.shape == (24 + len(POOL), model.shape.width)
    network = replace(model, words=None, neighbours=None).scores(NEW)
    votes = model.words.logits(NEW) + model.neighbours.logits(model.vectors(NEW))
    assert np.allclose(model.scores(NEW), network + votes, atol=0.02)
    assert np.abs(model.neighbours.logits(model.vectors(NEW))).max() > 0.1


def test_a_saved_model_predicts_the_same(model: TrainedModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["format"] == 3
    assert np.array_equal(load(tmp_path / "model").scores(NEW), model.scores(NEW))


def changed(**arrays: Any) -> Any:
    def change(file: Path) -> None:
        from safetensors.numpy import load_file, save_file

        save_file(load_file(file) | arrays, file)
    return change


DAMAGES = {
    "missing": Path.unlink,
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-100]),
    "other labels": changed(labels=np.zeros((3, 7), np.float16)),
    "no vectors": changed(vectors=np.zeros(5, np.float16)),
    "not finite": changed(scale=np.array([np.nan], np.float32)),
    "another array": changed(more=np.zeros(2, np.float16)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_neighbours_are_refused(model: TrainedModel, tmp_path: Path, damage: str) -> None:
    model.save(tmp_path / "model")
    DAMAGES[damage](tmp_path / "model" / "neighbours.safetensors")
    write_checksums(tmp_path / "model")
    with pytest.raises(ModelError, match=r"neighbours\.safetensors"):
        load(tmp_path / "model")


def test_an_export_predicts_the_same(model: TrainedModel, tmp_path: Path) -> None:
    parity = export(model, tmp_path / "onnx", NEW)
    assert parity.probabilities < 1e-3 and parity.same_labels == 1.0
    exported = OnnxModel(tmp_path / "onnx")
    assert exported.facts["format"] == 4 and exported.neighbours is not None
    assert np.allclose(exported.probabilities(NEW), model.probabilities(NEW), atol=0.02)
    assert exported.predict(NEW) == list(model.classes.names_of(model.scores(NEW).argmax(axis=1)))


def test_neighbours_have_no_vote_where_clusters_are_not_classes(tiny_encoder: str) -> None:
    """Labels at random: held-out labels show no benefit from clusters."""
    texts, topics = tiny_texts(12)
    rng = np.random.default_rng(0)
    labels = [str(label) for label in rng.permutation(topics)]
    fitted = TextClassifier("lift", tiny_encoder, "frozen").fit(texts, labels, POOL).model_
    assert isinstance(fitted, TrainedModel)
    assert fitted.facts["start"]["trust"] == 0.0 and fitted.neighbours is None
    assert fitted.config()["format"] <= 2
