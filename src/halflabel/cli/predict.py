"""`halflabel predict`: predicts labels for new texts, as a stream; `halflabel export-to`: for an annotation tool."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halflabel.cli import console, options
from halflabel.cli.folders import FORMATS, SAME, check_apart, check_file, check_output, model_files, open_model, output
from halflabel.cli.train import STOPPED, resume_command
from halflabel.errors import ModelError, SettingError
from halflabel.output_folders import SHARDS
from halflabel.remote import is_remote

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from halflabel.data.readers.files import File
    from halflabel.data.readers.formats import Row, Write
    from halflabel.evaluation.decisions import DecisionRule
    from halflabel.persistence.model_folder import Model
    from halflabel.scoring.folder import OutputFolder
    from halflabel.scoring.shards import ScoringJob, Shard

ENGINES = ("local", "ray")
CHUNK = 1024  # texts that are predicted and written at a time
PATIENCE = 0.5  # seconds that a line of a stream waits for more, to be predicted in one batch
TOOLS = ("label-studio", "doccano", "prodigy", "csv")


def predict(
    model: options.Model,
    files: Annotated[list[str] | None, options.argument(
        metavar="FILE",
        help="Files, globs or pipes; - or none reads standard input: a text per line, JSON lines or csv.")] = None,
    *,
    out: Annotated[str | None, options.option(
        metavar="FILE|FOLDER", help="Output file, or a folder (also s3://...) for shards that --resume completes.",
        show_default="standard output")] = None,
    all: Annotated[bool, options.option("--all", help="Add the probabilities of all labels.")] = False,
    format: Annotated[str | None, options.option(
        metavar="|".join((*FORMATS, SAME)), help="Output format; same: that of the first input file.",
        show_default="by the suffix of --out, else jsonl")] = None,
    shard: Annotated[int | None, options.option(
        metavar="ROWS", min=1, help="Rows of a shard.", show_default="10000")] = None,
    resume: Annotated[bool, options.option("--resume", help="Keep complete shards in --out, write the rest.")] = False,
    engine: Annotated[str | None, options.option(
        metavar="local|ray", help="What scores the shards: this process, or actors of Ray.",
        show_default="local")] = None,
    workers: Annotated[int | None, options.option(
        metavar="N", min=1, help="Actors of Ray.", show_default="one for each GPU, else for each machine")] = None,
    decision: options.Decision = None,
    unknown: options.Unknown = False,
    coverage: options.Coverage = None,
    backend: options.Backend = None,
    device: options.Device = None,
    precision: options.Precision = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    force: options.ForceFile = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Predict labels for new texts, as a stream.

    Predictions are written while texts are read, so that input and output may be of any size. Other columns of the
    input are kept, unless predictions have a column of the same name. A folder gets shards with a manifest.

    \b
    halflabel predict model new.csv --out labels.csv
    tail -f log.txt | halflabel predict model
    halflabel predict model 'pool-*.parquet' --out labels --format parquet --engine ray
    halflabel predict model new.csv --unknown --coverage 0.98
    """
    from halflabel.data.readers.files import STDIN, as_files
    from halflabel.scoring.predictions import decision_rule

    sharded = out is not None and (shard or engine or resume or is_folder(out))
    if not sharded and (shard or engine or resume):
        raise SettingError(f"{'--shard' if shard else '--engine' if engine else '--resume'} is about the shards in a "
                           "folder; name it with --out")
    if engine not in (None, *ENGINES):
        raise SettingError(f"the engine '{engine}' is not known; use one of {', '.join(ENGINES)}")
    if workers and engine != "ray":
        raise SettingError("--workers is the number of Ray's actors; give --engine ray, or leave it out")
    sources = as_files(files or [STDIN])
    chosen = same_format(sources) if format == SAME else format
    target = None if out is None else Path(out)
    if target is not None and not is_remote(str(out)):
        check_apart(target, [*(source.path for source in sources), *model_files(model)], SHARDS if sharded else None)
    kind = ("parquet" if sharded and chosen == "parquet"
            else check_output(None if sharded else target, chosen, force=force))
    openable = partial(open_model, device=device, precision=precision)
    if out is not None and sharded:
        farthest = farthest_known(openable(model, backend), coverage) if unknown or coverage is not None else None
        given = {"all": all, "text_column": text_column, "decision": decision, "backend": backend, "farthest": farthest}
        score_shards(model, openable, sources, out, engine or "local", workers, resume=resume, options={
            "format": kind, "encoding": encoding or "utf-8", "header": not no_header, "sheet": sheet, **given,
            **({"rows": shard} if shard else {})})
        return
    inputs = rows_in(sources, text_column)
    opened = openable(model, backend)
    farthest = farthest_known(opened, coverage) if unknown or coverage is not None else None
    count = write_predictions(inputs, opened, decision_rule(opened, decision), output(target, kind), everything=all,
                              farthest=farthest)
    if out is not None:
        console.say(f"{count:,} prediction{'s' * (count != 1)} written to {out}")


