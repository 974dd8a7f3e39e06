"""Atomic writes: files and folders appear under their names only when they are complete.

A process locks its temporary files and folders, so that those of a killed process are known and removed by the next one
that writes the same path. Files get the permissions of the user's umask, whatever wrote them.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from halflabel.errors import HalflabelError, OutputError

REMEDIES = {
    errno.ENOSPC: "free some space or choose another place", errno.EDQUOT: "free some space or choose another place",
    errno.EACCES: "change the permissions or choose another place",
    errno.EPERM: "change the permissions or choose another place",
    errno.EROFS: "the disk is read-only, so choose another place",
    errno.ENOENT: "check the path", errno.ENOTDIR: "check the path", errno.EISDIR: "name a file, not a folder",
    errno.EFBIG: "allow larger files (ulimit -f) or choose another place",
    errno.ENAMETOOLONG: "choose a shorter name", errno.EMFILE: "allow more open files (ulimit -n)",
}
UNIQUE = "[0-9a-f]" * 32  # as a pattern, what `temporary_path` appends to a name


def write_folder(folder: Path, fill: Callable[[Path], None], *, shared: bool = False) -> None:
    """Lets `fill` write into a temporary folder, which is renamed when it is complete.

    With `shared`, it is no error if another process has written the same folder in the meantime.
    """
    folder = real(folder)
    handle, temporary = -1, folder
    try:
        handle, temporary = _locked_temporary(folder, lambda path: path.mkdir(parents=True))
        fill(temporary)
        for file in temporary.rglob("*"):
            fsync(file)
        try:
            os.replace(temporary, folder)
        except OSError:
            if not (shared and folder.is_dir()):
                raise
        fsync(folder.parent)
    except (OSError, OutputError) as error:
        reason = error.__cause__ if isinstance(error, OutputError) else error
        if not isinstance(reason, OSError):
            raise
        raise not_written(folder, reason) from reason
    finally:
        if handle >= 0:
            shutil.rmtree(temporary, ignore_errors=True)
            os.close(handle)


@contextmanager
def replace_file(file: Path) -> Iterator[Path]:
    """A temporary path to write to, which replaces `file` at the end of the block."""
    file = real(file)
    handle, temporary = -1, file
    try:
        handle, temporary = _locked_temporary(file, lambda path: path.touch(exist_ok=False))
        yield temporary
        temporary.chmod(stat.S_IMODE(os.fstat(handle).st_mode))  # safetensors makes files for their owner alone
        fsync(temporary)
        os.replace(temporary, file)
    except OSError as error:
        raise not_written(file, error) from error
    finally:
        if handle >= 0:
            temporary.unlink(missing_ok=True)
            os.close(handle)


def write_text(file: Path, text: str) -> None:
    """Replaces a text file."""
    with replace_file(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


def not_written(path: Path, error: OSError) -> OutputError:
    """The error about a file or folder that the system could not write."""
    return OutputError(f"{path} could not be written ({error.strerror or error}); {remedy(error, path)}.")


def rust_os_error(error: Exception) -> OSError:
    """The error of the operating system in a message of a library written in Rust: `... (os error 28)`."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))


def real(path: Path) -> Path:
    """The path with symbolic links resolved, so that a link is kept and its target is written."""
    return Path(os.path.realpath(path))


def temporary_path(path: Path) -> Path:
    """A unique hidden name in the same folder."""
    return path.parent / f".{path.name}-{uuid.uuid4().hex}"


def _locked_temporary(path: Path, create: Callable[[Path], None]) -> tuple[int, Path]:
    """A new temporary file or folder for a path, and the open handle that locks it."""
    remove_abandoned(path)
    while True:
        temporary = temporary_path(path)
        create(temporary)
        handle = os.open(temporary, os.O_RDONLY)
        with suppress(OSError):  # some network drives have no locks
            flock(handle)
        if is_at(temporary, handle):  # else another process took it for abandoned before it was locked
            return handle, temporary
        os.close(handle)


def remove_abandoned(path: Path) -> None:
    """Removes the temporary files and folders of a path that no living process has locked."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}-{UNIQUE}"):
        with suppress(OSError):
            handle = os.open(temporary, os.O_RDONLY)
            try:
                flock(handle)
                remove(temporary)
            finally:
                os.close(handle)


def flock(handle: int, *, shared: bool = False) -> None:
    """Locks an open file or folder until it is closed; BlockingIOError if it is locked already.

    A shared lock, which others may share, waits for one that is not shared.
    """
    try:
        import fcntl
    except ImportError:
        raise HalflabelError("halflabel needs the file locks of Linux or macOS; run it there.") from None
    fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_at(path: Path, handle: int) -> bool:
    """Whether an open file or folder still has this path."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def remove(path: Path) -> None:
    """Removes a file, a link, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


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
