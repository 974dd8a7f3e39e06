"""The size of the cache: what is in it, and the removal of what was not used for longest.

    <cache>/pools/<key>, onnx/<key>, corpora/<key>, translations/<key>         an entry each
    <cache>/tokens/<encoder>/<pool>, vectors/<encoder>/<pool>, states/<encoder>/<pool>

The limit is HALFLABEL_CACHE_LIMIT in gigabytes, 10 unless it is set. A run that starts removes the least recently used
entries beyond it, except those of the last two days, which another run may be using.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from halflabel.atomic import UNIQUE, cache_folder, remove, remove_abandoned
from halflabel.errors import SettingError

KINDS = {"pools": "unlabelled texts", "tokens": "token ids", "vectors": "sentence vectors",
         "states": "hidden states of frozen layers", "onnx": "ONNX graphs", "translations": "back-translations",
         "corpora": "benchmark corpora", "encoders": "downloaded encoders"}
KEPT = ("encoders",)  # never removed to stay below the limit: without a network they cannot be had again
BY_ENCODER = ("tokens", "vectors", "states")
VARIABLE, DEFAULT = "HALFLABEL_CACHE_LIMIT", "10"  # gigabytes
IN_USE = 2 * 86_400.0  # seconds; file systems note the time of reading once a day


@dataclass(frozen=True)
class CacheEntry:
    """A file or folder of the cache that is removed as a whole."""

    path: Path
    size: int
    used: float  # when it was last read or written, as far as the file system notes it


def cache_limit() -> int:
    """The limit in bytes."""
    text = os.environ.get(VARIABLE) or DEFAULT
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = -1.0
    if not 0 <= gigabytes < 1e9:
        raise SettingError(f"{VARIABLE}={text} is not a size; set it to a number of gigabytes, for example 10")
    return int(gigabytes * 1e9)


def entries() -> list[CacheEntry]:
    """All entries, the least recently used first."""
    folder = cache_folder()
    paths = [path for kind in KINDS if kind not in KEPT
             for path in folder.glob(f"{kind}/*/*" if kind in BY_ENCODER else f"{kind}/*")]
    found = []
    for path in paths:
        with suppress(FileNotFoundError):  # another process may remove it
            status = [file.stat() for file in (path, *path.rglob("*"))]
            found.append(CacheEntry(path, sum(file.st_size for file in status),
                                    max(max(file.st_atime, file.st_mtime) for file in status[len(status) > 1 :])))
    return sorted(found, key=lambda entry: entry.used)


def prune(limit: int, *, unused_for: float = 0.0) -> int:
    """Removes what killed processes left, and the least recently used entries beyond the limit; returns the bytes."""
    for temporary in cache_folder().rglob(f".*-{UNIQUE}"):
        remove_abandoned(temporary.with_name(temporary.name[1:-33]))
    kept, removed = entries(), 0
    total = sum(entry.size for entry in kept)
    for entry in kept:
        if total - removed <= limit or time.time() - entry.used < unused_for:
            break
        with suppress(OSError):
            remove(entry.path)
            removed += entry.size
    return removed


@cache
def prune_once() -> None:
    """Keeps the cache within its limit, once in a process."""
    prune(cache_limit(), unused_for=IN_USE)
