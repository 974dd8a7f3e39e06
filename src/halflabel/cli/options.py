"""The options that several commands share, and the config file: a TOML section for each command, overridden by
environment variables and options.

Parameters of commands carry the names of their flags (`json`, `set`, `all`), since typer makes the names of
environment variables and config keys from them.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from halflabel.cli import console
from halflabel.errors import SettingError
from halflabel.types import MAX_SEED

# Environment variables follow one rule, which the help of --config states; one by one they would swamp the help.
option = partial(typer.Option, show_envvar=False)
plain = partial(option, show_default=False)
argument = partial(typer.Argument, show_default=False)

# input and output
Labelled = Annotated[list[Path], argument(
    metavar="LABELLED", help="Files, globs or folders of labelled texts; rows without a label join the pool.")]
LabelledIfAny = Annotated[list[Path] | None, argument(
    metavar="[LABELLED]...", help="Files, globs or folders of labelled texts; rows without a label join the pool. "
                                  "Optional with --names.")]
Names = Annotated[str | None, plain(
    metavar="FILE|labels|none", help='Class names: a JSON file such as {"billing": "invoices and refunds"}, or '
                                     "`labels` if the labels themselves say what they mean. By default lift and "
                                     "lift-ml try labels that read as words; `none` prevents that.")]
Several = Annotated[bool, option(
    "--several", help="A text may have several labels, or none. Needed only without LABELLED, whose labels show it.")]
Texts = Annotated[list[str], argument(metavar="FILE", help="Files or globs of texts.")]
Model = Annotated[Path, argument(metavar="DIR", help="Folder of a trained, exported or distilled model.")]
TrainedModel = Annotated[Path, argument(
    metavar="DIR", help="Folder of a trained model; an exported or distilled one is refused.")]
RunFolder = Annotated[Path, plain(metavar="DIR", help="Folder for checkpoints, metrics and the trained model.")]
Pool = Annotated[list[Path] | None, plain(
    "--unlabelled", "--unlabeled", metavar="POOL", help="File or glob of unlabelled texts; may be repeated.")]
Dev = Annotated[Path | None, plain(metavar="FILE", help="Labelled dev set, for model selection.")]
TextColumn = Annotated[str | None, option(metavar="NAME", help="Column of the texts; title,body joins two.",
                                              show_default="found by name")]
LabelColumn = Annotated[str | None, option(metavar="NAME", help="Column of the labels.", show_default="found by name")]

AnnotatorColumn = Annotated[str | None, plain(
    metavar="NAME", help="Column of who labelled a text; the labels of several annotators are merged by majority.")]

CONFIG_FILE = "halflabel.toml"
NOT_CONFIGURABLE = ("help", "config")


def _set_encoding(name: str | None) -> str | None:
    """Makes files of the command be read in that encoding."""
    from halflabel.data.readers.files import UTF8, check_encoding, text_encoding

    text_encoding.set(check_encoding(name or UTF8))
    return name


Encoding = Annotated[str | None, option(metavar="NAME", callback=_set_encoding, show_default="utf-8",
                                        help="Encoding of the text files, such as cp1252, latin-1 or utf-16.")]


def _set_header(no_header: bool) -> bool:
    from halflabel.data.readers.files import table_header

    table_header.set(not no_header)
    return no_header


def _set_sheet(name: str | None) -> str | None:
    from halflabel.data.readers.files import workbook_sheet

    workbook_sheet.set(name)
    return name


NoHeader = Annotated[bool, option("--no-header", callback=_set_header, help=(
    "The first line of csv, tsv and Excel files is data; columns are named by number, as in --text-column 1."))]
Sheet = Annotated[str | None, option(metavar="NAME", callback=_set_sheet, show_default="the first",
                                     help="Sheet of an Excel workbook.")]

# training
Method = Annotated[str | None, option(metavar="NAME", help="Training method; `halflabel methods` lists them.",
                                      show_default="lift, or lift-ml for several labels per text")]
Encoder = Annotated[str | None, option(
    metavar="NAME|PATH", show_default="the plan's encoder",
    help="Text encoder: a name of `halflabel encoders`, a model of the Hugging Face hub, or a folder; several with "
         "commas are joined, and `auto` chooses by held-out labels.")]
Plan = Annotated[str | None, option(
    metavar="frozen|laptop|paper", show_default="laptop",
    help="Training schedule: frozen encoder, fine-tuning within minutes, or the paper's.")]
Minutes = Annotated[float | None, option(metavar="N", help="Time limit for fine-tuning.", show_default="the plan's")]
Seed = Annotated[int | None, option(
    metavar="N", min=0, max=MAX_SEED, show_default="0",
    help="Random seed; the same seed on the same machine gives the same numbers.")]
Set = Annotated[list[str] | None, plain(
    metavar="KEY=VALUE", help="Change a hyper-parameter of the method or a field of the plan; may be repeated.")]
ClassWeight = Annotated[str | None, plain(
    metavar="balanced|JSON", help='How much labelled texts of each class count: `balanced`, or numbers such as '
                                  '{"urgent": 5}; the others count 1.')]
Truth = Annotated[bool, option(
    help="Report the accuracy of pseudo-labels against the labels in POOL; training never sees them.")]
KeepLabels = Annotated[bool, option(
    help="Keep the labelled texts in --out (labelled.jsonl), for `halflabel update` and `halflabel label --model`.")]

# strong views: augmented versions of the unlabelled texts
Views = Annotated[Path | None, plain(
    metavar="FILE", help="Augmented versions (strong views) of the unlabelled texts, in columns aug_0, aug_1, ...")]
BackTranslate = Annotated[bool, option(help="Create strong views by back-translation.")]
There = Annotated[str | None, option(
    metavar="NAME|PATH", help="MarianMT model that translates the texts.", show_default="English to German")]
Back = Annotated[str | None, option(
    metavar="NAME|PATH", help="MarianMT model that translates them back.", show_default="German to English")]

# prediction
Decision = Annotated[str | None, option(
    metavar="RULE", show_default="the model's",
    help="Rule that assigns several labels: prior-quantile, fixed, top-k, dev-global or dev-per-label.")]
Backend = Annotated[str | None, option(
    metavar="torch|compile|onnx|onnx-int8", show_default="torch",
    help="Inference engine; an ONNX graph is built once and cached.")]
Unknown = Annotated[bool, option("--unknown", help="Give no label to texts that are too far from all classes.")]
Coverage = Annotated[float | None, option(
    metavar="SHARE", help="Share of the texts of known classes that keep their label with --unknown.",
    show_default="0.95")]

# hardware
Device = Annotated[str | None, option(
    metavar="auto|cpu|cuda|cuda:1|mps|xpu", show_default="auto: a GPU if torch reports one",
    help="Where the model runs.")]
Precision = Annotated[str | None, option(
    metavar="auto|bf16|fp16|fp32", show_default="auto: bf16 if the device has it and it does no harm",
    help="Precision of the encoder's products; fp16 trains with scaled gradients.")]

# behaviour
Resume = Annotated[bool, option("--resume", help="Resume the run in --out.")]
ForceRun = Annotated[bool, option(
    "--force", help="Replace an earlier run in --out; files that halflabel did not write are kept.")]
ForceFile = Annotated[bool, option("--force", help="Replace --out if it exists.")]
Quiet = Annotated[bool, option("--quiet", "-q", callback=console.set_quiet,
                               help="Print only results and errors, without notices and progress.")]
Verbose = Annotated[bool, option("--verbose", "-v", callback=console.set_verbose, help=(
    "Print details for support as well: versions, choices, when each stage began, tracebacks; no texts."))]
Json = Annotated[bool, option("--json", help="Print the result as JSON and nothing else on standard output.")]
Markdown = Annotated[bool, option("--markdown", help="Print the list as the documentation page docs/methods.md.")]
CheckpointSeconds = Annotated[float | None, option(hidden=True, min=0.0)]


def parse_settings(entries: list[str]) -> dict[str, int | float | str]:
    """The KEY=VALUE entries of --set by key; a value becomes an int, else a float, else stays a string."""
    settings: dict[str, int | float | str] = {}
    for entry in entries:
        key, equals, value = (part.strip() for part in entry.partition("="))
        if not (key and equals and value):
            raise SettingError(f"--set {entry!r} is not KEY=VALUE; write for example --set epochs=5")
        settings[key] = _number(value)
    return settings


def parse_class_weight(option: str | None) -> str | dict[str, float] | None:
    """The class weights of --class-weight: a word, or an object of numbers by label."""
    if option is None or not option.lstrip().startswith("{"):
        return option
    try:
        weights: dict[str, float] = json.loads(option)
    except ValueError as error:
        raise SettingError(f"--class-weight {option!r} is not valid JSON ({error}); write for example "
                           '--class-weight \'{"urgent": 5}\'') from None
    return weights


def _number(value: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def apply_config(ctx: typer.Context, file: Path | None) -> Path | None:
    """Makes the command's section its defaults; the callback of --config."""
    if file is None and Path(CONFIG_FILE).is_file():
        file = Path(CONFIG_FILE)
    if file is not None and not ctx.resilient_parsing:
        parameters = {name: parameters_of(command) for name, command in commands_of(ctx.find_root().command).items()}
        # every section is checked, so that a mistake does not wait for the first use of its command
        values = {name: values_of(file, name, section, parameters)
                  for name, section in sections(load_config(file), parameters).items()}
        ctx.default_map = values.get(ctx.command_path.partition(" ")[2].replace(" ", "."), {})
    return file


def load_config(file: Path) -> dict[str, Any]:
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


Config = Annotated[Path | None, option(
    "--config", metavar="FILE", envvar="HALFLABEL_CONFIG", is_eager=True, callback=apply_config,
    show_default=f"{CONFIG_FILE} if it exists",
    help="TOML file with a section for each command and the names of its options as keys. Environment variables "
         "HALFLABEL_COMMAND_OPTION (such as HALFLABEL_TRAIN_PLAN) override it, and options override both.")]
