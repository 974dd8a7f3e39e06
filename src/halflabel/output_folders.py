"""Output folders: which of their files halflabel wrote, locks for one process at a time, and safe replacement."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from halflabel.atomic import UNIQUE, flock, is_at, real, remedy, remove
from halflabel.errors import OutputError

CHECKPOINT = "checkpoint-"
LOCK = ".halflabel.lock"
REPLACED = ".halflabel-replaced"  # holds all earlier files while new ones are written
MOVING = ".halflabel-moving"  # holds some of them while they are moved


@dataclass(frozen=True)
class FolderKind:
    """The files of a kind of output folder, as patterns; those of folders end with a slash.

    Once a folder has one of `results`, an interrupted replacement keeps the new files rather than the old ones.
    """

    names: tuple[str, ...]
    results: tuple[str, ...]

    def ours(self, folder: Path) -> list[Path]:
        """Files and folders that halflabel wrote."""
        return _matches(folder, self.names)

    def foreign(self, folder: Path) -> list[Path]:
        """All other files and folders; one with a name that halflabel needs is refused."""
        ours = set(self.ours(folder))
        paths = sorted(folder.iterdir()) if folder.is_dir() else []
        others = [path for path in paths if path not in ours and path.name != LOCK]
        for path in others:
            if any(path.match(name.rstrip("/")) for name in self.names):
                kind = "folder" if path.is_dir() else "file"
                raise OutputError(f"{path} is a {kind} that halflabel did not write; move it, or choose another --out.")
        return others

    def has_result(self, folder: Path) -> bool:
        return bool(_matches(folder, self.results))


def _matches(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [path for name in names for path in sorted(folder.glob(name.rstrip("/")))
            if path.is_dir() == name.endswith("/")]


_CHECKPOINTS = CHECKPOINT + "[0-9]" * 8 + "/"
MODEL = FolderKind(("config.json", "decision.json", "unknown.safetensors", "words.safetensors",
                    "neighbours.safetensors", "model.safetensors",
                    "encoder.safetensors", "encoder/"), results=("model.safetensors",))
RUN = FolderKind((*MODEL.names, "run.json", "metrics.jsonl", "checksums.json", "texts.safetensors", "labelled.jsonl",
                  _CHECKPOINTS),
                 results=("model.safetensors", _CHECKPOINTS))
EXPORT = FolderKind(("export.json", "model.onnx", "tokenizer.json", "words.safetensors", "neighbours.safetensors",
                     "checksums.json"),
                    results=("export.json",))
STUDENT = FolderKind(("student.json", "student.safetensors", "checksums.json", "teacher/"), results=("student.json",))
SPLIT = FolderKind(("split.json", *(f"{part}.{form}" for part in ("labelled", "unlabelled", "dev", "test")
                              for form in ("csv", "jsonl", "parquet"))), results=("split.json",))
SHARDS = FolderKind(("_manifest.json", "_finished/", "part-[0-9]*.*"), results=("_manifest.json",))
DEMO = FolderKind(("demo.json", "labelled.csv", "unlabelled.csv", "test.csv"), results=("demo.json",))
QUEUE = FolderKind(("bench.json", "runs/", "report.html", "report.md", "results.jsonl", "processes.log"),
             results=("bench.json",))


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run, the oldest first."""
    return _matches(folder, (_CHECKPOINTS,))


def filled(folder: Path) -> bool:
    """Whether a folder is not empty; during `replacing` it counts as empty."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return bool(names - {LOCK}) and REPLACED not in names


@contextmanager
def try_lock(file: Path) -> Iterator[bool]:
    """Whether this process got the lock, which it holds until the block ends, or until it is killed."""
    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                flock(handle)
            except BlockingIOError:
                yield False
                return
            except OSError:
                pass  # some network drives have no locks
            if not is_at(file, handle):  # its former holder has removed the file since
                continue
            with suppress(OSError):  # the disk may be full; the number is for messages only
                os.ftruncate(handle, 0)
                os.write(handle, str(os.getpid()).encode())
            yield True
            return
        finally:
            os.close(handle)


@contextmanager
def lock(file: Path, output: Path) -> Iterator[None]:
    """Locks an output, or refuses it if another process uses it; folders made for the lock file are removed again."""
    missing = [parent for parent in file.parents if not parent.exists()]
    with ExitStack() as stack:
        stack.callback(_remove_empty, missing)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            acquired = stack.enter_context(try_lock(file))
        except OSError as error:
            raise OutputError(f"{output} may not be written to ({error.strerror or error}); {remedy(error, output)}."
                              ) from error
        if not acquired:
            raise OutputError(f"{output} is in use by another halflabel process{_holder(file)}; wait for it to finish, "
                              "or choose another --out.")
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


_held: dict[Path, int] = {}  # locked folders, and the thread that locked them


@contextmanager
def locked(folder: Path, kind: FolderKind) -> Iterator[None]:
    """Locks a folder and cleans up after a process that was killed; may be nested within a thread."""
    target = real(folder)
    if _held.get(target) == threading.get_ident():
        yield
        return
    if target.exists() and not target.is_dir():
        raise OutputError(f"{folder} is a file; choose another --out.")
    with lock(target / LOCK, folder):
        _held[target] = threading.get_ident()
        try:
            _clean_up(target, kind)
            yield
        finally:
            del _held[target]


def _clean_up(target: Path, kind: FolderKind) -> None:
    """Removes temporary files of this kind, and finishes a replacement that was killed."""
    for name in kind.names:
        for path in target.glob(f".{name.rstrip('/')}-{UNIQUE}"):
            remove(path)
    _move(target / MOVING, target)
    if (target / REPLACED).is_dir():
        _finish(target, kind, keep=kind.has_result(target))


@contextmanager
def replacing(folder: Path, kind: FolderKind, has_result: Callable[[], bool] | None = None) -> Iterator[None]:
    """Moves earlier files of this kind aside while new ones are written; a failure before a result restores them."""
    target = real(folder)
    with locked(folder, kind):
        if filled(target):
            (target / MOVING).mkdir()
            for path in kind.ours(target):
                path.rename(target / MOVING / path.name)
            (target / MOVING).rename(target / REPLACED)
        done = False
        try:
            yield
            done = True
        finally:
            _finish(target, kind, keep=done or (has_result() if has_result else kind.has_result(target)))


def _finish(target: Path, kind: FolderKind, *, keep: bool) -> None:
    """Finishes a replacement: keeps the new files, or removes them and restores the old ones."""
    if keep:
        shutil.rmtree(target / REPLACED, ignore_errors=True)
        return
    for path in kind.ours(target):
        remove(path)
    if (target / REPLACED).is_dir():
        (target / REPLACED).rename(target / MOVING)
        _move(target / MOVING, target)


def _move(source: Path, target: Path) -> None:
    if source.is_dir():
        for path in source.iterdir():
            path.rename(target / path.name)
        source.rmdir()
