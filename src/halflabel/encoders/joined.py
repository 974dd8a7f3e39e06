"""Several encoders as one: their vectors, each of unit length, side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from halflabel.encoders.text_encoder import TextEncoder
from halflabel.errors import ModelError
from halflabel.integrity import COPY_OR_RETRAIN, read_json, require

JOINED_FILE = "joined.json"
MAX_PARTS = 100


class JoinedEncoders(TextEncoder):
    """The vectors of several encoders, (N, H1 + H2 + ...), of unit length; each encoder has the same share in it.

    The encoders have tokenizers of their own, so they encode texts one after the other (`inference.encode`) and cannot
    be fine-tuned together. Where one sequence of token ids is asked for, it is that of the first encoder.
    """

    def __init__(self, encoders: Sequence[TextEncoder]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.max_tokens = encoders[0].max_tokens

    @property
    def parts(self) -> list[TextEncoder]:
        return list(self.encoders)  # type: ignore[arg-type]

    def join(self, vectors: Sequence[np.ndarray]) -> np.ndarray:
        units = [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in vectors]
        return np.concatenate(units, axis=1) / np.float32(np.sqrt(len(units)))

    @property
    def width(self) -> int:
        return sum(part.width for part in self.parts)

    @property
    def padding(self) -> int:
        return self.parts[0].padding

    @property
    def special(self) -> frozenset[int]:
        return self.parts[0].special

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        return self.parts[0].tokens(texts)

    def vocabulary(self) -> list[str]:
        return self.parts[0].vocabulary()

    def fingerprint(self) -> str:
        parts = " ".join(part.fingerprint() for part in self.parts)
        return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()

    def tokenizer_fingerprint(self) -> str:
        return self.parts[0].tokenizer_fingerprint()

    def save(self, folder: Path) -> None:
        for i, part in enumerate(self.parts):
            (folder / str(i)).mkdir(exist_ok=True)
            part.save(folder / str(i))
        (folder / JOINED_FILE).write_text(json.dumps({"parts": len(self.parts)}), encoding="utf-8")


def restore_joined(folder: Path, weights: dict[str, Tensor],
                   restore: Callable[[Path, dict[str, Tensor]], TextEncoder]) -> JoinedEncoders:
    """Rebuilds joined encoders by `restore`, which rebuilds one of them."""
    settings = read_json(folder / JOINED_FILE)
    require(settings, {"parts": int}, folder / JOINED_FILE)
    if not 2 <= settings["parts"] <= MAX_PARTS:
        raise ModelError(f"{folder / JOINED_FILE} has an impossible number of encoders; {COPY_OR_RETRAIN}")
    by_part: list[dict[str, Tensor]] = [{} for _ in range(settings["parts"])]
    for name, tensor in weights.items():
        _, number, rest = (*name.split(".", 2), "", "")[:3]
        if not number.isdecimal() or int(number) >= len(by_part):
            raise ModelError(f"The weights of {folder} contain {name}, which is of no encoder; {COPY_OR_RETRAIN}")
        by_part[int(number)][rest] = tensor
    return JoinedEncoders([restore(folder / str(i), part) for i, part in enumerate(by_part)])
