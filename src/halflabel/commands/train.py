"""`halflabel train`: from files to a model folder."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from halflabel import console
from halflabel.commands import options
from halflabel.commands.folder import check_apart, check_out, config_of
from halflabel.outputs import RUN, locked, replacing
from halflabel.types import BadInput, WrongTask

if TYPE_CHECKING:
    from halflabel.classifier import TextClassifier
    from halflabel.commands.texts import Texts
    from halflabel.record import Settings

STOPPED = 130  # what shells expect after Ctrl-C


@dataclass(frozen=True)
class Views:
    """Where strong views of the pool come from, if not from the method's own edits."""

    file: Path | None
    translate: bool
    there: str | None
    back: str | None


def train(
    labelled: options.Labelled,
    *,
    out: options.RunFolder,
    unlabelled: options.Pool = None,
    dev: options.Dev = None,
    method: options.Method = None,
    encoder: options.Encoder = None,
    plan: options.Plan = None,
    minutes: options.Minutes = None,
    seed: options.Seed = None,
    set: options.Set = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    views: options.Views = None,
    back_translate: options.BackTranslate = False,
    there: options.There = None,
    back: options.Back = None,
    truth: options.Truth = False,
    resume: options.Resume = False,
    force: options.ForceRun = False,
    json: options.Json = False,
    checkpoint_seconds: options.CheckpointSeconds = None,
    config: options.Config = None,
) -> None:
    """Train a classifier on a few labelled and many unlabelled texts."""
    from halflabel.commands.texts import Columns, gather
    from halflabel.data.files import as_files

    choices = {"method": method, "encoder": encoder, "plan": plan, "minutes": minutes, "random_state": seed,
               "settings": parse_settings(set or [])}
    files = as_files([file for file in (*labelled, *(unlabelled or []), dev, views) if file is not None])
    check_apart(out, [*(file.path for file in files), encoder, there, back], RUN)
    with locked(out, RUN):
        kept = check_out(out, resume=resume, force=force)
        texts = gather(labelled, unlabelled or [], dev, Columns(text_column, label_column), truth=truth)
        estimator = make_estimator(choices, texts)
        texts = add_views(texts, Views(views, back_translate, there, back), estimator, text_column)
        texts = replace(texts, notices=[*kept, *texts.notices])
        if checkpoint_seconds is not None:
            set_checkpoints(checkpoint_seconds)
        run(estimator, texts, out, resume=resume)
        finish(out, texts.notices, as_json=json)


def parse_settings(entries: list[str]) -> dict[str, int | float | str]:
    """`key=value` entries, each value a whole number, a number or a word."""
    settings: dict[str, int | float | str] = {}
    for entry in entries:
        key, equals, value = (part.strip() for part in entry.partition("="))
        if not (key and equals and value):
            raise BadInput(f"--set {entry!r} is not key=value; write for example --set epochs=5")
        settings[key] = number(value)
    return settings


def number(value: str) -> int | float | str:
    """The value as the simplest kind that it can be."""
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def make_estimator(choices: dict[str, Any], texts: Texts) -> TextClassifier:
    """The classifier that the options ask for, its choices checked before an encoder is loaded."""
    from halflabel.classifier import TextClassifier
    from halflabel.methods import find

    estimator = TextClassifier(**{name: value for name, value in choices.items() if value not in (None, {})})
    try:
        chosen = find(estimator.chosen_settings(texts.labelled.task).method)
    except WrongTask as error:
        raise BadInput(f"{texts.labelled.source}: {error}") from None
    if chosen.words and estimator.encoder:
        console.note(f"{chosen.name} learns on {chosen.runs_on}: --encoder {estimator.encoder} is not used")
    return estimator


def add_views(texts: Texts, views: Views, estimator: TextClassifier, text_column: str | None) -> Texts:
    """The texts with the strong views that the flags ask for."""
    if views.file is None and not views.translate:
        return texts
    if views.file is not None and views.translate:
        raise BadInput("--views and --back-translate both give strong views; choose one of them")
    check_wants_views(estimator.chosen_settings(texts.labelled.task), texts)
    if views.file is not None:
        from halflabel.commands.texts import with_views

        pool, notices = with_views(texts.pool, views.file, text_column)
        return replace(texts, pool=pool, notices=texts.notices + notices)
    from halflabel.commands.augment import translated

    found = translated(texts.pool.texts, views.there, views.back, estimator.random_state)
    return replace(texts, pool=replace(texts.pool, views=[(view,) for view in found]))