def is_folder(out: str) -> bool:
    """Whether an output is a folder: one that exists, or a new name without a suffix, or any remote place."""
    path = Path(out)
    return is_remote(out) or out.endswith("/") or path.is_dir() or not (path.suffix or path.exists())


def score_shards(model: Path, openable: Callable[[Path, str | None], Model], sources: Sequence[File], out: str,
                 engine: str, workers: int | None, *, resume: bool, options: dict[str, Any]) -> None:
    """Scores the sources into a folder of shards."""
    from halflabel.scoring.predictions import decision_rule
    from halflabel.scoring.shards import (
        ModelSource,
        Options,
        job_of,
        require_ray,
        run,
        score_here,
        score_with_ray,
        tasks,
    )

    if engine == "ray":
        require_ray()
    settings = Options(**options)
    job = job_of(ModelSource(openable, model, settings.backend), sources, out, settings)
    with handle_interrupt(job.out), console.meter() as meter, job.out.locked():
        work: Callable[[ScoringJob], Iterable[Shard]]
        if engine == "local":
            inputs = [without_pauses(rows) for rows in rows_by_file(sources, settings.text_column)]
            work = partial(score_here, inputs=inputs)
        else:
            work = partial(score_with_ray, work=tasks(job), workers=workers)
        written = 0

        def show(shard: Shard) -> None:
            nonlocal written
            written += shard.rows
            meter.show("input file", shard.input + 1, len(sources), f"{written:,} texts")

        shards = run(job, work, resume=resume, notify=console.note, progress=show)
    count = sum(shard.rows for shard in shards)
    report_meaningless(count, sum(shard.empty for shard in shards), sum(shard.unlabelled for shard in shards),
                       decision_rule(job.model(), settings.decision))
    before = f", {count - written:,} of them before" if count > written else ""
    console.say(f"{count:,} prediction{'s' * (count != 1)} in {len(shards):,} shard{'s' * (len(shards) != 1)} in {out}"
                f"{before}")


@contextmanager
def handle_interrupt(out: OutputFolder) -> Iterator[None]:
    """On Ctrl-C prints how to resume, and exits."""
    try:
        yield
    except KeyboardInterrupt:
        if out.filled:
            console.hint(f"stopped; finished shards are in {out.name}. Resume with:\n  {resume_command()}")
        else:
            console.hint("stopped before the first shard; nothing was written")
        raise typer.Exit(STOPPED) from None


def report_meaningless(count: int, empty: int, unlabelled: int, rule: DecisionRule | None) -> None:
    """Notices about texts without words, and without labels."""
    if empty:
        console.note(f"{empty} of {count} texts were empty; their labels are meaningless")
    if rule is not None and unlabelled:
        console.note(f"{unlabelled} of {count} texts got no label (decision: {rule.name})")
    if rule is None and unlabelled:
        console.note(f"{unlabelled} of {count} texts got no label, since they are far from all classes")


def farthest_known(model: Model, coverage: float | None) -> float:
    """The distance from all classes up to which a text gets a label; an error if the model does not measure it."""
    from halflabel.evaluation.confidence import COVERAGE
    from halflabel.persistence.model import TrainedModel

    if not isinstance(model, TrainedModel):
        raise ModelError("only a trained model recognises unknown texts, not an exported or distilled one; give the "
                         "model that it was made from, or leave out --unknown")
    return model.detector.threshold(COVERAGE if coverage is None else coverage)


def write_predictions(inputs: Iterable[Row | None], model: Model, rule: DecisionRule | None,
                      target: AbstractContextManager[Write], *, everything: bool, farthest: float | None = None) -> int:
    """Predicts and writes, a chunk at a time; returns the number of texts."""
    from halflabel.scoring.predictions import predicted_rows

    count = empty = without = 0
    with target as write:
        for chunk in chunks(inputs):
            predictions = predicted_rows(model, chunk, rule, everything=everything, farthest=farthest)
            write(predictions)
            count += len(chunk)
            empty += sum(not row["text"].strip() for row in chunk)
            without += sum(row.get("labels", row.get("label")) in ([], None) for row in predictions)
    report_meaningless(count, empty, without, rule)
    return count


