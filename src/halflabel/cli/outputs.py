"""Output files and folders: what may be written, replaced or resumed, and writers for predictions."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from halflabel.atomic import real
from halflabel.errors import OutputError, SettingError
from halflabel.notices import Notice
from halflabel.output_folders import EXPORT, RUN, STUDENT, FolderKind, filled

if TYPE_CHECKING:
    from halflabel.data.readers.formats import Write

FORMATS = ("jsonl", "csv", "tsv", "parquet")  # shown in the help
SAME = "same"  # as the input
STDIN = "-"
MAX_NAMES = 3  # files listed in a notice


def check_output(file: Path | None, named: str | None, *, force: bool) -> str:
    """The format of an output: the one named, else by the suffix; refuses an output that cannot be written."""
    from halflabel.data.readers.formats import output_formats

    formats = output_formats()
    kind = named or (file.suffix.lower().lstrip(".") if file else "jsonl")
    if kind not in formats:
        what = f"the format '{kind}' is not known" if named else f"the suffix of {file} is not a known format"
        raise SettingError(f"{what}; use one of {', '.join(formats)} (--format)")
    if file is not None:
        check_file(file, force=force)
    elif kind == "parquet":
        raise SettingError("parquet cannot go to standard output; name a file with --out")
    return kind


def check_file(file: Path, *, force: bool) -> None:
    """Refuses a file in a folder that does not exist, or one that exists, unless --force replaces it."""
    if not real(file).parent.is_dir():
        raise OutputError(f"there is no folder {file.parent}; create it first, or choose another --out")
    if file.exists() and not (force and file.is_file()):
        raise OutputError(f"{file} exists already; choose another --out{', or give --force' if file.is_file() else ''}")


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


def check_run_folder(out: Path, *, resume: bool, force: bool) -> list[Notice]:
    """Refuses a folder that a run cannot use, before anything is read; a notice lists what --force leaves in it."""
    if resume and force:
        raise SettingError("--resume continues a run and --force replaces it; give one of them")
    if resume and not (out / "run.json").is_file():  # the last file that the start of a run writes
        raise OutputError(f"{out} has no run to resume (there is no run.json in it); leave out --resume")
    if resume or not filled(out):
        return []
    if not force:
        raise OutputError(f"{out} is not empty; choose another --out, resume with --resume, or replace it with --force")
    if not looks_like_run(out):
        raise OutputError(f"{out} does not look like a run of halflabel, so --force does not replace it; choose "
                          "another --out")
    return foreign_notices(out, RUN.foreign(out))


def foreign_notices(out: Path, foreign: Iterable[Path]) -> list[Notice]:
    """A notice that lists files of others in a folder, if there are any."""
    names = [str(path.relative_to(out)) for path in foreign]
    if not names:
        return []
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return [Notice(f"{out} also contains {', '.join(names[:MAX_NAMES])}{more}; files that halflabel did not write are "
                   "kept")]


def check_apart(out: Path, inputs: Iterable[str | Path | None], kind: FolderKind | None = None) -> None:
    """Refuses an output that would replace an input, by links as well; with a kind, its files in a folder count."""
    target = real(out)
    replaced = {_identity(path): path for path in ([target] if kind is None else contents(target, kind))}
    for path in (path for path in inputs if path is not None):
        inside = target.is_file() and real(Path(path)) in target.parents
        if (identity := _identity(path)) is not None and (identity in replaced or inside):
            what = out if inside or kind is None else out / replaced[identity].relative_to(target)
            raise OutputError(f"{what} would be replaced, but it is an input ({path}); choose another --out")


def contents(folder: Path, kind: FolderKind) -> list[Path]:
    """A folder, its files of a kind, and everything below those."""
    return [folder, *(path for top in kind.ours(folder) for path in (top, *top.rglob("*")))] if folder.is_dir() else []


def model_files(folder: Path) -> list[Path]:
    """The files of a trained, exported or distilled model."""
    return [path for kind in (RUN, EXPORT, STUDENT) for path in contents(folder, kind)[1:]]


def _identity(path: str | Path) -> tuple[int, int] | None:
    try:
        status = os.fstat(0) if str(path) == STDIN else os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def looks_like_run(folder: Path) -> bool:
    """Whether the folder contains a run or a model that halflabel wrote."""
    run, config = _read_object(folder / "run.json"), _read_object(folder / "config.json")
    return {"settings", "texts"} <= run.keys() or {"format", "method"} <= config.keys()


def _read_object(file: Path) -> dict[str, object]:
    """The JSON object in a file; empty if there is none that can be read."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
