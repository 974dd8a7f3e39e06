"""What there is to choose from: `halflabel methods`, and `halflabel encoders`, which also fetches and measures them."""

from __future__ import annotations

import json as jsonlib
import os
import platform
from pathlib import Path
from typing import Annotated, Any

import typer

from halflabel.atomic import cache_folder, write_text
from halflabel.cli import console, options
from halflabel.cli.train import STOPPED
from halflabel.encoders.catalogue import CATALOGUE, MINILM, check_weights, fetch, find_place, own_folder
from halflabel.errors import SettingError

encoders_app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
TRIAL = 64  # texts by which the speed is measured
COLUMNS = {"name": -15, "parameters": 7, "width": 5, "tokens": 6, "licence": -10, "languages": -9, "speed": 5,
           "here": -6}  # widths, negative for columns that are aligned on the left


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
        console.say(methods_page(entries))
        return
    for entry in entries:
        settings = " ".join(f"{key}={value}" for key, value in entry["settings"].items())
        default = f"; the default for {entry['task']}" if entry["default"] else ""
        console.say(f"{entry['name']}  ({entry['task']}; {entry['paper']}{default})")
        console.say(f"    {entry['summary']}")
        if settings:
            console.say(f"    {settings}")


def methods_page(entries: list[dict[str, Any]]) -> str:
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


@encoders_app.callback(invoke_without_command=True)
def encoders(
    ctx: typer.Context,
    *,
    measure: Annotated[bool, options.option(
        "--measure", help="Measure the speed of the encoders that are here; it is kept in the cache.")] = False,
    json: options.Json = False,
) -> None:
    """List the encoders that are known by name, or fetch one.

    The size is in millions of parameters; the speed is that on this machine, relative to minilm.

    \b
    halflabel encoders --measure
    halflabel encoders get gte-small
    halflabel train labelled.csv --unlabelled pool.csv --encoder gte-small --out model
    """
    if ctx.invoked_subcommand is not None:
        if measure or json:
            raise SettingError("--measure and --json are for the list; give them without a command")
        return
    entries = listed(measure_speeds() if measure else read_speeds())
    if json:
        console.say_json(entries)
        return
    for line in encoders_page(entries):
        console.say(line)
    if not measure and not all(entry["speed"] for entry in entries if entry["here"]):
        console.hint("measure the speed of those that are here with `halflabel encoders --measure`")


@encoders_app.command()
def get(
    name: Annotated[str, options.argument(metavar="NAME", help="A name that `halflabel encoders` lists.")],
    *,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Fetch an encoder from the Hugging Face hub.

    Its weights are checked by their sha256. A download that was interrupted is resumed.

    \b
    halflabel encoders get gte-small
    """
    if name not in CATALOGUE:
        raise SettingError(f"there is no encoder '{name}' in the list; choose one of {', '.join(CATALOGUE)}")
    known = CATALOGUE[name]
    place = find_place(known)
    if place is not None:
        check_weights(known, place.folder, "remove that folder and try again")
        console.say(f"{name} is here already: {place.folder}")
        return
    try:
        folder = fetch(known, bar=False if quiet else None)
    except KeyboardInterrupt:
        console.hint("stopped; the same command resumes the download")
        raise typer.Exit(STOPPED) from None
    console.say(f"{name}: {folder}")


def encoders_page(entries: list[dict[str, Any]]) -> list[str]:
    """The list as lines of at most 80 columns; a table of rich would cut names where there is no terminal."""
    def cell(value: object, width: int) -> str:
        text = "-" if value is None else str(value)
        return f"{text:<{-width}}" if width < 0 else f"{text:>{width}}"

    rows = [{column: column for column in COLUMNS} | {"parameters": "size, M"}, *entries]
    return ["  ".join(cell(row[column], width) for column, width in COLUMNS.items()).rstrip() for row in rows]


def listed(speeds: dict[str, float]) -> list[dict[str, Any]]:
    """The catalogue as rows; `here` says where an encoder is, None if it has to be fetched."""
    rows = []
    for name, known in CATALOGUE.items():
        place = find_place(known)
        speed = round(speeds[key(name)] / speeds[key(MINILM)], 2) if {key(name), key(MINILM)} <= speeds.keys() else None
        rows.append({"name": name, "languages": known.languages, "licence": known.licence,
                     "here": place.kind if place else None, "parameters": known.parameters, "width": known.width,
                     "tokens": known.tokens, "speed": speed, "repository": known.repository,
                     "revision": known.revision, "sha256": known.sha256, "pooling": known.pooling,
                     "prefix": known.prefix, "folder": str(place.folder) if place else None})
    return rows


def key(name: str) -> str:
    """What a speed depends on: the encoder and the machine."""
    return f"{name} {CATALOGUE[name].revision}, {platform.node()}, {os.cpu_count()} cores"


def speed_file() -> Path:
    """Where speeds are kept."""
    return own_folder(CATALOGUE[MINILM]).parent / "speed.json"


def read_speeds() -> dict[str, float]:
    """Texts per second by `key`, as measured earlier."""
    try:
        content = jsonlib.loads(speed_file().read_text(encoding="utf-8"))
        return {name: float(speed) for name, speed in content.items() if float(speed) > 0}
    except (OSError, ValueError, TypeError, AttributeError):  # none yet, or damaged: it can be measured again
        return {}


def measure_speeds() -> dict[str, float]:
    """Texts per second by `key`, measured now for all encoders that are here."""
    from halflabel.data.corpus import sample
    from halflabel.encoders.loading import load_encoder, texts_per_second

    texts = sample("test").texts[:TRIAL]
    here = [name for name, known in CATALOGUE.items() if find_place(known) is not None]
    speeds = read_speeds()
    with console.meter() as meter:
        for i, name in enumerate(here):
            meter.show("measuring encoders", i, len(here))
            speeds[key(name)] = round(texts_per_second(load_encoder(name), texts), 2)
    cache_folder().joinpath("encoders").mkdir(parents=True, exist_ok=True)
    write_text(speed_file(), jsonlib.dumps(speeds, indent=1))
    return speeds