def same_format(files: Sequence[File]) -> str:
    """The output format that corresponds to the first input file."""
    from halflabel.data.readers.formats import is_plain_text, output_format
    from halflabel.data.readers.read import read_options

    file = files[0]
    if Path(file.path).is_dir() or (file.is_stream and is_plain_text(file, read_options())):
        return "jsonl"
    return output_format(file, read_options())


def rows_in(files: Sequence[File], text_column: str | None) -> Iterator[Row | None]:
    """The rows of files as they are read, None for a pause in a stream; all files are checked before the first row."""
    return itertools.chain.from_iterable(rows_by_file(files, text_column))


def rows_by_file(files: Sequence[File], text_column: str | None) -> list[Iterable[Row | None]]:
    """The rows of each file. A row has the text as `text`, and the other columns of its file.

    Of several streams only the first is opened at once: the process that writes the second may be waiting until it can
    write to the first.
    """
    first = next((file for file in files if file.is_stream), None)
    return [(row for stream in [file] for row in rows_of(stream, text_column)) if file.is_stream and file is not first
            else rows_of(file, text_column) for file in files]


def rows_of(file: File, text_column: str | None) -> Iterable[Row | None]:
    """The rows of a file; plain lines of a stream are predicted as they arrive."""
    from halflabel.data.pool import open_source
    from halflabel.data.readers.formats import detect_format, is_plain_text
    from halflabel.data.readers.read import quoted_names, read_options
    from halflabel.data.readers.records import follow_lines

    typed = file.is_stdin and sys.stdin is not None and sys.stdin.isatty()
    if typed:
        console.hint("type texts, one per line; end with Ctrl-D")
    if file.is_stream and text_column is None and (typed or is_plain_text(file, read_options())):
        return (text if text is None else {"text": text} for text in follow_lines(file, PATIENCE))
    source = open_source(file, text_column)
    if (file.is_stream and file.header and text_column is None and not file.suffix
            and detect_format(file, read_options()).name == "csv"):
        console.hint(f"{file.name} is read as csv: its first line is a header with a column "
                     f"{quoted_names(source.texts)}")
    return itertools.chain.from_iterable(source.rows())


def without_pauses(rows: Iterable[Row | None]) -> Iterator[Row]:
    return (row for row in rows if row is not None)


def chunks(rows: Iterable[Row | None]) -> Iterator[list[Row]]:
    """The rows in chunks of CHUNK, or fewer before a pause."""
    chunk: list[Row] = []
    for row in itertools.chain(rows, [None]):
        if row is not None:
            chunk.append(row)
        if len(chunk) == CHUNK or (row is None and chunk):
            yield chunk
            chunk = []


def export_to(
    tool: Annotated[str, options.argument(metavar="|".join(TOOLS), help="Target tool.")],
    model: options.Model,
    file: options.Texts,
    *,
    out: Annotated[Path, options.plain(metavar="FILE", help="Output file, in the import format of the tool.")],
    decision: options.Decision = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    force: options.ForceFile = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Write predicted labels for correction in an annotation tool.

    `halflabel train` reads what the tool exports after people have corrected the labels.

    \b
    halflabel export-to label-studio model pool.csv --out tasks.json
    halflabel export-to doccano model pool.csv --out suggestions.jsonl
    """
    if tool not in TOOLS:
        raise SettingError(f"the tool '{tool}' is not known; use one of {', '.join(TOOLS)}")
    from halflabel.data.readers.files import as_files

    sources = as_files(file)
    check_apart(out, [*(source.path for source in sources), *model_files(model)])
    check_file(out, force=force)
    from halflabel.data.readers.annotation_tools import annotation_writer
    from halflabel.scoring.predictions import decision_rule, predicted_rows

    inputs = rows_in(sources, text_column)
    opened = open_model(model)
    rule = decision_rule(opened, decision)
    count = 0
    with annotation_writer(out, tool, opened.classes.names) as write:
        for chunk in chunks(inputs):
            write(predicted_rows(opened, chunk, rule, everything=False))
            count += len(chunk)
    console.say(f"{count:,} text{'s' * (count != 1)} with predicted labels written to {out}")
