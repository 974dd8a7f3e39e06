"""Where results go: standard output, a file, a folder of shards, the folder of a run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halflabel.atomic import real
from halflabel.errors import BadInput
from halflabel.notices import Notice
from halflabel.output_folders import EXPORT, RUN, FolderKind, filled

if TYPE_CHECKING:
    from halflabel.data.readers.formats import Row, Write

FORMATS = ("jsonl", "csv", "tsv", "parquet")  # shown in the help
SAME = "same"
ABOUT = "shards.json"
STDIN = "-"
NAMED = 3  # files in a sentence


def check_output(file: Path | None, named: str | None, *, force: bool) -> str:
    """The format to write, once it is sure that it can be written."""
    from halflabel.data.readers.formats import output_formats

    formats = output_formats()
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
    from halflabel.data.writers import open_writer, text_writer

    if file is not None:
        with open_writer(file, kind) as write:
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
        from halflabel.atomic import write_text

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
        from halflabel.data.writers import open_writer

        with open_writer(self.folder / f"part-{self.done:05d}.{self.kind}", self.kind) as write:
            write(rows)
        self.done += 1


def check_out(out: Path, *, resume: bool, force: bool) -> list[Notice]:
    """Refuses a folder that the run could not use, before anything is read; a notice says what --force leaves there."""
    if resume and force:
        raise BadInput("--resume goes on with a run and --force removes it; give one of them")
    if resume and not is_run(out):
        raise BadInput(f"{out} holds no run to go on with (there is no run.json in it); leave out --resume")
    if resume or not filled(out):
        return []
    if not force:
        raise BadInput(f"{out} is not empty; choose another --out, go on with --resume, or replace it with --force")
    if not looks_like_run(out):
        raise BadInput(f"{out} does not look like a run of halflabel, so --force leaves it alone; choose another --out")
    return about_foreign(out, RUN.foreign(out))


def about_foreign(out: Path, foreign: Iterable[Path]) -> list[Notice]:
    """A sentence that names what is in a folder and stays there, if there is anything."""
    names = [str(path.relative_to(out)) for path in foreign]
    if not names:
        return []
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return [Notice(f"{out} also holds {', '.join(names[:NAMED])}{more}, which halflabel did not write and keeps")]


def check_apart(out: Path, inputs: Iterable[str | Path | None], kind: FolderKind | None = None) -> None:
    """Refuses to replace an input, whatever links lead to it; of a folder only files of the `kind` are replaced."""
    place = real(out)
    taken = {_identity(path): path for path in ([place] if kind is None else contents(place, kind))}
    for given in (one for one in inputs if one is not None):
        inside = place.is_file() and real(Path(given)) in place.parents
        if (found := _identity(given)) is not None and (found in taken or inside):
            what = out if inside or kind is None else out / taken[found].relative_to(place)
            raise BadInput(f"{what} would be replaced, but it is an input ({given}); choose another --out")


def contents(folder: Path, kind: FolderKind) -> list[Path]:
    """A folder, its files of a kind, and everything below them."""
    return [folder, *(path for top in kind.ours(folder) for path in (top, *top.rglob("*")))] if folder.is_dir() else []


def model_files(folder: Path) -> list[Path]:
    """The files of a trained or exported model, for commands that read it."""
    return [path for kind in (RUN, EXPORT) for path in contents(folder, kind)[1:]]


def _identity(path: str | Path) -> tuple[int, int] | None:
    try:
        found = os.fstat(0) if str(path) == STDIN else os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_run(folder: Path) -> bool:
    """Whether a run began in the folder; run.json is the last file that the start of a run writes."""
    return (folder / "run.json").is_file()


def looks_like_run(folder: Path) -> bool:
    """Whether the folder holds a run or a model that halflabel wrote."""
    run, config = _object(folder / "run.json"), config_of(folder)
    return {"settings", "texts"} <= run.keys() or {"format", "method"} <= config.keys()


def config_of(folder: Path) -> dict[str, object]:
    """config.json of a folder; empty if there is none that can be read."""
    return _object(folder / "config.json")


def _object(file: Path) -> dict[str, object]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
