"""The config file: a TOML section for each command, overridden by environment variables and options."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from halflabel.errors import SettingError

NAME = "halflabel.toml"
NOT_CONFIGURABLE = ("help", "config")


def apply(ctx: typer.Context, file: Path | None) -> Path | None:
    """Makes the command's section its defaults; the callback of --config."""
    if file is None and Path(NAME).is_file():
        file = Path(NAME)
    if file is not None and not ctx.resilient_parsing:
        parameters = {name: parameters_of(command) for name, command in commands_of(ctx.find_root().command).items()}
        # every section is checked, so that a mistake does not wait for the first use of its command
        values = {name: values_of(file, name, section, parameters)
                  for name, section in sections(load(file), parameters).items()}
        ctx.default_map = values.get(ctx.command_path.partition(" ")[2].replace(" ", "."), {})
    return file


def load(file: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingError(f"there is no config file {file}; fix the path or leave out --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{file} is not valid TOML ({error}); fix it") from None


def commands_of(group: Any, prefix: str = "") -> dict[str, Any]:
    """All commands by the name of their section: `train`, and `bench.quick` for a command of a group."""
    commands: dict[str, Any] = {}
    for name, command in group.commands.items():
        is_group = hasattr(command, "commands")
        commands |= commands_of(command, f"{prefix}{name}.") if is_group else {f"{prefix}{name}": command}
    return commands


def sections(content: dict[str, Any], commands: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a file by command; the sections of a group's commands are nested in the group's."""
    groups = {name.partition(".")[0] for name in commands if "." in name}
    flat: dict[str, Any] = {}
    for name, section in content.items():
        nested = name in groups and isinstance(section, dict)
        flat |= {f"{name}.{command}": value for command, value in section.items()} if nested else {name: section}
    return flat


def parameters_of(command: Any) -> dict[str, Any]:
    """The parameters of a command by every key that a section may use."""
    return {_key(name): parameter for parameter in command.params if parameter.name not in NOT_CONFIGURABLE
            for name in parameter.opts}


def values_of(file: Path, name: str, section: Any, parameters: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A section as values of parameters; unknown names are refused."""
    if name not in parameters:
        raise SettingError(f"{file}: '{name}' is not a command; its sections may be {', '.join(parameters)}")
    if not isinstance(section, dict):
        raise SettingError(f"{file}: '{name}' is not a section; write [{name}] and the options below it")
    values: dict[str, Any] = {}
    for key, value in section.items():
        if _key(key) not in parameters[name]:
            raise SettingError(f"{file}: [{name}] has no option '{key}'; it has {', '.join(parameters[name])}")
        parameter = parameters[name][_key(key)]
        values[parameter.name] = _value(value, parameter, f"{file}: [{name}] {key}")
    return values


def _value(value: Any, parameter: Any, where: str) -> Any:
    if isinstance(value, dict) and parameter.name == "set":
        value = [f"{key}={_scalar(entry, where)}" for key, entry in value.items()]
    if parameter.nargs != 1 or getattr(parameter, "multiple", False):
        return [_scalar(entry, where) for entry in (value if isinstance(value, list) else [value])]
    return _scalar(value, where)


def _scalar(value: Any, where: str) -> str | bool:
    """A value as an environment variable would give it, so that both are parsed by the same rules."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (str, int, float)):
        return str(value)
    raise SettingError(f"{where} is a {type(value).__name__}; give a single value")


def _key(name: str) -> str:
    return name.lstrip("-").replace("-", "_")
