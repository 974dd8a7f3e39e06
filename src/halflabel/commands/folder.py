"""The folder that a run goes into: checked before the work starts, given back as it was if the work fails early."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from halflabel.types import BadInput

Looks = Callable[[Path], bool]


def check_out(out: Path, *, resume: bool, force: bool) -> None:
    """Refuses a folder that the run could not use, before anything is read."""
    if resume and force:
        raise BadInput("--resume goes on with a run and --force removes it; give one of them")
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file; name a folder with --out")
    if resume and not is_run(out):
        raise BadInput(f"{out} holds no run to go on with (there is no run.json in it); leave out --resume")
    if filled(out) and not resume:
        check_replaceable(out, force=force, ours=looks_like_run)


def check_replaceable(out: Path, *, force: bool, ours: Looks) -> None:
    """Refuses to replace a folder without --force, or with it if the folder is not of our making."""
    if not force:
        raise BadInput(f"{out} is not empty; choose another --out, go on with --resume, or replace it with --force")
    if not ours(out):
        raise BadInput(f"{out} does not look like a run of halflabel, so --force leaves it alone; choose another --out")


def filled(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def is_run(folder: Path) -> bool:
    """Whether a run began in the folder; run.json is the last file that the start of a run writes."""
    return (folder / "run.json").is_file()


def looks_like_run(folder: Path) -> bool:
    """Whether the folder holds a run or a model that halflabel wrote."""
    return is_run(folder) or "format" in config_of(folder)


def config_of(folder: Path) -> dict[str, object]:
    """config.json of a folder; empty if there is none that can be read."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


@contextmanager
def new_folder(out: Path, begun: Looks = is_run) -> Iterator[None]:
    """Lets the work begin in an empty `out`; a failure before `begun(out)` leaves everything as it was."""
    place = out.absolute()
    missing = [parent for parent in place.parents if not parent.exists()]
    existed = place.exists()
    old = place.with_name(f".{place.name}-{uuid.uuid4().hex}") if filled(place) else None
    if old is not None:
        place.rename(old)
    try:
        yield
    except BaseException:
        if not begun(place):
            shutil.rmtree(place, ignore_errors=True)
            if old is not None:
                old.rename(place)
            elif existed:
                place.mkdir()
            for parent in missing:
                with suppress(OSError):
                    parent.rmdir()
        raise
    finally:
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
