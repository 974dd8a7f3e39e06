"""`halflabel export`: a model as an ONNX graph that needs no torch; `halflabel distill`: a small student of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from halflabel.atomic import real
from halflabel.cli import console, options
from halflabel.cli.folders import SAMPLE, refuse_untrained, sample_texts
from halflabel.errors import DataError, OutputError, SettingError
from halflabel.notices import Dropped, dropped
from halflabel.output_folders import LOCK, lock

if TYPE_CHECKING:
    from halflabel.data.corpus import Corpus
    from halflabel.data.labels import Classes

WHO = {"student": "student", "teacher": "model", "cascade": "cascade"}
MEASURED = {"labelled texts": "on {:,} labelled texts, too high if the model was trained on them",
            "new texts": "on {:,} labelled texts that the model was not trained on",
            "training texts": "on {:,} texts that the model was trained on, so too high; give others with --labelled",
            "cross-fitting": "on {:,} labelled texts, each by models that were trained without it"}


def export(
    model: options.TrainedModel,
    *,
    onnx: Annotated[Path, options.plain("--onnx", metavar="OUT", help="New folder for ONNX graph and tokenizer.")],
    int8: Annotated[bool, options.option("--int8", help="Quantise to int8: smaller and faster, some labels may change.")
                    ] = False,
    texts: Annotated[Path | None, options.option(
        metavar="FILE", show_default="the sample corpus",
        help="Texts on which the export is compared with the model.")] = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Export a model to ONNX, to predict without torch.

    \b
    halflabel export model --onnx small --int8
    halflabel predict small new.csv
    """
    if onnx.exists():
        raise OutputError(f"{onnx} exists already; choose another --onnx, or remove it first")
    refuse_untrained(model, "exported")
    target = real(onnx)
    with lock(target.with_name(f".{target.name}{LOCK}"), onnx):  # the folder itself appears only when it is complete
        sample = comparison_texts(texts, text_column)
        from halflabel.persistence.model import load
        from halflabel.persistence.onnx_export import export as write

        comparison = write(load(model), onnx, sample, int8=int8)
    megabytes = sum(file.stat().st_size for file in onnx.iterdir()) / 1e6
    if json:
        console.say_json({"out": str(onnx), "int8": int8, "megabytes": round(megabytes, 1), **comparison.to_json()})
        return
    console.facts({
        "exported": f"{onnx} ({megabytes:.1f} MB, {'int8' if int8 else 'fp32'})",
        "compared": f"with the model in fp32 on {comparison.texts} texts",
        "max difference": f"{comparison.scores:.2g} in scores, {comparison.probabilities:.2g} in probabilities",
        "min cosine": f"{comparison.cosine:.6f} between vectors",
        "same labels": f"{comparison.same_labels:.1%} of the texts",
        "next": f"halflabel predict {onnx} FILE"})


def comparison_texts(file: Path | None, text_column: str | None) -> list[str]:
    """Texts to compare on: the first of a file, else of the sample corpus."""
    if file is None:
        return sample_texts()
    from halflabel.data.readers.read import read

    texts = [text for text in read(file, text=text_column, labels=False).texts if text.strip()][:SAMPLE]
    if not texts:
        raise DataError(f"{file} has no texts to compare on; name another file with --texts")
    return texts


