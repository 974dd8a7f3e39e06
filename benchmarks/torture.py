"""Kills, full disks, hostile files and long runs: what is left behind, compared with an undisturbed run.

    python benchmarks/torture.py kills|disk|files|models|together|soak --work FOLDER

kills     SIGKILL at random moments of train, predict, bench, pool import and export; after several kills the job is
          resumed to its end, and its files are compared with those of a run that nobody disturbed; and of the page for
          labelling while answers are posted to it: each that it acknowledged is in its file exactly once
disk      each job on a full disk, and with a folder or a cache that is read-only: one sentence, exit code 2, nothing
          half-written, earlier files unchanged
files     5,000 damaged or hostile files for all readers, in processes with limited memory and time
models    2,000 mutated model folders: refused, or the same predictions
together  processes that train into one folder, and that share a cache which is cleared meanwhile
soak      predictions in one process and a server in another, both under light load: memory and open files each minute

Commands are forked from a process that has already imported the libraries, so that a kill hits the work and not the
imports. Models are tiny and texts are generated. Each part appends its lines to results/torture.jsonl as it goes on,
and a script that was stopped continues where it was.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from pool import TOPICS, tiny_encoder, vocabulary, written
from protocol import Results

KILLS_PER_ROUND = 6
CALLS = "calls"  # a file in which the predicting process of the soak counts
PATIENCE = 300.0  # seconds after which a command counts as hanging
TIMES = re.compile(r'"(seconds|cpu_seconds|wall_seconds|megabytes|finished)": *("[^"]*"|[\d.e+-]+)')
DIGESTS = re.compile(r'"config\.json": *"[0-9a-f]+"')


def main() -> None:
    options = parse()
    os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", HALFLABEL_CACHE=str(options.work / "cache"))
    options.work.mkdir(parents=True, exist_ok=True)
    make_inputs(options.work)
    PARTS[options.part](options)


def make_inputs(work: Path) -> None:
    """Labelled texts with one label and with several, pools, and an encoder; the same ones each time."""
    encoder = tiny_encoder(work)
    if (work / "inputs.done").exists():
        return
    rng, words = np.random.default_rng(7), np.array(vocabulary())
    topics = np.arange(40) % TOPICS
    labelled = written(rng, topics, words)
    write_csv(work / "labelled.csv", ["text", "label"], zip(labelled, map("topic {}".format, topics), strict=True))
    write_csv(work / "several.csv", ["text", "labels"],
              ([text, f"topic {k};{'long' if len(text) > 280 else 'short'}"]
               for text, k in zip(labelled, topics, strict=True)))
    for name, count in (("pool", 200), ("large", 20_000)):
        texts = written(rng, rng.integers(0, TOPICS, count), words)
        texts += texts[: count // 10]  # duplicates
        (work / f"{name}.jsonl").write_text("".join(json.dumps({"text": text, "id": i}) + "\n"
                                                    for i, text in enumerate(texts)), encoding="utf-8")
    train = ["train", str(work / "labelled.csv"), "--encoder", encoder, "--plan", "frozen"]
    shutil.rmtree(work / "model", ignore_errors=True)
    expect(0, forked([*train, "--out", str(work / "model")], work))
    (work / "inputs.done").touch()


def pool_texts(work: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (work / "pool.jsonl").read_text(encoding="utf-8").splitlines()]


def write_csv(file: Path, header: list[str], rows: Any) -> None:
    with open(file, "w", encoding="utf-8", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(header)
        lines.writerows(rows)


# Commands in forked processes

@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (None: killed), what it printed, and its seconds."""

    code: int | None
    output: str
    seconds: float


