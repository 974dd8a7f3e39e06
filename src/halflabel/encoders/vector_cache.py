"""Frozen vectors: each text is encoded once and kept on disk by its content."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from halflabel.data.columns import text_hash
from halflabel.data.sequences import LazySequence, map_parts
from halflabel.encoders.encoder import Encoder
from halflabel.encoders.inference import encode
from halflabel.encoders.shards import Vectors, shards, table
from halflabel.types import Progress

SHARD = 2048  # texts per file on disk: what a kill can cost


class VectorCache:
    """Vectors of one encoder: of texts in memory in small safetensors files, found by the hash of the text; of stored
    texts in shards, in the order of the texts, which stay on disk."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        self.folder = folder / encoder.fingerprint()
        self.encoder = encoder

    def __call__(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """Vectors of texts, (N, H), as an array in memory."""
        return self._known(texts, progress)

    def rows(self, texts: Sequence[str], progress: Progress | None = None) -> Sequence[np.ndarray]:
        """Vectors of texts, N of width H; those of stored texts stay where they lie."""
        if not isinstance(texts, LazySequence):
            return self._known(texts, progress)  # type: ignore[return-value]

        def found(part: Sequence[str]) -> Sequence[np.ndarray]:
            if not (key := getattr(part, "key", "")):
                return self._known(part, progress)  # type: ignore[return-value]
            return Vectors(shards(self.folder / key, part, lambda some: table(encode(self.encoder, some, alike=True)),
                                  SHARD, progress))

        return map_parts(texts, found)

    def _known(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """Those not yet on disk are computed and written, a shard at a time."""
        keys = [text_hash(text) for text in texts]
        known = self._read(set(keys))
        missing = list({key: text for key, text in zip(keys, texts, strict=True) if key not in known}.items())
        for start in range(0, len(missing), SHARD):
            part = missing[start : start + SHARD]
            tick = (lambda done, _, at=start: progress(at + done, len(missing))) if progress else None
            vectors = encode(self.encoder, [text for _, text in part], tick, alike=True)
            self._write([key for key, _ in part], vectors)
            known.update(zip([key for key, _ in part], vectors, strict=True))
        return np.stack([known[key] for key in keys]) if keys else np.empty((0, self.encoder.width), np.float32)

    def _read(self, wanted: set[bytes]) -> dict[bytes, np.ndarray]:
        known: dict[bytes, np.ndarray] = {}
        for file in sorted(self.folder.glob("*.safetensors")):
            try:
                with safe_open(file, framework="numpy") as shard:
                    keys = shard.get_tensor("keys")
                    here = [(i, key) for i, key in enumerate(keys.view(f"V{keys.shape[1]}")[:, 0].tolist())
                            if key in wanted]
                    if here:
                        vectors = shard.get_tensor("vectors")
                        known.update((key, vectors[i]) for i, key in here)
            except SafetensorError:  # a torn file from a full disk: compute those texts again
                file.unlink(missing_ok=True)
        return known

    def _write(self, keys: list[bytes], vectors: np.ndarray) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        table = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1)
        name = hashlib.blake2b(table.tobytes(), digest_size=16).hexdigest()
        temporary = self.folder / f".{name}-{uuid.uuid4().hex}"
        save_file({"keys": table, "vectors": vectors}, temporary)
        os.replace(temporary, self.folder / f"{name}.safetensors")
