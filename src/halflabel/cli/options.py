"""The options of the commands.

Parameters of commands carry the names of their flags (`json`, `set`, `all`), since typer makes the names of
environment variables and config keys from them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from halflabel.cli import config

# Variables follow one rule, which --config tells; one by one they would swamp the help.
option = partial(typer.Option, show_envvar=False)
plain = partial(option, show_default=False)
argument = partial(typer.Argument, show_default=False)

# where things are
Labelled = Annotated[list[Path], argument(
    metavar="LABELLED", help="Files, globs or folders; rows without a label count as unlabelled.")]
Model = Annotated[Path, argument(metavar="DIR", help="Folder of a trained or exported model.")]
RunFolder = Annotated[Path, plain(metavar="DIR", help="Folder for the run and its model.")]
Pool = Annotated[list[Path] | None, plain(
    "--unlabelled", "--unlabeled", metavar="POOL", help="File or glob of unlabelled texts; may be given again.")]
Dev = Annotated[Path | None, plain(metavar="FILE", help="Labelled texts that choose the best model.")]
TextColumn = Annotated[str | None, option(help="Column that holds the texts.", show_default="found by name")]
LabelColumn = Annotated[str | None, option(help="Column that holds the labels.", show_default="found by name")]

# how to train
Method = Annotated[str | None, option(help="One that `halflabel methods` lists.", show_default="the default method")]
Encoder = Annotated[str | None, option(
    metavar="NAME|PATH", show_default="the plan's encoder",
    help="minilm, a name on the Hugging Face hub, or a folder.")]
Plan = Annotated[str | None, option(
    metavar="frozen|laptop|paper", help="How long and on what to train.", show_default="laptop")]
Minutes = Annotated[float | None, option(help="Time that fine-tuning may take.", show_default="the plan's")]
Seed = Annotated[int | None, option(help="Same seed, same machine: same numbers.", show_default="0", min=0)]
Set = Annotated[list[str] | None, plain(
    metavar="KEY=VALUE", help="A hyper-parameter of the method or a field of the plan; may be given again.")]
Truth = Annotated[bool, option(help="Measure pseudo-labels by the labels in POOL; training never sees them.")]

# strong views of the unlabelled texts
Views = Annotated[Path | None, plain(
    metavar="FILE", help="Ready strong views: the unlabelled texts and columns aug_0, aug_1, ...")]
BackTranslate = Annotated[bool, option(help="Make strong views by translating there and back.")]
There = Annotated[str | None, option(
    metavar="NAME|PATH", help="MarianMT model for the way there.", show_default="English to German")]
Back = Annotated[str | None, option(
    metavar="NAME|PATH", help="MarianMT model for the way back.", show_default="German to English")]

# which labels a text gets, where it can have several
Decision = Annotated[str | None, option(
    metavar="RULE", help="prior-quantile, fixed, top-k, dev-global or dev-per-label.", show_default="the model's")]

# how to predict
Backend = Annotated[str | None, option(metavar="torch|compile|onnx|onnx-int8", show_default="torch",
                                       help="What runs the model; the ONNX graph is made once and kept.")]

# what to do with what is there
Resume = Annotated[bool, option("--resume", help="Go on with the run in --out.")]
ForceRun = Annotated[bool, option("--force", help="Replace an earlier run in --out; other files stay.")]
ForceFile = Annotated[bool, option("--force", help="Replace --out if it exists.")]
Json = Annotated[bool, option("--json", help="Print one JSON value and nothing else on standard output.")]
Markdown = Annotated[bool, option("--markdown", help="Print the page of the documentation.")]
CheckpointSeconds = Annotated[float | None, option(hidden=True, min=0.0)]
Config = Annotated[Path | None, option(
    "--config", metavar="FILE", envvar="HALFLABEL_CONFIG", is_eager=True, callback=config.use,
    show_default=f"{config.NAME} if it is there",
    help="TOML file with a section for each command, its keys named as the options. "
         "Environment variables HALFLABEL_COMMAND_OPTION (HALFLABEL_TRAIN_PLAN) win over it, options over both.")]
