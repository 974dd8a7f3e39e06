"""Where predictions go: standard output, one file, or a folder of shards of which none that is done is ever lost."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halflabel.disk import real
from halflabel.outputs import filled
from halflabel.types import BadInput

if TYPE_CHECKING:
    from halflabel.data.write import Row, Write

FORMATS = ("jsonl", "csv", "tsv", "parquet")
SAME = "same"
CAME_AS = {"csv": "csv", "parquet": "parquet", "arrow": "parquet", "json": "jsonl", "txt": "jsonl"}
ABOUT = "shards.json"


def check_output(file: Path | None, named: str | None, *, force: bool, formats: Sequence[str] = FORMATS) -> str:
    """The format to write, once it is sure that it can be written."""
    suffix = file.suffix.lower().lstrip(".") if file else "jsonl"
    kind = named or suffix
    if kind not in formats:
        what = f"the format '{kind}' is not known" if named else f"the ending of {file} names no format"
        raise BadInput(f"{what}; use one of {', '.join(formats)} (--format)")
    if file is None:
        if kind == "parquet":
            raise BadInput("parquet cannot go to standard output; name a file with --out")
        return kind
    check_file(file, force=force)
    return kind


def check_file(file: Path, *, force: bool) -> None:
    """Refuses a place where no file can be written, or where something is that must not be replaced."""
    if not real(file).parent.is_dir():
        raise BadInput(f"there is no folder {file.parent}; make it first, or choose another --out")
    if file.exists() and not (force and file.is_file()):
        raise BadInput(f"{file} exists already; choose another --out{', or give --force' if file.is_file() else ''}")


@contextmanager
def output(file: Path | None, kind: str) -> Iterator[Write]:
    """A function that writes rows to a file or to standard output."""
    from halflabel.data.write import text_writer, written

    if file is not None:
        with written(file, kind) as write:
            yield write
        return
    yield text_writer(sys.stdout, kind)
    sys.stdout.flush()


class Shards:
    """A folder of files with the same number of rows, each in its place as soon as it is done."""

    def __init__(self, folder: Path, kind: str, rows: int, about: dict[str, Any], *, resume: bool) -> None:
        self.folder, self.kind, self.size = folder, kind, rows
        about = about | {"format": kind, "rows": rows}
        if not resume and filled(folder):
            raise BadInput(f"{folder} is not empty; choose another --out, or go on with --resume")
        if resume and self._about() != about:
            raise BadInput(f"{folder} holds no shards of this model and these files; leave out --resume")
        self.about = about
        self.done = 0 if not resume else len(list(folder.glob(f"part-*.{kind}")))
        self.waiting: list[Row] = []

    def _about(self) -> Any:
        try:
            return json.loads((self.folder / ABOUT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    @property
    def finished(self) -> int:
        """Rows that stand in whole shards already."""
        return self.done * self.size

    @contextmanager
    def open(self) -> Iterator[Callable[[Sequence[Row]], None]]:
        """A function that writes rows; what is left in the end becomes the last shard."""
        from halflabel.disk import write_text

        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / ABOUT, json.dumps(self.about))
        yield self._write
        if self.waiting:
            self._shard(self.waiting)

    def _write(self, rows: Sequence[Row]) -> None:
        self.waiting.extend(rows)
        while len(self.waiting) >= self.size:
            self._shard(self.waiting[: self.size])
            self.waiting = self.waiting[self.size :]

    def _shard(self, rows: Sequence[Row]) -> None:
        from halflabel.data.write import written

        with written(self.folder / f"part-{self.done:05d}.{self.kind}", self.kind) as write:
            write(rows)
        self.done += 1
