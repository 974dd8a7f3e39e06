"""Back-translation with tiny random models: caching, interruptions and errors."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from halflabel.data import augmentation
from halflabel.data.augmentation import TranslationCache, back_translate
from halflabel.errors import MissingExtra, ModelError, OutputError, SettingError

TEXTS = ["the printer is on fire", "a dog", "send the invoice to the bank", "the dog is on the bank", "a fire"]


@pytest.fixture(scope="session")
def marian(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a one-layer MarianMT model and the sentencepiece models that its tokenizer needs."""
    spm = pytest.importorskip("sentencepiece")
    import torch
    from transformers import MarianConfig, MarianMTModel

    folder = tmp_path_factory.mktemp("marian")
    (folder / "corpus.txt").write_text("\n".join(TEXTS * 5))
    for side in ("source", "target"):
        spm.SentencePieceTrainer.train(
            input=str(folder / "corpus.txt"), model_prefix=str(folder / side), vocab_size=28, minloglevel=2
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    pieces = spm.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    words = ["</s>", "<unk>", *(pieces.id_to_piece(i) for i in range(3, pieces.get_piece_size())), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
    pad = len(words) - 1
    config = MarianConfig(
        vocab_size=len(words), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64,
        pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0, forced_eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    MarianMTModel(config).save_pretrained(folder)
    return str(folder)


def test_back_translation_is_cached_and_reproducible(marian: str, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    options = {"there": marian, "back": marian, "batch_size": 2}
    texts = [*TEXTS, "", TEXTS[0]]
    first = back_translate(texts, cache=tmp_path / "one", progress=lambda *at: seen.append(at), **options)
    assert seen == [(2, 5), (4, 5), (5, 5)]
    assert first[5] == "" and first[6] == first[0]
    assert first[:5] != TEXTS and all(view.strip() for view in first[:5])
    assert back_translate(texts, cache=tmp_path / "two", **options) == first


def test_a_full_cache_needs_no_model(marian: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = back_translate(TEXTS, there=marian, back=marian, cache=tmp_path)
    monkeypatch.setattr(augmentation, "_load", lambda name: pytest.fail("loaded a model"))
    assert back_translate(TEXTS[::-1], there=marian, back=marian, cache=tmp_path) == first[::-1]


def test_other_settings_have_another_cache(marian: str, tmp_path: Path) -> None:
    one = back_translate(TEXTS, there=marian, back=marian, cache=tmp_path, seed=0)
    two = back_translate(TEXTS, there=marian, back=marian, cache=tmp_path, seed=1)
    assert one != two
    assert len(list(tmp_path.glob("*.jsonl"))) == 2


def test_an_interrupted_run_loses_one_batch_and_resumes_identically(marian: str, tmp_path: Path) -> None:
    options = {"there": marian, "back": marian, "batch_size": 2}
    whole = back_translate(TEXTS, cache=tmp_path / "whole", **options)

    def kill(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_translate(TEXTS, cache=tmp_path / "cut", progress=kill, **options)
    (file,) = (tmp_path / "cut").glob("*.jsonl")
    assert len(file.read_text().splitlines()) == 4
    assert back_translate(TEXTS, cache=tmp_path / "cut", **options) == whole


def test_the_global_random_state_is_unchanged(marian: str, tmp_path: Path) -> None:
    import torch

    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    back_translate(TEXTS[:1], there=marian, back=marian, cache=tmp_path)
    assert torch.equal(torch.rand(1), expected)


def test_a_truncated_line_is_skipped_and_never_joined_to_the_next(tmp_path: Path) -> None:
    TranslationCache(tmp_path, ["x"]).add(["a", "b"], ["A", "B\n\ud800"])
    path = TranslationCache(tmp_path, ["x"]).path
    path.write_bytes(path.read_bytes() + b'{"text": "c", "vi')
    cached = TranslationCache(tmp_path, ["x"])
    assert cached.views == {"a": "A", "b": "B\n\ud800"}
    cached.add(["d"], ["D"])
    assert TranslationCache(tmp_path, ["x"]).views == {"a": "A", "b": "B\n\ud800", "d": "D"}


def test_an_empty_translation_is_the_text_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmentation, "_load", lambda name: (None, None))
    monkeypatch.setattr(augmentation, "_translate", lambda texts, *rest: [" "] * len(texts))
    assert back_translate(["a b"], cache=tmp_path) == ["a b"]


def test_missing_sentencepiece_names_the_package_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="pip install sentencepiece"):
        back_translate(["a b"], cache=tmp_path)


def test_a_missing_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    with pytest.raises(ModelError, match=r"'/no/such/model' cannot be loaded .* give the folder"):
        back_translate(["a b"], there="/no/such/model", back="/no/such/model", cache=tmp_path)


def test_a_cache_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"file.* cannot be used .*; choose another folder"):
        back_translate(["a b"], cache=tmp_path / "file" / "cache")
    cached = TranslationCache(tmp_path, ["x"])
    cached.path.mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        cached.add(["a"], ["b"])


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"batch_size": 0}])
def test_settings_out_of_range(tmp_path: Path, wrong: dict) -> None:
    with pytest.raises(SettingError, match="must be above 0"):
        back_translate(["a"], cache=tmp_path, **wrong)