def forked(arguments: list[str], folder: Path, *, kill_after: float | None = None,
           interrupt: Callable[[], bool] | None = None, log: Path | None = None,
           prepare: Callable[[], None] | None = None) -> Ended:
    """Runs a command in a folder with its own cache, in a forked process.

    It is killed if it runs that many seconds, and interrupted as by Ctrl-C once `interrupt` says so.
    """
    log, began = log or folder / "output.log", time.monotonic()
    child = os.fork()
    if child == 0:
        child_main(arguments, folder, log, prepare)
    limit = PATIENCE if kill_after is None else kill_after
    while (waited := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() - began >= limit:
            with suppress(ProcessLookupError):  # it has no group of its own yet
                os.killpg(child, signal.SIGKILL)
            os.kill(child, signal.SIGKILL)
            waited = os.waitpid(child, 0)
            break
        if interrupt is not None and interrupt():
            os.kill(child, signal.SIGINT)
            interrupt = None
        time.sleep(0.001)
    seconds = time.monotonic() - began
    if kill_after is None and seconds >= PATIENCE:
        return Ended(-1, "it hangs", seconds)
    output = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return Ended(None if os.WIFSIGNALED(waited[1]) else os.WEXITSTATUS(waited[1]), output, seconds)


def child_main(arguments: list[str], folder: Path, log: Path, prepare: Callable[[], None] | None) -> None:
    """What the forked process does: the command as a shell would start it, then its end."""
    code: Any = 1
    try:
        os.setsid()
        os.chdir(folder)
        stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(stream, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ["HALFLABEL_CACHE"] = str(folder / "cache")
        sys.argv = ["halflabel", *arguments]
        if prepare is not None:
            prepare()
        from halflabel.cli import main as command

        command()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(code))


def expect(code: int, ended: Ended) -> None:
    """Stops the script if a command that has to work did not."""
    if ended.code != code:
        raise SystemExit(f"a command ended with {ended.code}, not {code}:\n{ended.output}")


def import_everything() -> None:
    """Imports what the commands import, before processes are forked."""
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401
    import pyarrow.compute
    import pyarrow.json
    import pyarrow.parquet  # noqa: F401
    import torch.onnx  # noqa: F401
    import transformers.models.auto  # noqa: F401

    import halflabel.bench.report
    import halflabel.classifier
    import halflabel.labelling
    import halflabel.persistence.onnx_export
    import halflabel.serve.label_app
    import halflabel.serve.server  # noqa: F401
    from halflabel.methods import find

    find("lift")


# Kills

@dataclass(frozen=True)
class Job:
    """A command, how it continues after a kill, and the outputs that are compared."""

    name: str
    command: list[str]
    resume: Callable[[Path], list[str]]  # what is added in a folder that a kill left behind
    share: float  # of all kills
    answers: bool = False  # whether it is the page for labelling, which waits for answers until it is ended


def jobs(work: Path) -> list[Job]:
    """The jobs; paths of outputs are relative to the folder of a round."""
    train = ["--unlabelled", str(work / "pool.jsonl"), "--encoder", str(work / "encoder"), "--out", "out",
             "--checkpoint-seconds", "0.02", "--quiet"]
    steps = ["--set", "epochs=3", "--set", "epoch_steps=6", "--set", "warmup=4"]
    labelled, several, model = (str(work / name) for name in ("labelled.csv", "several.csv", "model"))
    predict = ["predict", model, str(work / "pool.jsonl"), "--quiet", "--out", "out"]
    bench = ["bench", "run", "--sets", labelled, "--methods", "ce,bdd-s", "--labelled", "2/class", "--seeds", "0",
             "--encoder", str(work / "encoder"), *steps, "--set", "survey=20", "--out", "out"]
    label = ["label", str(work / "pool.jsonl"), "--encoder", str(work / "encoder"), "--labels", ",".join(LABELS),
             "--port", "0", "--token", TOKEN, "--out", "out.jsonl"]
    return [
        Job("train frozen", ["train", labelled, *train, *steps, "--method", "bdd-f", "--plan", "frozen"], resumed,
            0.15),
        Job("train laptop", ["train", labelled, *train, *steps, "--method", "bdd-s", "--plan", "laptop"], resumed, 0.2),
        Job("train several labels", ["train", several, *train, *steps, "--plan", "frozen"], resumed, 0.15),
        Job("predict to a file", [*predict[:-1], "out.csv"], again, 0.1),
        Job("predict to shards", [*predict, "--shard", "20"], resumed, 0.15),
        Job("bench queue", bench, again, 0.05),
        Job("pool import", ["check", labelled, "--unlabelled", str(work / "large.jsonl"), "--no-tokens"], again, 0.1),
        Job("export", ["export", model, "--onnx", "out", "--quiet"], again, 0.05),
        Job("label answers", label, again, 0.05, answers=True)]


def resumed(folder: Path) -> list[str]:
    marks = ("run.json", "_manifest.json")
    return ["--resume"] if any((folder / "out" / mark).exists() for mark in marks) else []


def again(folder: Path) -> list[str]:
    return []


def kills(options: argparse.Namespace) -> None:
    """Rounds of kills until their number is reached, the job with the most kills still to do first."""
    results = Results("torture")
    import_everything()
    all_jobs = [job for job in jobs(options.work) if options.job in (None, job.name)]
    references = {job.name: reference(options.work, job) for job in all_jobs if not job.answers}
    while True:
        lines = [line for line in results if line["what"] == "kills"]
        done = {job.name: sum(line["kills"] for line in lines if line["job"] == job.name) for job in all_jobs}
        job = min(all_jobs, key=lambda job: done[job.name] / job.share)
        if done[job.name] >= job.share * options.kills:
            break
        number = sum(line["job"] == job.name for line in lines)
        line = (answer_round(options.work, job, number) if job.answers
                else kill_round(options.work, job, number, *references[job.name]))
        results.add(what="kills", job=job.name, round=number, **line)
        print(job.name, number, line, flush=True)
    print(f"{sum(done.values())} kills", done)


def reference(work: Path, job: Job) -> tuple[dict[str, str], float]:
    """The files of an undisturbed run, in a process of its own, and the seconds that a forked one takes; kept."""
    kept = work / f"{job.name.replace(' ', '-')}.json"
    if kept.exists():
        files, seconds = json.loads(kept.read_text())
        return files, seconds
    folder = empty(work / "reference" / job.name.replace(" ", "-"))
    subprocess.run([sys.executable, "-m", "halflabel", *job.command], check=True, cwd=folder, capture_output=True,
                   env=os.environ | {"HALFLABEL_CACHE": str(folder / "cache")})
    files = contents(folder)
    ended = forked(job.command, empty(folder))
    expect(0, ended)
    if contents(folder) != files:
        raise SystemExit(f"{job.name}: two undisturbed runs differ: {differences(files, contents(folder))}")
    kept.write_text(json.dumps([files, ended.seconds]))
    return files, ended.seconds


def kill_round(work: Path, job: Job, number: int, files: dict[str, str], duration: float) -> dict[str, Any]:
    """Several kills, then an undisturbed end; what differs from the reference, is lacking or was left behind."""
    rng = random.Random(f"{job.name} {number}")
    folder = empty(work / "killed" / job.name.replace(" ", "-"))
    moments, problems, finished = [], [], False
    for _ in range(KILLS_PER_ROUND):
        moment = rng.uniform(0.0, duration)
        ended = forked([*job.command, *job.resume(folder)], folder, kill_after=moment)
        if ended.code is None:
            moments.append(round(moment, 3))
        else:
            finished = True
            problems += unexpected(ended)
            break
    if not (finished and not job.resume(folder)):
        ended = forked([*job.command, *job.resume(folder)], folder)
        already = job.name == "export" and "exists already" in ended.output  # a kill after the last rename
        problems += [] if already else unexpected(ended)
    return {"kills": len(moments), "moments": moments, "duration": round(duration, 2), "problems": problems,
            **differences(files, contents(folder))}


LABELS, TOKEN = ("a", "b", "c"), "token"
ANSWERING = 3.0  # seconds between the first answer and the latest kill


def answer_round(work: Path, job: Job, number: int) -> dict[str, Any]:
    """Several kills while answers are posted; what the file of answers lacks or has in addition.

    The first and the last server of a round are not killed but interrupted after some answers: the first one shows how
    long it takes to start, the last one what a killed one left. Of an answer that was posted but not acknowledged, the
    file may have a line or none.
    """
    rng = random.Random(f"{job.name} {number}")
    folder = empty(work / "killed" / job.name.replace(" ", "-"))
    acknowledged: dict[str, str] = {}
    posted: dict[str, str] = {}
    moments, problems, duration = [], [], 0.0

    def has(number: int) -> Callable[[], bool]:
        return lambda: len(acknowledged) >= number

    for i in range(KILLS_PER_ROUND + 2):
        killed = 0 < i <= KILLS_PER_ROUND
        moment = rng.uniform(0.0, duration) if killed else None
        enough = len(acknowledged) + 5
        with ThreadPoolExecutor(1) as pool:
            (folder / "output.log").unlink(missing_ok=True)
            server = pool.submit(forked, job.command, folder, kill_after=moment,
                                 interrupt=None if killed else has(enough))
            start = post_answers(folder / "output.log", server.done, rng, acknowledged, posted)
        duration = duration or start + ANSWERING
        ended = server.result()
        if moment is not None and ended.code is None:
            moments.append(round(moment, 3))
        else:
            problems += ["it ended by itself"] * killed + unexpected(ended)
    return {"kills": len(moments), "moments": moments, "duration": round(duration, 2), "problems": problems,
            "acknowledged": len(acknowledged), "unacknowledged": len(posted.keys() - acknowledged.keys()),
            **wrong_answers(folder / "out.jsonl", acknowledged, posted),
            "left_behind": sorted(contents(folder).keys() - {"out.jsonl"} - {
                name for name in contents(folder) if name.startswith("cache/")})}


def post_answers(log: Path, ended: Callable[[], bool], rng: random.Random, acknowledged: dict[str, str],
                 posted: dict[str, str]) -> float:
    """Answers what a server shows until it ends, noting what it acknowledged; the seconds until the first answer."""
    began, first, url = time.monotonic(), 0.0, None
    while not ended():
        try:
            url = url or re.search(r"(http://\S+)/#", log.read_text(encoding="utf-8"))
            if url is None:
                time.sleep(0.01)
                continue
            state = call(f"{url[1]}/state")
            label = rng.choice(LABELS)
            posted[state["text"]] = label
            call(f"{url[1]}/answer", {"key": state["key"], "labels": [label]})
        except (OSError, HTTPException):  # it has been killed, or does not answer yet
            time.sleep(0.01)
            continue
        acknowledged[state["text"]] = label
        first = first or time.monotonic() - began
        time.sleep(0.05)  # else all texts would soon be answered
    return first


def wrong_answers(file: Path, acknowledged: dict[str, str], posted: dict[str, str]) -> dict[str, list[str]]:
    """Acknowledged answers that the file lacks, and its lines that differ from what was posted or are there twice."""
    from halflabel.data.readers.read import read

    corpus = read(file)
    answered = dict(zip(corpus.texts, corpus.labels, strict=True))
    lines = [json.loads(line)["text"] for line in file.read_text(encoding="utf-8").splitlines()]
    wrong = [text for text, label in answered.items() if posted.get(text) != label]
    return {"lost": sorted(text[:60] for text in acknowledged.keys() - answered.keys()),
            "different": sorted(text[:60] for text in {*wrong, *(text for text in lines if lines.count(text) > 1)})}


def unexpected(ended: Ended) -> list[str]:
    return [] if ended.code == 0 else [f"exit code {ended.code}: {ended.output.strip()[-300:]}"]


def contents(folder: Path) -> dict[str, str]:
    """A hash of each file, times left out; keys of caches and locks of the finished are not compared."""
    return {file.relative_to(folder).as_posix(): digest(file) for file in sorted(folder.rglob("*"))
            if file.is_file() and file.name not in ("output.log", "lock")}


def digest(file: Path) -> str:
    content = file.read_bytes()
    if file.suffix in (".json", ".jsonl", ".html", ".md"):
        text = DIGESTS.sub("", TIMES.sub("", content.decode()))
        content = b"" if file.suffix in (".html", ".md") else text.encode()
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def differences(files: dict[str, str], found: dict[str, str]) -> dict[str, list[str]]:
    """Files that are lost, that differ, and that are there in addition."""
    return {"lost": sorted(files.keys() - found.keys()),
            "different": sorted(name for name in files.keys() & found.keys() if files[name] != found[name]),
            "left_behind": sorted(found.keys() - files.keys())}


def empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


# Hostile inputs: many cases in forked processes with a memory limit

MEGABYTES = 768  # of address space that a case may take in addition
SECONDS = 20  # that a case may take; the machine may be busy
CHUNK = 25  # cases in a process


def cases_in_processes(numbers: list[int], case: Callable[[int], str], folder: Path) -> dict[int, str]:
    """What came of each case, tried in forked processes; one that dies is named and followed by another."""
    outcomes: dict[int, str] = {}
    lines = folder / "outcomes.jsonl"
    while left := [number for number in numbers if number not in outcomes]:
        lines.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            limited_cases(left, case, lines)
        status = wait_while_it_works(child, lines)
        done = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
        outcomes |= dict(done)
        if status != 0 and len(done) < len(left):
            outcomes[left[len(done)]] = f"died with status {status}"
    return outcomes


def wait_while_it_works(child: int, lines: Path) -> int:
    """The status with which a process ended; it is killed once it has added no line for too long."""
    size, since = -1, time.monotonic()
    while (waited := os.waitpid(child, os.WNOHANG))[0] == 0:
        now = lines.stat().st_size if lines.exists() else 0
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > 2 * SECONDS:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        time.sleep(0.01)
    return waited[1]


def limited_cases(numbers: list[int], case: Callable[[int], str], lines: Path) -> None:
    """What a forked process does: its cases, with limits of memory and time, then its end."""
    import resource
    import warnings

    warnings.simplefilter("ignore")
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (MEGABYTES << 20), resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, too_long)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    with open(lines, "w") as stream:
        for number in numbers:
            signal.alarm(SECONDS)
            outcome = attempt(case, number)
            signal.alarm(0)
            stream.write(json.dumps([number, outcome]) + "\n")
            stream.flush()
    os._exit(0)


