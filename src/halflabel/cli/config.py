"""The config file: a TOML section for each command, below the environment and the flags."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from halflabel.errors import BadInput

NAME = "halflabel.toml"
HIDDEN = ("help", "config")


def use(ctx: typer.Context, file: Path | None) -> Path | None:
    """Makes the command's section its defaults, so that environment and flags win over it."""
    if file is None and Path(NAME).is_file():
        file = Path(NAME)
    if file is not None and not ctx.resilient_parsing:
        known = {name: keys(command) for name, command in commands_of(ctx.find_root().command).items()}
        found = sections(load(file), known)
        values = {name: defaults(file, name, section, known) for name, section in found.items()}
        ctx.default_map = values.get(ctx.command_path.partition(" ")[2].replace(" ", "."), {})
    return file


def commands_of(group: Any, before: str = "") -> dict[str, Any]:
    """All commands by the name of their section: `train`, and `bench.quick` for one of a group."""
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        inside = hasattr(command, "commands")
        found |= commands_of(command, f"{before}{name}.") if inside else {f"{before}{name}": command}
    return found


def sections(given: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a file by name; those of a group's commands lie inside the group's."""
    groups = {name.partition(".")[0] for name in known if "." in name}
    found: dict[str, Any] = {}
    for name, section in given.items():
        inside = name in groups and isinstance(section, dict)
        found |= {f"{name}.{one}": value for one, value in section.items()} if inside else {name: section}
    return found


def load(file: Path) -> dict[str, Any]:
    """The sections of a TOML file."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"there is no config file {file}; mend the path or leave out --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} is not valid TOML ({error}); mend it") from None


def keys(command: Any) -> dict[str, Any]:
    """The parameters of a command by every name that a section may use."""
    return {_plain(name): parameter for parameter in command.params if parameter.name not in HIDDEN
            for name in parameter.opts}


def defaults(file: Path, name: str, section: Any, known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A section as the values of parameters; anything unknown is refused."""
    if name not in known:
        raise BadInput(f"{file}: '{name}' is no command; its sections may be {', '.join(known)}")
    if not isinstance(section, dict):
        raise BadInput(f"{file}: '{name}' is not a section; write [{name}] and the options below it")
    found: dict[str, Any] = {}
    for key, value in section.items():
        if _plain(key) not in known[name]:
            raise BadInput(f"{file}: [{name}] has no option '{key}'; it has {', '.join(known[name])}")
        parameter = known[name][_plain(key)]
        found[parameter.name] = _value(value, parameter, f"{file}: [{name}] {key}")
    return found


def _value(value: Any, parameter: Any, where: str) -> Any:
    if isinstance(value, dict) and parameter.name == "set":
        value = [f"{key}={_scalar(entry, where)}" for key, entry in value.items()]
    if parameter.nargs != 1 or getattr(parameter, "multiple", False):
        return [_scalar(entry, where) for entry in (value if isinstance(value, list) else [value])]
    return _scalar(value, where)


def _scalar(value: Any, where: str) -> str | bool:
    """A value as the environment would give it, so that both are read by the same rules."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (str, int, float)):
        return str(value)
    raise BadInput(f"{where} is a {type(value).__name__}; give one value")


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")
