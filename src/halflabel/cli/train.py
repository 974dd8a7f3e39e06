"""`halflabel train`: trains a classifier from files into a model folder."""

from __future__ import annotations

import json as jsonlib
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from halflabel.cli import console, options
from halflabel.cli.folders import check_apart, check_run_folder
from halflabel.encoders.catalogue import names_in
from halflabel.errors import DataError, SettingError, WrongTask
from halflabel.output_folders import RUN, locked, replacing
from halflabel.processes import this_process

if TYPE_CHECKING:
    from halflabel.cli.inputs import TrainingTexts
    from halflabel.data.readers.files import File
    from halflabel.devices import Compute
    from halflabel.notices import Notice
    from halflabel.settings import Settings

LABELS, NONE = "labels", "none"  # as --names: the labels themselves, and no names
STOPPED = 130  # exit code that shells expect after Ctrl-C
CHECKPOINT_SECONDS = 60.0


@dataclass(frozen=True)
class Views:
    """Where the strong views of the pool come from, if not from the method's own edits."""

    file: File | None
    translate: bool
    there: str | None
    back: str | None


def train(
    labelled: options.LabelledIfAny = None,
    *,
    out: options.RunFolder,
    unlabelled: options.Pool = None,
    names: options.Names = None,
    several: options.Several = False,
    dev: options.Dev = None,
    method: options.Method = None,
    encoder: options.Encoder = None,
    plan: options.Plan = None,
    minutes: options.Minutes = None,
    seed: options.Seed = None,
    set: options.Set = None,
    class_weight: options.ClassWeight = None,
    device: options.Device = None,
    precision: options.Precision = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    label_column: options.LabelColumn = None,
    annotator_column: options.AnnotatorColumn = None,
    views: options.Views = None,
    back_translate: options.BackTranslate = False,
    there: options.There = None,
    back: options.Back = None,
    truth: options.Truth = False,
    keep_labels: options.KeepLabels = True,
    resume: options.Resume = False,
    force: options.ForceRun = False,
    json: options.Json = False,
    checkpoint_seconds: options.CheckpointSeconds = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Train a classifier on few labelled and many unlabelled texts.

    \b
    halflabel train labelled.csv --unlabelled pool.jsonl --out model
    halflabel train labelled.csv --unlabelled 'pool-*.csv' --dev dev.csv --plan frozen --out model
    halflabel train --names names.json --unlabelled pool.csv --out model
    halflabel train --names names.json --unlabelled pool.csv --several --out model
    """
    from halflabel.class_names import names_of_labels
    from halflabel.cli.inputs import InputFiles, class_names, dev_overlap, gather, read_labelled
    from halflabel.devices import choose_compute

    changes = options.parse_settings(set or [])
    if not labelled and (names in (None, LABELS, NONE) or not unlabelled):
        raise SettingError("there is nothing to learn from; give labelled files, or --names FILE with --unlabelled")
    files = InputFiles.named(labelled or [], unlabelled=unlabelled, dev=dev, views=views, text_column=text_column,
                             label_column=label_column, annotator_column=annotator_column)
    folders = [*(names_in(encoder) if encoder else []), there, back]
    check_apart(out, [*(file.path for file in files.together), *folders, names], RUN)
    process = this_process()
    with locked(out, RUN) if process.first else nullcontext():
        kept = check_run_folder(out, resume=resume, force=force) if process.first else []
        rows, annotator_notices = read_labelled(files)
        phrases, name_notices = class_names(names, rows)
        texts = gather(rows, files, truth=truth, names=phrases)
        compute = choose_compute(device or "auto", precision or "auto", local_rank=process.local_rank)
        settings = settings_for(texts, method=method, several=several, encoder=encoder, plan=plan or "laptop",
                                minutes=minutes, changes=changes, seed=seed or 0, names=phrases,
                                label_names=names_of_labels(rows.labels) if names is None else None,
                                class_weight=options.parse_class_weight(class_weight))
        console.detail(f"{len(texts.labelled):,} labelled and {len(texts.pool):,} unlabelled texts are read")
        console.detail(f"settings: {jsonlib.dumps(replace(settings, names={}).to_json())}")
        console.detail(f"{compute.to_json()}, {process.number} process{'es' * (process.number > 1)}")
        texts = add_views(texts, Views(files.views, back_translate, there, back), settings, text_column)
        texts = replace(texts, notices=[*kept, *annotator_notices, *name_notices, *texts.notices, *dev_overlap(texts)])
        run(settings, texts, out, compute, resume=resume,
            checkpoint_seconds=checkpoint_seconds or CHECKPOINT_SECONDS, keep_labels=keep_labels)
        if process.first:
            show_result(out, texts.notices, as_json=json)


def settings_for(texts: TrainingTexts, *, method: str | None, encoder: str | None, several: bool,
                 **choices: Any) -> Settings:
    """The settings that the options choose, checked before an encoder is loaded."""
    from halflabel.methods import find
    from halflabel.settings import choose_settings, choose_task

    try:
        task = choose_task(texts.labelled, method, several=several)
        settings = choose_settings(task, labelled=bool(len(texts.labelled)), method=method, encoder=encoder, **choices)
    except WrongTask as error:
        raise WrongTask(f"{texts.labelled.source}: {error}") from None
    chosen = find(settings.method)
    if chosen.bag_of_words and encoder:
        console.note(f"{chosen.name} trains on {chosen.runs_on}: --encoder {encoder} is not used")
    return settings


def add_views(texts: TrainingTexts, views: Views, settings: Settings, text_column: str | None) -> TrainingTexts:
    """The texts with the strong views that the options ask for."""
    if views.file is None and not views.translate:
        return texts
    if views.file is not None and views.translate:
        raise SettingError("--views and --back-translate both provide strong views; choose one of them")
    check_wants_views(settings, texts)
    if views.file is not None:
        from halflabel.cli.inputs import with_views

        pool, notices = with_views(texts.pool, views.file, text_column)
        return replace(texts, pool=pool, notices=texts.notices + notices)
    from halflabel.cli.data import back_translations

    translations = back_translations(texts.pool.texts, views.there, views.back, settings.seed)
    return replace(texts, pool=replace(texts.pool, views=[(view,) for view in translations]))


def check_wants_views(settings: Settings, texts: TrainingTexts) -> None:
    """Refuses strong views that the method would not use."""
    from halflabel.methods import find
    from halflabel.types import Shape

    if not len(texts.pool):
        raise DataError("there are no unlabelled texts to create strong views of; give --unlabelled")
    method, shape = find(settings.method), Shape(labels=2, width=8, labelled=2, unlabelled=2)
    if not method(shape, **settings.hyper).strong_views:
        way = "set views=strong" if "views" in method.defaults else "choose another --method (bdd-f does)"
        raise SettingError(f"the method {method.name} uses no strong views; {way}, or leave out --views and "
                           "--back-translate")


def run(settings: Settings, texts: TrainingTexts, out: Path, compute: Compute, *, resume: bool,
        checkpoint_seconds: float, keep_labels: bool = True) -> None:
    """Trains in the folder, unless its run is finished; a failure before the first step leaves nothing behind."""
    from halflabel.fitting import fit
    from halflabel.persistence.model import RunFinished
    from halflabel.training.distributed import connected

    process = this_process()
    console.note(*texts.notices)
    console.detail("training begins")
    folder = replacing(out, RUN) if process.first and not resume else nullcontext()
    with (folder, handle_interrupt(out, resume=resume), connected(process, compute.device) as ranks,
          console.meter() as meter):
        try:
            fit(texts.labelled, texts.pool, settings, dev=texts.dev, truth=texts.truth, folder=out, resume=resume,
                report=console.TrainingProgress(meter), checkpoint_seconds=checkpoint_seconds,
                keep_labels=keep_labels, compute=compute, ranks=ranks)
        except RunFinished as finished:
            console.hint(str(finished))
    console.detail("training has ended")


@contextmanager
def handle_interrupt(out: Path, *, resume: bool) -> Iterator[None]:
    """On Ctrl-C prints how to resume, and exits."""
    from halflabel.processes import Interrupted

    try:
        yield
    except (Interrupted, KeyboardInterrupt) as stop:
        if resume or RUN.has_result(out):
            console.hint(f"{stop or 'stopped'}; saved in {out}. Resume with:\n  {resume_command()}")
        else:
            console.hint("stopped before the first step; nothing was kept")
        raise typer.Exit(STOPPED) from None


def resume_command() -> str:
    """The command that was typed, with --resume."""
    process = this_process()
    program = ["python", "-m", "halflabel"] if Path(sys.argv[0]).name == "__main__.py" else ["halflabel"]
    if process.number > 1:
        program = ["torchrun", "--nproc-per-node", str(process.local_number), "-m", "halflabel"]
    typed = [word for word in sys.argv[1:] if word not in ("--resume", "--force")]
    return shlex.join([*program, *typed, "--resume"])


def show_result(out: Path, notices: list[Notice], *, as_json: bool) -> None:
    """Prints a summary of the run and the next command."""
    from halflabel.outlook import in_words
    from halflabel.persistence.model_folder import read_config, read_decision

    config = read_config(out)
    ended, decision = config["run"], read_decision(out, len(config["classes"]))
    if as_json:
        console.say_json({
            "out": str(out), "method": config["method"], "plan": config["plan"]["name"], "encoder": config["encoder"],
            "seed": config["seed"], "n_labelled": config["texts"]["labelled"],
            "n_unlabelled": config["texts"]["unlabelled"], "classes": config["classes"],
            "seconds": ended["seconds"], **config.get("compute", {}), "why": ended["why"],
            "notices": [*map(str, notices), *ended["notices"]], "dev": ended["dev"],
            "start": config.get("start", {}), "outlook": config.get("outlook")} | ({} if decision is None else {
                "decision": decision.chosen, "hard_labels": config["hard_labels"]}))
        return
    trained = (f"{config['method']}, {config['plan']['name']} plan, {config['encoder']}: "
               f"{config['texts']['labelled']:,} labelled and {config['texts']['unlabelled']:,} unlabelled texts, "
               f"{len(config['classes'])} classes, {ended['seconds']:.0f} s")
    rows: dict[str, object] = {"model": str(out), "trained": trained, "stopped": ended["why"]}
    if compute := config.get("compute"):  # older models do not say
        number = compute["processes"]
        rows["ran on"] = f"{compute['device']} in {compute['precision']}" + f", {number} processes" * (number > 1)
    if ended["dev"] is not None:
        rows["dev"] = f"micro F1 {ended['dev']:.3f}"
    if decision is not None:
        rows["decision"] = f"{decision.chosen}, fitted on {decision.rule().fitted_on}"
    if not console.is_quiet():
        rows |= in_words(config)
    console.facts(rows | {"next": shlex.join(["halflabel", "predict", str(out)]) + " FILE"})