def too_long(*_: object) -> None:
    raise TimeoutError(f"longer than {SECONDS} s")


def attempt(case: Callable[[int], str], number: int) -> str:
    """`refused` or what the case returns; anything else is a defect, described with its place."""
    from halflabel.errors import HalflabelError

    try:
        return case(number)
    except HalflabelError as error:
        return "refused" if "\n" not in str(error) else f"several lines: {error}"
    except BaseException as error:
        import traceback

        last = [frame for frame in traceback.extract_tb(error.__traceback__) if "halflabel" in frame.filename][-1:]
        place = ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in last)
        return f"{type(error).__name__} at {place}: {str(error)[:150]}"


def hostile(what: str, total: int, case: Callable[[int], str], folder: Path) -> None:
    """Adds lines of CHUNK cases each until there are enough; defects are listed by number."""
    results = Results("torture")
    for start in range(0, total, CHUNK):
        if results.has(what=what, first=start):
            continue
        outcomes = cases_in_processes(list(range(start, start + CHUNK)), case, folder)
        defects = {str(number): outcome for number, outcome in outcomes.items() if outcome not in GOOD}
        counts = {name: sum(outcome == name for outcome in outcomes.values()) for name in GOOD}
        results.add(what=what, first=start, cases=CHUNK, **counts, defects=defects)
        for number, outcome in defects.items():
            print(what, number, outcome, flush=True)
    lines = [line for line in results if line["what"] == what]
    print(what, {name: sum(line[name] for line in lines) for name in GOOD}, "defects:",
          sum(len(line["defects"]) for line in lines))


