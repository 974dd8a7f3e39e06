"""Atomic writes: files and folders appear under their names only when they are complete."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from halflabel.errors import OutputError

REMEDIES = {
    errno.ENOSPC: "free some space or choose another place", errno.EDQUOT: "free some space or choose another place",
    errno.EACCES: "change the permissions or choose another place",
    errno.EPERM: "change the permissions or choose another place",
    errno.EROFS: "the disk is read-only, so choose another place",
    errno.ENOENT: "check the path", errno.ENOTDIR: "check the path", errno.EISDIR: "name a file, not a folder",
    errno.ENAMETOOLONG: "choose a shorter name", errno.EMFILE: "allow more open files (ulimit -n)",
}
UNIQUE = "[0-9a-f]" * 32  # as a pattern, what `temporary_path` appends to a name


def write_folder(folder: Path, fill: Callable[[Path], None], *, shared: bool = False) -> None:
    """Lets `fill` write into a temporary folder, which is renamed when it is complete.

    With `shared`, it is no error if another process has written the same folder in the meantime.
    """
    folder = real(folder)
    temporary = temporary_path(folder)
    try:
        temporary.mkdir(parents=True)
        fill(temporary)
        for file in temporary.rglob("*"):
            fsync(file)
        try:
            os.replace(temporary, folder)
        except OSError:
            if not (shared and folder.is_dir()):
                raise
        fsync(folder.parent)
    except OSError as error:
        raise OutputError(f"{folder} could not be written ({error.strerror or error}); {remedy(error, folder)}."
                          ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def replace_file(file: Path) -> Iterator[Path]:
    """A temporary path to write to, which replaces `file` at the end of the block."""
    file = real(file)
    temporary = temporary_path(file)
    try:
        yield temporary
        fsync(temporary)
        os.replace(temporary, file)
    except OSError as error:
        raise OutputError(f"{file} could not be written ({error.strerror or error}); {remedy(error, file)}."
                          ) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(file: Path, text: str) -> None:
    """Replaces a text file."""
    with replace_file(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


def real(path: Path) -> Path:
    """The path with symbolic links resolved, so that a link is kept and its target is written."""
    return Path(os.path.realpath(path))


def temporary_path(path: Path) -> Path:
    """A unique hidden name in the same folder."""
    return path.parent / f".{path.name}-{uuid.uuid4().hex}"


def fsync(path: Path) -> None:
    """Flushes a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remedy(error: OSError, path: str | Path | None) -> str:
    """What the user can do about a path that could not be read or written."""
    place, cache = None if path is None else real(Path(path)), real(cache_folder())
    if place is not None and (place == cache or cache in place.parents):
        return "it is in the cache of halflabel: set HALFLABEL_CACHE to a folder that can be written"
    return REMEDIES.get(error.errno or 0, "check the path and the disk")


def cache_folder() -> Path:
    """The cache of pools, token ids, vectors and translations: HALFLABEL_CACHE, else in the user's cache folder."""
    own = os.environ.get("HALFLABEL_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(own) if own else Path(base) / "halflabel"
