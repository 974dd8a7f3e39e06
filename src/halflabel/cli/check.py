"""`halflabel check`: a doctor for data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halflabel.cli import console, options
from halflabel.data.corpus import Corpus
from halflabel.errors import BadInput

if TYPE_CHECKING:
    from halflabel.data.diagnostics import Diagnostic
    from halflabel.data.readers.files import File

WARNED, WRONG = 1, 2


def check(
    labelled: options.Labelled,
    *,
    unlabelled: options.Pool = None,
    dev: options.Dev = None,
    strict: Annotated[bool, options.option("--strict", help="Exit with 1 if there is a warning.")] = False,
    encoder: options.Encoder = None,
    plan: options.Plan = None,
    tokens: Annotated[bool, options.option(help="Load the encoder: lengths in tokens, time and memory.")] = True,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Look for trouble in data before training.

    Exit code 0: nothing stops training; 1: warnings, with --strict; 2: errors.

    \b
    halflabel check labelled.csv --unlabelled pool.jsonl --dev dev.csv
    halflabel check labelled.csv --strict --json
    """
    from halflabel.cli.inputs import ColumnNames
    from halflabel.data.diagnostics import Diagnostic

    report: dict[str, Any] = {}
    try:
        findings = examined(labelled, unlabelled or [], dev, ColumnNames(text_column, label_column), report)
        if tokens:
            findings += measured(report.pop("_corpora"), encoder, plan or "laptop", report)
    except BadInput as error:
        findings = [Diagnostic("error", str(error), "nothing was looked at beyond this")]
    report.pop("_corpora", None)
    levels = [finding.level for finding in findings]
    if json:
        console.say_json(report | {"findings": [finding.to_json() for finding in findings],
                                   "errors": levels.count("error"), "warnings": levels.count("warning")})
    else:
        show(report, findings)
    raise typer.Exit(WRONG if "error" in levels else WARNED if strict and "warning" in levels else 0)


def examined(labelled: list[Path], pool: list[Path], dev: Path | None, columns: Any,
             report: dict[str, Any]) -> list[Diagnostic]:
    """What the files say by themselves."""
    from halflabel.cli.inputs import check_known
    from halflabel.data import diagnostics as doctor
    from halflabel.data.cleaning import clean
    from halflabel.data.labels import Classes
    from halflabel.data.pool import open_pool
    from halflabel.data.readers.files import File, as_files, check_streams
    from halflabel.data.readers.read import read

    check_streams(File(str(file)) for file in [*labelled, *pool, dev] if file)
    files = as_files(labelled)
    given = read(files, text=columns.text, label=columns.label)
    known = given.labelled()
    counts = doctor.label_counts(known)
    report |= {"rows": len(given), "labelled": len(known), "without_label": len(given) - len(known), "task": known.task,
               "labels": {str(name): count for name, count in counts.most_common()}}
    found = [*doctor.check_labels(known), *doctor.check_rows(known, "labelled"),
             *doctor.check_encoding(known.texts, known.source)]
    found += [finding for file in files for finding in columns_of(file, columns)]
    clear, rest = clean(known, role="labelled")[0], given.unlabelled()
    whole: Corpus = rest
    if pool:
        whole, notices = open_pool([*([rest] if len(rest) else []), *map(str, pool)], text=columns.text)
        found += [doctor.notice_diagnostic(notice) for notice in notices]
        found += doctor.check_encoding(whole.texts, whole.source)
    report["unlabelled"] = len(whole)
    found += doctor.check_overlap(whole.texts, clear, ("labelled", "unlabelled"), "they count as labelled")
    if dev is not None:
        judged = read(str(dev), text=columns.text, label=columns.label).labelled()
        check_known(judged, Classes.of(known.labels))
        report["dev"] = len(judged)
        for texts, name in ((clear.texts, "labelled"), (whole.texts, "unlabelled")):
            found += doctor.check_overlap(texts, judged, ("dev", name), "the dev score may be too good; take them out")
    report["_corpora"] = (clear, whole)
    return found


def columns_of(file: File, columns: Any) -> list[Diagnostic]:
    """What looks odd about the columns of a file."""
    from halflabel.data import diagnostics as doctor
    from halflabel.data.readers.formats import read_table
    from halflabel.data.readers.read import find_column, header_names

    if Path(file.path).is_dir():
        return []
    table = read_table(file, header_names(columns.text, columns.label))
    text = find_column(table, file.name, columns.text, "text")
    assert text is not None, "the file has been read before"
    return doctor.check_columns(table, file.name, text, find_column(table, file.name, columns.label, "label"))


def measured(corpora: tuple[Corpus, Corpus], encoder: str | None, plan: str, report: dict[str, Any]) -> list[Diagnostic]:
    """Lengths in tokens, and what training would take, by a short trial of the encoder."""
    from halflabel.classifier import TextClassifier
    from halflabel.data import diagnostics as doctor
    from halflabel.encoders.loading import load_encoder
    from halflabel.estimate import estimate, token_lengths
    from halflabel.methods.registry import find

    settings = TextClassifier(encoder=encoder, plan=plan).chosen_settings(corpora[0].task)
    loaded = load_encoder(settings.encoder, settings.plan.max_tokens)
    found: list[Diagnostic] = []
    for corpus in corpora:
        if len(corpus):
            lengths = token_lengths(loaded, doctor.sample_texts(corpus.texts))
            found += doctor.check_lengths(lengths, loaded.max_tokens, corpus.source)
    report["estimate"] = cost = estimate(loaded, settings.plan, *corpora, bounded=find(settings.method).subsamples_pool)
    what = f"training by the plan {plan} takes about {cost['minutes']:.0f} min and {cost['gigabytes']:.1f} GB of memory"
    return [*found, doctor.Diagnostic("note", what, "measured by a short trial on this machine")]


def show(report: dict[str, Any], findings: list[Diagnostic]) -> None:
    """The report for people."""
    facts: dict[str, object] = {name.replace("_", " "): value for name, value in report.items()
                                if isinstance(value, (int, str))}
    if facts:
        console.facts(facts)
    if report.get("labels"):
        console.table(("label", "texts"), list(report["labels"].items())[:30], numbers=1)
    for finding in findings:
        console.say(f"{finding.level}: {finding.what}; {finding.action}")
    if not findings:
        console.say("nothing to complain about")
