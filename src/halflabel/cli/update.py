"""`halflabel update`: trains a model again with more labels, and says what changed."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halflabel.cli import console, options
from halflabel.cli.folders import check_apart, check_run_folder
from halflabel.cli.train import STOPPED
from halflabel.errors import ModelError, SettingError
from halflabel.output_folders import RUN, locked, replacing

if TYPE_CHECKING:
    from halflabel.cli.inputs import InputFiles, TrainingTexts
    from halflabel.data.corpus import Corpus
    from halflabel.notices import Notice
    from halflabel.persistence.model import TrainedModel
    from halflabel.settings import Settings

SAMPLE = 5000  # texts of the pool whose labels are compared, at most
EXAMPLES = 5
TEXT_WIDTH = 48  # characters of a text in a table


def update(
    model: Annotated[Path, options.argument(metavar="MODEL", help="Folder that `halflabel train` wrote.")],
    more: Annotated[list[Path], options.argument(
        metavar="MORE", help="Files of new labelled texts; they may have new classes, and correct earlier labels.")],
    *,
    unlabelled: options.Pool = None,
    labelled: Annotated[list[Path] | None, options.plain(
        metavar="FILE", help="The earlier labelled texts, if the model's folder does not keep them; may be repeated.",
    )] = None,
    out: Annotated[Path | None, options.option(
        metavar="DIR", help="Folder for the new model.", show_default="MODEL, replaced when training is done")] = None,
    dev: options.Dev = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    label_column: options.LabelColumn = None,
    annotator_column: options.AnnotatorColumn = None,
    force: options.ForceRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Train a model again with more labels, and say what changed.

    Method, plan, encoder and seed are those of the model. With the plan frozen, vectors of texts that were encoded
    before are reused.

    \b
    halflabel update model more.csv --unlabelled pool.csv
    halflabel update model labels.jsonl --unlabelled pool.csv --out newer
    """
    from halflabel.cli.inputs import InputFiles, dev_overlap, gather, read_labelled
    from halflabel.data.readers.read import concat_corpora
    from halflabel.persistence.model import load

    files = InputFiles.named(more, unlabelled=unlabelled, dev=dev, text_column=text_column, label_column=label_column,
                             annotator_column=annotator_column)
    target = out or model
    check_apart(target, [file.path for file in files.together], RUN)
    settings, keep_labels = read_settings(model), (model / "labelled.jsonl").is_file()
    with locked(target, RUN):
        kept = [] if out is None or out.resolve() == model.resolve() else check_run_folder(out, resume=False,
                                                                                          force=force)
        before = load(model)
        old = earlier_labels(model, labelled, files)
        new, notices = read_labelled(files)
        old, corrected = without_answered(old, new)
        texts = gather(concat_corpora([old, new]), files, names=settings.names)
        notices = [*kept, *notices, *corrected, *texts.notices, *pool_notices(model, before, texts),
                   *dev_overlap(texts)]
        console.note(*notices)
        pool = sample(texts.pool)
        labels_before = predict(before, pool)
        after = train(settings, texts, target, keep_labels=keep_labels)
        changed = changes(pool, labels_before, predict(after, pool))
        report: dict[str, Any] = {
            "out": str(target), "n_labelled_before": before.facts["texts"]["labelled"],
            "n_labelled": len(texts.labelled), "new_classes": [str(name) for name in after.classes.names
                                                               if name not in before.classes.names],
            **accuracy(settings, texts.labelled, set(old.texts), after),
            **({} if texts.dev is None else {"dev_before": score(before, texts.dev), "dev": score(after, texts.dev)}),
            "n_compared": len(pool), "n_changed": len(changed), "changed": changed[:EXAMPLES],
            "notices": [*map(str, notices)]}
    show(report, as_json=json)


def read_settings(model: Path) -> Settings:
    """The settings of the run in a folder."""
    from halflabel.integrity import read_json, require
    from halflabel.persistence.model_folder import read_config
    from halflabel.settings import Settings

    read_config(model)
    file = model / "run.json"
    if not file.is_file():
        raise ModelError(f"{model} has no run.json; give a folder that `halflabel train` wrote")
    run = read_json(file)
    require(run, {"settings": dict}, file)
    try:
        return Settings.from_json(run["settings"])
    except (TypeError, KeyError) as error:
        raise ModelError(f"{file} has settings of another version ({error}); train the model again") from None


def earlier_labels(model: Path, labelled: list[Path] | None, files: InputFiles) -> Corpus:
    """The labelled texts of the model, from files or as its folder keeps them; none if it had class names alone."""
    from halflabel.data.corpus import Corpus
    from halflabel.data.readers.files import as_files
    from halflabel.data.readers.read import read
    from halflabel.persistence.model_folder import LABELLED, kept_labelled

    if labelled:
        return read(as_files(labelled), text=files.text_column, label=files.label_column).labelled()
    if not (model / LABELLED).is_file():
        raise SettingError(f"{model} does not keep its labelled texts; give them with --labelled")
    return kept_labelled(model) or Corpus([], [], source=str(model))


def without_answered(old: Corpus, new: Corpus) -> tuple[Corpus, list[Notice]]:
    """The earlier texts without those that are labelled again, and a notice about labels that change."""
    from halflabel.notices import Notice

    again = {text: label for text, label in zip(new.texts, new.labels, strict=True) if label is not None}
    rest = [i for i, text in enumerate(old.texts) if text not in again]
    count = sum(again.get(text, label) != label for text, label in zip(old.texts, old.labels, strict=True))
    return old.take(rest), [Notice(f"{count} earlier label{'s are' if count > 1 else ' is'} replaced by {new.source}")
                            ] if count else []


