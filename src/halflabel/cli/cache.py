"""`halflabel cache`: shows or clears what is kept between runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

from halflabel.cli import console, options

KINDS = {"pools": "unlabelled texts", "tokens": "token ids", "vectors": "sentence vectors",
         "states": "hidden states of frozen layers", "onnx": "ONNX graphs", "translations": "back-translations",
         "corpora": "benchmark corpora", "encoders": "downloaded encoders"}


def cache(
    *,
    clear: Annotated[bool, options.option("--clear", help="Delete the cache; runs fill it again as needed.")] = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Show or clear the cache.

    It is in the folder that HALFLABEL_CACHE names, else in the user's cache folder.

    \b
    halflabel cache
    halflabel cache --clear
    """
    from halflabel.atomic import cache_folder

    folder = cache_folder()
    sizes = {name: size_of(folder / name) for name in KINDS}
    if clear:
        for name in KINDS:
            shutil.rmtree(folder / name, ignore_errors=True)
    if json:
        console.say_json({"folder": str(folder), "cleared": clear, **sizes})
        return
    console.table((str(folder), "files", "megabytes"),
                  [(KINDS[name], size["files"], size["megabytes"]) for name, size in sizes.items()], numbers=2)
    if clear:
        console.say("all of this was removed")


def size_of(folder: Path) -> dict[str, Any]:
    """Number and total size of the files in a folder."""
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return {"files": len(sizes), "megabytes": round(sum(sizes) / 1e6, 1)}
