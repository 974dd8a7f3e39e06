"""Texts to token ids, by a tokenizer of transformers or by tokenizer.json alone. No torch, no transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halflabel.errors import ModelError
from halflabel.integrity import COPY_OR_RETRAIN, read_json

FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
WORD_STARTS = ("▁", "Ġ")  # marks of SentencePiece and byte-level BPE; WordPiece marks the other pieces, as ##ing
CHARACTERS = 32  # per token that are tokenised: what is far beyond the limit would be truncated anyway


def whole_words(tokenizer: Any) -> list[str]:
    """The tokens that are words of at least two letters, in the order of their ids."""
    vocabulary = getattr(tokenizer, "backend_tokenizer", tokenizer).get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    starts = [token[1:] for token in tokens if token.startswith(WORD_STARTS)]
    return [token for token in starts or tokens if len(token) > 1 and token.isalpha()]


def token_ids(tokenizer: Any, texts: Sequence[str], limit: int, prefix: str = "") -> list[np.ndarray]:
    """Token ids of each text after the prefix, truncated at the limit, special tokens included."""
    if not texts:
        return []
    encoded = tokenizer([prefix + text[: CHARACTERS * limit] for text in texts], truncation=True, max_length=limit,
                        add_special_tokens=True, return_attention_mask=False, return_token_type_ids=False)["input_ids"]
    return [np.asarray(ids, dtype=np.int32) for ids in encoded]


class Tokenizer:
    """A tokenizer.json with the interface of the transformers tokenizer that wrote it; its limit is fixed."""

    def __init__(self, folder: Path, limit: int) -> None:
        from tokenizers import Tokenizer as Backend

        file, settings = folder / FILE, folder / SETTINGS
        try:
            self.backend_tokenizer = Backend.from_file(str(file))
        except Exception as error:  # the library raises plain Exception
            raise ModelError(f"{file} is not a complete tokenizer ({error}); {COPY_OR_RETRAIN}") from error
        self.settings: dict[str, Any] = read_json(settings) if settings.exists() else {}
        self.backend_tokenizer.no_padding()
        try:
            self.backend_tokenizer.enable_truncation(limit, direction=self.settings.get("truncation_side", "right"))
        except (ValueError, TypeError, OverflowError) as error:
            raise ModelError(f"{settings} has an unknown truncation_side ({error}); {COPY_OR_RETRAIN}") from error
        self.limit = limit

    def __call__(self, texts: list[str], *, max_length: int, **defaults: bool) -> dict[str, list[list[int]]]:
        assert max_length == self.limit, "the limit is set once, since several threads use the tokenizer"
        return {"input_ids": [encoding.ids for encoding in self.backend_tokenizer.encode_batch_fast(texts)]}

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())

    @property
    def pad_token_id(self) -> int | None:
        token = self.settings.get("pad_token")
        name = token.get("content") if isinstance(token, dict) else token
        return None if name is None else self.backend_tokenizer.token_to_id(name)

    def save_pretrained(self, folder: Path) -> None:
        self.backend_tokenizer.save(str(folder / FILE))
        (folder / SETTINGS).write_text(json.dumps(self.settings, indent=2, ensure_ascii=False), encoding="utf-8")