GOOD = ("refused", "accepted", "same predictions", "other weights")


def hostile_files(options: argparse.Namespace) -> None:
    """Bad files for all readers."""
    import_everything()
    from halflabel.data.readers.formats import formats

    formats()
    good = in_another_process(lambda: good_files(options.work), options.work / "good")
    folder = empty(options.work / "files")

    def case(number: int) -> str:
        from halflabel.data.pool import open_pool
        from halflabel.data.readers.read import read

        rng = random.Random(number)
        name, content = mutated_file(rng, good)
        file = folder / f"{number}-{name}"
        file.write_bytes(content)
        cache = folder / f"{number}-pools"
        try:
            outcomes = [attempt(accepted(lambda: read(file)), number),
                        attempt(accepted(lambda: open_pool([str(file)], folder=cache)), number),
                        attempt(accepted(lambda: list(open_rows(file))), number)]
            half = [path.name for path in cache.rglob("*") if path.name.startswith(".")] if cache.exists() else []
            bad = [outcome for outcome in outcomes if outcome not in GOOD] + [f"left {name}" for name in half]
            return bad[0] if bad else "refused" if "refused" in outcomes else "accepted"
        finally:
            file.unlink()
            shutil.rmtree(cache, ignore_errors=True)

    def open_rows(file: Path) -> Iterator[list[Any]]:
        from halflabel.data.pool import open_source
        from halflabel.data.readers.files import as_files

        return open_source(as_files([str(file)])[0]).rows()

    def accepted(work: Callable[[], object]) -> Callable[[int], str]:
        return lambda _: "accepted" if work() is not None else "nothing"

    hostile("files", options.files, case, folder)


