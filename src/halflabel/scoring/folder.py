"""A folder that shards are written to, on a disk or on an object store, with a lock for one job at a time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from halflabel.atomic import write_text
from halflabel.errors import OutputError
from halflabel.output_folders import LOCK, SHARDS, filled, locked
from halflabel.remote import explained, is_remote, locate

OBJECT_STORES = ("s3", "gcs", "abfs")  # where an object appears as a whole; elsewhere it is renamed
BEAT = 10.0  # seconds after which a remote lock is renewed
EXPIRED = 45.0  # seconds after which a lock that was not renewed is ignored


class OutputFolder:
    """Files by name, which appear only when they are complete; may be sent to another process."""

    def __init__(self, path: str) -> None:
        self.path = path if is_remote(path) else os.path.abspath(path)
        self.name = path  # for messages

    @property
    def is_remote(self) -> bool:
        return is_remote(self.path)

    @cached_property
    def _place(self) -> tuple[Any, str]:
        from pyarrow.fs import LocalFileSystem

        return locate(self.path) if self.is_remote else (LocalFileSystem(), self.path)

    def __getstate__(self) -> dict[str, str]:
        return {"path": self.path, "name": self.name}

    def _at(self, name: str) -> tuple[Any, str]:
        filesystem, base = self._place
        return filesystem, f"{base}/{name}"

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it does not exist."""
        filesystem, path = self._at(name)
        with explained(self.path):
            try:
                with filesystem.open_input_file(path) as file:
                    return bytes(file.read())
            except (FileNotFoundError, NotADirectoryError):
                return None

    def checksum(self, name: str) -> str | None:
        """The sha256 of a file; None if it does not exist."""
        filesystem, path = self._at(name)
        with explained(self.path):
            try:
                with filesystem.open_input_file(path) as file:
                    digest = hashlib.sha256()
                    while block := file.read(1 << 22):
                        digest.update(block)
                    return digest.hexdigest()
            except FileNotFoundError:
                return None

    def has(self, name: str) -> bool:
        """Whether a file exists."""
        from pyarrow.fs import FileType

        filesystem, path = self._at(name)
        with explained(self.path):
            return bool(filesystem.get_file_info(path).type == FileType.File)

    def names(self, inside: str = "") -> list[str]:
        """The names of the files in the folder or in one inside it, sorted."""
        from pyarrow.fs import FileSelector, FileType

        filesystem, path = self._at(inside)
        with explained(self.path):
            found = filesystem.get_file_info(FileSelector(path.rstrip("/"), allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == FileType.File)

    @property
    def filled(self) -> bool:
        """Whether there is anything in the folder beside a lock."""
        return bool(set(self.names()) - {LOCK}) if self.is_remote else filled(Path(self.path))

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """A local path at which a writer puts the file as a whole."""
        if not self.is_remote:
            target = Path(self.path, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            yield target
            return
        with TemporaryDirectory(prefix="halflabel-") as folder:
            local = Path(folder, Path(name).name)
            yield local
            with explained(self.path), open(local, "rb") as source:
                self._upload(source, name)

    def _upload(self, source: Any, name: str) -> None:
        filesystem, path = self._at(name)
        if filesystem.type_name in OBJECT_STORES:
            with filesystem.open_output_stream(path) as target:
                shutil.copyfileobj(source, target, 1 << 22)
            return
        place, _, last = path.rpartition("/")
        temporary = f"{place}/.{last}-{uuid.uuid4().hex}"
        filesystem.create_dir(place, recursive=True)
        with filesystem.open_output_stream(temporary) as target:
            shutil.copyfileobj(source, target, 1 << 22)
        filesystem.move(temporary, path)

    def write_json(self, name: str, value: Any) -> None:
        """Writes or replaces a small file."""
        with self.writing(name) as path:
            write_text(path, json.dumps(value, ensure_ascii=False, indent=1))

    def remove(self, name: str) -> None:
        """Removes a file, or a folder with all files in it, if it exists."""
        from pyarrow.fs import FileType

        filesystem, path = self._at(name)
        with explained(self.path):
            kind = filesystem.get_file_info(path).type
            if kind == FileType.File:
                filesystem.delete_file(path)
            elif kind == FileType.Directory:
                filesystem.delete_dir(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other jobs out; the lock of a process that was killed is ignored, on an object store after a while."""
        if not self.is_remote:
            with locked(Path(self.name), SHARDS):
                yield
            return
        own = {"host": socket.gethostname(), "pid": os.getpid(), "job": uuid.uuid4().hex}
        self._refuse_other(own)
        stop = threading.Event()

        def hold() -> None:
            while not stop.wait(BEAT):
                self.write_json(LOCK, own | {"time": time.time()})

        self.write_json(LOCK, own | {"time": time.time()})
        self._refuse_other(own)  # of two jobs that started at the same time, the last to write goes on
        renewal = threading.Thread(target=hold, daemon=True)
        renewal.start()
        try:
            yield
        finally:
            stop.set()
            renewal.join()
            self.remove(LOCK)

    def _refuse_other(self, own: dict[str, Any]) -> None:
        held = json.loads(self.read(LOCK) or "{}")
        if not held or held["job"] == own["job"] or time.time() - held["time"] > EXPIRED:
            return
        if held["host"] != own["host"] or _runs(held["pid"]):
            raise OutputError(f"{self.name} is in use by another halflabel process (pid {held['pid']} on "
                              f"{held['host']}); wait for it to finish, or choose another --out.")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
