"""`halflabel cache`: shows or clears what is kept between runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from halflabel.cache_limit import KINDS, cache_limit
from halflabel.cache_limit import prune as prune_to
from halflabel.cli import console, options


def cache(
    *,
    clear: Annotated[bool, options.option(
        "--clear", help="Delete the cache, except what is in use; runs fill it again as needed.")] = False,
    prune: Annotated[float | None, options.option(
        metavar="GB", min=0.0, help="Delete what was not used for longest, until the rest has this size.")] = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Show, prune or clear the cache.

    It is in the folder that HALFLABEL_CACHE names, else in the user's cache folder. HALFLABEL_CACHE_LIMIT is its limit
    in gigabytes, 10 by default: beyond it, training removes what was not used for longest, and not within two days.
    What a running process uses is never removed.

    \b
    halflabel cache
    halflabel cache --prune 2
    halflabel cache --clear
    """
    from halflabel.atomic import cache_folder

    folder, limit = cache_folder(), cache_limit()
    pruned = prune_to(0, kept=()) if clear else None if prune is None else prune_to(int(prune * 1e9))
    sizes = {name: size_of(folder / name) for name in KINDS}
    if json:
        removed, used = pruned or (0, 0)
        console.say_json({"folder": str(folder), "cleared": clear, "limit_megabytes": limit / 1e6,
                          "pruned_megabytes": removed / 1e6, "entries_in_use": used, **sizes})
        return
    console.table((str(folder), "files", "megabytes"),
                  [(KINDS[name], size["files"], size["megabytes"]) for name, size in sizes.items()], numbers=2)
    console.say(f"limit: {limit / 1e9:g} GB (HALFLABEL_CACHE_LIMIT)")
    if pruned is not None:
        console.say(f"{pruned.removed / 1e6:,.1f} MB removed")
        if pruned.in_use:
            console.say(f"entries in use by running processes, which stay: {pruned.in_use:,}")


def size_of(folder: Path) -> dict[str, Any]:
    """Number and total size of the files in a folder."""
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return {"files": len(sizes), "megabytes": round(sum(sizes) / 1e6, 1)}
