"""Encoders: loading, pooling, and vectors that do not depend on the rest of the batch."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
import torch

from halflabel.encoders.encoder import pool
from halflabel.encoders.inference import encode
from halflabel.encoders.inputs import VectorInputs
from halflabel.encoders.loading import load_encoder, locate, restore_encoder
from halflabel.encoders.tokens import whole_words
from halflabel.errors import EncoderError, ModelError


def test_a_text_has_the_same_vector_in_any_batch(tiny_encoder: str) -> None:
    encoder = load_encoder(tiny_encoder)
    alone = encode(encoder, ["goal match win"])
    crowd = encode(encoder, ["goal match win", "bread " * 30, "bank"])
    assert np.allclose(alone[0], crowd[0], atol=1e-2)


def test_padding_never_counts() -> None:
    states = torch.randn(2, 5, 3)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    changed = states.clone()
    changed[0, 3:] = 1e6
    for how in ("mean", "max", "cls"):
        assert torch.equal(pool(states, mask, how), pool(changed, mask, how))
    assert torch.allclose(pool(states, mask, "mean")[0], states[0, :3].mean(dim=0))
    assert torch.equal(pool(states, mask, "max")[0], states[0, :3].amax(dim=0))


def test_long_texts_are_truncated_and_huge_ones_are_fast(tiny_encoder: str) -> None:
    encoder = load_encoder(tiny_encoder, max_tokens=16)
    assert [len(ids) for ids in encoder.tokens(["goal " * 100_000, "goal"])] == [16, 3]
    assert encoder.tokens([]) == []


def test_the_limit_is_never_beyond_the_positions(tiny_encoder: str) -> None:
    assert load_encoder(tiny_encoder, max_tokens=10_000).max_tokens == 64


@pytest.mark.parametrize(("settings", "expected"), [
    ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
    ({"pooling_mode_max_tokens": True}, "max"), ({"pooling_mode": "mean"}, "mean"),
])
def test_a_sentence_transformers_folder_declares_its_pooling(
        settings: dict, expected: str, tiny_encoder: str, tmp_path: Path) -> None:
    folder = tmp_path / "st"
    shutil.copytree(tiny_encoder, folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    assert load_encoder(str(folder)).pooling == expected


def test_an_unknown_pooling_is_refused(tiny_encoder: str, tmp_path: Path) -> None:
    folder = tmp_path / "st"
    shutil.copytree(tiny_encoder, folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    with pytest.raises(EncoderError, match="pooling"):
        load_encoder(str(folder))


def test_a_restored_encoder_has_the_same_vectors(tiny_encoder: str, tmp_path: Path) -> None:
    encoder = load_encoder(tiny_encoder, max_tokens=20)
    encoder.save(tmp_path)
    again = restore_encoder(tmp_path, encoder.state_dict())
    texts = ["goal match", "bread soup oven"]
    assert np.array_equal(encode(encoder, texts), encode(again, texts)) and again.max_tokens == 20
    assert again.fingerprint() == encoder.fingerprint()


def test_a_folder_without_an_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="contains no encoder"):
        restore_encoder(tmp_path, {})


def test_a_local_encoder_needs_no_network(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert load_encoder(tiny_encoder).width == 32


def test_an_unknown_encoder_is_named() -> None:
    with pytest.raises(EncoderError, match="no-such-encoder"):
        load_encoder("no-such-encoder")


def test_other_names_are_passed_to_transformers() -> None:
    assert locate("bert-base-uncased") == "bert-base-uncased"


def test_entries_of_frozen_vectors_are_dropped_only_in_training() -> None:
    source = VectorInputs([np.ones((4, 1000), dtype=np.float32)], drop=0.7)
    rows, views = np.arange(4), np.zeros(4, dtype=np.int64)
    assert torch.equal(source(rows, views)[0], torch.ones(4, 1000))
    first, again = (source(rows, views, np.random.default_rng(1))[0] for _ in range(2))
    assert torch.equal(first, again) and 0.25 < float((first > 0).float().mean()) < 0.35
    assert float(first.mean()) == pytest.approx(1.0, abs=0.1)


def test_files_and_caches_do_not_depend_on_whether_a_text_was_tokenized(tiny_encoder: str, tmp_path: Path) -> None:
    fresh, used = load_encoder(tiny_encoder, 8), load_encoder(tiny_encoder, 8)
    used.tokens(["a text of many words that is longer than its limit"])
    assert fresh.tokenizer_fingerprint() == used.tokenizer_fingerprint()
    for name, encoder in (("fresh", fresh), ("used", used)):
        (tmp_path / name).mkdir()
        encoder.save(tmp_path / name)
    assert (tmp_path / "fresh/tokenizer.json").read_bytes() == (tmp_path / "used/tokenizer.json").read_bytes()
    assert max(map(len, used.tokens(["a text of many words that is longer than its limit"]))) == 8


def test_the_vocabulary_has_whole_words(tiny_encoder: str) -> None:
    assert "goal" in load_encoder(tiny_encoder).vocabulary()

    class SentencePieces:
        def get_vocab(self) -> dict[str, int]:
            return {"ing": 3, "▁x": 2, "▁late": 1, "▁goal": 0, "▁4th": 4}

    class WordPieces:
        def get_vocab(self) -> dict[str, int]:
            return {"##ing": 0, "late": 2, "goal": 1, "[CLS]": 3}

    assert whole_words(SentencePieces()) == whole_words(WordPieces()) == ["goal", "late"]
