"""What an encoder computes once per text and keeps on disk: token ids and frozen vectors.

Everything is stored in shards, which are Arrow files with one row per text in their column `value`:

    <cache>/tokens/<tokenizer fingerprint>/<pool>/000000.arrow      token ids of a pool on disk
    <cache>/vectors/<encoder fingerprint>/<pool>/000000.arrow       vectors of a pool on disk
    <cache>/vectors/<encoder fingerprint>/texts/<hash>.arrow        vectors of texts in memory

Fingerprints are hashes of all that a result depends on, so a cache is never stale. A pool is found by the hash of its
content and keeps its order: row i of the pool is row i of the shards, and neither texts nor vectors have to be in
memory. Texts in memory are found one by one, by a hash of each text in the column `key`, so that runs on overlapping
samples share their vectors. Token ids of texts in memory are not cached: reading them would take as long.

Shards appear under their names only when they are complete, and one that is damaged is computed again. So a run that is
killed loses at most one shard, and two runs at once do some work twice but no harm. What a run uses is locked, so that
no other process removes it from the cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from halflabel.atomic import replace_file
from halflabel.cache_limit import EntryLock, in_use
from halflabel.data.columns import ArrowColumn, TextColumn, text_hash, write_arrow
from halflabel.data.corpus import LazySequence, map_parts
from halflabel.encoders.inference import encode
from halflabel.encoders.text_encoder import TextEncoder
from halflabel.errors import HalflabelError
from halflabel.types import Progress

TOKEN_SHARD = 8192  # texts per file
VECTOR_SHARD = 2048


class EncoderCache:
    """The cache of one encoder, in a folder that all encoders share."""

    def __init__(self, folder: Path, encoder: TextEncoder) -> None:
        self.folder, self.encoder = folder, encoder

    @cached_property
    def vector_folder(self) -> Path:
        return self.folder / "vectors" / self.encoder.fingerprint()

    def token_ids(self, texts: Sequence[str]) -> Sequence[np.ndarray]:
        """Token ids of each text: in shards for pools, in memory for texts in memory, lazily for other sequences."""
        folder = self.folder / "tokens" / self.encoder.tokenizer_fingerprint()

        def tokens(part: Sequence[str]) -> Sequence[np.ndarray]:
            if isinstance(part, TextColumn):
                files, lock = shards(folder / part.key, part, lambda texts: list_array(
                    self.encoder.tokens(texts), np.int32), TOKEN_SHARD)
                return TokenIds(files, part.key, lock)
            return LazyTokens(self.encoder, part) if isinstance(part, LazySequence) else self.encoder.tokens(part)

        return map_parts(texts, tokens)

    def vectors(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """Vectors of texts, (N, H), as an array in memory."""
        if len(caches := self._of_parts()) > 1:
            return self.encoder.join([cache.vectors(texts, progress) for cache in caches])
        if isinstance(texts, LazySequence):  # a pool is found by its content, so that it is never encoded twice
            rows = list(self.vector_rows(texts, progress))
            return np.stack(rows) if rows else np.empty((0, self.encoder.width), np.float32)
        return self._vectors_by_hash(texts, progress)

    def _of_parts(self) -> list[EncoderCache]:
        """The caches of the encoders that are joined: each is kept by itself, so that any combination uses it."""
        return [EncoderCache(self.folder, part) for part in self.encoder.parts]

    def _vectors_by_hash(self, texts: Sequence[str], progress: Progress | None) -> np.ndarray:
        """Vectors of texts that are found one by one, (N, H)."""
        if not len(texts):
            return np.empty((0, self.encoder.width), np.float32)
        keys = [text_hash(text) for text in texts]
        with in_use(self.vector_folder / "texts"):
            vectors = self._read(set(keys))
            missing = list({key: text for key, text in zip(keys, texts, strict=True) if key not in vectors}.items())
            for start in range(0, len(missing), VECTOR_SHARD):
                part = missing[start : start + VECTOR_SHARD]
                tick = (lambda done, _, at=start: progress(at + done, len(missing))) if progress else None
                computed = encode(self.encoder, [text for _, text in part], tick, consistent=True)
                self._write([key for key, _ in part], computed)
                vectors.update(zip([key for key, _ in part], computed, strict=True))
        return np.stack([vectors[key] for key in keys])

    def vector_rows(self, texts: Sequence[str], progress: Progress | None = None) -> Sequence[np.ndarray]:
        """Vectors of texts, N rows of width H; those of pools stay on disk."""
        def rows(part: Sequence[str]) -> Sequence[np.ndarray]:
            if len(caches := self._of_parts()) > 1:
                if isinstance(part, TextColumn):
                    return JoinedRows(self.encoder, [cache.vector_rows(part, progress) for cache in caches])
                return self.vectors(part, progress)  # type: ignore[return-value]
            if not isinstance(part, TextColumn):
                return self._vectors_by_hash(part, progress)  # type: ignore[return-value]
            files, lock = shards(self.vector_folder / part.key, part, lambda texts: fixed_array(
                encode(self.encoder, texts, consistent=True)), VECTOR_SHARD, progress)
            return ArrowColumn(files, "value", lambda cell: np.frombuffer(cell, np.float32), lock=lock)

        return map_parts(texts, rows)

    def _read(self, wanted: set[bytes]) -> dict[bytes, np.ndarray]:
        vectors: dict[bytes, np.ndarray] = {}
        for file in sorted((self.vector_folder / "texts").glob("*.arrow")):
            if (columns := open_columns(file, "key", "value")) is None:
                continue
            for keys, values in zip(*(column.arrays() for column in columns), strict=True):
                names = keys.flatten().to_numpy().reshape(len(keys), -1).view("V16")[:, 0].tolist()
                rows = [i for i, name in enumerate(names) if name in wanted]
                table = values.flatten().to_numpy().reshape(len(values), -1)
                vectors.update((names[i], vector) for i, vector in zip(rows, table[rows], strict=True))
        return vectors

    def _write(self, keys: list[bytes], vectors: np.ndarray) -> None:
        table = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1)
        name = hashlib.blake2b(table.tobytes(), digest_size=16).hexdigest()
        write_shard(self.vector_folder / "texts" / f"{name}.arrow", key=fixed_array(table), value=fixed_array(vectors))


def shards(folder: Path, items: Sequence[Any], compute: Callable[[list[Any]], Any], size: int,
           progress: Progress | None = None) -> tuple[list[Path], EntryLock]:
    """Files with the Arrow arrays that `compute` returns for `size` items at a time, and the lock of their folder.

    Only missing files are computed.
    """
    files, lock = [], in_use(folder)
    for start in range(0, len(items), size):
        file = folder / f"{start // size:06d}.arrow"
        if open_columns(file, "value") is None:
            write_shard(file, value=compute(list(items[start : start + size])))
            if progress:
                progress(min(start + size, len(items)), len(items))
        files.append(file)
    return files, lock


def write_shard(file: Path, **columns: Any) -> None:
    """Writes Arrow arrays as one file."""
    import pyarrow as pa

    file.parent.mkdir(parents=True, exist_ok=True)
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    with replace_file(file) as temporary:
        write_arrow(temporary, [batch], batch.schema)


def open_columns(file: Path, *names: str) -> list[ArrowColumn[bytes]] | None:
    """Columns of a shard; None if it does not exist, or was damaged and is now removed."""
    if not file.is_file():
        return None
    try:
        return [ArrowColumn([file], name, bytes) for name in names]
    except HalflabelError:
        file.unlink(missing_ok=True)
        return None


def list_array(rows: Sequence[np.ndarray], dtype: Any) -> Any:
    """Rows of different lengths as an Arrow array."""
    import pyarrow as pa

    ends = np.cumsum([0, *map(len, rows)])
    return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), pa.array(np.concatenate([
        np.empty(0, dtype), *rows])))


def fixed_array(table: np.ndarray) -> Any:
    """Rows of one width, (N, H), as an Arrow array."""
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(table.reshape(-1)), table.shape[1])


class TokenIds(ArrowColumn[np.ndarray]):
    """Token ids of a pool on disk."""

    def __init__(self, files: Sequence[Path], key: str, lock: EntryLock | None = None) -> None:
        super().__init__(files, "value", lambda cell: np.frombuffer(cell, np.int32), key=key, lock=lock)

    def lengths(self) -> np.ndarray:
        """The number of tokens of each text, (N,)."""
        return np.concatenate([np.empty(0, np.int8), *(
            compact(np.diff(np.frombuffer(array.buffers()[1], np.int64, len(array) + 1))) for array in self.arrays())])


class JoinedRows(LazySequence[np.ndarray]):
    """Rows of the vectors of several encoders, joined on access."""

    def __init__(self, encoder: TextEncoder, parts: Sequence[Sequence[np.ndarray]]) -> None:
        self.encoder, self.parts = encoder, parts

    def __len__(self) -> int:
        return len(self.parts[0])

    def row(self, i: int) -> np.ndarray:
        return np.asarray(self.encoder.join([part[i][None] for part in self.parts])[0])


class LazyTokens(LazySequence[np.ndarray]):
    """Token ids that are computed on each access, for augmented views, which are not cached."""

    def __init__(self, encoder: TextEncoder, texts: Sequence[str]) -> None:
        self.encoder, self.texts = encoder, texts

    def __len__(self) -> int:
        return len(self.texts)

    def row(self, i: int) -> np.ndarray:
        return self.encoder.tokens([self.texts[i]])[0]


def compact(counts: np.ndarray) -> np.ndarray:
    """Counts as the smallest signed integers that hold them, since there may be millions."""
    return counts.astype(np.min_scalar_type(-1 - int(counts.max(initial=0))))
