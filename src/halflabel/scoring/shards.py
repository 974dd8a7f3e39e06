"""A scoring job: inputs, options and model in a manifest, predictions in shards; the same on every engine, be it this
process, the actors of Ray, or Spark (`halflabel.spark`).

    OUT/_manifest.json     what is scored by which model, and when all is done, every shard with its checksum
    OUT/_finished/NAME     a record of each shard that is complete, while the job is running
    OUT/part-F-R.jsonl     the predictions for rows R, R + 1, ... of input F, counted from 0

A shard depends on the model, its rows and the options alone, and appears under its name as a whole, before its record.
So it does not matter which process writes it: a job that is killed is resumed by any engine, and a shard that is
written twice is the same. Names that start with an underscore are no data for Spark, pandas and Arrow, which read the
folder as it is.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from halflabel import __version__
from halflabel.data.pool import open_source
from halflabel.data.readers.files import BLOCK, HEAD, File, first_line
from halflabel.data.readers.formats import Row, detect_format, open_writer
from halflabel.data.readers.read import read_options
from halflabel.errors import DataError, HalflabelError, MissingExtra, OutputError
from halflabel.integrity import fingerprint
from halflabel.persistence.model_folder import Model
from halflabel.remote import written_at
from halflabel.scoring.folder import OutputFolder
from halflabel.scoring.predictions import decision_rule, predicted_rows

FORMAT = 1
MANIFEST, FINISHED = "_manifest.json", "_finished"
ROWS = 10_000  # of a shard
CHUNK = 8192  # texts that are scored and written at a time
THREADS = 16  # that look at files before and after scoring
MAX_BLOCKS = 1000  # of a Ray dataset, each with some of the tasks

Outcome = dict[str, Any]  # of a task: its shards, or the error that the user can fix
T = TypeVar("T")
U = TypeVar("U")


class ModelSource(NamedTuple):
    """A model folder, and how a process opens it."""

    open: Callable[[Path, str | None], Model]
    folder: Path
    backend: str | None = None


@dataclass(frozen=True)
class Options:
    """What else the content of shards depends on."""

    format: str = "jsonl"
    rows: int = ROWS
    all: bool = False
    text_column: str | None = None
    decision: str | None = None
    encoding: str = "utf-8"
    header: bool = True
    sheet: str | None = None
    backend: str | None = None
    farthest: float | None = None  # distance from all classes beyond which a text gets no label


@dataclass(frozen=True)
class Shard:
    """A complete shard: `rows` predictions for an input from its row `start` on."""

    name: str
    input: int
    start: int
    rows: int
    empty: int  # texts
    unlabelled: int  # texts without a label
    sha256: str


class Task(NamedTuple):
    """Rows of an input for one worker: those of a shard, or all of them if stop is None."""

    input: int
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class ScoringJob:
    """Everything that a worker needs; may be sent to another process."""

    source: ModelSource
    inputs: tuple[str, ...]
    out: OutputFolder
    options: Options
    done: dict[str, Shard] = field(default_factory=dict)  # shards of earlier attempts, by name

    @property
    def files(self) -> list[File]:
        return [File(path, self.options.encoding, self.options.header, self.options.sheet) for path in self.inputs]

    def model(self) -> Model:
        """The model, opened once in a process."""
        return opened(self.source)

    def finished(self, name: str) -> bool:
        return name in self.done or self.out.has(_record(name))


@lru_cache(maxsize=1)
def opened(source: ModelSource) -> Model:
    """The model of a source; the last one stays open."""
    return source.open(source.folder, source.backend)


def _record(name: str) -> str:
    return f"{FINISHED}/{name}.json"


def job_of(source: ModelSource, files: Sequence[File], out: str, options: Options) -> ScoringJob:
    """A job for files, whose paths hold in any process."""
    paths = (file.path if file.is_remote or file.is_stream else os.path.abspath(file.path) for file in files)
    folder = Path(os.path.abspath(source.folder))
    return ScoringJob(source._replace(folder=folder), tuple(paths), OutputFolder(out), options)


def run(job: ScoringJob, engine: Callable[[ScoringJob], Iterable[Shard]], *, resume: bool,
        notify: Callable[[str], None], progress: Callable[[Shard], None] = lambda shard: None) -> list[Shard]:
    """Scores what is left of a job, whose folder is locked; returns all its shards."""
    decision_rule(job.model(), job.options.decision)  # raises before anything is written
    job, notices = begin(job, resume=resume)
    for notice in notices:
        notify(notice)
    for shard in engine(job):
        progress(shard)
    return finish(job)


def begin(job: ScoringJob, *, resume: bool) -> tuple[ScoringJob, list[str]]:
    """Writes the manifest, or compares it with that of the job to resume; returns notices about damaged shards.

    Shards that are missing or differ from their checksums are written again.
    """
    manifest = {"format": FORMAT, "halflabel": __version__, "model": fingerprint(job.source.folder),
                "inputs": _each(describe, job.files), "options": asdict(job.options)}
    if job.out.filled and not resume:
        raise OutputError(f"{job.out.name} is not empty; choose another --out, or resume with --resume")
    if not job.out.filled:
        job.out.write_json(MANIFEST, manifest)
        return job, []
    earlier = read_manifest(job.out)
    _compare(earlier, manifest, job.out.name)
    recorded = {shard.name: shard for shard in [*shards_in(earlier), *_records(job.out)]}
    found = dict(zip(recorded, _each(job.out.checksum, recorded), strict=True))
    done = {name: shard for name, shard in recorded.items() if found[name] == shard.sha256}
    wrong = [name for name in recorded if name not in done]
    for name in wrong:
        job.out.remove(_record(name))
    notices = [f"{job.out.name}/{name} is {'damaged' if found[name] else 'missing'}, so it is written again"
               for name in wrong]
    return replace(job, done=done), notices


def read_manifest(out: OutputFolder) -> dict[str, Any]:
    """The manifest of a job, or an error if the folder has none."""
    content = out.read(MANIFEST)
    if content is None:
        raise OutputError(f"{out.name} has no {MANIFEST}, so it contains no job to resume; choose another --out")
    try:
        manifest: dict[str, Any] = json.loads(content)
        if manifest["format"] > FORMAT:
            raise OutputError(f"{out.name}/{MANIFEST} was written by a newer version of halflabel; upgrade halflabel")
        return manifest
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, HalflabelError):
            raise
        raise OutputError(f"{out.name}/{MANIFEST} is damaged; choose another --out") from None


def shards_in(manifest: dict[str, Any]) -> list[Shard]:
    """The shards that the manifest of a finished job lists."""
    return [Shard(**entry) for entry in manifest.get("shards", [])]


def _records(out: OutputFolder) -> Iterator[Shard]:
    for name in out.names(FINISHED):
        if not name.startswith("."):
            yield Shard(**json.loads(out.read(f"{FINISHED}/{name}") or "{}"))


def _compare(earlier: dict[str, Any], now: dict[str, Any], out: str) -> None:
    """Refuses to resume with another model, other inputs, other options or another version."""
    again = "resume it as it was begun, or choose another --out"
    if differing := [name for name in {**earlier["model"], **now["model"]}
                     if earlier["model"].get(name) != now["model"].get(name)]:
        raise OutputError(f"{out} has shards of another model ({differing[0]} differs); {again}")
    if len(earlier["inputs"]) != len(now["inputs"]):
        raise OutputError(f"{out} has shards of {len(earlier['inputs'])} input files, not of {len(now['inputs'])}; "
                          f"{again}")
    for old, new in zip(earlier["inputs"], now["inputs"], strict=True):
        if old["digest"] != new["digest"]:
            raise OutputError(f"{out} has shards of other texts ({old['path']} was scored, not {new['path']} as it is "
                              f"now); {again}")
    for name, value in now["options"].items():
        if earlier["options"].get(name, getattr(Options(), name)) != value:
            raise OutputError(f"{out} has shards with {name} = {earlier['options'].get(name)}, not {value}; {again}")
    if earlier["halflabel"] != now["halflabel"]:
        raise OutputError(f"{out} has shards of halflabel {earlier['halflabel']}; resume it with that version (pip "
                          f"install halflabel=={earlier['halflabel']}), or choose another --out")


def describe(file: File) -> dict[str, Any]:
    """The identity of an input: its size and a hash of its bytes; a stream has none.

    A remote file is not read twice: the hash is of its size, its first and last bytes and when it was written.
    """
    if file.is_stream or Path(file.path).is_dir():
        return {"path": file.path, "bytes": None, "digest": None}
    try:
        with file.stored() as raw:
            size = raw.seek(0, os.SEEK_END)
            digest = hashlib.sha256(f"{size} {written_at(file.path)}".encode() if file.is_remote else b"")
            for start in (0, max(0, size - HEAD)) if file.is_remote else range(0, size, BLOCK):
                raw.seek(start)
                digest.update(raw.read(HEAD if file.is_remote else BLOCK))
    except OSError as error:
        raise DataError(f"{file.name} cannot be read ({error.strerror or error}); check the path") from None
    return {"path": file.path, "bytes": size, "digest": digest.hexdigest()}


def tasks(job: ScoringJob) -> list[Task]:
    """A task for each shard of files that can be read in parts, and one for each other file."""
    sizes = _each(partial(_known_rows, text_column=job.options.text_column), job.files)
    open_source(job.files[0], job.options.text_column)  # raises if there is no such column
    size = job.options.rows
    return [task for number, rows in enumerate(sizes) for task in (
        [Task(number)] if rows is None else
        [Task(number, start, min(start + size, rows)) for start in range(0, rows, size)])]


def _known_rows(file: File, text_column: str | None) -> int | None:
    """The number of rows of a file that can be read in parts; None for others."""
    if file.is_stream:
        raise DataError(f"{file.name} can be read only once, so only --engine local can score it; write it to a file "
                        "first")
    options = read_options(text_column)
    form = None if Path(file.path).is_dir() else detect_format(file, options)
    if form is None or form.part is None:
        return None
    if not (rows := form.read(file, options).rows):
        raise DataError(f"{file.name} has no rows; give at least one text")
    return rows


def unfinished(job: ScoringJob, work: Iterable[Task]) -> list[Task]:
    """The tasks that are left; one without an end passes over finished shards itself."""
    return [task for task in work if task.stop is None or shard_name(job, task.input, task.start) not in job.done]


def _each(function: Callable[[T], U], items: Iterable[T]) -> list[U]:
    """The function's values, several at a time since remote files make it wait."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, items))


