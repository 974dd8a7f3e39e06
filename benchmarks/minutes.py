"""Accuracy against training time: the default with the plan `frozen`, and with `laptop` and several time limits.

    python benchmarks/minutes.py --data FOLDER [--name ag_news] [--per-class 10] [--seeds 0 1 2] [--setfit]
        [--minutes 0.5 1 2 4 8 15]
    python benchmarks/minutes.py --plot

Every run starts with an empty cache, so that its time has the vectors of the unlabelled texts in it. Nothing else
should run beside it. `--plot` only draws docs/minutes.svg from the results.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from accuracy import POOLS
from halflabel import TextClassifier
from halflabel.data.corpus import Corpus
from halflabel.persistence.model import TrainedModel
from halflabel.types import Plan
from protocol import Results, Sample, load, sample_per_class
from rivals import setfit

SVG = Path(__file__).parent.parent / "docs" / "minutes.svg"


def main() -> None:
    options, results = parse(), Results("minutes")
    if options.plot:
        return plot(list(results), options.name, options.per_class)
    train, test = (load(options.data, options.name, part) for part in ("train", "test"))
    for seed in options.seeds:
        split = sample_per_class(train, options.per_class, POOLS[options.name], seed)
        for method, minutes in [("lift/frozen", None), *(("lift/laptop", limit) for limit in options.minutes),
                                *([("setfit", None)] if options.setfit else [])]:
            key = {"set": options.name, "per_class": options.per_class, "seed": seed, "method": method,
                   "minutes": minutes}
            if not results.has(**key):
                line = measure(method, minutes, split, test, seed)
                results.add(**key, **line)
                print(key, line, flush=True)


def measure(method: str, minutes: float | None, split: Sample, test: Corpus, seed: int) -> dict[str, Any]:
    """Accuracy on the test texts, and the seconds from texts to a model."""
    truth = np.array(test.labels)
    if method == "setfit":
        found = setfit(split, test, seed)
        return {"accuracy": float((found["predicted"] == truth).mean()), "seconds": found["seconds"]}
    with empty_cache():
        clf = TextClassifier("lift", plan=method.partition("/")[2], minutes=minutes, random_state=seed)
        began = time.perf_counter()
        clf.fit(split.labelled.texts, split.labelled.labels, unlabelled=split.pool.texts)
        seconds = time.perf_counter() - began
        assert isinstance(clf.model_, TrainedModel)
        return {"accuracy": float((clf.predict(test.texts) == truth).mean()), "seconds": seconds,
                "steps": Plan.from_json(clf.model_.facts["plan"]).steps}


@contextmanager
def empty_cache() -> Iterator[None]:
    """A cache of halflabel that has nothing in it, for as long as the context lasts."""
    before = os.environ.get("HALFLABEL_CACHE")
    with TemporaryDirectory() as folder:
        os.environ["HALFLABEL_CACHE"] = folder
        try:
            yield
        finally:
            del os.environ["HALFLABEL_CACHE"]
            if before is not None:
                os.environ["HALFLABEL_CACHE"] = before


def plot(lines: list[dict[str, Any]], name: str, per_class: int) -> None:
    """Mean accuracy over the samples against the median of the minutes."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "halflabel"  # the same figure gives the same file
    from matplotlib import pyplot

    points: dict[str, list[tuple[float, float]]] = {"halflabel": [], "SetFit": []}
    rows = [line for line in lines if line["set"] == name and line["per_class"] == per_class]
    for way in dict.fromkeys((line["method"], line["minutes"]) for line in rows):
        group = [line for line in rows if (line["method"], line["minutes"]) == way]
        points["SetFit" if way[0] == "setfit" else "halflabel"].append(
            (statistics.median(line["seconds"] for line in group) / 60,
             statistics.mean(line["accuracy"] for line in group)))
    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    for (label, curve), color, marker in zip(points.items(), ("#2f6fb0", "#9aa0a6"), "os", strict=True):
        if curve:
            axes.plot(*zip(*sorted(curve), strict=True), color=color, marker=marker, label=label)
    axes.set(xscale="log", xlabel="minutes of training, vectors included",
             ylabel=f"accuracy on {name}, {per_class} labels per class")
    axes.margins(0.1)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(SVG, metadata={"Date": None})


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--name", default="ag_news", choices=list(POOLS))
    parser.add_argument("--per-class", type=int, default=10)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, nargs="+", default=[0.5, 1.0, 2.0, 4.0, 8.0, 15.0])
    parser.add_argument("--setfit", action="store_true", help="measure SetFit as well")
    parser.add_argument("--plot", action="store_true")
    options = parser.parse_args()
    if not options.plot and options.data is None:
        parser.error("--data is needed, unless --plot is given")
    return options


if __name__ == "__main__":
    main()