def check_wants_views(settings: Settings, texts: Texts) -> None:
    """Refuses views that nothing would look at."""
    from halflabel.methods import find
    from halflabel.types import Shape

    if not len(texts.pool):
        raise BadInput("there are no unlabelled texts to take strong views of; give --unlabelled")
    method, shape = find(settings.method), Shape(labels=2, width=8, labelled=2, unlabelled=2)
    if not method(shape, **settings.hyper).strong_views:
        way = "set views=strong" if "views" in method.defaults else "choose another --method (bdd-f does)"
        raise BadInput(f"the method {method.name} uses no strong views; {way}, or leave out --views and "
                       "--back-translate")


def set_checkpoints(seconds: float) -> None:
    """Changes how often a run is saved; tests that kill runs want it often."""
    from halflabel.train import loop

    loop.CHECKPOINT_SECONDS = seconds


def is_finished(out: Path, estimator: TextClassifier, texts: Texts) -> bool:
    """Whether the run in the folder is over; one with other texts or settings is refused."""
    from halflabel.record import fingerprint, open_run

    settings = estimator.chosen_settings(texts.labelled.task)
    open_run(out, settings, fingerprint(texts.labelled, texts.pool), resume=True)
    return "run" in config_of(out)


def run(estimator: TextClassifier, texts: Texts, out: Path, *, resume: bool) -> None:
    """Trains in the folder unless that is done; what fails before the first step leaves nothing behind."""
    for notice in texts.notices:
        console.note(notice)
    if resume and is_finished(out, estimator, texts):
        console.hint(f"the run in {out} is finished; there is nothing to go on with")
        return
    dev = None if texts.dev is None else (texts.dev.texts, texts.dev.labels)
    with nullcontext() if resume else replacing(out, RUN), stopping(out, resume=resume), console.meter() as meter:
        estimator.fit(texts.labelled.texts, texts.labelled.labels, texts.pool.texts, dev=dev, truth=texts.truth,
                      views=texts.pool.views or None, folder=out, resume=resume, report=console.Training(meter))


@contextmanager
def stopping(out: Path, *, resume: bool) -> Iterator[None]:
    """Turns Ctrl-C into a sentence that says how to go on."""
    from halflabel.train.interrupt import Interrupted

    try:
        yield
    except (Interrupted, KeyboardInterrupt) as stop:
        if resume or RUN.lasts(out):
            console.hint(f"{stop or 'stopped'}; saved in {out}. Go on with:\n  {resume_command()}")
        else:
            console.hint("stopped before the first step; nothing was kept")
        raise typer.Exit(STOPPED) from None


def resume_command() -> str:
    """What was typed, with --resume."""
    program = ["python", "-m", "halflabel"] if Path(sys.argv[0]).name == "__main__.py" else ["halflabel"]
    typed = [word for word in sys.argv[1:] if word not in ("--resume", "--force")]
    return shlex.join([*program, *typed, "--resume"])


def finish(out: Path, notices: list[str], *, as_json: bool) -> None:
    """Says what was trained and what to type next."""
    from halflabel.description import read_config, read_decision

    config = read_config(out)
    ended, decision = config["run"], read_decision(out, len(config["classes"]))
    if as_json:
        console.say_json({
            "out": str(out), "method": config["method"], "plan": config["plan"]["name"], "encoder": config["encoder"],
            "seed": config["seed"], "n_labelled": config["texts"]["labelled"],
            "n_unlabelled": config["texts"]["unlabelled"], "classes": config["classes"],
            "seconds": ended["seconds"], "why": ended["why"], "notices": [*notices, *ended["notices"]],
            "dev": ended["dev"]} | ({} if decision is None else {
                "decision": decision.chosen, "hard_labels": config["hard_labels"]}))
        return
    trained = (f"{config['method']}, {config['plan']['name']} plan, {config['encoder']}: "
               f"{config['texts']['labelled']:,} labelled and {config['texts']['unlabelled']:,} unlabelled texts, "
               f"{len(config['classes'])} classes, {ended['seconds']:.0f} s")
    rows: dict[str, object] = {"model": str(out), "trained": trained, "ended": ended["why"]}
    if ended["dev"] is not None:
        rows["dev"] = f"{ended['dev']:.3f} micro F1"
    if decision is not None:
        rows["decision"] = f"{decision.chosen}, fitted on {decision.rule().fitted_on}"
    console.facts(rows | {"next": shlex.join(["halflabel", "predict", str(out)]) + " FILE"})