def shard_name(job: ScoringJob, number: int, start: int) -> str:
    """The name of a shard, by its input and its first row; names sort in the order of the texts."""
    return f"part-{number:05d}-{start:012d}.{job.options.format}"


def run_task(job: ScoringJob, task: Task) -> list[Shard]:
    """Scores the rows of a task, in a worker."""
    source = open_source(job.files[task.input], job.options.text_column)
    part = None if task.stop is None else (task.start, task.stop)
    return list(score(job, task.input, itertools.chain.from_iterable(source.rows(part)), task.start))


def score(job: ScoringJob, number: int, rows: Iterable[Row], start: int = 0) -> Iterator[Shard]:
    """Writes the shards of an input from its row `start` on, and passes over those that are finished."""
    remaining = iter(rows)
    for first in itertools.count(start, job.options.rows):
        shard = itertools.islice(remaining, job.options.rows)
        if job.finished(name := shard_name(job, number, first)):
            if sum(1 for _ in shard) < job.options.rows:
                return
            continue
        chunks = iter(lambda shard=shard: list(itertools.islice(shard, CHUNK)), [])  # type: ignore[misc]
        if (chunk := next(chunks, None)) is None:
            return
        written = _write_shard(job, name, number, first, itertools.chain([chunk], chunks))
        yield written
        if written.rows < job.options.rows:
            return


