"""Remote files by their addresses: s3://, gs://, abfs:// and hdfs:// by Arrow, any other scheme by fsspec.

Credentials come from the environment, as each service documents them; AWS_ENDPOINT_URL names another S3 server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cache
from glob import has_magic
from typing import Any

from halflabel.errors import DataError, MissingExtra

SCHEME = "://"


def is_remote(path: str) -> bool:
    """Whether a path is the address of a remote file."""
    return SCHEME in path


def locate(url: str) -> tuple[Any, str]:
    """The Arrow filesystem of an address, and the path in it."""
    scheme, _, path = url.partition(SCHEME)
    with explained(url):
        return _filesystem(scheme, path.partition("/")[0], os.environ.get("AWS_ENDPOINT_URL")), path.rstrip("/")


@cache
def _filesystem(scheme: str, host: str, endpoint: str | None) -> Any:
    from pyarrow import ArrowInvalid, fs

    if scheme == "s3" and endpoint:
        protocol, _, server = endpoint.rpartition(SCHEME)
        return fs.S3FileSystem(endpoint_override=server.rstrip("/"), scheme=protocol or "https")
    try:
        return fs.FileSystem.from_uri(f"{scheme}{SCHEME}{host}")[0]
    except ArrowInvalid:
        import fsspec
    try:
        return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme)))
    except ImportError as error:
        raise MissingExtra(f"{scheme}{SCHEME} needs a package that is not installed ({_first_line(error)})") from None
    except ValueError:
        raise DataError(f"the scheme of {scheme}{SCHEME}{host} is not known; use a path, s3://, gs:// or another of "
                        "fsspec's") from None


def open_file(url: str) -> Any:
    """A remote file as a seekable binary file."""
    filesystem, path = locate(url)
    return filesystem.open_input_file(path)


def written_at(url: str) -> int | None:
    """When a remote file was written, in nanoseconds; None if its service does not say."""
    filesystem, path = locate(url)
    with explained(url):
        time: int | None = filesystem.get_file_info(path).mtime_ns
    return time


def glob(url: str) -> list[str]:
    """The addresses of the files that match a pattern, sorted; `**` matches any number of folders."""
    from pyarrow.fs import FileSelector, FileType

    filesystem, path = locate(url)
    wanted = path.split("/")
    fixed = next(i for i, part in enumerate(wanted) if has_magic(part))
    with explained(url):
        found = filesystem.get_file_info(FileSelector("/".join(wanted[:fixed]), recursive=True, allow_not_found=True))
    paths = (info.path.lstrip("/") for info in found if info.type == FileType.File)
    return sorted(url.partition(SCHEME)[0] + SCHEME + path for path in paths if _matches(path.split("/"), wanted))


def _matches(parts: list[str], wanted: list[str]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return any(_matches(parts[i:], wanted[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], wanted[0]) and _matches(parts[1:], wanted[1:])


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turns errors of a remote filesystem into a DataError."""
    from pyarrow import ArrowException

    try:
        yield
    except (OSError, ArrowException) as error:
        raise DataError(f"{url} cannot be used ({_first_line(error)}); check the address and your credentials"
                        ) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:160].rstrip(".")
