"""BERT without transformers: bit-identical, and only for its own architecture."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.encoders.bert import Bert, is_bert
from halflabel.encoders.encoder import Encoder, for_inference
from halflabel.encoders.inference import encode
from halflabel.encoders.inputs import padded
from halflabel.encoders.loading import load_encoder, restore_encoder
from halflabel.encoders.tokens import Tokenizer

ODD = ["", " ", "goal", "GOAL Bread", "[CLS] goal [PAD] bread [MASK]", "bread " * 200, "naïve café \U0001f35e",
       "a\x00b\r\nc"]


def pair(folder: str, place: Path, depths: int = 1) -> tuple[Encoder, Encoder]:
    """The same encoder by transformers and as it is restored."""
    general = load_encoder(folder, depths=depths).eval()
    general.save(place)
    return general, restore_encoder(place, general.state_dict())


@pytest.mark.parametrize("depths", [1, 2])
def test_every_bit_is_that_of_transformers(tiny_encoder: str, tmp_path: Path, depths: int) -> None:
    general, own = pair(tiny_encoder, tmp_path, depths)
    assert isinstance(own.body, Bert) and type(general.body).__name__ == "BertModel"
    with torch.inference_mode():
        for attention in ("eager", "sdpa"):
            for encoder in (own, general):
                encoder.body.set_attn_implementation(attention)
            for some in (ODD, ODD[2:3], tiny_texts(20)[0]):  # with padding and without
                inputs = padded(own.tokens(some), own)
                assert torch.equal(own(*inputs), general(*inputs))


def test_half_precision_changes_vectors_little_at_any_length(tiny_encoder: str,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.encoders.bert.SHORT", 16)
    encoder = load_encoder(tiny_encoder).eval()
    exact, half = for_inference(encoder, torch.float32), for_inference(encoder, torch.bfloat16)
    assert isinstance(half.body, Bert) and isinstance(exact.body, Bert)
    with torch.inference_mode():
        for some in (["goal bread"], ["goal", "bread goal " * 20], ["bread " * 30, "goal " * 20]):
            inputs = padded(encoder.tokens(some), encoder)
            cosine = torch.nn.functional.cosine_similarity(half(*inputs), exact(*inputs))
            torch.testing.assert_close(exact(*inputs), encoder(*inputs))
            assert float(cosine.min()) > 0.999


def test_token_ids_are_those_of_transformers(tiny_encoder: str, tmp_path: Path) -> None:
    general, own = pair(tiny_encoder, tmp_path)
    assert isinstance(own.tokenizer, Tokenizer) and own.padding == general.padding
    for mine, theirs in zip(own.tokens(ODD), general.tokens(ODD), strict=True):
        assert mine.dtype == theirs.dtype and np.array_equal(mine, theirs)


def test_texts_are_truncated_on_the_side_that_the_tokenizer_declares(tiny_encoder: str, tmp_path: Path) -> None:
    shutil.copytree(tiny_encoder, tmp_path / "left")
    settings = tmp_path / "left" / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"truncation_side": "left"}))
    general, own = pair(str(tmp_path / "left"), tmp_path)
    text = [" ".join(["goal"] * 70 + ["bread"] * 70)]
    assert np.array_equal(own.tokens(text)[0], general.tokens(text)[0])
    assert not np.array_equal(own.tokens(text)[0], load_encoder(tiny_encoder).tokens(text)[0])


def test_a_restored_encoder_can_be_saved_again(tiny_encoder: str, tmp_path: Path) -> None:
    _, own = pair(tiny_encoder, tmp_path)
    place = tmp_path / "again"
    place.mkdir()
    own.save(place)
    again = restore_encoder(place, own.state_dict())
    general = load_encoder(str(tmp_path_with_weights(place, own)))  # transformers can read it too
    for other in (again, general):
        assert np.array_equal(encode(other, ODD), encode(own, ODD))
    assert again.tokenizer_fingerprint() == own.tokenizer_fingerprint()


def tmp_path_with_weights(place: Path, encoder: Encoder) -> Path:
    from safetensors.torch import save_file

    save_file(dict(encoder.body.state_dict()), place / "model.safetensors", {"format": "pt"})
    return place


def test_weights_are_shared_and_not_initialised(tiny_encoder: str, tmp_path: Path) -> None:
    general, own = pair(tiny_encoder, tmp_path)
    name = "body.encoder.layer.0.attention.self.query.weight"
    assert own.state_dict()[name].data_ptr() == general.state_dict()[name].data_ptr()
    assert for_inference(own, torch.float32).body.encoder["layer"][0].attention["self"].query.weight.data_ptr() == \
        own.state_dict()[name].data_ptr()


@pytest.mark.parametrize("change", [{"model_type": "roberta"}, {"hidden_act": "relu"}, {"is_decoder": True},
                                    {"position_embedding_type": "relative_key"}])
def test_other_architectures_are_left_to_transformers(change: dict[str, object], tiny_encoder: str) -> None:
    config = json.loads((Path(tiny_encoder) / "config.json").read_text())
    assert is_bert(config) and not is_bert(config | change)
    assert not is_bert({name: value for name, value in config.items() if name != "hidden_size"})


def test_another_architecture_is_restored_by_transformers(tiny_encoder: str, tmp_path: Path) -> None:
    from transformers import DistilBertConfig, DistilBertModel

    folder = tmp_path / "distil"
    shutil.copytree(tiny_encoder, folder)
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    DistilBertModel(DistilBertConfig(vocab_size=size, dim=32, n_layers=1, n_heads=2, hidden_dim=64,
                                     max_position_embeddings=64)).save_pretrained(folder)
    general, again = pair(str(folder), tmp_path)
    assert type(again.body).__name__ == "DistilBertModel"
    assert np.array_equal(encode(again, ODD), encode(general, ODD))


def test_a_saved_model_predicts_without_transformers(tiny_encoder: str, tmp_path: Path) -> None:
    texts, labels = tiny_texts(6)
    clf = TextClassifier("bdd-s", tiny_encoder, "laptop", settings={"epochs": 1, "epoch_steps": 2, "warmup": 2})
    clf.fit(texts[:9], labels[:9], unlabelled=texts[9:]).save(tmp_path / "model")
    (tmp_path / "new.txt").write_text("goal match team\nbread soup\n", encoding="utf-8")
    command = ["halflabel", "predict", str(tmp_path / "model"), str(tmp_path / "new.txt"), "--all"]
    code = (f"import sys; from halflabel.cli import main; sys.argv = {command}\n"
            "try:\n    main()\nexcept SystemExit:\n    pass\n"
            "slow = {'transformers', 'sklearn', 'scipy', 'pandas', 'sympy', 'torch._dynamo', 'onnxruntime'}\n"
            "assert not slow & set(sys.modules), slow & set(sys.modules)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shares = [list(json.loads(line)["probabilities"].values()) for line in done.stdout.splitlines()]
    assert np.array_equal(shares, clf.predict_proba(["goal match team", "bread soup"]).round(6))