def _write_shard(job: ScoringJob, name: str, number: int, start: int, chunks: Iterable[list[Row]]) -> Shard:
    model = job.model()
    rule = decision_rule(model, job.options.decision)
    rows = empty = unlabelled = 0
    with job.out.writing(name) as path:
        with open_writer(path, job.options.format) as write:
            for chunk in chunks:
                predictions = predicted_rows(model, chunk, rule, everything=job.options.all,
                                             farthest=job.options.farthest)
                write(predictions)
                rows += len(chunk)
                empty += sum(not row["text"].strip() for row in chunk)
                unlabelled += sum(row.get("labels", row.get("label")) in ([], None) for row in predictions)
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    shard = Shard(name, number, start, rows, empty, unlabelled, digest)
    job.out.write_json(_record(name), asdict(shard))
    return shard


def finish(job: ScoringJob) -> list[Shard]:
    """Lists all shards in the manifest, which is then complete, and returns them in the order of the texts."""
    known = job.done | {shard.name: shard for shard in _records(job.out)}
    shards = [known[name] for name in sorted(known)]
    expected = {(shard.input, shard.start + shard.rows) for shard in shards if shard.rows == job.options.rows}
    for shard in shards:
        if shard.start and (shard.input, shard.start) not in expected:
            raise OutputError(f"{job.out.name} lacks the shard before {shard.name}; run the command again with "
                              "--resume")
    job.out.write_json(MANIFEST, read_manifest(job.out) | {"texts": sum(shard.rows for shard in shards),
                                                           "shards": [asdict(shard) for shard in shards]})
    job.out.remove(FINISHED)
    return shards


