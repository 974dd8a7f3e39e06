"""How time and memory grow with the pool: each size and plan in a process of its own, nothing cached.

    python benchmarks/growth.py --data FOLDER [--sizes 2000 20000 200000] [--plans frozen laptop] [--method lift]
                                [--plot]

Texts are AG News'; further ones are joined from halves of two of them. `lift` trains on a sample of a large pool, other
methods on all of it. `--plot` only plots the existing results into docs/growth.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from protocol import Results, load

SVG = Path(__file__).parent.parent / "docs" / "growth.svg"


def main() -> None:
    options = parse()
    if options.one:
        print(json.dumps(run(options.data, options.method, options.one[0], int(options.one[1]))))
        return
    results = Results("growth")
    for plan in options.plans if not options.plot else ():
        for size in options.sizes:
            key = {"method": options.method, "plan": plan, "unlabelled": size}
            if not results.has(**key):
                results.add(**key, **measure_apart(options.data, options.method, plan, size))
    plot(list(results))


def measure_apart(data: Path, method: str, plan: str, size: int) -> dict[str, Any]:
    """One run in a separate process with an empty cache."""
    with TemporaryDirectory() as cache:
        done = subprocess.run([sys.executable, __file__, "--data", str(data), "--method", method, "--one", plan,
                               str(size)], check=True, stdout=subprocess.PIPE, text=True,
                              env=os.environ | {"HALFLABEL_CACHE": cache})
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(method, plan, size, line, flush=True)
    return line


def run(data: Path, method: str, plan: str, size: int) -> dict[str, Any]:
    """Seconds and peak memory of one `fit`."""
    from resource import RUSAGE_SELF, getrusage

    from halflabel import TextClassifier

    train = load(data, "ag_news", "train")
    order = np.random.default_rng(0).permutation(len(train)).tolist()
    labelled, pool = train.take(order[:100]), stretched([train.texts[i] for i in order[100:]], size)
    clf = TextClassifier(method, plan=plan, random_state=0)
    before = getrusage(RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    clf.fit(labelled.texts, labelled.labels, unlabelled=pool)
    return {"seconds": time.perf_counter() - began, "megabytes": getrusage(RUSAGE_SELF).ru_maxrss / 1024,
            "megabytes_before": before / 1024}


def stretched(texts: list[str], size: int) -> list[str]:
    """`size` different texts: the given ones, then halves of two of them joined."""
    result, gap = texts[:size], 1
    while len(result) < size:
        for first, second in zip(texts, texts[gap:], strict=False):
            left, right = first.split(), second.split()
            result.append(" ".join(left[: len(left) // 2] + right[len(right) // 2 :]))
        gap += 1
    return result[:size]


def plot(lines: list[dict[str, Any]]) -> None:
    """Time and peak memory against the size of the pool."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "halflabel"  # the same figure gives the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for run in sorted({(line["method"], line["plan"]) for line in lines}):
        rows = sorted((line for line in lines if (line["method"], line["plan"]) == run),
                      key=lambda line: line["unlabelled"])
        sizes = [row["unlabelled"] for row in rows]
        axes[0].plot(sizes, [row["seconds"] / 60 for row in rows], "o-", label=", ".join(run))
        axes[1].plot(sizes, [row["megabytes"] / 1024 for row in rows], "o-", label=", ".join(run))
    for ax, name in zip(axes, ("minutes", "peak memory, GB"), strict=True):
        ax.set(xscale="log", yscale="log", xlabel="unlabelled texts", ylabel=name)
        ax.grid(True, which="both", alpha=0.3)
        ax.legend()
    figure.savefig(SVG, metadata={"Date": None})


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 20_000, 200_000])
    parser.add_argument("--plans", nargs="+", default=["frozen", "laptop"])
    parser.add_argument("--method", default="lift")
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("PLAN", "SIZE"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