def in_another_process(make: Callable[[], dict[str, bytes]], folder: Path) -> dict[str, bytes]:
    """Files made in a forked process: this one starts no threads, which its later forks would lack."""
    if not folder.exists():
        child = os.fork()
        if child == 0:
            new = empty(folder.with_name("unfinished"))
            for name, content in make().items():
                (new / name).write_bytes(content)
            new.rename(folder)
            os._exit(0)
        os.waitpid(child, 0)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def good_files(work: Path) -> dict[str, bytes]:
    """A small file of each format."""
    import gzip
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [text[:60] for text in pool_texts(work)[:30]]
    labels = [f"topic {i % 3}" for i in range(30)]
    records = [{"text": texts[i], "label": labels[i], "id": i} for i in range(30)]
    table = pa.Table.from_pylist(records)
    lists = pa.table({"text": texts, "labels": [[label, "x"] for label in labels]})
    parquet, arrow, stream = io.BytesIO(), io.BytesIO(), io.BytesIO()
    pq.write_table(table, parquet)
    with pa.ipc.new_file(arrow, lists.schema) as writer:
        writer.write_table(lists)
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)

    def lines(rows: list[dict[str, Any]]) -> bytes:
        return "".join(json.dumps(row) + "\n" for row in rows).encode()

    rows = "".join(f'"{row["text"]}",{row["label"]},{row["id"]}\n' for row in records)
    studio = [{"id": i, "data": {"text": row["text"]}, "annotations": [{"result": [
        {"type": "choices", "from_name": "topic", "value": {"choices": [row["label"]]}}]}]}
        for i, row in enumerate(records)]
    minimal = [{"id": i, "text": row["text"], "topic": row["label"], "annotator": 1, "annotation_id": i,
                "lead_time": 1.0} for i, row in enumerate(records)]
    files = {
        "a.csv": f"text,label,id\n{rows}".encode(), "a.tsv": f"text,label,id\n{rows}".replace(",", "\t").encode(),
        "a.jsonl": lines(records), "a.json": json.dumps(records).encode(), "a.txt": "\n".join(texts).encode(),
        "a.parquet": parquet.getvalue(), "a.arrow": arrow.getvalue(), "stream.arrow": stream.getvalue(),
        "studio.json": json.dumps(studio).encode(), "minimal.json": json.dumps(minimal).encode(),
        "doccano.jsonl": lines([row | {"label": [row["label"]], "Comments": []} for row in records]),
        "prodigy.jsonl": lines([row | {"answer": "accept"} for row in records]),
        "studio.csv": b"text,topic,annotator,annotation_id,lead_time\n" + b"".join(
            f'"{row["text"]}","{{""choices"": [""{row["label"]}""]}}",1,1,1.0\n'.encode() for row in records)}
    zstd = {f"{name}.zst": pa.compress(content, codec="zstd", asbytes=True) for name, content in files.items()}
    return files | {f"{name}.gz": gzip.compress(content) for name, content in files.items()} | zstd


def mutated_file(rng: random.Random, good: dict[str, bytes]) -> tuple[str, bytes]:
    """A good file with one to three mutations; sometimes under the name of another format, or packed again."""
    import gzip

    name = rng.choice(sorted(good))
    content = good[name]
    for _ in range(rng.randint(1, 3)):
        content = rng.choice(MUTATIONS)(rng, content, good)
    if rng.random() < 0.1:
        content = gzip.compress(content)
    if rng.random() < 0.15:
        name = rng.choice(["a", "a.csv", "a.jsonl", "a.json", "a.parquet", "a.arrow", "a.txt", "a.csv.gz", "a.tsv"])
    return name, content


Mutation = Callable[[random.Random, bytes, dict[str, bytes]], bytes]


def flips(rng: random.Random, content: bytes, good: dict[str, bytes]) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng: random.Random, content: bytes, good: dict[str, bytes]) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def spliced(rng: random.Random, content: bytes, good: dict[str, bytes]) -> bytes:
    other = rng.choice(sorted(good.values()))
    return content[: rng.randrange(len(content) + 1)] + other[rng.randrange(len(other)) :]


def inserted(rng: random.Random, content: bytes, good: dict[str, bytes]) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.choice(PIECES)(rng) + content[at:]


def encoded(rng: random.Random, content: bytes, good: dict[str, bytes]) -> bytes:
    text = content.decode("utf-8", "replace").replace("a", "é", 5)
    return text.encode(rng.choice(["utf-16", "utf-16-le", "utf-32", "cp1252", "latin-1", "utf-8-sig"]), "replace")


def nested(rng: random.Random, content: bytes, good: dict[str, bytes]) -> bytes:
    depth = rng.choice([10, 1000, 100_000])
    return (b'{"text": ' + b"[" * depth + b'"x"' + b"]" * rng.choice([depth, 0]) + b"}\n") * rng.randint(1, 3) + content


def doubled(rng: random.Random, content: bytes, good: dict[str, bytes]) -> bytes:
    first, _, rest = content.partition(b"\n")
    return first + b"," + first + b"\n" + rest if rng.random() < 0.5 else content + content


