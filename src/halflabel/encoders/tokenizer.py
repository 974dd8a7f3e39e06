"""Texts to token ids, by whatever tokenizer there is; and tokenizer.json by itself. No torch, no transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halflabel.errors import BadInput
from halflabel.integrity import AGAIN, read_json

FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
REACH = 32  # characters per token that are looked at: a token covers at least one, so what lies far off cannot matter


def token_ids(tokenizer: Any, texts: Sequence[str], limit: int) -> list[np.ndarray]:
    """Token ids of each text, cut at the limit, special tokens included."""
    if not texts:
        return []
    encoded = tokenizer([text[: REACH * limit] for text in texts], truncation=True, max_length=limit,
                        add_special_tokens=True, return_attention_mask=False, return_token_type_ids=False)["input_ids"]
    return [np.asarray(ids, dtype=np.int32) for ids in encoded]


class Tokenizer:
    """tokenizer.json, called as the tokenizer of transformers that wrote it; its limit stands from the beginning."""

    def __init__(self, folder: Path, limit: int) -> None:
        from tokenizers import Tokenizer as Backend

        file, settings = folder / FILE, folder / SETTINGS
        try:
            self.backend_tokenizer = Backend.from_file(str(file))
        except Exception as error:  # the library raises plain Exception
            raise BadInput(f"{file} is not a whole tokenizer ({error}); make or copy the model again.") from error
        self.settings: dict[str, Any] = read_json(settings) if settings.exists() else {}
        self.backend_tokenizer.no_padding()
        try:
            self.backend_tokenizer.enable_truncation(limit, direction=self.settings.get("truncation_side", "right"))
        except (ValueError, TypeError, OverflowError) as error:
            raise BadInput(f"{folder} asks for texts to be cut in no known way ({error}); {AGAIN}") from error
        self.limit = limit

    def __call__(self, texts: list[str], *, max_length: int, **usual: bool) -> dict[str, list[list[int]]]:
        assert max_length == self.limit, "the limit of a tokenizer is set once: several threads use it"
        return {"input_ids": [found.ids for found in self.backend_tokenizer.encode_batch_fast(texts)]}

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
