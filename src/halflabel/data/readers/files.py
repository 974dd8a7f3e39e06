"""A file or a stream as bytes, unpacked if it is a gzip or zstd, whole or piece by piece.

A file can be opened as often as somebody wants to look at it. A stream (standard input, a pipe, a device, a socket)
gives its bytes once: it is opened once, and either followed as it comes or first written to a temporary file.
"""

from __future__ import annotations

import codecs
import glob
import gzip
import hashlib
import os
import select
import stat
import sys
import tempfile
import time
import weakref
import zlib
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple

from halflabel.errors import BadInput

STDIN = "-"
STDIN_NAMES = (STDIN, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
OPEN_NUMBER = "/dev/fd/"  # what is already open in this process, by its number
HEAD = 1 << 16  # bytes by which a file is known
BLOCK = 1 << 22  # bytes in memory at a time
PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
PACKED_SUFFIXES = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}


class Spool(NamedTuple):
    """The bytes of a stream in a temporary file, and their hash."""

    path: str
    digest: str


@dataclass(frozen=True)
class File:
    """A file, or standard input ("-") or another stream, and the name by which a person knows it."""

    path: str

    @property
    def name(self) -> str:
        return "standard input" if self.is_stdin else self.path

    @property
    def suffix(self) -> str:
        """The ending that tells the format, without that of the packing."""
        path = Path(self.path)
        return Path(path.stem).suffix.lower() if path.suffix.lower() in PACKED_SUFFIXES else path.suffix.lower()

    @property
    def is_stdin(self) -> bool:
        """Whether this is standard input."""
        return self.path in STDIN_NAMES

    @cached_property
    def is_stream(self) -> bool:
        """Whether the bytes can be had only once."""
        if self.is_stdin or self.path.startswith(OPEN_NUMBER):
            return True
        try:
            mode = os.stat(self.path).st_mode
        except (OSError, ValueError):  # opening it says what is wrong
            return False
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))

    @property
    def identity(self) -> Hashable:
        """What two names of one stream have in common."""
        if self.is_stdin:
            return STDIN
        with suppress(OSError):
            found = os.stat(self.path)
            return found.st_dev, found.st_ino
        return self.path

    @cached_property
    def start(self) -> bytes:
        """The first lines of a stream, as many as came up to one that tells its format; all of it if it is so short."""
        came = bytearray()
        with self._explained():
            while not _telling(came) and (block := self._stream.read1(HEAD)):
                came += block
        return bytes(came)

    def as_it_comes(self, patience: float) -> Iterator[bytes | None]:
        """The bytes of a stream as they come, not kept; None where they have waited so many seconds for more."""
        with self._explained():
            block, since = self.start, None
            while block:
                since = since or time.monotonic()
                yield block
                if not _more_within(self._stream, since + patience - time.monotonic()):
                    yield None
                    since = None
                block = self._stream.read1(HEAD)

    @cached_property
    def head(self) -> bytes:
        """The first bytes, unpacked."""
        return next(self.blocks(HEAD), b"")

    @cached_property
    def whole(self) -> bytes:
        """All bytes, unpacked; kept, since a place in it may be asked for later."""
        return b"".join(self.blocks(BLOCK))

    def text(self) -> str:
        """All characters."""
        return decode(self.whole, self.name)

    def blocks(self, size: int = BLOCK) -> Iterator[bytes]:
        """All bytes, unpacked, a block at a time."""
        with self._explained(), open(self.place, "rb") as raw:
            stream = self._unpacked(raw)
            while block := stream.read(size):
                yield bytes(block)

    @property
    def place(self) -> str:
        """Where the bytes lie, to be opened by anybody: the path, or the temporary file of a stream."""
        return self._spool.path if self.is_stream else self.path

    @cached_property
    def _stream(self) -> Any:
        """A stream, opened."""
        if self.is_stdin:
            if sys.stdin is None:
                raise BadInput("standard input is closed; give a file")
            stream: Any = sys.stdin.buffer
        else:
            number = self.path.removeprefix(OPEN_NUMBER)
            stream = open(self.path if number == self.path else os.dup(int(number)), "rb")  # noqa: SIM115
            weakref.finalize(self, stream.close)
        with suppress(OSError):  # if reading does not wait, that nothing has come yet looks like the end
            os.set_blocking(stream.fileno(), True)
        return stream

    @cached_property
    def _spool(self) -> Spool:
        """All bytes of a stream in a temporary file, which goes when this object does."""
        number, path = tempfile.mkstemp(prefix="halflabel-")
        weakref.finalize(self, Path(path).unlink, missing_ok=True)
        digest = _hash()
        try:
            with open(number, "wb") as copy:
                for block in filter(None, self.as_it_comes(0.0)):
                    copy.write(block)
                    digest.update(block)
        except OSError as error:
            raise BadInput(f"{self.name} does not fit into {Path(path).parent} ({error.strerror}); make room there, "
                           "or name another folder in TMPDIR") from None
        return Spool(path, digest.hexdigest())

    @cached_property
    def packing(self) -> str | None:
        """What the file is packed with, by its first bytes."""
        with open(self.place, "rb") as raw:
            return packing_of(raw.read(4))

    def _unpacked(self, raw: IO[bytes]) -> Any:
        if not self.packing:
            return raw
        if self.packing == "gzip":
            return gzip.GzipFile(fileobj=raw)
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns what goes wrong with a file into a sentence for the person who named it."""
        try:
            yield
        except BadInput:
            raise
        except FileNotFoundError:
            raise BadInput(f"{self.name} does not exist; check the path") from None
        except IsADirectoryError:
            raise BadInput(f"{self.name} is a folder; give one file inside it") from None
        except PermissionError:
            raise BadInput(f"{self.name} may not be read; change its permissions (chmod +r)") from None
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise BadInput(self._torn(error)) from None

    def _torn(self, error: Exception) -> str:
        reason = str(error).partition("\n")[0][:100].rstrip(".")
        packing = self.__dict__.get("packing")  # known unless the file cannot even be opened
        if packing:
            return f"{self.name} is not a whole {packing} file ({reason}); copy or pack it again"
        return f"{self.name} cannot be read ({reason}); check the path"

    def digest(self) -> str:
        """A hash of the bytes as they lie on the disk or came in a stream."""
        if self.is_stream:
            return self._spool.digest[:32]
        digest = _hash()
        with open(self.path, "rb") as raw:
            while block := raw.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()[:32]


def _hash() -> Any:
    return hashlib.sha256()  # processors have instructions for this one


def _telling(came: bytes | bytearray) -> bool:
    """Whether a line that is not blank is whole; the bracket that opens a JSON array says little by itself."""
    return b"\n" in came.lstrip().removeprefix(b"[").lstrip()


def _more_within(stream: Any, seconds: float) -> bool:
    """Whether a stream has more to read, or ends, within so many seconds."""
    try:
        return bool(select.select([stream], [], [], max(0.0, seconds))[0])
    except (OSError, ValueError):  # not every system can wait for a pipe
        return False


def packing_of(start: bytes) -> str | None:
    """What bytes are packed with, by the first of them."""
    return next((name for magic, name in PACKED.items() if start.startswith(magic)), None)


def decode(data: bytes, shown: str, *, first: int = 1) -> str:
    """UTF-8 as text, without its byte-order mark; `first` is the line on which the data starts."""
    body = data.removeprefix(codecs.BOM_UTF8) if first == 1 else data
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + first
        byte = error.start + len(data) - len(body) + 1
        found = f"byte {byte}{'' if first == 1 else ' of the block'} (0x{body[error.start]:02x}) is not UTF-8"
        raise BadInput(f"{shown}, line {line}: {found}; save it as UTF-8") from None


def line_blocks(file: File, size: int = BLOCK) -> Iterator[bytes]:
    """The bytes of a file in blocks that end where a line ends."""
    return (block for block in whole_lines(file.blocks(size)) if block is not None)


def whole_lines(blocks: Iterable[bytes | None]) -> Iterator[bytes | None]:
    """The same bytes in blocks that end where a line ends, with the pauses (None) between them."""
    rest: list[bytes] = []
    for block in blocks:
        if block is None:
            yield None
            continue
        end = block.rfind(b"\n") + 1
        if not end:
            rest.append(block)
            continue
        yield b"".join([*rest, block[:end]])
        rest = [block[end:]]
    if last := b"".join(rest):
        yield last


def as_files(sources: Iterable[Any]) -> list[Any]:
    """Paths and globs (`*`, `?`, `[a-c]`, `**`, in the order of names) as files; what is no path stays as it is."""
    found: list[Any] = []
    for source in sources:
        path = str(source)
        if not isinstance(source, (str, Path)):
            found.append(source)
        elif path in STDIN_NAMES or not glob.has_magic(path) or Path(path).exists():
            found.append(File(path))
        elif matches := sorted(name for name in glob.glob(path, recursive=True) if Path(name).is_file()):
            found += map(File, matches)
        else:
            raise BadInput(f"no file is named like {path}; check the pattern")
    check_streams(file for file in found if isinstance(file, File))
    return found


def check_streams(files: Iterable[File]) -> None:
    """Refuses a stream that is named twice."""
    seen: set[Hashable] = set()
    for file in files:
        if file.is_stream and file.identity in seen:
            raise BadInput(f"{file.name} is named twice but can be read only once; write it to a file first")
        seen.add(file.identity)
