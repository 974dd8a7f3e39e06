"""Training beside other processes that keep all cores busy: threads must not wait actively for one that has no core.

    python benchmarks/busy.py --data FOLDER

A short run of the plan `laptop`, and one of the plan `frozen`, alone and beside as many busy processes as there are
cores, with halflabel's settings and with those that libraries have by themselves. Nothing else should run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from unittest import mock

import numpy as np

from protocol import Results, load, sample_per_class

PER_CLASS, POOL, STEPS = 10, 2000, 20
LIBRARIES = {"GOMP_SPINCOUNT": "300000"}  # what GNU OpenMP does by itself
LIMITED = ("make_problem", "look_ahead", "complete")  # functions in which numpy has fewer threads
WAYS = {"halflabel": {}, "settings of the libraries": LIBRARIES}


def main() -> None:
    options = parse()
    if options.run:
        return print(run(options.data, options.run, libraries=options.libraries))
    results = Results("busy")
    for plan in ("frozen", "laptop"):
        for way, settings in WAYS.items():
            for busy in (False, True):
                key = {"plan": plan, "way": way, "busy": busy}
                if results.has(**key):
                    continue
                command = [sys.executable, __file__, "--data", str(options.data), "--run", plan,
                           *(["--libraries"] if settings else [])]
                with busy_cores() if busy else nullcontext():
                    printed = subprocess.check_output(command, env=os.environ | settings, text=True)
                seconds = float(printed.splitlines()[-1])
                results.add(**key, seconds=seconds, steps=0 if plan == "frozen" else STEPS, unlabelled=POOL)
                print(key, round(seconds, 1), flush=True)


@contextmanager
def busy_cores() -> Iterator[None]:
    """Processes that compute for as long as the context lasts, one for each core."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


def run(data: Path, plan: str, *, libraries: bool) -> float:
    """Seconds of training, vectors of the texts apart."""
    from halflabel import TextClassifier, fitting

    split = sample_per_class(load(data, "ag_news", "train"), PER_CLASS, POOL, 0)
    texts = split.labelled.texts, np.array(split.labelled.labels)
    TextClassifier("logreg").fit(*texts, unlabelled=split.pool.texts)  # vectors are cached from now on
    settings = {} if plan == "frozen" else {"contrast": "off", "epochs": 1, "epoch_steps": STEPS}
    with ExitStack() as replaced:
        for name in LIMITED if libraries else ():
            function = getattr(fitting, name).__wrapped__
            replaced.enter_context(mock.patch.object(fitting, name, function))
        began = time.perf_counter()
        TextClassifier(plan=plan, minutes=1000, names="none", settings=settings, random_state=0).fit(
            *texts, unlabelled=split.pool.texts)
        return time.perf_counter() - began


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--libraries", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
