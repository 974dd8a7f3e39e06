"""One process against two: the accuracy of the same training, started alone and by torchrun on the CPU.

    python benchmarks/processes.py --work FOLDER [--seeds 0 1 2 3 4] [--method bdd-f]

Texts are the sample corpus of the package, with 5 labelled texts of each class; MiniLM is fine-tuned for a few steps,
so that every gradient passes through both processes. Each run is a command of its own, with one thread to a process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from torture import write_csv

from halflabel.data.corpus import sample
from protocol import Results, sample_per_class

PER_CLASS = 5
STEPS = ["--set", "epochs=2", "--set", "epoch_steps=20", "--set", "warmup=20", "--set", "survey=200"]
PROCESSES = (1, 2)


def main() -> None:
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    results = Results("processes")
    for seed in options.seeds:
        files = make(options.work, seed)
        for processes in PROCESSES:
            key = {"method": options.method, "seed": seed, "processes": processes}
            if not results.has(**key):
                line = run(options.work, files, options.method, seed, processes)
                results.add(**key, **line)
                print(key, line, flush=True)


def make(work: Path, seed: int) -> dict[str, Path]:
    """Labelled texts and a pool, drawn with the seed, and test texts."""
    files = {part: work / f"{part}-{seed}.csv" for part in ("labelled", "pool", "test")}
    train, test = sample("train"), sample("test")
    split = sample_per_class(train, PER_CLASS, len(train) - PER_CLASS * len(set(train.labels)), seed)
    write_csv(files["labelled"], ["text", "label"], zip(split.labelled.texts, split.labelled.labels, strict=True))
    write_csv(files["pool"], ["text"], ([text] for text in split.pool.texts))
    write_csv(files["test"], ["text", "label"], zip(test.texts, test.labels, strict=True))
    return files


def run(work: Path, files: dict[str, Path], method: str, seed: int, processes: int) -> dict[str, Any]:
    """Trains with so many processes, and evaluates on the test texts."""
    out = work / "model"
    shutil.rmtree(out, ignore_errors=True)
    start = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
    train = [sys.executable, *start, "-m", "halflabel", "train", files["labelled"], "--unlabelled", files["pool"],
             "--plan", "laptop", "--method", method, *STEPS, "--minutes", "60",
             "--seed", str(seed), "--device", "cpu", "--out", out]
    began = time.perf_counter()
    subprocess.run([*map(str, train)], check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    seconds = time.perf_counter() - began
    evaluated = subprocess.run([sys.executable, "-m", "halflabel", "evaluate", str(out), str(files["test"]), "--json"],
                               check=True, capture_output=True)
    return {"accuracy": json.loads(evaluated.stdout)["accuracy"], "seconds": round(seconds, 1)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--method", default="bdd-f")
    return parser.parse_args()


if __name__ == "__main__":
    main()
