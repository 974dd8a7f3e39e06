"""One process against two: the accuracy of the same training, started alone and by torchrun on the CPU.

    python benchmarks/processes.py --work FOLDER [--seeds 0 1 2 3 4] [--method bdd-f]

Texts are those of `pool.py`, with four topics, and so is the encoder: one layer of random weights that is fine-tuned,
so that every gradient passes through both processes. Each run is a command of its own.
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

import numpy as np
from torture import write_csv

from pool import TOPICS, tiny_encoder, vocabulary, written
from protocol import Results

LABELLED, POOL, TEST = 400, 2000, 2000  # texts
STEPS = ["--set", "encoder_rate=0.003", "--set", "head_rate=0.01", "--set", "epochs=3", "--set", "epoch_steps=60",
         "--set", "warmup=200"]
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
                line = run(options.work, files, tiny_encoder(options.work), options.method, seed, processes)
                results.add(**key, **line)
                print(key, line, flush=True)


def make(work: Path, seed: int) -> dict[str, Path]:
    """Labelled texts, a pool and test texts, drawn with the seed."""
    rng, words = np.random.default_rng([31, seed]), np.array(vocabulary())
    files = {part: work / f"{part}-{seed}.csv" for part in ("labelled", "pool", "test")}
    for part, number in (("labelled", LABELLED), ("test", TEST)):
        topics = np.arange(number) % TOPICS
        write_csv(files[part], ["text", "label"],
                  zip(written(rng, topics, words), map("topic {}".format, topics), strict=True))
    write_csv(files["pool"], ["text"], ([text] for text in written(rng, np.arange(POOL) % TOPICS, words)))
    return files


def run(work: Path, files: dict[str, Path], encoder: str, method: str, seed: int, processes: int) -> dict[str, Any]:
    """Trains with so many processes, and evaluates on the test texts."""
    out = work / "model"
    shutil.rmtree(out, ignore_errors=True)
    start = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
    train = [sys.executable, *start, "-m", "halflabel", "train", files["labelled"], "--unlabelled", files["pool"],
             "--encoder", encoder, "--plan", "laptop", "--method", method, *STEPS, "--minutes", "60",
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
