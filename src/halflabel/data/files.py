"""A file as bytes, unpacked if it is a gzip or zstd, whole or piece by piece."""

from __future__ import annotations

import codecs
import glob
import gzip
import hashlib
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from halflabel.types import BadInput

STDIN = "-"
HEAD = 1 << 16  # bytes by which a file is known
BLOCK = 1 << 22  # bytes in memory at a time
PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
PACKED_SUFFIXES = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}


@dataclass(frozen=True)
class File:
    """A file, or standard input ("-"), and the name by which a person knows it."""

    path: str

    @property
    def shown(self) -> str:
        return "standard input" if self.path == STDIN else self.path

    @property
    def suffix(self) -> str:
        """The ending that tells the format, without that of the packing."""
        path = Path(self.path)
        return Path(path.stem).suffix.lower() if path.suffix.lower() in PACKED_SUFFIXES else path.suffix.lower()

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
        return decoded(self.whole, self.shown)

    def blocks(self, size: int = BLOCK) -> Iterator[bytes]:
        """All bytes, unpacked, a block at a time."""
        try:
            with self._opened() as raw:
                stream = self._unpacked(raw)
                while block := stream.read(size):
                    yield bytes(block)
        except FileNotFoundError:
            raise BadInput(f"{self.shown} does not exist; check the path") from None
        except IsADirectoryError:
            raise BadInput(f"{self.shown} is a folder; give one file inside it") from None
        except PermissionError:
            raise BadInput(f"{self.shown} may not be read; change its permissions (chmod +r)") from None
        except (OSError, EOFError, ValueError) as error:
            raise BadInput(self._torn(error)) from None

    def _opened(self) -> IO[bytes]:
        return io.BytesIO(self._input) if self.path == STDIN else open(self.path, "rb")

    @cached_property
    def _input(self) -> bytes:
        """Standard input, which can be read only once."""
        return sys.stdin.buffer.read()

    @cached_property
    def packing(self) -> str | None:
        """What the file is packed with, by its first bytes."""
        with self._opened() as raw:
            start = raw.read(4)
        return next((name for magic, name in PACKED.items() if start.startswith(magic)), None)

    def _unpacked(self, raw: IO[bytes]) -> Any:
        if not self.packing:
            return raw
        if self.packing == "gzip":
            return gzip.GzipFile(fileobj=raw)
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")

    def _torn(self, error: Exception) -> str:
        reason = str(error).partition("\n")[0][:100].rstrip(".")
        packing = self.__dict__.get("packing")  # known unless the file cannot even be opened
        if packing:
            return f"{self.shown} is not a whole {packing} file ({reason}); copy or pack it again"
        return f"{self.shown} cannot be read ({reason}); check the path"

    def digest(self) -> str:
        """A hash of the bytes as they lie on the disk."""
        digest = hashlib.sha256()  # processors have instructions for this one
        with self._opened() as raw:
            while block := raw.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()[:32]


def decoded(data: bytes, shown: str, *, first: int = 1) -> str:
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
    rest: list[bytes] = []
    for block in file.blocks(size):
        end = block.rfind(b"\n") + 1
        if not end:
            rest.append(block)
            continue
        yield b"".join([*rest, block[:end]])
        rest = [block[end:]]
    if last := b"".join(rest):
        yield last


def expanded(paths: Sequence[str | Path]) -> list[str]:
    """Paths with globs (`*`, `?`, `[a-c]`, `**`) replaced by the files they stand for, in the order of their names."""
    found: list[str] = []
    for path in map(str, paths):
        if path == STDIN or Path(path).exists() or not glob.has_magic(path):
            found.append(path)
            continue
        matches = sorted(name for name in glob.glob(path, recursive=True) if Path(name).is_file())
        if not matches:
            raise BadInput(f"no file is named like {path}; check the pattern")
        found += matches
    return found
