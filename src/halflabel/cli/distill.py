"""`halflabel distill`: makes a small, fast model that imitates a trained one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from halflabel.atomic import real
from halflabel.cli import console, options
from halflabel.errors import DataError, ModelError, OutputError, SettingError
from halflabel.output_folders import LOCK, lock

if TYPE_CHECKING:
    from halflabel.data.corpus import Corpus
    from halflabel.data.labels import Classes

AGREE = 0.99


def distill(
    model: options.TrainedModel,
    *,
    unlabelled: options.Pool = None,
    out: Annotated[Path, options.plain("--out", metavar="SMALL", help="New folder for the student.")],
    student: Annotated[str, options.option(
        metavar="words|characters", help="Features of the student: words and pairs of words, or 3 to 5 characters.")
        ] = "words",
    cascade: Annotated[bool, options.option(
        "--cascade", help="Copy the model into SMALL, to answer the texts of which the student is not sure.")] = False,
    agree: Annotated[float | None, options.option(
        metavar="SHARE", show_default=str(AGREE),
        help="With --cascade: the share of texts that get the model's label, estimated on held-out texts.")] = None,
    labelled: Annotated[Path | None, options.plain(
        metavar="FILE", help="Labelled texts on which the accuracy of both is measured.")] = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    seed: options.Seed = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Distill a model into a small, fast one that needs no torch.

    The student learns the labels that the model gives to unlabelled texts. A fifth of these is held out to measure
    how often both agree.

    \b
    halflabel distill model --unlabelled pool.jsonl --out small
    halflabel distill model --unlabelled pool.jsonl --out both --cascade
    halflabel predict small new.csv
    """
    if not unlabelled:
        raise DataError("distillation needs unlabelled texts; name them with --unlabelled")
    if agree is not None and not cascade:
        raise SettingError("--agree is for a cascade; give --cascade as well, or leave it out")
    if out.exists():
        raise OutputError(f"{out} exists already; choose another --out, or remove it first")
    refuse_untrained(model)
    target = real(out)
    with lock(target.with_name(f".{target.name}{LOCK}"), out):  # the folder itself appears only when it is complete
        from halflabel.data.cleaning import drop_labelled
        from halflabel.data.pool import open_pool
        from halflabel.persistence.model import load
        from halflabel.students.cascade import save_cascade
        from halflabel.students.distillation import distill as fit

        pool, _ = open_pool(unlabelled, text=text_column)
        teacher = load(model)
        truth = None if labelled is None else read_labelled(labelled, text_column, label_column, teacher.classes)
        with console.meter() as meter:
            fitted = fit(teacher, pool if truth is None else drop_labelled(pool, truth), student=student,
                         labelled=truth, agree=(AGREE if agree is None else agree) if cascade else None, seed=seed or 0,
                         progress=lambda done, total: meter.show("labelling texts", done, total))
        if cascade:
            save_cascade(fitted, model, out)
        else:
            fitted.save(out)
    megabytes = sum(file.stat().st_size for file in out.iterdir() if file.is_file()) / 1e6
    if json:
        console.say_json({"out": str(out), "student": student, "megabytes": round(megabytes, 1), **fitted.report})
    else:
        console.facts({"distilled": f"{out} ({student}, {megabytes:.1f} MB)", **readable(fitted.report),
                       "next": f"halflabel predict {out} FILE"})


def refuse_untrained(model: Path) -> None:
    """Refuses a model that was made of another one."""
    from halflabel.persistence.onnx_model import is_export
    from halflabel.students.student import is_student

    if is_student(model) or is_export(model):
        kind = "a distilled" if is_student(model) else "an exported"
        raise ModelError(f"{model} is {kind} model, and only a trained one can be distilled; name the folder that "
                         "`halflabel train --out` wrote")


def read_labelled(file: Path, text_column: str | None, label_column: str | None, classes: Classes) -> Corpus:
    """The labelled texts of a file; notices about rows that are left out are shown."""
    from halflabel.cli.inputs import labelled_rows

    corpus, notices = labelled_rows(file, text_column, label_column, classes, role="test")
    console.note(*notices)
    return corpus


def readable(report: dict[str, Any]) -> dict[str, object]:
    """The figures of a report as sentences."""
    lines: dict[str, object] = {
        "fitted to": f"the model's labels of {report['texts'] - report['held_out']:,} texts",
        "agreement": f"{report['agreement']:.1%} of {report['held_out']:,} held-out texts get the model's labels"}
    if "micro_f1" in report:
        lines["micro F1"] = f"{report['micro_f1']:.3f} against the model's labels"
    if "agree" in report:
        lines["cascade"] = (f"the student answers {report['answered_by_student']:.1%} of the texts, so that at least "
                            f"{report['agree']:.1%} get the model's label")
    lines["speed"] = (f"{report['student_texts_per_second']:,.0f} texts per second, {report['speed_up']:,.0f} times "
                      f"the model's {report['teacher_texts_per_second']:,.0f}")
    if "labelled" in report:
        lines["accuracy"] = (f"{report['student_accuracy']:.3f} on {report['labelled']:,} labelled texts (the model: "
                             f"{report['teacher_accuracy']:.3f}, too high if it was trained on them)")
    return lines