def distill(
    model: options.TrainedModel,
    *,
    unlabelled: options.Pool = None,
    out: Annotated[Path, options.plain("--out", metavar="SMALL", help="New folder for the student.")],
    student: Annotated[str, options.option(
        metavar="static|words|characters",
        help="What the student has weights of: words, pairs of words and 4 characters, with similar weights for words "
             "of similar meaning (static); words and pairs of words alone, faster (words); 3 to 5 characters "
             "(characters).")] = "static",
    cascade: Annotated[bool, options.option(
        "--cascade", help="Copy the model into SMALL, to answer the texts of which the student is not sure.")] = False,
    agree: Annotated[float | None, options.option(
        metavar="SHARE", show_default="0.99",
        help="With --cascade: the share of texts that get the model's labels, estimated on held-out texts.")] = None,
    speed_up: Annotated[float | None, options.option(
        metavar="TIMES", help="With --cascade, instead of --agree: how many times as fast as the model it is to be.")
        ] = None,
    labelled: Annotated[Path | None, options.plain(
        metavar="FILE", help="Labelled texts on which accuracy is measured: by cross-fitting, if the model was trained "
                             "on them and its encoder was not.")] = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    label_column: options.LabelColumn = None,
    seed: options.Seed = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Distill a model into a small, fast one that needs no torch.

    The student learns the labels that the model gives to unlabelled texts. A fifth of these is held out to measure
    how often both agree.

    \b
    halflabel distill model --unlabelled pool.jsonl --out small
    halflabel distill model --unlabelled pool.jsonl --out both --cascade
    halflabel distill model --unlabelled pool.jsonl --out fast --cascade --speed-up 10
    halflabel predict small new.csv
    """
    if not unlabelled:
        raise DataError("distillation needs unlabelled texts; name them with --unlabelled")
    if not cascade and (agree is not None or speed_up is not None):
        raise SettingError(f"{'--speed-up' if agree is None else '--agree'} is for a cascade; give --cascade as well, "
                           "or leave it out")
    if out.exists():
        raise OutputError(f"{out} exists already; choose another --out, or remove it first")
    refuse_untrained(model, "distilled")
    target = real(out)
    with lock(target.with_name(f".{target.name}{LOCK}"), out):  # the folder itself appears only when it is complete
        from halflabel.data.cleaning import drop_labelled
        from halflabel.data.pool import open_pool
        from halflabel.fitting import refitting
        from halflabel.persistence.model import load, names_of_run
        from halflabel.persistence.model_folder import TEXTS, kept_texts, read_text_hashes
        from halflabel.students.cascade import Cascade
        from halflabel.students.distillation import distill as fit
        from halflabel.students.trial import Goal

        goal = Goal(agree, speed_up) if cascade else None
        pool, notices = open_pool(unlabelled, text=text_column)
        notices = [notice for notice in notices if isinstance(notice, Dropped)]
        teacher = load(model)
        truth = None if labelled is None else read_labelled(labelled, text_column, label_column, teacher.classes)
        if truth is not None:
            given, pool = len(pool), drop_labelled(pool, truth)
            notices += dropped(given - len(pool), "unlabelled text", pool.source, "the same text is labelled")
        with console.meter() as meter:
            fitted = fit(teacher, pool, student=student, cascade=goal, labelled=truth, examples=kept_texts(model),
                         seed=seed or 0, refit=refitting(teacher, pool, names_of_run(model)),
                         trained_on=read_text_hashes(model)["labelled"] if (model / TEXTS).is_file() else None,
                         progress=lambda done, total: meter.show("labelling texts", done, total))
        (fitted if fitted.threshold is None else Cascade(fitted, fitted.threshold, lambda: teacher)).save(out)
    console.note(*notices)
    megabytes = sum(file.stat().st_size for file in out.iterdir() if file.is_file()) / 1e6
    if json:
        console.say_json({"out": str(out), "megabytes": round(megabytes, 1), **fitted.report})
    else:
        kind = fitted.report["student"]
        console.facts({"distilled": f"{out} ({kind}, {megabytes:.1f} MB)", **readable(fitted.report),
                       "next": f"halflabel predict {out} FILE"})


def read_labelled(file: Path, text_column: str | None, label_column: str | None, classes: Classes) -> Corpus:
    """The labelled texts of a file; notices about rows that are left out are shown."""
    from halflabel.cli.inputs import labelled_rows

    corpus, notices = labelled_rows(file, text_column, label_column, classes, role="test")
    console.note(*notices)
    return corpus


def readable(report: dict[str, Any]) -> dict[str, object]:
    """The figures of a report as sentences."""
    lines: dict[str, object] = {
        "fitted to": f"the model's labels of {report['texts'] - report['held_out']:,} texts" + (
            f" and of {report['labelled']:,} labelled ones" if report.get("labelled") else ""),
        "agreement": f"{report['agreement']:.1%} of {report['held_out']:,} held-out texts get the model's labels"}
    if "micro_f1" in report:
        lines["micro F1"] = f"{report['micro_f1']:.3f} against the model's labels"
    lines["speed"] = (f"{report['student_texts_per_second']:,.0f} texts per second, {report['speed_up']:,.0f} times "
                      f"the model's {report['teacher_texts_per_second']:,.0f}")
    if cascade := report.get("cascade"):
        lines["cascade"] = (f"the student answers {cascade['answered_by_student']:.1%} of the texts; at least "
                            f"{cascade['agreement']:.1%} are expected to get the model's labels, "
                            f"{cascade['speed_up']:.1f} times as fast as by the model")
    if accuracy := report.get("accuracy"):
        shares = ", ".join(f"{who} {accuracy[key][0]:.3f} ({accuracy[key][1]:.3f} to {accuracy[key][2]:.3f})"
                           for key, who in WHO.items() if key in accuracy)
        lines["accuracy"] = f"{shares}; {MEASURED[accuracy['measured_by']].format(accuracy['texts'])}"
    return lines
