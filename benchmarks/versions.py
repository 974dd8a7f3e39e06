"""Speed of this checkout against an earlier one, by the same commands in turn.

    git worktree add --detach FOLDER COMMIT
    python benchmarks/versions.py --data DATA --other FOLDER --work WORK [--repeats 3] [--whole]

`train` fine-tunes a short laptop run of the default method on AG News; `predict` labels test texts with the model that
it wrote. Vectors are cached by a first run of each checkout that is not counted. `--whole` measures the default as it
is, vectors included, with ten labels per class and 10,000 unlabelled texts. With other load on the machine, the seconds
of processors are more reliable than those of the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from protocol import Results, load, sample_per_class

HERE = Path(__file__).parent.parent
POOL, WHOLE_POOL, TEST, STEPS = 600, 10_000, 1000, 20


def main() -> None:
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    write_texts(options.data, options.work, WHOLE_POOL if options.whole else POOL)
    checkouts, results = {"this": HERE, "other": options.other.resolve()}, Results("versions")
    commits = {name: commit_of(folder) for name, folder in checkouts.items()}
    for repeat in range(0 if options.whole else -1, options.repeats):
        for command in ("train", "predict"):
            for name in checkouts if repeat % 2 else reversed(checkouts):
                key = {"command": command, "checkout": name, "against": commits["other"], "repeat": repeat}
                key |= {"whole": True} if options.whole else {}
                if repeat >= 0 and results.has(**key):
                    continue
                seconds = run(command, checkouts[name], options.work / name, options.work, whole=options.whole)
                if repeat >= 0:
                    results.add(**key, commit=commits[name], **seconds)
                    print(command, name, seconds, flush=True)
    for command in ("train", "predict"):
        lines = {(line["checkout"], line["repeat"]): line["processor_seconds"] for line in results
                 if line["command"] == command and line["against"] == commits["other"]
                 and line.get("whole", False) == options.whole}
        ratios = [lines["this", repeat] / lines["other", repeat] for repeat in range(options.repeats)]
        print(f"{command}: {statistics.median(ratios):.2f} times the processor seconds of {commits['other'][:9]}")


def write_texts(data: Path, work: Path, unlabelled: int) -> None:
    sample = sample_per_class(load(data, "ag_news", "train"), 10, unlabelled, seed=0)
    rows = [*zip(sample.labelled.texts, sample.labelled.labels, strict=True),
            *((text, None) for text in sample.pool.texts)]
    with open(work / "train.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    with open(work / "test.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in load(data, "ag_news", "test", TEST).texts)


def run(command: str, checkout: Path, out: Path, work: Path, *, whole: bool) -> dict[str, float]:
    """Seconds of one command with the code of a checkout, by the clock and of processors."""
    steps = ["--minutes", "1000"] if whole else ["--set", "epochs=1", "--set", f"epoch_steps={STEPS}"]
    arguments = {"train": ["train", work / "train.jsonl", "--out", out, "--force", *steps],
                 "predict": ["predict", out, work / "test.jsonl", "--out", f"{out}.csv", "--force"]}[command]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "HALFLABEL_CACHE": f"{out}-cache"}
    began, before = time.perf_counter(), processor_seconds()
    subprocess.run([sys.executable, "-m", "halflabel", *map(str, arguments)], env=environment, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {"seconds": time.perf_counter() - began, "processor_seconds": processor_seconds() - before}


def processor_seconds() -> float:
    """Of all commands so far that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def commit_of(folder: Path) -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True,
                          text=True).stdout.strip()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--other", type=Path, required=True, help="another checkout")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--whole", action="store_true", help="the default as it is, instead of a short run")
    return parser.parse_args()


if __name__ == "__main__":
    main()
