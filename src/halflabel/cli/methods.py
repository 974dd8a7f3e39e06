"""`halflabel methods`: lists every method with its paper and hyper-parameters."""

from __future__ import annotations

from typing import Any

from halflabel.cli import console, options


def methods(*, json: options.Json = False, markdown: options.Markdown = False,
            config: options.Config = None) -> None:
    """List the methods with their hyper-parameters.

    \b
    halflabel methods
    halflabel train labelled.csv --unlabelled pool.csv --method bdd-f --set m=0.2 --out model
    """
    from halflabel.methods import METHODS
    from halflabel.settings import DEFAULT_METHODS

    entries: list[dict[str, Any]] = [
        {"name": m.name, "task": m.task, "paper": m.paper, "summary": m.summary, "settings": m.defaults,
         "runs_on": m.runs_on, "file": m.file, "default": m.name in DEFAULT_METHODS.values()} for m in METHODS.values()]
    if json:
        console.say_json(entries)
        return
    if markdown:
        console.say(page(entries))
        return
    for entry in entries:
        settings = " ".join(f"{key}={value}" for key, value in entry["settings"].items())
        default = f"; the default for {entry['task']}" if entry["default"] else ""
        console.say(f"{entry['name']}  ({entry['task']}; {entry['paper']}{default})")
        console.say(f"    {entry['summary']}")
        if settings:
            console.say(f"    {settings}")


def page(entries: list[dict[str, Any]]) -> str:
    """docs/methods.md."""
    lines = ["# The methods", "", "Written by `halflabel methods --markdown` from the registry. Defaults are those of "
             "the method's paper or, where it is silent, of its public code; `--set name=value` changes one.", "",
             "| name | paper | task | runs on | file |", "|---|---|---|---|---|"]
    lines += [f"| [`{m['name']}`](#{m['name']}) | {m['paper']} | {m['task']} | {m['runs_on']} | "
              f"[{m['file']}](../src/{m['file']}) |" for m in entries]
    for m in entries:
        settings = ", ".join(f"`{key}={value}`" for key, value in m["settings"].items())
        lines += ["", f"## {m['name']}", "", m["summary"], "", f"Settings: {settings or 'none'}."]
    return "\n".join(lines)
