"""`halflabel predict`: predicts labels for new texts, as a stream."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from halflabel.cli import console, options
from halflabel.cli.outputs import FORMATS, SAME, Shards, check_apart, check_output, model_files, output
from halflabel.errors import ModelError, SettingError
from halflabel.integrity import identity
from halflabel.output_folders import SHARDS, locked

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from halflabel.data.readers.files import File
    from halflabel.data.readers.formats import Row, Write
    from halflabel.evaluation.decisions import DecisionRule
    from halflabel.persistence.interface import Model
    from halflabel.persistence.model import TrainedModel

CHUNK = 1024  # texts that are predicted and written at a time
PATIENCE = 0.5  # seconds that a line of a stream waits for more, to be predicted in one batch


def predict(
    model: options.Model,
    files: Annotated[list[str] | None, options.argument(
        metavar="FILE",
        help="Files, globs or pipes; - or none reads standard input: a text per line, JSON lines or csv.")] = None,
    *,
    out: Annotated[Path | None, options.option(metavar="FILE", help="Output file; with --shard, a folder.",
                                             show_default="standard output")] = None,
    all: Annotated[bool, options.option("--all", help="Add the probabilities of all labels.")] = False,
    format: Annotated[str | None, options.option(
        metavar="|".join((*FORMATS, SAME)), help="Output format; same: that of the first input file.",
        show_default="by the suffix of --out, else jsonl")] = None,
    shard: Annotated[int | None, options.option(
        metavar="ROWS", min=1, help="Write shards of this many rows into the folder --out.")] = None,
    resume: Annotated[bool, options.option("--resume", help="Keep complete shards in --out, write the rest.")] = False,
    decision: options.Decision = None,
    unknown: Annotated[bool, options.option(
        "--unknown", help="Give no label to texts that are too far from all classes.")] = False,
    coverage: Annotated[float | None, options.option(
        metavar="SHARE", help="Share of the texts of known classes that keep their label with --unknown.",
        show_default="0.95")] = None,
    backend: options.Backend = None,
    device: options.Device = None,
    precision: options.Precision = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    force: options.ForceFile = False,
    quiet: options.Quiet = False,
    config: options.Config = None,
) -> None:
    """Predict labels for new texts, as a stream.

    Predictions are written while texts are read, so that input and output may be of any size. Other columns of the
    input are kept, unless predictions have a column of the same name.

    \b
    halflabel predict model new.csv --out labels.csv
    tail -f log.txt | halflabel predict model
    halflabel predict model 'pool-*.parquet' --out labels --shard 100000 --format parquet
    halflabel predict model new.csv --unknown --coverage 0.98
    """
    from halflabel.cli.models import open_model
    from halflabel.data.readers.files import STDIN, as_files

    sources = as_files(files or [STDIN])
    if out is not None:
        check_apart(out, [*(source.path for source in sources), *model_files(model)], None if shard is None else SHARDS)
    kind = check_format(sources, out, format, shard, resume=resume, force=force)
    with nullcontext() if out is None or shard is None else locked(out, SHARDS):
        inputs: Iterable[Row | None] = rows_in(sources, text_column)
        opened = open_model(model, backend, device=device, precision=precision)
        rule = decision_rule(opened, decision)
        farthest = farthest_known(opened, coverage) if unknown or coverage is not None else None
        target = output(out, kind)
        if out is not None and shard is not None:
            description = {"model": identity(model), "backend": backend, "files": [file.path for file in sources],
                           "all": all, "text": text_column, "decision": decision,
                           **({"encoding": encoding} if encoding else {}),
                           **({} if farthest is None else {"farthest": farthest})}
            shards = Shards(out, kind, shard, description, resume=resume)
            inputs, target = itertools.islice(without_pauses(inputs), shards.finished, None), shards.open()
        count = write_predictions(inputs, opened, rule, target, everything=all, farthest=farthest)
    if out is not None:
        console.say(f"{count:,} prediction{'s' * (count != 1)} written to {out}")


def decision_rule(model: Model, decision: str | None) -> DecisionRule | None:
    """The rule that assigns several labels to a text; None where the most probable label is taken."""
    return model.rules.rule(decision) if decision is not None or model.task == "multi-label" else None


def farthest_known(model: Model, coverage: float | None) -> float:
    """The distance from all classes up to which a text gets a label; an error if the model does not measure it."""
    from halflabel.evaluation.unknown import COVERAGE
    from halflabel.persistence.model import TrainedModel

    if not isinstance(model, TrainedModel):
        raise ModelError("only a trained model recognises unknown texts, not an exported or distilled one; give the "
                         "model that it was made from, or leave out --unknown")
    return model.detector.threshold(COVERAGE if coverage is None else coverage)


def write_predictions(inputs: Iterable[Row | None], model: Model, rule: DecisionRule | None,
                      target: AbstractContextManager[Write], *, everything: bool, farthest: float | None = None) -> int:
    """Predicts and writes, a chunk at a time; returns the number of texts."""
    count = empty = without = 0
    with target as write:
        for chunk in chunks(inputs):
            predictions = predicted_rows(model, chunk, rule, everything=everything, farthest=farthest)
            write(predictions)
            count += len(chunk)
            empty += sum(not row["text"].strip() for row in chunk)
            without += sum(row.get("labels", row.get("label")) in ([], None) for row in predictions)
    if empty:
        console.note(f"{empty} of {count} texts were empty; their labels are meaningless")
    if rule is not None and without:
        console.note(f"{without} of {count} texts got no label (decision: {rule.name})")
    if farthest is not None and without:
        console.note(f"{without} of {count} texts got no label, since they are far from all classes")
    return count


def check_format(files: Sequence[File], out: Path | None, format: str | None, shard: int | None, *, resume: bool,
            force: bool) -> str:
    """The format of the output; refuses options that do not go together and outputs that cannot be written."""
    chosen = same_format(files) if format == SAME else format
    if resume and shard is None:
        raise SettingError("--resume continues a job with --shard; give --shard and --out as before")
    if shard is None:
        return check_output(out, chosen, force=force)
    if out is None:
        raise SettingError("--shard writes into a folder; name it with --out")
    return "parquet" if chosen == "parquet" else check_output(None, chosen, force=force)


def same_format(files: Sequence[File]) -> str:
    """The output format that corresponds to the first input file."""
    from halflabel.data.readers.formats import is_plain_text, output_format
    from halflabel.data.readers.read import read_options

    file = files[0]
    if Path(file.path).is_dir() or (file.is_stream and is_plain_text(file, read_options())):
        return "jsonl"
    return output_format(file, read_options())


def rows_in(files: Sequence[File], text_column: str | None) -> Iterator[Row | None]:
    """The rows of files as they are read, None for a pause in a stream; all files are checked before the first row.

    A row has the text as `text`, and the other columns of its file.

    Of several streams only the first is opened at once: the process that writes the second may be waiting until it can
    write to the first.
    """
    first = next((file for file in files if file.is_stream), None)
    return itertools.chain.from_iterable([
        (row for stream in [file] for row in rows_of(stream, text_column)) if file.is_stream and file is not first
        else rows_of(file, text_column) for file in files])


def rows_of(file: File, text_column: str | None) -> Iterable[Row | None]:
    """The rows of a file; plain lines of a stream are predicted as they arrive."""
    from halflabel.data.pool import open_source
    from halflabel.data.readers.formats import detect_format, is_plain_text
    from halflabel.data.readers.lines import follow_lines
    from halflabel.data.readers.read import quoted_names, read_options

    typed = file.is_stdin and sys.stdin is not None and sys.stdin.isatty()
    if typed:
        console.hint("type texts, one per line; end with Ctrl-D")
    if file.is_stream and text_column is None and (typed or is_plain_text(file, read_options())):
        return (text if text is None else {"text": text} for text in follow_lines(file, PATIENCE))
    source = open_source(file, text_column)
    if file.is_stream and text_column is None and not file.suffix and detect_format(file, read_options()).name == "csv":
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


def predicted_rows(model: Model, rows: list[Row], rule: DecisionRule | None, *, everything: bool,
                   farthest: float | None = None) -> list[Row]:
    """Text, label and score of each row, then its other columns; with `everything` the probabilities of all labels.

    A column of the input that has the name of one of these is left out. Rows of a cascade say who answered. A text that
    is farther from all classes than `farthest` gets no label.
    """
    from halflabel.students.cascade import Cascade

    texts, by_student, distances = [row["text"] for row in rows], None, None
    if farthest is not None:
        p, distances = cast("TrainedModel", model).with_distances(texts)
    elif isinstance(model, Cascade):
        p, by_student = model.answers(texts)
    else:
        p = model.probabilities(texts)
    names = model.classes.names
    predictions: list[Row]
    if rule is None:
        predictions = [{"text": text, "label": names[best], "score": round(float(p_text[best]), 6)}
                       for text, p_text, best in zip(texts, p, p.argmax(axis=1).tolist(), strict=True)]
    else:
        predictions = [multilabel_row(text, p_text, chosen, names)
                       for text, p_text, chosen in zip(texts, p, rule(p), strict=True)]
    if everything:
        for row, p_text in zip(predictions, p.round(6).tolist(), strict=True):
            row["probabilities"] = {str(name): share for name, share in zip(names, p_text, strict=True)}
    if distances is not None:
        for row, distance in zip(predictions, distances.tolist(), strict=True):
            row["distance"] = round(distance, 6)
            if distance > farthest:
                row["label"] = None
    if by_student is not None:
        for row, answered in zip(predictions, by_student.tolist(), strict=True):
            row["answered_by"] = "student" if answered else "teacher"
    return [prediction | {name: value for name, value in row.items() if name not in prediction}
            for prediction, row in zip(predictions, rows, strict=True)]


def multilabel_row(text: str, p: Any, chosen: Any, names: Sequence[object]) -> Row:
    """A text with its labels and their scores, the most probable first, from p (K,) and the chosen labels (K,)."""
    columns = sorted(chosen.nonzero()[0].tolist(), key=lambda k: -p[k])
    return {"text": text, "labels": [names[k] for k in columns], "scores": [round(float(p[k]), 6) for k in columns]}
