"""Scoring jobs: kills and resumption, the overhead of Ray, memory, and the cost of a million texts.

    python benchmarks/scoring.py kill --data FOLDER [--engines local ray spark] [--trials 10]
    python benchmarks/scoring.py overhead --data FOLDER
    python benchmarks/scoring.py memory --data FOLDER
    python benchmarks/scoring.py cost --data FOLDER [--models student encoder] [--sizes 10000 100000 1000000] [--short]
    python benchmarks/scoring.py plot --data FOLDER

The texts are those of `pool.py`. The encoder model is a frozen MiniLM, and the student is distilled from naive Bayes on
words, since words that are made up mean nothing to MiniLM. Every measurement is a command in a process of its own. A
kill ends the job with all its processes at once, as a power failure would: after a random number of shards and a random
fraction of a second.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pool import file_of, make
from protocol import Results

KILLED = 10_000  # texts of a job that is killed
SHARDS = 40  # of it
OVERHEAD = 50_000  # texts
SHORT = 8  # words of each of them
COPIES = 1_000_000  # texts of a file; more are scored by naming it several times
ENGINES = ("local", "ray", "spark")
SVG = Path(__file__).parent.parent / "docs" / "scale.svg"
# Starts a job from a small process: to Linux, the peak of a process includes that of the one that it was forked from.
STARTER = """
import json, os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(json.dumps([status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))
"""


def main() -> None:
    options = parse()
    if options.part == "spark-job":
        spark_job(*options.arguments)
        return
    options.data.mkdir(parents=True, exist_ok=True)
    models(options.data)
    PARTS[options.part](options, Results("scoring"))


def kill(options: argparse.Namespace, results: Results) -> None:
    """Kills jobs, resumes them and compares them row by row with one that was left alone."""
    make(options.data, KILLED)
    source = file_of(options.data, "parquet", KILLED)
    whole = options.data / "whole"
    if not (whole / "_manifest.json").exists():
        subprocess.run(command("local", options.data / "student", source, whole, KILLED // SHARDS), check=True)
    expected = rows_in(whole)
    assert [row["id"] for row in expected] == list(range(KILLED))
    for engine in options.engines:
        for trial in range(options.trials):
            if results.has(what="kill", how=engine, trial=trial):
                continue
            out = options.data / f"killed-{engine}"
            shutil.rmtree(out, ignore_errors=True)
            job = command(engine, options.data / "student", source, out, KILLED // SHARDS)
            chance = random.Random(f"{engine} {trial}")
            after, left = kill_after(job, out, chance.randrange(SHARDS), chance.random() / 4)
            began = time.perf_counter()
            subprocess.run([*job, "--resume"], check=True, capture_output=True)
            found = rows_in(out)
            line = {"shards_at_kill": after, "killed_in_time": left, "rows": len(found),
                    "equal": found == expected, "resume_seconds": round(time.perf_counter() - began, 1)}
            results.add(what="kill", how=engine, trial=trial, texts=KILLED, **line)
            print(engine, trial, line, flush=True)


def kill_after(job: list[str], out: Path, shards: int, seconds: float) -> tuple[int, bool]:
    """Kills a job some time after it has written so many shards; returns how many there were, and if it still ran."""
    process = subprocess.Popen(job, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(list(out.glob("part-*"))) < shards and process.poll() is None:
        time.sleep(0.002)
    time.sleep(seconds)
    running = process.poll() is None and not complete(out)
    family = [process.pid, *descendants(process.pid)]
    for pid in family:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()
    return len(list(out.glob("part-*"))), running


def complete(out: Path) -> bool:
    """Whether the manifest lists all shards."""
    return (out / "_manifest.json").exists() and "shards" in json.loads((out / "_manifest.json").read_text())


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue  # it has ended
        parents.setdefault(parent, []).append(int(status.parent.name))
    found = [pid]
    for known in found:
        found += parents.get(known, [])
    return found[1:]


def rows_in(out: Path) -> list[Any]:
    return [json.loads(line) for path in sorted(out.glob("part-*")) for line in path.read_text().splitlines()]


def overhead(options: argparse.Namespace, results: Results) -> None:
    """The encoder model over 50,000 short texts, in this process and by Ray, in turns."""
    source = short_texts(options.data)
    for trial in range(options.trials):
        for engine in ("local", "ray"):
            if not results.has(what="overhead", how=engine, trial=trial, model=options.models[-1]):
                measured = measure(options.data, engine, options.models[-1], OVERHEAD, source)
                results.add(what="overhead", how=engine, trial=trial, model=options.models[-1], texts=OVERHEAD,
                            words=SHORT, **measured)
                print("overhead", engine, measured, flush=True)


def short_texts(data: Path, number: int = OVERHEAD) -> Path:
    """The first words of so many texts, since two cores take long to encode whole ones."""
    import pyarrow.parquet as pq

    make(data, number)
    file = data / f"short-{number}.parquet"
    table = pq.read_table(file_of(data, "parquet", number))
    texts = [" ".join(text.split()[:SHORT]) for text in table["text"].to_pylist()]
    pq.write_table(table.set_column(table.schema.get_field_index("text"), "text", [texts]), file)
    return file


def memory(options: argparse.Namespace, results: Results) -> None:
    """Peak memory of the student over more and more texts, in Parquet and in jsonl."""
    for texts in (10_000, 100_000, 1_000_000):
        make(options.data, texts)
        for kind in ("parquet", "jsonl"):
            if not results.has(what="memory", how=kind, texts=texts):
                measured = measure(options.data, "local", "student", texts, file_of(options.data, kind, texts))
                results.add(what="memory", how=kind, texts=texts, **measured)
                print("memory", kind, f"{texts:,}", measured, flush=True)


def cost(options: argparse.Namespace, results: Results) -> None:
    """Seconds for a million texts, by model and number of texts; with --short, of their first words."""
    for model in options.models:
        for texts in options.sizes:
            make(options.data, min(texts, COPIES))
            how = f"{model}, {SHORT} words" if options.short else model
            if not results.has(what="cost", how=how, texts=texts):
                source = short_texts(options.data, min(texts, COPIES)) if options.short else None
                measured = measure(options.data, "local", model, texts, source)
                per_million = {name: round(measured[name] * 1e6 / texts, 1) for name in ("seconds", "cpu_seconds")}
                results.add(what="cost", how=how, texts=texts, **measured, per_million=per_million)
                print("cost", how, f"{texts:,}", measured, per_million, flush=True)


def plot(options: argparse.Namespace, results: Results) -> None:
    """Processor seconds for a million texts against the number of texts, for scoring and for training."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "halflabel"  # the same figure gives the same file
    from matplotlib import pyplot

    from tables import cost_per_million

    figure, ax = pyplot.subplots(figsize=(9, 3.5), layout="constrained")
    for name, by_size in cost_per_million().items():
        ax.plot(sorted(by_size), [by_size[texts] for texts in sorted(by_size)], "o-", label=name)
    ax.set(xscale="log", yscale="log", xlabel="texts", ylabel="processor seconds per million texts")
    ax.grid(True, which="both", alpha=0.3)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(SVG, metadata={"Date": None})


def measure(data: Path, engine: str, model: str, texts: int, file: Path | None = None) -> dict[str, Any]:
    """Wall-clock and processor seconds of a job, and the peak memory of its main process in MB."""
    out = data / "measured"
    shutil.rmtree(out, ignore_errors=True)
    source = [file or file_of(data, "parquet", min(texts, COPIES))] * max(1, texts // COPIES)
    began = time.perf_counter()
    job = command(engine, data / model, source, out)
    started = subprocess.run([sys.executable, "-c", STARTER, *map(str, job)], stdout=subprocess.PIPE, check=True)
    seconds = time.perf_counter() - began
    status, cpu_seconds, kilobytes = json.loads(started.stdout)
    assert status == 0, f"the job failed: {job}"
    assert json.loads((out / "_manifest.json").read_text())["texts"] == texts
    shutil.rmtree(out)
    return {"seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1), "peak_mb": round(kilobytes / 1024, 1)}


def command(engine: str, model: Path, source: Path | list[Path], out: Path, rows: int = 10_000) -> list[str]:
    sources = [str(path) for path in (source if isinstance(source, list) else [source])]
    if engine == "spark":
        return [sys.executable, __file__, "spark-job", str(model), *sources, str(out), str(rows)]
    return [sys.executable, "-m", "halflabel", "predict", str(model), *sources, "--out", str(out), "--shard", str(rows),
            "--quiet", *(["--engine", "ray"] if engine == "ray" else [])]


def spark_job(model: str, source: str, out: str, rows: str, *resume: str) -> None:
    """A job by Spark with two executors' threads on this machine."""
    from pyspark.sql import SparkSession

    from halflabel.spark import predict

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
               .config("spark.ui.showConsoleProgress", "false").getOrCreate())
    predict(session, model, source, out, rows=int(rows), resume=bool(resume))
    session.stop()


def models(data: Path) -> None:
    """The encoder model and the student, made once."""
    if (data / "student").exists():
        return
    import numpy as np

    from halflabel import TextClassifier
    from pool import TOPICS, vocabulary, written

    rng, words = np.random.default_rng(5), np.array(vocabulary())

    def texts(n: int) -> tuple[list[str], list[str]]:
        topics = rng.integers(0, TOPICS, n)
        return written(rng, topics, words), [f"topic {k}" for k in topics]

    if not (data / "encoder").exists():
        TextClassifier("ce", plan="frozen").fit(*texts(40)).save(data / "encoder")
    teacher = TextClassifier("nb-em", plan="frozen").fit(*texts(400), unlabelled=texts(400)[0])
    teacher.distill(texts(2000)[0]).save(data / "student")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "spark-job"])
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, default=Path("scoring-data"))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--models", nargs="+", default=["student", "encoder"])
    parser.add_argument("--short", action="store_true", help=f"cost of the first {SHORT} words of each text")
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 100_000, 1_000_000])
    if "spark-job" in sys.argv:  # --resume is its own
        return argparse.Namespace(part="spark-job", arguments=sys.argv[2:])
    return parser.parse_args()


PARTS = {"kill": kill, "overhead": overhead, "memory": memory, "cost": cost, "plot": plot}

if __name__ == "__main__":
    main()
