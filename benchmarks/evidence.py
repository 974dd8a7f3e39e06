"""All runs behind the tables of accuracy, in the order in which they say most; finished runs are not repeated.

    python benchmarks/evidence.py --data FOLDER [--part development|sealed|again] [--workers 2] [--minutes 150] [--list]

`development` has the default on four sets that decisions were made on, with and without class names, and what it is
compared with; `sealed` has all methods on three sets that nothing was chosen on, which are in the folder `sealed` of
FOLDER, and is run once, after the last change of numbers; `again` has the default on these sets once more, since it was
changed after that run and after a second one. A process has one core, also for BLAS, and trains one model, or on frozen
vectors those of all seeds; so the plan `laptop` may take 30 minutes, for which two cores would take the 15 that it is
shipped with. Lines tell the steps that fitted into them. `--minutes` starts no run after so many, `--list` only tells
what is missing. Where class names turn out not to be used, a fine-tuned run that is told them is copied from the run
without, and says so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from accuracy import key_of
from protocol import Results

DEVELOPMENT = ("sst5", "clinc150", "ag_news", "arxiv_topics10")  # the fastest first
SEALED = ("trec6", "mr2", "ohsumed23")
PAPER = ("bdd-s", "bdd-f", "am-s", "am-f", "freematch", "flexmatch")
RIVALS = ("constant", "logreg", "self-training")
PLAN_MINUTES = 30
FIGURES = ("accuracy", "macro_f1", "confidence", "ece")
PARTS = {"development": "accuracy", "sealed": "sealed", "again": "sealed-third"}  # and their files of results


class Run(NamedTuple):
    """One model that is trained and evaluated."""

    name: str
    per_class: int
    seed: int
    method: str
    names: bool = False

    @property
    def key(self) -> dict[str, object]:
        return key_of(self.name, self.per_class, self.seed, self.method, names=self.names)

    @property
    def long(self) -> bool:
        """Whether it takes minutes."""
        return self.method == "setfit" or self.method.endswith("/laptop")


def development() -> Iterator[Run]:
    for name, per_class, method, seed in product(DEVELOPMENT, (10, 2, 25, 5, 1), RIVALS, range(5)):
        yield Run(name, per_class, seed, method)
    for name, per_class, names, seed in product(DEVELOPMENT, (10, 2, 25, 5, 1), (False, True), range(5)):
        yield Run(name, per_class, seed, "lift/frozen", names)
    for names, sets in product((False, True), (DEVELOPMENT[:-1], DEVELOPMENT[-1:])):
        for per_class, name, seed in product((10, 2, 25, 5) if names else (10, 2, 25, 5, 1), sets, range(3)):
            yield Run(name, per_class, seed, "lift/laptop", names)
    for per_class, name, seed in product((10, 25), DEVELOPMENT, range(3)):
        yield Run(name, per_class, seed, "setfit")


def sealed() -> Iterator[Run]:
    for name, per_class, seed in product(SEALED, (10, 2, 25, 5), range(5)):
        for method in RIVALS + tuple(f"{method}/frozen" for method in ("lift", *PAPER)):
            yield Run(name, per_class, seed, method)
        yield Run(name, per_class, seed, "lift/frozen", names=True)
    for name, seed in product(SEALED, range(3)):
        yield Run(name, 10, seed, "lift/laptop")
    for name, seed in product(("trec6", "mr2"), range(5)):
        yield Run(name, 10, seed, "setfit")
    for name, seed, method in product(SEALED, range(3), PAPER):
        yield Run(name, 10, seed, f"{method}/laptop")
    for name, seed in product(SEALED, range(3)):
        yield Run(name, 10, seed, "lift/laptop", names=True)
    for per_class, name, seed in product((10, 2, 25, 5), SEALED, range(5)):
        if name != "ohsumed23" or (per_class in (2, 10) and seed == 0):  # hours for each run on its long texts
            yield Run(name, per_class, seed, "setfit")


def again() -> Iterator[Run]:
    yield from (run for run in sealed() if run.method.startswith("lift/"))


def without_names(run: Run, results: Results) -> dict[str, Any] | None:
    """The run that a fine-tuned one with class names would repeat, step for step, since they are not used.

    `lift` decides that on frozen vectors, where no figure differs then.
    """
    if not run.names or not run.long:
        return None
    without, told = (results.get(**run._replace(method="lift/frozen", names=names).key) for names in (False, True))
    if without is None or told is None or any(without.get(figure) != told.get(figure) for figure in FIGURES):
        return None
    line = results.get(**run._replace(names=False).key)
    return line and line | {"copied": "class names are not used"}


def main() -> None:
    options = parse()
    results = Results(PARTS[options.part])
    runs = dict.fromkeys({"development": development, "sealed": sealed, "again": again}[options.part]())
    missing = [run for run in runs if not results.has(**run.key)]
    for (name, method, names), number in Counter((run.name, run.method, run.names) for run in missing).items():
        print(f"{number:4} {name} {method}{' with class names' * names}")
    if options.list:
        return
    together: dict[object, list[Run]] = {}  # runs of one process
    for run in missing:
        together.setdefault(run if run.long else run._replace(seed=0), []).append(run)
    end = time.monotonic() + 60 * options.minutes
    data = options.data if options.part == "development" else options.data / "sealed"

    def start(runs: list[Run]) -> int:
        if time.monotonic() > end:
            return 0
        run = runs[0]
        if line := without_names(run, results):
            results.add(**line | run.key)
            return 0
        command = [sys.executable, str(Path(__file__).with_name("accuracy.py")), "--data", str(data),
                   "--results", PARTS[options.part], "--name", run.name, "--per-class", str(run.per_class),
                   "--seeds", *(str(run.seed) for run in runs), "--methods", run.method,
                   "--threads", "1", *(["--names"] if run.names else []),
                   *(["--minutes", str(PLAN_MINUTES)] if run.method.endswith("/laptop") else [])]
        return subprocess.run(command, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}).returncode

    with ThreadPoolExecutor(options.workers) as workers:
        failed = sum(code != 0 for code in workers.map(start, together.values()))
    sys.exit(f"{failed} processes failed" if failed else 0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--part", choices=list(PARTS), default="development")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
