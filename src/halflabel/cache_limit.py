"""The cache: which entries are in use, their size, and the removal of what was not used for longest.

    <cache>/pools/<key>, onnx/<key>, corpora/<key>, translations/<key>         an entry each
    <cache>/tokens/<encoder>/<pool>, vectors/<encoder>/<pool>, states/<encoder>/<pool>

A process holds a shared lock on each entry that it uses, and no process removes an entry that is locked. The limit is
HALFLABEL_CACHE_LIMIT in gigabytes, 10 unless it is set. A run that starts removes the least recently used entries
beyond it, except those of the last two days, which are likely to be used again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from halflabel.atomic import UNIQUE, cache_folder, flock, is_at, not_written, remove, remove_abandoned, temporary_path
from halflabel.errors import SettingError

KINDS = {"pools": "unlabelled texts", "tokens": "token ids", "vectors": "sentence vectors",
         "states": "hidden states of earlier versions", "onnx": "ONNX graphs", "translations": "back-translations",
         "corpora": "benchmark corpora", "encoders": "downloaded encoders"}
KEPT = ("encoders",)  # never removed to stay below the limit: without a network they cannot be had again
BY_ENCODER = ("tokens", "vectors", "states")
VARIABLE, DEFAULT = "HALFLABEL_CACHE_LIMIT", "10"  # gigabytes
RECENT = 2 * 86_400.0  # seconds; file systems note the time of reading once a day


class EntryLock:
    """A shared lock on an entry of the cache, held until it is closed or no longer referenced."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        with suppress(OSError):  # some network drives have no locks
            flock(handle, shared=True)

    def close(self) -> None:
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)

    def __enter__(self) -> EntryLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    __del__ = close


def in_use(entry: Path, make: Callable[[], None] | None = None) -> EntryLock:
    """Locks an entry, so that no process removes it; one that does not exist is made, by default as an empty folder."""
    while True:
        if not entry.exists():
            try:
                make() if make else entry.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise not_written(entry, error) from error
        with suppress(FileNotFoundError):  # another process has removed it since
            lock = EntryLock(os.open(entry, os.O_RDONLY))
            if is_at(entry, lock.handle):
                return lock


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


class Pruned(NamedTuple):
    """What was removed, in bytes, and how many entries beyond the limit are still there since they are in use."""

    removed: int
    in_use: int


def entries(kept: tuple[str, ...] = KEPT) -> list[CacheEntry]:
    """All entries but those of the kinds that are kept, the least recently used first."""
    folder = cache_folder()
    paths = [path for kind in KINDS if kind not in kept
             for path in folder.glob(f"{kind}/*/*" if kind in BY_ENCODER else f"{kind}/*")]
    found = []
    for path in paths:
        with suppress(FileNotFoundError):  # another process may remove it
            status = [file.stat() for file in (path, *path.rglob("*"))]
            found.append(CacheEntry(path, sum(file.st_size for file in status),
                                    max(max(file.st_atime, file.st_mtime) for file in status[len(status) > 1 :])))
    return sorted(found, key=lambda entry: entry.used)


def prune(limit: int, *, unused_for: float = 0.0, kept: tuple[str, ...] = KEPT) -> Pruned:
    """Removes what killed processes left, and the least recently used entries beyond the limit that are not in use."""
    for temporary in cache_folder().rglob(f".*-{UNIQUE}"):
        remove_abandoned(temporary.with_name(temporary.name[1:-33]))
    found, removed, used = entries(kept), 0, 0
    total = sum(entry.size for entry in found)
    for entry in found:
        if total - removed <= limit or time.time() - entry.used < unused_for:
            break
        try:
            remove_unused(entry.path)
            removed += entry.size
        except BlockingIOError:
            used += 1
        except OSError:  # another process has removed it, or this one may not
            continue
    return Pruned(removed, used)


def remove_unused(entry: Path) -> None:
    """Removes an entry as a whole; BlockingIOError if it is in use."""
    handle = os.open(entry, os.O_RDONLY)
    try:
        try:
            flock(handle)
        except BlockingIOError:
            raise
        except OSError:
            pass  # some network drives have no locks
        moved = temporary_path(entry)  # so that a kill leaves no part of it under its name
        entry.rename(moved)
        remove(moved)
    finally:
        os.close(handle)


@cache
def prune_once() -> None:
    """Keeps the cache within its limit, once in a process."""
    prune(cache_limit(), unused_for=RECENT)
