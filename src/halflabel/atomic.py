"""What is written is whole or not there: files and folders get their names only when they are complete."""

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
UNIQUE = "[0-9a-f]" * 32  # as a pattern, what `beside` adds to a name


def write_folder(folder: Path, fill: Callable[[Path], None], *, shared: bool = False) -> None:
    """Lets `fill` write into a new folder beside, and gives it its name only when it is complete.

    With `shared`, another process that wrote the same folder first is as good.
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
    """A path beside `file` to write to; what stands there in the end takes the place of `file` as a whole."""
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
    """Replaces a file as a whole."""
    with replace_file(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


def real(path: Path) -> Path:
    """Where a path leads: links stay as they are, and what they point to is written."""
    return Path(os.path.realpath(path))


def temporary_path(path: Path) -> Path:
    """A hidden name in the same folder that nothing else has."""
    return path.parent / f".{path.name}-{uuid.uuid4().hex}"


def fsync(path: Path) -> None:
    """Brings a file or folder to the disk."""
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
    """Where pools, token ids, vectors and translations are kept: HALFLABEL_CACHE, else the user's cache folder."""
    named = os.environ.get("HALFLABEL_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(named) if named else Path(base) / "halflabel"