def bomb(rng: random.Random, content: bytes, good: dict[str, bytes]) -> bytes:
    """Gigabytes in a megabyte, or a file that was packed twice."""
    import gzip

    if rng.random() < 0.5:
        return gzip.compress(gzip.compress(content))
    block = rng.choice([b" ", b"x\n", b"\0", b'{"text": "x"}\n', b"text\n"])
    return gzip.compress(block * ((1 << 22) // len(block))) * 500


PIECES: list[Callable[[random.Random], bytes]] = [
    lambda rng: b"\0" * rng.randint(1, 9), lambda rng: b'"' * rng.randint(1, 3), lambda rng: b"x" * 3_000_000,
    lambda rng: b"\xff\xfe\xfd", lambda rng: b"\r\n\r", lambda rng: b"1" * 10_000, lambda rng: b'{"text": NaN}\n',
    lambda rng: b'"\\ud800"', lambda rng: rng.randbytes(50), lambda rng: b"," * 5000, lambda rng: b"\n" * 5000,
    lambda rng: b'{"text": {"a": [1, 1e999, -0]}, "label": {}}\n', lambda rng: b"[[[[{{{{"]
MUTATIONS: list[Mutation] = [flips, flips, cut, spliced, inserted, inserted, encoded, nested, doubled, bomb]


def hostile_models(options: argparse.Namespace) -> None:
    """Mutated model folders, half of them with checksums that were made to fit."""
    import_everything()
    export = ["export", str(options.work / "model"), "--onnx", str(options.work / "exported")]
    if not (options.work / "exported").exists():
        expect(0, forked(export, options.work))
    folder = empty(options.work / "models")
    texts = pool_texts(options.work)[:8]

    def case(number: int) -> str:
        from halflabel.cli.folders import open_model
        from halflabel.integrity import write_checksums

        rng = random.Random(number)
        kind, signed = rng.choice(["model", "exported"]), rng.random() < 0.5
        copy = folder / str(number)
        shutil.copytree(options.work / kind, copy)
        try:
            expected = rounded(open_model(copy), texts) if kind not in _expected else _expected[kind]
            _expected[kind] = expected
            weights = mutate_model(rng, copy)
            if signed:
                write_checksums(copy)
            same = rounded(open_model(copy), texts) == expected
            return "same predictions" if same else "other weights" if signed and weights else "other predictions"
        finally:
            shutil.rmtree(copy)

    hostile("models", options.models, case, folder)


_expected: dict[str, list[list[float]]] = {}  # predictions of the models as they were written


def rounded(model: Any, texts: list[str]) -> list[list[float]]:
    scores: list[list[float]] = np.round(model.probabilities(texts), 5).tolist()
    return scores


def mutate_model(rng: random.Random, folder: Path) -> bool:
    """Damages a file of a model folder; whether numbers may have changed that nothing but a checksum protects."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != "checksums.json")
    file = rng.choice(files)
    action = rng.choice(["flip", "cut", "remove", "swap", "json", "json", "json", "code", "link"])
    if action == "json":
        file = rng.choice([file for file in files if file.suffix == ".json" and file.name != "tokenizer.json"])
        file.write_text(json.dumps(mutated_json(rng, json.loads(file.read_text()))), encoding="utf-8")
        return True
    if action == "remove":
        file.unlink()
    elif action == "swap":
        shutil.copy(rng.choice(files), folder / "swapped")
        (folder / "swapped").rename(file)
    elif action == "code":
        (folder / rng.choice(["encoder.py", "encoder/model.py", "x.so"])).parent.mkdir(exist_ok=True)
        (folder / rng.choice(["encoder.py", "x.so"])).write_text("raise SystemExit('code was executed')")
    elif action == "link":
        file.unlink()
        file.symlink_to(rng.choice(["/dev/zero", "/dev/stdin", "/etc/hostname", "nowhere"]))
    else:
        mutation = flips if action == "flip" else cut
        file.write_bytes(mutation(rng, file.read_bytes(), {}))
    return action in ("flip", "cut", "swap", "json")


def mutated_json(rng: random.Random, value: Any) -> Any:
    """A JSON value with one part replaced, removed or added, at any depth."""
    odd: Any = rng.choice([None, True, -1, 0, 10**9, 10**30, 1e308, float("nan"), "", "x" * 10**6, [], {}, [[]] * 1000,
                           {"auto_map": {"AutoModel": "model.Model"}}, "../../../../etc/passwd"])
    if not isinstance(value, (dict, list)) or not value or rng.random() < 0.1:
        return odd
    key = rng.choice(sorted(value)) if isinstance(value, dict) else rng.randrange(len(value))
    if rng.random() < 0.25:
        del value[key]
    else:
        value[key] = mutated_json(rng, value[key])
    return value


# Disks

def disks(options: argparse.Namespace) -> None:
    """Each job with a disk that is full after n bytes, and with a folder in which nothing may be written.

    The limit is that of the process for a file (RLIMIT_FSIZE) or, if this process may mount one, a small tmpfs. A
    folder is read-only because its disk is, or by its permissions.
    """
    results = Results("torture")
    import_everything()
    for job in jobs(options.work):
        for kind in ("read-only disk", "no permission"):
            for place in ("output", "cache"):
                if not results.has(what="disk", job=job.name, kind=kind, place=place, good=True):
                    line = on_read_only(options.work, job, kind, place)
                    results.add(what="disk", job=job.name, kind=kind, place=place, **line)
                    print(job.name, kind, place, line, flush=True)
    for job in jobs(options.work):
        if job.answers:
            continue  # it would wait for answers
        for kind, limit in [*(("tmpfs", size) for size in SIZES), *(("file limit", size) for size in SIZES[1:])]:
            if not results.has(what="disk", job=job.name, kind=kind, kilobytes=limit):
                line = on_full_disk(options.work, job, kind, limit)
                results.add(what="disk", job=job.name, kind=kind, kilobytes=limit, **line)
                print(job.name, kind, limit, line, flush=True)


SIZES = (0, 4, 64, 400, 1500, 3000)  # kilobytes


def on_full_disk(work: Path, job: Job, kind: str, kilobytes: int) -> dict[str, Any]:
    """How a job ends; every file that was there before has to be unchanged, and a resumed job to end as usual."""
    folder = empty(work / "full" / job.name.replace(" ", "-"))
    mounted = kind == "tmpfs"
    if mounted:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes + 8}k", "tmpfs", str(folder)], check=True)
    try:
        (folder / "mine.txt").write_text("mine", encoding="utf-8")
        ended = forked(job.command, folder, log=work / "output.log",
                       prepare=None if mounted else lambda: limit_files(kilobytes))
        kept = (folder / "mine.txt").read_text(encoding="utf-8") == "mine"
        hidden = [path.name for path in folder.rglob(".*") if "cache" not in path.parts]
        sentence = ended.output.strip().splitlines()[-1:] or [""]
        good = ended.code == 0 or (ended.code == 2 and "Traceback" not in ended.output and kept)
        return {"exit_code": ended.code, "good": good and not hidden, "hidden": hidden,
                "sentence": neutral(sentence[0], work)}
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


def on_read_only(work: Path, job: Job, kind: str, place: str) -> dict[str, Any]:
    """How a job ends whose folder or cache is read-only; nothing may change there or be half-written elsewhere."""
    folder, cache = empty(work / "full" / job.name.replace(" ", "-")), empty(work / "full" / "cache")
    closed = folder if place == "output" else cache

    def prepare() -> None:
        os.environ["HALFLABEL_CACHE"] = str(cache)
        if kind == "no permission":
            obey_permissions()

    with read_only(closed, mounted=kind == "read-only disk"):
        ended = forked(job.command, folder, log=work / "output.log", prepare=prepare)
        kept = contents(closed).keys() == {"mine.txt"}
    half = [path.name for path in folder.rglob(".*")]
    sentence = ended.output.strip().splitlines()[-1:] or [""]
    clear = ended.code == 2 and ended.output.count("error: ") == 1 and "Traceback" not in ended.output
    named = place == "output" or "HALFLABEL_CACHE" in sentence[0]
    return {"exit_code": ended.code, "good": kept and not half and (ended.code == 0 or (clear and named)),
            "hidden": half, "sentence": neutral(sentence[0], work)}


@contextmanager
def read_only(folder: Path, *, mounted: bool) -> Iterator[None]:
    """A folder with one file, to which nothing can be added."""
    if mounted:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True)
    try:
        (folder / "mine.txt").write_text("mine", encoding="utf-8")
        if mounted:
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        else:
            folder.chmod(0o555)
        yield
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)
        else:
            folder.chmod(0o755)


def obey_permissions() -> None:
    """Takes from root what lets it ignore the permissions of files: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # the version of the call, and this process
    sets = (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    sets[0] &= ~0b110
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def limit_files(kilobytes: int) -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes << 10, kilobytes << 10))


def neutral(sentence: str, work: Path) -> str:
    """A message without the paths of this machine."""
    return sentence.replace(str(work), "WORK")[:300]


# Together

def together(options: argparse.Namespace) -> None:
    """Three processes that train into one folder; then three that share a cache which a fourth clears all the time."""
    results = Results("torture")
    import_everything()
    train = jobs(options.work)[0].command
    for number in range(options.rounds):
        if results.has(what="together", round=number):
            continue
        folder = empty(options.work / "together")
        one = run_at_once([train] * 3, folder)
        problems = [ended.output[-300:] for ended in one if ended.code != 0 and not clear_refusal(ended)]
        winners = sum(ended.code == 0 for ended in one)
        apart = [[word if word != "out" else f"out-{i}" for word in train] for i in range(3)]
        clearing = run_at_once(apart, folder, meanwhile=[["cache", "--clear"], ["cache", "--prune", "0"]])
        problems += [problem for ended in clearing for problem in unexpected(ended)]
        weights = {digest(file) for file in folder.glob("out*/model.safetensors")}
        line = {"winners": winners, "shared": [ended.code for ended in clearing], "models": len(weights),
                "problems": problems, "good": winners == 1 and len(weights) == 1 and not problems}
        results.add(what="together", round=number, **line)
        print(number, line, flush=True)


def clear_refusal(ended: Ended) -> bool:
    return ended.code == 2 and "Traceback" not in ended.output


def run_at_once(commands: list[list[str]], folder: Path, meanwhile: Sequence[list[str]] = ()) -> list[Ended]:
    """Starts commands at the same time, and others in turn, again and again, until they end."""
    with ThreadPoolExecutor(len(commands)) as pool:
        started = [pool.submit(forked, command, folder, log=folder / f"{i}.log") for i, command in enumerate(commands)]
        for command in cycle(meanwhile):
            if all(future.done() for future in started):
                break
            expect(0, forked(command, folder, log=folder / "meanwhile.log"))
            time.sleep(0.05)
        return [future.result() for future in started]


# Soak

def soak(options: argparse.Namespace) -> None:
    """Two processes under light load; a line each minute, and a summary at the end.

    Libraries keep what they compiled for the latest shapes of batches, so memory grows at first. What counts is the
    growth in the second half.
    """
    results = Results("torture")
    if options.lines:
        results.file = options.lines.absolute()
    (options.work / CALLS).unlink(missing_ok=True)
    began, sample, started = time.monotonic(), 0, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with predicting(options.work) as predictor, serving(options.work) as (server, url):
        rng, texts, requests = random.Random(0), pool_texts(options.work), 0
        while (minutes := (time.monotonic() - began) / 60) < options.minutes:
            if minutes >= sample:
                results.add(what="soak", started=started, minute=sample, calls=calls(options.work), requests=requests,
                            predict=usage(predictor.pid), serve=usage(server.pid))
                sample += 1
                if sample % 15 == 0:
                    server.send_signal(signal.SIGHUP)  # loads the model again
            ask(url, rng.sample(texts, rng.randint(1, 8)))
            requests += 1
            assert predictor.poll() is None and server.poll() is None, "a process has ended"
            time.sleep(0.3)
    samples = [line for line in results if line.get("started") == started and line["minute"] >= options.minutes // 12]
    for name in ("predict", "serve"):
        minute = np.array([line["minute"] for line in samples], float)
        megabytes = np.array([line[name]["megabytes"] for line in samples])
        files = [line[name]["open_files"] for line in samples]
        middle = len(samples) // 2
        results.add(what="soak summary", started=started, process=name, minutes=int(minute[-1]),
                    seconds=round(time.monotonic() - began), calls=calls(options.work), requests=requests,
                    first_mb=float(megabytes[0]), last_mb=float(megabytes[-1]),
                    mb_per_hour=growth(minute, megabytes),
                    mb_per_hour_of_halves=[growth(minute[:middle], megabytes[:middle]),
                                           growth(minute[middle:], megabytes[middle:])],
                    open_files=[min(files), max(files)])


def calls(work: Path) -> int:
    """How many batches the predicting process has predicted so far, with each of its models."""
    file = work / CALLS
    return int(file.read_text() or 0) if file.exists() else 0


def growth(minute: np.ndarray, megabytes: np.ndarray) -> float:
    """The slope of memory in MB per hour."""
    return round(60 * float(np.polyfit(minute, megabytes, 1)[0]), 2) if len(minute) > 1 else 0.0


@contextmanager
def predicting(work: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that predicts for ever: with the model, with its export, and by the command itself."""
    process = subprocess.Popen([sys.executable, __file__, "predict-for-ever", "--work", str(work)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def predict_for_ever(options: argparse.Namespace) -> None:
    """Batches of all sizes and lengths; every 50th the models are loaded again, and the command writes a file."""
    from halflabel.cli.folders import open_model

    work, rng, texts = options.work, random.Random(1), pool_texts(options.work)
    if not (work / "exported").exists():
        expect(0, forked(["export", str(work / "model"), "--onnx", str(work / "exported")], work))
    sys.argv = ["halflabel", "predict", str(work / "model"), str(work / "pool.jsonl"), "--out",
                str(work / "soak.csv"), "--force", "--quiet"]
    from halflabel.cli import main as command

    devnull = open(os.devnull, "w")  # noqa: SIM115
    sys.stdout = devnull
    models: list[Any] = []
    for i in range(sys.maxsize):
        if i % 50 == 0:
            models = [open_model(work / name) for name in ("model", "exported")]
            try:
                command()
            except SystemExit as end:
                if end.code:
                    raise
        batch = [text[: rng.randint(1, len(text))] for text in rng.sample(texts, rng.randint(1, 40))]
        for model in models:
            model.probabilities(batch)
        (work / CALLS).write_text(str(i + 1))
        time.sleep(0.5)


@contextmanager
def serving(work: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server of the model, and its address."""
    log = work / "serve.log"
    with open(log, "wb") as stream:
        process = subprocess.Popen([sys.executable, "-m", "halflabel", "serve", str(work / "model"), "--port", "0"],
                                   stderr=stream)
    try:
        while not (found := re.search(r"at (http://\S+),", log.read_text(encoding="utf-8"))):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            time.sleep(0.1)
        yield process, found[1]
    finally:
        process.kill()
        process.wait()


def ask(url: str, texts: list[str]) -> None:
    assert len(call(f"{url}/predict", {"inputs": texts})) == len(texts), "an answer for each text"


def call(url: str, body: Any = None) -> Any:
    """What a server answers to a request; with a body, it is posted."""
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def usage(process: int) -> dict[str, Any]:
    """Resident memory without mapped files, and open files of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return {"megabytes": round(int(status["RssAnon"].split()[0]) / 1024, 1),
            "rss_mb": round(int(status["VmRSS"].split()[0]) / 1024, 1),
            "threads": int(status["Threads"]), "open_files": len(os.listdir(f"/proc/{process}/fd"))}


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "kills": kills, "disk": disks, "files": hostile_files, "models": hostile_models, "together": together,
    "soak": soak, "predict-for-ever": predict_for_ever}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--work", type=Path, required=True, help="folder for inputs, models and outputs")
    parser.add_argument("--kills", type=int, default=1000, help="of all jobs together")
    parser.add_argument("--job", help="the only job to kill, its share of all kills")
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=10, help="of processes together")
    parser.add_argument("--minutes", type=float, default=120.0, help="of the soak")
    parser.add_argument("--lines", type=Path, help="where the soak writes its lines, if not to the results")
    options = parser.parse_args()
    options.work = options.work.absolute()
    return options


if __name__ == "__main__":
    main()
