"""Folders that are written to: which files in them are ours, one process at a time, and nothing else is touched."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from halflabel.atomic import UNIQUE, real
from halflabel.errors import BadInput

CHECKPOINT = "checkpoint-"
LOCK = ".halflabel.lock"
REPLACED = ".halflabel-replaced"  # holds all earlier files while new ones are written
MOVING = ".halflabel-moving"  # holds some of them while they are moved there or back


@dataclass(frozen=True)
class FolderKind:
    """What is written into a folder: patterns of names, those of folders with a slash at the end.

    A folder that holds one of `results` holds something that is worth more than what it replaces.
    """

    names: tuple[str, ...]
    results: tuple[str, ...]

    def ours(self, folder: Path) -> list[Path]:
        """The files and folders in it that are of this kind."""
        return _found(folder, self.names)

    def foreign(self, folder: Path) -> list[Path]:
        """All others; one that stands where we have to write is refused."""
        ours = set(self.ours(folder))
        found = sorted(folder.iterdir()) if folder.is_dir() else []
        others = [path for path in found if path not in ours and path.name != LOCK]
        for path in others:
            if any(path.match(name.rstrip("/")) for name in self.names):
                kind = "folder" if path.is_dir() else "file"
                raise BadInput(f"{path} is a {kind} that halflabel did not write; move it, or choose another --out.")
        return others

    def has_result(self, folder: Path) -> bool:
        return bool(_found(folder, self.results))


def _found(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [path for name in names for path in sorted(folder.glob(name.rstrip("/")))
            if path.is_dir() == name.endswith("/")]


_CHECKPOINTS = CHECKPOINT + "[0-9]" * 8 + "/"
RUN = FolderKind(("config.json", "run.json", "decision.json", "metrics.jsonl", "checksums.json", "model.safetensors",
            "encoder.safetensors", "encoder/", "texts.safetensors", _CHECKPOINTS),
            results=("model.safetensors", _CHECKPOINTS))
EXPORT = FolderKind(("export.json", "model.onnx", "tokenizer.json", "checksums.json"), results=("export.json",))
SPLIT = FolderKind(("split.json", *(f"{part}.{form}" for part in ("labelled", "unlabelled", "dev", "test")
                              for form in ("csv", "jsonl", "parquet"))), results=("split.json",))
SHARDS = FolderKind(("shards.json", "part-[0-9]*.*"), results=("shards.json",))
DEMO = FolderKind(("demo.json", "labelled.csv", "unlabelled.csv", "test.csv"), results=("demo.json",))
QUEUE = FolderKind(("bench.json", "runs/", "report.html", "report.md", "results.jsonl", "processes.log"),
             results=("bench.json",))


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run, the oldest first."""
    return _found(folder, (_CHECKPOINTS,))


def filled(folder: Path) -> bool:
    """Whether a folder holds anything that is in the way; what `replacing` leaves in it is not."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return bool(names - {LOCK}) and REPLACED not in names


@contextmanager
def try_lock(file: Path) -> Iterator[bool]:
    """Whether this process holds the lock file, until the block ends; a lock dies with the process that has it."""
    try:
        import fcntl
    except ImportError:
        raise BadInput("halflabel needs the file locks of Linux or macOS; run it there.") from None
    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            except OSError:
                pass  # some network drives have no locks
            if not _is_at(file, handle):  # whoever held it has removed it since
                continue
            os.ftruncate(handle, 0)
            os.write(handle, str(os.getpid()).encode())
            yield True
            return
        finally:
            os.close(handle)


def _is_at(file: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(file), os.fstat(handle))
    except FileNotFoundError:
        return False


@contextmanager
def lock(file: Path, place: Path) -> Iterator[None]:
    """Refuses a place that another process works on; what is made for the lock goes with it."""
    missing = [parent for parent in file.parents if not parent.exists()]
    with ExitStack() as stack:
        stack.callback(_remove_empty, missing)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            mine = stack.enter_context(try_lock(file))
        except OSError as error:
            raise BadInput(f"{place} may not be written to ({error.strerror or error}); change its permissions or "
                           "choose another place.") from error
        if not mine:
            raise BadInput(f"{place} is in use by another halflabel process{_holder(file)}; wait for it to finish or "
                           "choose another --out.")
        stack.callback(file.unlink, missing_ok=True)
        yield


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _holder(file: Path) -> str:
    with suppress(OSError, ValueError):
        return f" (pid {int(file.read_text(encoding='ascii'))})"
    return ""


_held: dict[Path, int] = {}  # folders that are locked, and by which thread


@contextmanager
def locked(folder: Path, kind: FolderKind) -> Iterator[None]:
    """Keeps other processes out of a folder, and clears what one that was killed has left; may be nested."""
    place = real(folder)
    if _held.get(place) == threading.get_ident():
        yield
        return
    if place.exists() and not place.is_dir():
        raise BadInput(f"{folder} is a file; name a folder.")
    with lock(place / LOCK, folder):
        _held[place] = threading.get_ident()
        try:
            _tidy(place, kind)
            yield
        finally:
            del _held[place]


def _tidy(place: Path, kind: FolderKind) -> None:
    """Removes temporary files of this kind, and ends a replacement that was killed."""
    for name in kind.names:
        for path in place.glob(f".{name.rstrip('/')}-{UNIQUE}"):
            _remove(path)
    _move(place / MOVING, place)
    if (place / REPLACED).is_dir():
        _settle(place, kind, lasts=kind.has_result(place))


@contextmanager
def replacing(folder: Path, kind: FolderKind, lasts: Callable[[], bool] | None = None) -> Iterator[None]:
    """Sets earlier files of this kind aside while new ones are written; a failure before `lasts()` brings them back."""
    place = real(folder)
    with locked(folder, kind):
        if filled(place):
            (place / MOVING).mkdir()
            for path in kind.ours(place):
                path.rename(place / MOVING / path.name)
            (place / MOVING).rename(place / REPLACED)
        done = False
        try:
            yield
            done = True
        finally:
            _settle(place, kind, lasts=done or (lasts() if lasts else kind.has_result(place)))


def _settle(place: Path, kind: FolderKind, *, lasts: bool) -> None:
    """Ends a replacement: drops what was set aside, or puts it back in place of what is new."""
    if lasts:
        shutil.rmtree(place / REPLACED, ignore_errors=True)
        return
    for path in kind.ours(place):
        _remove(path)
    if (place / REPLACED).is_dir():
        (place / REPLACED).rename(place / MOVING)
        _move(place / MOVING, place)


def _move(source: Path, place: Path) -> None:
    if source.is_dir():
        for path in source.iterdir():
            path.rename(place / path.name)
        source.rmdir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