def score_here(job: ScoringJob, inputs: Iterable[Iterable[Row]]) -> Iterator[Shard]:
    """Scores the rows of each input in this process."""
    for number, rows in enumerate(inputs):
        yield from score(job, number, rows)


def attempt(job: ScoringJob, task: Task) -> Outcome:
    """Runs a task; errors that the user can fix are returned, since engines would bury them in their own."""
    try:
        return {"shards": [asdict(shard) for shard in run_task(job, task)]}
    except HalflabelError as error:
        return {"error": str(error)}


def shards_of(outcome: Outcome) -> list[Shard]:
    """The shards of a task, or its error."""
    if "error" in outcome:
        raise HalflabelError(outcome["error"])
    return [Shard(**shard) for shard in outcome["shards"]]


class Actor:
    """Holds the model in a process of Ray, and scores one task after the other."""

    def __init__(self, job: ScoringJob, per_machine: int) -> None:
        # Ray allows one thread per CPU that it reserves; the reads of these actors are their own
        os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // per_machine))
        self.job = job

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        return {"outcome": [json.dumps(attempt(self.job, Task(*json.loads(task)))) for task in batch["task"]]}


def require_ray() -> Any:
    """The module `ray`, or an error that says how to install it."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it warns about the arguments of any Ray Data actor
    try:
        import ray.data
    except ImportError:
        raise MissingExtra("Ray is not installed; pip install 'halflabel[ray]'") from None
    return ray


def score_with_ray(job: ScoringJob, work: Sequence[Task], workers: int | None = None) -> Iterator[Shard]:
    """Scores tasks by actors of Ray: those of the cluster at RAY_ADDRESS, else of this machine."""
    left = unfinished(job, work)
    if not left:
        return
    ray = require_ray()
    here = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": max(2, os.cpu_count() or 1), "include_dashboard": False}
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.init(log_to_driver=False, logging_level="error", ignore_reinit_error=True, **here)
    try:
        machines = len(ray.nodes())
        gpus = int(ray.cluster_resources().get("GPU", 0))
        number = min(workers or gpus or machines, len(left))
        ray.data.DataContext.get_current().enable_progress_bars = False
        items = [{"task": json.dumps(task)} for task in left]
        outcomes = ray.data.from_items(items, override_num_blocks=min(len(items), MAX_BLOCKS)).map_batches(
            Actor, fn_constructor_args=(job, math.ceil(number / machines)), batch_size=1, num_cpus=1,
            num_gpus=1 if gpus else None, compute=ray.data.ActorPoolStrategy(size=number))
        for row in outcomes.iter_rows():
            yield from shards_of(json.loads(row["outcome"]))
    except ray.exceptions.RayError as error:
        raise OutputError(f"Ray could not go on ({first_line(error)}); finished shards are kept, so run the command "
                          "again with --resume") from error
    finally:
        ray.shutdown()
