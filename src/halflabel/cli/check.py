"""`halflabel check`: validates data before training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halflabel.cli import console, options
from halflabel.cli.folders import open_model, with_vectors
from halflabel.errors import HalflabelError

if TYPE_CHECKING:
    from halflabel.cli.inputs import InputFiles, TrainingTexts
    from halflabel.data.cleaning import Diagnostic
    from halflabel.data.corpus import Corpus

WARNINGS, ERRORS = 1, 2  # exit codes
MAX_LABELS = 30  # rows of a table
TEXT_WIDTH = 60  # characters of a text in a table
LANGUAGE_SAMPLE = 200  # characters of a text by which its language is judged


def check(
    labelled: options.Labelled,
    *,
    unlabelled: options.Pool = None,
    dev: options.Dev = None,
    model: Annotated[Path | None, options.plain(
        metavar="DIR", help="Look for wrong labels, on the vectors of this model's encoder.")] = None,
    strict: Annotated[bool, options.option("--strict", help="Exit with code 1 if there are warnings.")] = False,
    encoder: options.Encoder = None,
    plan: options.Plan = None,
    tokens: Annotated[bool, options.option(
        help="Load the encoder, to count tokens and to estimate training time and memory.")] = True,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    label_column: options.LabelColumn = None,
    annotator_column: options.AnnotatorColumn = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Validate data before training.

    Exit code 0: training can start; 1: there are warnings, with --strict; 2: there are errors that stop training.

    \b
    halflabel check labelled.csv --unlabelled pool.jsonl --dev dev.csv
    halflabel check labelled.csv --strict --json
    halflabel check labelled.csv --model model
    """
    from halflabel.cli.inputs import InputFiles
    from halflabel.data.cleaning import Diagnostic

    report: dict[str, Any] = {}
    diagnostics: list[Diagnostic] = []
    try:
        texts = validate(InputFiles.named(labelled, unlabelled=unlabelled, dev=dev, text_column=text_column,
                                          label_column=label_column, annotator_column=annotator_column),
                         report, diagnostics)
        if model is not None and texts is not None:
            find_wrong_labels(texts.labelled, model, report, diagnostics)
        if tokens and texts is not None:
            estimate_cost(texts, encoder, plan or "laptop", report, diagnostics)
    except HalflabelError as error:
        diagnostics.append(Diagnostic("error", str(error).rstrip("."), "training would stop with this error"))
    levels = [diagnostic.level for diagnostic in diagnostics]
    if json:
        console.say_json(report | {"findings": [diagnostic.to_json() for diagnostic in diagnostics],
                                   "errors": levels.count("error"), "warnings": levels.count("warning")})
    else:
        show(report, diagnostics)
    raise typer.Exit(ERRORS if "error" in levels else WARNINGS if strict and "warning" in levels else 0)


def validate(files: InputFiles, report: dict[str, Any], diagnostics: list[Diagnostic]) -> TrainingTexts | None:
    """Adds facts about the files to the report, and diagnostics; returns the texts that training would use.

    Texts are prepared by the functions that `train` uses, so that both raise the same errors.
    """
    from halflabel.cli.inputs import gather, read_labelled
    from halflabel.data import cleaning as checks

    rows, annotator_notices = read_labelled(files)
    labelled = rows.labelled()
    report |= {"rows": len(rows), "labelled": len(labelled), "without_label": len(rows) - len(labelled),
               "task": labelled.task,
               "labels": {str(name): count for name, count in checks.label_counts(labelled).most_common()}}
    diagnostics += checks.check_labels(labelled)
    if any(diagnostic.level == "error" for diagnostic in diagnostics):
        return None
    diagnostics += checks.check_encoding(labelled.texts, labelled.source)
    diagnostics += check_columns(files)
    diagnostics += [checks.notice_diagnostic(notice) for notice in annotator_notices]
    texts = gather(rows, files)
    report["unlabelled"] = len(texts.pool) + texts.overlap
    diagnostics += [checks.notice_diagnostic(notice) for notice in texts.notices]
    diagnostics += checks.check_encoding(texts.pool.texts, texts.pool.source)
    if texts.dev is not None:
        report["dev"] = len(texts.dev)
        for corpus, name in ((texts.labelled, "labelled"), (texts.pool, "unlabelled")):
            diagnostics += checks.check_overlap(corpus.texts, texts.dev, ("dev", name),
                                                "the dev score may be too high; remove them from one of the two")
    return texts


def check_columns(files: InputFiles) -> list[Diagnostic]:
    """Diagnostics about the columns of the labelled files."""
    from halflabel.data import cleaning as checks
    from halflabel.data.readers.formats import read_table
    from halflabel.data.readers.read import find_column, find_text, read_options

    diagnostics: list[Diagnostic] = []
    for file in files.labelled:
        if Path(file.path).is_dir():
            continue
        table = read_table(file, read_options(files.text_column, files.label_column))
        texts = find_text(table, file.name, files.text_column)
        label = find_column(table, file.name, files.label_column, "label")
        diagnostics += checks.check_columns(table, file.name, texts, label)
    return diagnostics


