"""`halflabel cache`: what is kept between runs, and how to be rid of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

from halflabel.cli import console, options

KINDS = {"pools": "unlabelled texts", "tokens": "token ids", "vectors": "frozen vectors",
         "states": "states above frozen layers", "onnx": "ONNX graphs", "translations": "back-translations",
         "corpora": "texts of benchmarks"}


def cache(
    *,
    clear: Annotated[bool, options.option("--clear", help="Remove everything; runs make it again as needed.")] = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Say what is kept between runs, or remove it.

    \b
    halflabel cache
    halflabel cache --clear
    """
    from halflabel.atomic import cache_folder

    folder = cache_folder()
    found = {name: measured(folder / name) for name in KINDS}
    if clear:
        for name in KINDS:
            shutil.rmtree(folder / name, ignore_errors=True)
    if json:
        console.say_json({"folder": str(folder), "cleared": clear, **found})
        return
    console.table((str(folder), "files", "megabytes"),
                  [(KINDS[name], one["files"], one["megabytes"]) for name, one in found.items()], numbers=2)
    if clear:
        console.say("all of this was removed")


def measured(folder: Path) -> dict[str, Any]:
    """How many files there are, and how large they are together."""
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return {"files": len(sizes), "megabytes": round(sum(sizes) / 1e6, 1)}