def pool_notices(model: Path, before: TrainedModel, texts: TrainingTexts) -> list[Notice]:
    """A notice if the model was trained with unlabelled texts and there are none now."""
    from halflabel.notices import Notice

    count = before.facts["texts"]["unlabelled"]
    return [Notice(f"{model} was trained with {count:,} unlabelled texts, and now there are none; give them with "
                   "--unlabelled")] if count and not len(texts.pool) else []


def sample(pool: Corpus) -> list[str]:
    """Texts at equal distances in the pool."""
    import numpy as np

    rows = np.unique(np.linspace(0, len(pool) - 1, min(len(pool), SAMPLE)).astype(int)).tolist() if len(pool) else []
    return [pool.texts[i] for i in rows]


def predict(model: TrainedModel, texts: list[str]) -> list[tuple[Any, float]]:
    """The label of each text, and the probability of the most probable one."""
    from halflabel.suggestions import labels_of

    p = model.probabilities(texts)
    return list(zip(labels_of(model, p), p.max(axis=1).tolist(), strict=True))


def changes(texts: list[str], before: list[tuple[Any, float]], after: list[tuple[Any, float]]) -> list[dict[str, Any]]:
    """The texts whose label changed, those of which the new model is surest first."""
    rows = [{"text": text, "before": old, "after": new, "probability": round(p, 4)}
            for text, (old, _), (new, p) in zip(texts, before, after, strict=True) if old != new]
    return sorted(rows, key=lambda row: -row["probability"])


def train(settings: Settings, texts: TrainingTexts, out: Path, *, keep_labels: bool) -> TrainedModel:
    """Trains beside the folder and moves the result there; whatever stops it leaves the folder as it was."""
    from halflabel.atomic import real, temporary_path
    from halflabel.fitting import fit
    from halflabel.processes import Interrupted

    beside = temporary_path(real(out))
    try:
        with console.meter() as meter:
            trained = fit(texts.labelled, texts.pool, settings, dev=texts.dev, folder=beside, keep_labels=keep_labels,
                          report=console.TrainingProgress(meter))
        with replacing(out, RUN, has_result=lambda: False):
            for path in sorted(RUN.ours(beside), key=lambda path: path.name in RUN.results):  # the result last
                path.rename(real(out) / path.name)
        return trained.model
    except (Interrupted, KeyboardInterrupt):
        console.hint("stopped; nothing was changed")
        raise typer.Exit(STOPPED) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def accuracy(settings: Settings, labelled: Corpus, old: set[str], model: TrainedModel) -> dict[str, Any]:
    """Estimated accuracy on all labelled texts, by a classifier on frozen vectors with the old labels and with all."""
    import numpy as np

    from halflabel.encoders.loading import load_encoder
    from halflabel.fitting import vector_cache
    from halflabel.label_errors import estimate_accuracy
    from halflabel.settings import WORDS

    if settings.encoder == WORDS:
        return {"accuracy_before": None, "accuracy": None}
    # a fine-tuned encoder has seen the labels
    encoder = model.encoder if model.frozen else load_encoder(settings.encoder, settings.plan.max_tokens)
    x = vector_cache(encoder)(list(labelled.texts))
    is_old = np.array([text in old for text in labelled.texts])
    figures = [estimate_accuracy(x, labelled.labels, fit_on=rows) for rows in (is_old, None)]
    return dict(zip(("accuracy_before", "accuracy"),
                    (None if figure is None else round(figure, 4) for figure in figures), strict=True))


def score(model: TrainedModel, dev: Corpus) -> float:
    """The share of dev texts whose labels are all right."""
    from halflabel.data.labels import names_in

    right = [set(names_in(label)) == set(names_in(truth))
             for (label, _), truth in zip(predict(model, list(dev.texts)), dev.labels, strict=True)]
    return round(sum(right) / len(right), 4)


def show(report: dict[str, Any], *, as_json: bool) -> None:
    """Prints what changed."""
    if as_json:
        console.say_json(report)
        return
    rows: dict[str, object] = {"model": report["out"], "labelled": f"{report['n_labelled_before']:,} texts before, "
                                                                   f"{report['n_labelled']:,} now"}
    if report["new_classes"]:
        rows["new classes"] = ", ".join(report["new_classes"])
    if report["accuracy"] is not None and report["accuracy_before"] is not None:
        rows["accuracy"] = (f"{report['accuracy_before']:.3f} with the earlier labels, {report['accuracy']:.3f} with "
                            "all (estimated on the labelled texts)")
    if "dev" in report:
        rows["dev"] = f"{report['dev_before']:.3f} before, {report['dev']:.3f} now"
    if report["n_compared"]:
        rows["changed"] = (f"{report['n_changed']:,} of {report['n_compared']:,} unlabelled texts have another label "
                           f"({report['n_changed'] / report['n_compared']:.1%})")
    console.facts(rows | {"next": shlex.join(["halflabel", "predict", report["out"]]) + " FILE"})
    if report["changed"]:
        console.table(("text", "before", "after"), [(change["text"][:TEXT_WIDTH], change["before"], change["after"])
                                                    for change in report["changed"]])
