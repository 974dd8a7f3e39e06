"""Files and streams as bytes: decompressed, and read as a whole or in blocks.

A file can be opened any number of times. A stream (standard input, a pipe, a device, a socket) can be read only once:
it is opened once, and either followed as its bytes arrive or first copied to a temporary file.
"""

from __future__ import annotations

import codecs
import glob
import gzip
import hashlib
import os
import re
import select
import stat
import sys
import tempfile
import time
import weakref
import zlib
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

from halflabel import remote
from halflabel.errors import DataError, SettingError

STDIN = "-"
STDIN_NAMES = (STDIN, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
DESCRIPTOR = "/dev/fd/"  # followed by the number of a file descriptor that is already open
HEAD = 1 << 16  # bytes by which a format is detected
BLOCK = 1 << 22  # bytes in memory at a time
MAX_RATIO = 100  # of decompressed to stored bytes, from MIN_BOMB decompressed bytes on; texts compress 2 to 20 times
MIN_BOMB = 1 << 26
ZIP_MAGIC = b"PK\x03\x04"
BINARY_MAGIC = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", ZIP_MAGIC)  # no encoding: Parquet, Arrow, workbooks
COMPRESSION_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
COMPRESSION_SUFFIXES = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}
LINE_END = re.compile(r"\r\n|\n|\r")
UTF8 = "utf-8"
# how the files that are opened are read: their encoding, whether a table has a header, the sheet of a workbook
text_encoding: ContextVar[str] = ContextVar("text_encoding", default=UTF8)
table_header: ContextVar[bool] = ContextVar("table_header", default=True)
workbook_sheet: ContextVar[str | None] = ContextVar("workbook_sheet", default=None)


def check_encoding(name: str) -> str:
    """The name of a text encoding; one that Python does not have is refused."""
    try:
        codecs.getincrementaldecoder(name)
        "".encode(name)  # a codec may be no encoding of text
    except LookupError:
        raise SettingError(f"the encoding '{name}' is not known; give one of Python's, such as cp1252, latin-1 or "
                           "utf-16") from None
    return name


@contextmanager
def reading_as(encoding: str | None = None, header: bool | None = None, sheet: str | None = None) -> Iterator[None]:
    """Files that are named within the block are read in this way; what is None does not change."""
    encodings = text_encoding.set(check_encoding(encoding) if encoding else text_encoding.get())
    headers = table_header.set(table_header.get() if header is None else header)
    sheets = workbook_sheet.set(sheet or workbook_sheet.get())
    try:
        yield
    finally:
        text_encoding.reset(encodings)
        table_header.reset(headers)
        workbook_sheet.reset(sheets)


class StreamCopy(NamedTuple):
    """A temporary file with all bytes of a stream, and their hash."""

    path: str
    digest: str