def find_wrong_labels(labelled: Corpus, model: Path, report: dict[str, Any], diagnostics: list[Diagnostic]) -> None:
    """Adds labels that are likely wrong, and near-duplicates with different labels."""
    from halflabel.data.cleaning import Diagnostic
    from halflabel.data.labels import Classes
    from halflabel.label_errors import disagreeing_near_duplicates, find_label_errors

    opened = with_vectors(open_model(model), model)
    if labelled.task == "multi-label":
        diagnostics.append(Diagnostic("note", f"{labelled.source} has several labels per text",
                                      "wrong labels are looked for only where a text has one label"))
        return
    classes = Classes.of(labelled.labels)
    vectors, y = opened.vectors(labelled.texts), classes.matrix(labelled.labels).argmax(axis=1)
    texts, names = labelled.texts, classes.names
    report["label_errors"] = [
        {"text": texts[error.row], "given": names[error.given], "suggested": names[error.suggested],
         "score": round(error.score, 4)} for error in find_label_errors(vectors, y, len(classes))]
    report["near_duplicates"] = [
        {"text": texts[i], "label": labelled.labels[i], "other_text": texts[j], "other_label": labelled.labels[j],
         "cosine": round(cosine, 4)} for i, j, cosine in disagreeing_near_duplicates(vectors, y)]
    if count := len(report["label_errors"]):
        diagnostics.append(Diagnostic("warning", f"{count} of {len(labelled)} labels may be wrong",
                                      "look at these texts again, those with the highest scores first"))
    if count := len(report["near_duplicates"]):
        diagnostics.append(Diagnostic("warning", f"{count} pair{'s' * (count > 1)} of nearly the same text "
                                      f"{'have' if count > 1 else 'has'} different labels", "correct one of the two"))


def estimate_cost(texts: TrainingTexts, encoder: str | None, plan: str, report: dict[str, Any],
                  diagnostics: list[Diagnostic]) -> None:
    """Adds lengths in tokens, and time and memory of training, estimated by encoding a few texts."""
    from halflabel.data import cleaning as checks
    from halflabel.encoders.loading import load_encoder
    from halflabel.methods import find
    from halflabel.settings import choose_settings
    from halflabel.training.time_budget import estimate, token_lengths

    settings = choose_settings(texts.labelled.task, encoder=encoder, plan=plan)
    loaded = load_encoder(settings.encoder, settings.plan.max_tokens)
    corpora: list[Corpus] = [corpus for corpus in (texts.labelled, texts.pool) if len(corpus)]
    for corpus in corpora:
        lengths = token_lengths(loaded, checks.sample_texts(corpus.texts))
        diagnostics += checks.check_lengths(lengths, loaded.max_tokens, corpus.source)
        starts = [text[:LANGUAGE_SAMPLE] for text in checks.sample_texts(corpus.texts)]
        unknown = getattr(getattr(loaded, "tokenizer", None), "unk_token_id", None)
        diagnostics += checks.check_language(starts, loaded.tokens(starts), unknown, corpus.source)
    report["estimate"] = cost = estimate(loaded, settings.plan, texts.labelled, texts.pool,
                                         bounded=find(settings.method).subsamples_pool)
    what = (f"training with the plan {plan} takes about {cost['minutes']:.0f} min and {cost['gigabytes']:.1f} GB of "
            "memory")
    diagnostics.append(checks.Diagnostic("note", what, "estimated from a short trial on this machine"))


def show(report: dict[str, Any], diagnostics: list[Diagnostic]) -> None:
    """Prints the report as text."""
    facts: dict[str, object] = {name.replace("_", " "): value for name, value in report.items()
                                if isinstance(value, (int, str))}
    if facts:
        console.facts(facts)
    if report.get("labels"):
        console.table(("label", "texts"), list(report["labels"].items())[:MAX_LABELS], numbers=1)
    if errors := report.get("label_errors"):
        console.table(("text", "label", "suggested", "score"), [
            (error["text"][:TEXT_WIDTH], error["given"], error["suggested"], error["score"])
            for error in errors[:MAX_LABELS]], numbers=1)
    if pairs := report.get("near_duplicates"):
        console.table(("text", "label", "similar text", "label"), [
            (pair["text"][:TEXT_WIDTH], pair["label"], pair["other_text"][:TEXT_WIDTH], pair["other_label"])
            for pair in pairs[:MAX_LABELS]])
    for diagnostic in diagnostics:
        console.say(f"{diagnostic.level}: {diagnostic.what}; {diagnostic.action}")
    if not diagnostics:
        console.say("no problems found")
