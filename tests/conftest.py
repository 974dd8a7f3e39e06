"""Tiny parts built in memory: no network, no downloads, seconds."""

from __future__ import annotations

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
# Read when numpy and torch are imported: for tiny matrices, threads cost more than they save.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)

# The same examples in every continuous-integration run; new ones whenever a person runs the tests.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

TOPICS = {
    "sport": "match team goal player coach league win season stadium referee striker keeper",
    "food": "bread soup oven recipe salt butter dinner kitchen pepper onion sauce flour",
    "money": "bank loan share market price profit budget tax invoice credit fund dollar",
}
FILLER = "the a of and to in is was it for on with as at by from that this be are"


def tiny_texts(per_class: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Different short texts of three topics, in a fixed shuffled order."""
    import random

    rng = random.Random(seed)
    texts, labels, seen = [], [], set()
    while len(texts) < per_class * len(TOPICS):
        topic = sorted(TOPICS)[len(texts) % len(TOPICS)]
        words = rng.choices(TOPICS[topic].split(), k=rng.randint(3, 7))
        words += rng.choices(FILLER.split(), k=rng.randint(2, 8))
        rng.shuffle(words)
        text = " ".join(words)
        if text not in seen:
            seen.add(text)
            texts.append(text)
            labels.append(topic)
    return texts, labels


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a two-layer BERT of width 32 and a word-level vocabulary."""
    return make_tiny_encoder(tmp_path_factory.mktemp("tiny-encoder"))


def make_tiny_encoder(folder: Path) -> str:
    """Writes the folder of `tiny_encoder`."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = sorted({w for text in [*TOPICS.values(), FILLER] for w in text.split()})
    vocabulary = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
                            sep_token="[SEP]", mask_token="[MASK]").save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=64, max_position_embeddings=64)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def exported_model(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model with balanced angles (`model`) and its export (`onnx`), which takes seconds."""
    from halflabel import TextClassifier
    from halflabel.persistence.onnx_export import export

    folder = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HALFLABEL_CACHE", str(folder / "cache"))
        clf = TextClassifier("bdd-s", tiny_encoder, "frozen", settings={"epochs": 2, "epoch_steps": 8, "warmup": 20})
        clf.fit(*tiny_texts(6), tiny_texts(8, seed=1)[0]).save(folder / "model")
        export(TextClassifier.load(folder / "model").model_, folder / "onnx", tiny_texts(15, seed=5)[0])
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of one test are never seen by another."""
    monkeypatch.setenv("HALFLABEL_CACHE", str(tmp_path / "cache"))