@dataclass(frozen=True)
class File:
    """A file, the address of a remote file (s3://...), standard input ("-") or another stream."""

    path: str
    encoding: str = field(default_factory=text_encoding.get)
    header: bool = field(default_factory=table_header.get)  # whether the first row of a table names its columns
    sheet: str | None = field(default_factory=workbook_sheet.get)  # of a workbook; None is the first

    @property
    def is_utf8(self) -> bool:
        return codecs.lookup(self.encoding).name == UTF8

    @property
    def name(self) -> str:
        """The name for messages."""
        return "standard input" if self.is_stdin else self.path

    @property
    def suffix(self) -> str:
        """The suffix that indicates the format, without that of a compression: ".csv" of "a.csv.gz"."""
        path = Path(self.path)
        return Path(path.stem).suffix.lower() if path.suffix.lower() in COMPRESSION_SUFFIXES else path.suffix.lower()

    @property
    def is_stdin(self) -> bool:
        return self.path in STDIN_NAMES

    @cached_property
    def is_stream(self) -> bool:
        """Whether the bytes can be read only once."""
        if self.is_stdin or self.path.startswith(DESCRIPTOR):
            return True
        try:
            mode = os.stat(self.path).st_mode
        except (OSError, ValueError):  # opening it raises the error that explains this
            return False
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))

    @property
    def identity(self) -> Hashable:
        """Equal for two paths of the same stream."""
        if self.is_stdin:
            return STDIN
        with suppress(OSError):
            status = os.stat(self.path)
            return status.st_dev, status.st_ino
        return self.path

    @cached_property
    def first_lines(self) -> bytes:
        """The first bytes of a stream, up to a line that indicates its format, or all of it if there is none."""
        received = bytearray()
        with self._explained():
            while not _has_telling_line(received) and (block := self._stream.read1(HEAD)):
                received += block
        return bytes(received)

    def follow(self, patience: float) -> Iterator[bytes | None]:
        """The bytes of a stream as they arrive, and None whenever no more arrive within `patience` seconds."""
        with self._explained():
            block, since = self.first_lines, None
            while block:
                since = since or time.monotonic()
                yield block
                if not _ready_within(self._stream, since + patience - time.monotonic()):
                    yield None
                    since = None
                block = self._stream.read1(HEAD)

    @cached_property
    def head(self) -> bytes:
        """The first bytes, decompressed."""
        return next(self.blocks(HEAD), b"")

    @cached_property
    def content(self) -> bytes:
        """All bytes, decompressed."""
        return b"".join(self.blocks(BLOCK))

    def text(self) -> str:
        """All characters."""
        return decode(self.content, self.name)

    def blocks(self, size: int = BLOCK) -> Iterator[bytes]:
        """All bytes, decompressed and of texts as UTF-8, in blocks."""
        with self._explained(), self.stored() as raw:
            stream = self._decompressed(raw)
            raw.seek(0)  # in memory://, all that open a file share one position
            blocks = self._bounded(iter(lambda: bytes(stream.read(size)), b""), raw)
            first = next(blocks, b"")
            blocks = chain([first] if first else [], blocks)
            yield from blocks if self.is_utf8 or first.startswith(BINARY_MAGIC) else self._as_utf8(blocks)

    def _bounded(self, blocks: Iterator[bytes], raw: IO[bytes]) -> Iterator[bytes]:
        """The same blocks; a compressed file that grows beyond measure is refused before it fills the memory."""
        size = 0
        for block in blocks:
            size += len(block)
            if self.compression:
                self.check_size(size, raw.tell())
            yield block

    def check_size(self, size: int, stored: int, remedy: str = "write it without compression") -> None:
        """Refuses a compressed file by the bytes, or rows, that so many stored bytes contain."""
        if size > max(MIN_BOMB, MAX_RATIO * stored):
            raise DataError(f"{self.name} decompresses to more than {MAX_RATIO} times its size, as no texts do; "
                            f"{remedy} if it is right")

    def _as_utf8(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        decoder, lines = codecs.getincrementaldecoder(self.encoding)(), 1
        try:
            for block in chain(blocks, [b""]):
                text = decoder.decode(block, final=not block)
                lines += text.count("\n")
                if text:
                    yield text.encode(UTF8)
        except UnicodeError as error:
            raise DataError(f"{self.name}, line {lines} or later: not {self.encoding} ({first_line(error)}); name its "
                            "encoding with --encoding") from None

    @property
    def is_remote(self) -> bool:
        return remote.is_remote(self.path)

    def stored(self) -> Any:
        """The bytes as they are stored, as a seekable binary file."""
        return remote.open_file(self.path) if self.is_remote else open(self.local_path, "rb")

    @property
    def local_path(self) -> str:
        """A path that can be opened any number of times: the file itself, or the copy of a stream or remote file."""
        return self._copy.path if self.is_stream or self.is_remote else self.path

    @cached_property
    def _stream(self) -> Any:
        """The opened stream."""
        if self.is_stdin:
            if sys.stdin is None:
                raise DataError("standard input is closed; give a file")
            stream: Any = sys.stdin.buffer
        else:
            descriptor = self.path.removeprefix(DESCRIPTOR)
            stream = open(self.path if descriptor == self.path else os.dup(int(descriptor)), "rb")  # noqa: SIM115
            weakref.finalize(self, stream.close)
        with suppress(OSError):  # a non-blocking stream without new bytes would look like its end
            os.set_blocking(stream.fileno(), True)
        return stream

    @cached_property
    def _copy(self) -> StreamCopy:
        """A copy of the stream or remote file, removed together with this object."""
        descriptor, path = tempfile.mkstemp(prefix="halflabel-")
        weakref.finalize(self, Path(path).unlink, missing_ok=True)
        digest = hashlib.sha256()
        try:
            with open(descriptor, "wb") as copy:
                for block in self._download() if self.is_remote else filter(None, self.follow(0.0)):
                    copy.write(block)
                    digest.update(block)
        except OSError as error:
            raise DataError(f"{self.name} does not fit into {Path(path).parent} ({error.strerror}); free some space "
                            "there, or set TMPDIR to another folder") from None
        return StreamCopy(path, digest.hexdigest())

    def _download(self) -> Iterator[bytes]:
        with self._explained(), self.stored() as raw:
            yield from iter(lambda: bytes(raw.read(BLOCK)), b"")

    @cached_property
    def compression(self) -> str | None:
        """The compression of the file, by its first bytes."""
        with self.stored() as raw:
            return compression_of(raw.read(4))

    def _decompressed(self, raw: IO[bytes]) -> Any:
        if not self.compression:
            return raw
        if self.compression == "gzip":
            return gzip.GzipFile(fileobj=raw)
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns errors of the operating system and of decompression into a DataError with a remedy."""
        try:
            yield
        except DataError:
            raise
        except FileNotFoundError:
            raise DataError(f"{self.name} does not exist; check the path") from None
        except IsADirectoryError:
            raise DataError(f"{self.name} is a folder; give one file inside it") from None
        except PermissionError:
            raise DataError(f"{self.name} cannot be read (permission denied); change its permissions (chmod +r)"
                            ) from None
        except (OSError, EOFError, ValueError, zlib.error) as error:
            compression = self.__dict__.get("compression")  # not known if the file cannot be opened
            if compression:
                raise DataError(f"{self.name} is not a complete {compression} file ({first_line(error)}); copy or "
                                "compress it again") from None
            raise DataError(f"{self.name} cannot be read ({first_line(error)}); check the path") from None

    def digest(self) -> str:
        """A hash of the bytes as they are stored or were received, and of how they are read."""
        if self.is_stream or self.is_remote:
            stored = self._copy.digest[:32]
        else:
            with open(self.path, "rb") as raw:
                # processors have instructions for SHA-256
                stored = hashlib.file_digest(raw, "sha256").hexdigest()[:32]
        ways = [self.encoding] * (not self.is_utf8) + ["no header"] * (not self.header)
        return " ".join([stored, *ways, *([] if self.sheet is None else [f"sheet {self.sheet}"])])


@contextmanager
def within_memory(name: str) -> Iterator[None]:
    """Turns a lack of memory while a source is read into a DataError."""
    try:
        yield
    except MemoryError:
        raise DataError(f"{name} is too large for the memory of this machine; split it into smaller files") from None


def first_line(error: Exception) -> str:
    """The first line of an error message, for use within a sentence."""
    return str(error).partition("\n")[0][:100].rstrip(".")


def _has_telling_line(received: bytes | bytearray) -> bool:
    """Whether there is a complete line that is not blank; the opening bracket of a JSON array alone does not count."""
    return b"\n" in received.lstrip().removeprefix(b"[").lstrip()


def _ready_within(stream: Any, seconds: float) -> bool:
    """Whether a stream has more to read, or ends, within so many seconds."""
    try:
        return bool(select.select([stream], [], [], max(0.0, seconds))[0])
    except (OSError, ValueError):  # not every system can wait for a pipe
        return False


def compression_of(start: bytes) -> str | None:
    """The compression of data, by its first bytes."""
    return next((name for magic, name in COMPRESSION_MAGIC.items() if start.startswith(magic)), None)


def decode(data: bytes, name: str, *, first: int = 1) -> str:
    """UTF-8 as text, without a byte-order mark; `first` is the number of the first line, for messages."""
    body = data.removeprefix(codecs.BOM_UTF8) if first == 1 else data
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + first
        byte = error.start + len(data) - len(body) + 1
        where = f"byte {byte}{'' if first == 1 else ' of the block'} (0x{body[error.start]:02x})"
        raise DataError(f"{name}, line {line}: {where} is not UTF-8; save it as UTF-8, or name its encoding with "
                        "--encoding") from None


def line_blocks(file: File, size: int = BLOCK) -> Iterator[bytes]:
    """The bytes of a file in blocks of whole lines."""
    return (block for block in whole_lines(file.blocks(size)) if block is not None)


def whole_lines(blocks: Iterable[bytes | None]) -> Iterator[bytes | None]:
    """The same bytes in blocks that end at the end of a line; pauses (None) are passed on."""
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


def split_lines(text: str) -> list[str]:
    """Lines with the line ends of any system; unlike `str.splitlines` it does not split at other separators."""
    lines = LINE_END.split(text)
    return lines[:-1] if not lines[-1] else lines


def as_files(sources: Iterable[Any]) -> list[Any]:
    """Paths, addresses and globs (`*`, `?`, `[a-c]`, `**`, sorted by name) as files; others, as frames, unchanged."""
    files: list[Any] = []
    for source in sources:
        path = str(source)
        if not isinstance(source, (str, Path)):
            files.append(source)
        elif path in STDIN_NAMES or not glob.has_magic(path) or Path(path).exists():
            files.append(File(path))
        elif matches := _matching(path):
            files += map(File, matches)
        else:
            raise DataError(f"no file matches {path}; check the pattern")
    check_streams(file for file in files if isinstance(file, File))
    return files


def _matching(pattern: str) -> list[str]:
    if remote.is_remote(pattern):
        return remote.glob(pattern)
    return sorted(name for name in glob.glob(pattern, recursive=True) if Path(name).is_file())


def check_streams(files: Iterable[File]) -> None:
    """Refuses a stream that is given twice."""
    seen: set[Hashable] = set()
    for file in files:
        if file.is_stream and file.identity in seen:
            raise DataError(f"{file.name} is given twice but can be read only once; write it to a file first")
        seen.add(file.identity)
