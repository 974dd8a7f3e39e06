"""Start-up time: import, --help, and one prediction, each in a new process.

    python benchmarks/startup.py [--repeats 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from halflabel.data.labels import Classes
from halflabel.encoders.ngrams import NgramModel, TfIdf
from halflabel.students.student import Student
from protocol import Results

FEATURES = 100_000  # of the student
IMPORT = "import time; t = time.perf_counter(); import halflabel; print(time.perf_counter() - t)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    results = Results("startup")
    with TemporaryDirectory() as folder:
        model, exported = train(Path(folder))
        text = Path(folder) / "text.txt"
        text.write_text("The projector in room 4 does not turn on.\n", encoding="utf-8")
        tasks = {"help": ["--help"], "predict": ["predict", str(model), str(text)],
                 "predict, exported": ["predict", str(exported), str(text)],
                 "predict, distilled": ["predict", str(student(Path(folder))), str(text)]}
        for name, arguments in tasks.items():
            seconds = [timed([sys.executable, "-m", "halflabel", *arguments])[0] for _ in range(repeats)]
            add(results, name, seconds)
    add(results, "import", [float(timed([sys.executable, "-c", IMPORT])[1]) for _ in range(repeats)])


def train(folder: Path) -> tuple[Path, Path]:
    """A small model of the default encoder, in a process of its own, and its export."""
    code = ("from pathlib import Path; from halflabel import TextClassifier; from halflabel.data.corpus import sample; "
            "from halflabel.persistence.onnx_export import export; rows = sample('train').take(list(range(100))); "
            "clf = TextClassifier(plan='frozen').fit(rows.texts, rows.labels); "
            f"clf.save({str(folder / 'model')!r}); "
            f"export(clf.model_, Path({str(folder / 'onnx')!r}), rows.texts[:16], int8=True)")
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"HALFLABEL_CACHE": str(folder / "c")})
    return folder / "model", folder / "onnx"


def student(folder: Path) -> Path:
    """A student of the usual size; start-up does not depend on the values of its weights."""
    features = TfIdf("words", np.arange(FEATURES, dtype=np.uint32), np.ones(FEATURES, np.float32))
    weights, bias = np.zeros((FEATURES, 4), np.float32), np.zeros(4, np.float32)
    Student(Classes(("a", "b", "c", "d")), "multi-class", NgramModel(features, weights, bias)).save(folder / "student")
    return folder / "student"


def timed(command: list[str]) -> tuple[float, str]:
    """Seconds that a command takes from its start to its end, and what it prints."""
    assert find_spec("halflabel")
    began = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return time.perf_counter() - began, done.stdout


def add(results: Results, name: str, seconds: list[float]) -> None:
    results.add(task=name, seconds=statistics.median(seconds), slowest=max(seconds), repeats=len(seconds))
    print(f"{name}: {statistics.median(seconds):.2f} s (slowest {max(seconds):.2f})", flush=True)


if __name__ == "__main__":
    main()
