"""Where a command writes to: checked before the work starts, and never one of its inputs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from halflabel.disk import real
from halflabel.outputs import EXPORT, RUN, Kind, filled
from halflabel.types import BadInput

STDIN = "-"
NAMED = 3  # files in a sentence


def check_out(out: Path, *, resume: bool, force: bool) -> list[str]:
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


def about_foreign(out: Path, foreign: Iterable[Path]) -> list[str]:
    """A sentence that names what is in a folder and stays there, if there is anything."""
    names = [str(path.relative_to(out)) for path in foreign]
    if not names:
        return []
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return [f"{out} also holds {', '.join(names[:NAMED])}{more}, which halflabel did not write and leaves there"]


def check_apart(out: Path, inputs: Iterable[str | Path | None], kind: Kind | None = None) -> None:
    """Refuses to replace an input, whatever links lead to it; of a folder only files of the `kind` are replaced."""
    place = real(out)
    taken = {_identity(path): path for path in ([place] if kind is None else contents(place, kind))}
    for given in (one for one in inputs if one is not None):
        inside = place.is_file() and real(Path(given)) in place.parents
        if (found := _identity(given)) is not None and (found in taken or inside):
            what = out if inside or kind is None else out / taken[found].relative_to(place)
            raise BadInput(f"{what} would be replaced, but it is an input ({given}); choose another --out")


def contents(folder: Path, kind: Kind) -> list[Path]:
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
