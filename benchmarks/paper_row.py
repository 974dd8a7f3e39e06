"""A row of the paper's Table II: AG News with 100 labelled texts, by the plan `paper`, on a smaller encoder.

    python benchmarks/paper_row.py --data FOLDER --work FOLDER [--methods bdd-f am-f bdd-s am-s freematch ce]
        [--encoder minilm] [--epochs 50] [--seeds 0]

The plan has the paper's 50 epochs of 1,000 steps, batch sizes, rates and dropout. What differs from the paper: the
encoder, 19,452 unlabelled texts instead of 20,000, words edited at random instead of back-translation, no dev set. A
run that was killed is continued from its last checkpoint in the folder `--work`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from sklearn.metrics import f1_score

from halflabel import TextClassifier, write
from protocol import Results, load, sample_per_class

PER_CLASS, UNLABELLED = 25, 20_000
SUPERVISED = ("ce",)


def main() -> None:
    options, results = parse(), Results("paper_row")
    train, test = (load(options.data, "ag_news", part) for part in ("train", "test"))
    for seed in options.seeds:
        split = sample_per_class(train, PER_CLASS, min(UNLABELLED, len(train) - 4 * PER_CLASS), seed)
        texts = options.work / f"texts-{seed}"
        texts.mkdir(parents=True, exist_ok=True)
        write(split.labelled, texts / "labelled.parquet")
        write(split.pool, texts / "pool.parquet")
        for method in options.methods:
            key = {"set": "ag_news", "labelled": len(split.labelled), "seed": seed, "method": method,
                   "encoder": options.encoder, "epochs": options.epochs}
            if not results.has(**key):
                folder = options.work / f"{method}-{options.encoder.replace('/', '-')}-{options.epochs}-{seed}"
                command = [sys.executable, "-m", "halflabel", "train", str(texts / "labelled.parquet"),
                           "--unlabelled", str(texts / "pool.parquet"), "--method", method, "--plan", "paper",
                           "--encoder", options.encoder, "--set", f"epochs={options.epochs}", "--seed", str(seed),
                           "--out", str(folder), *(["--resume"] if folder.exists() else [])]
                if method in SUPERVISED:
                    del command[5:7]
                subprocess.run(command, check=True)
                clf = TextClassifier.load(folder)
                predicted = clf.predict(test.texts).astype(int)
                assert clf.model_ is not None
                results.add(**key, accuracy=float((predicted == test.labels).mean()), n_test=len(test),
                            macro_f1=float(f1_score(test.labels, predicted, average="macro")),
                            unlabelled=0 if method in SUPERVISED else len(split.pool),
                            seconds=clf.model_.facts["run"]["seconds"])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder that the runs are saved in")
    parser.add_argument("--methods", nargs="+", default=["bdd-f", "am-f", "bdd-s", "am-s", "freematch", "ce"])
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    return parser.parse_args()


if __name__ == "__main__":
    main()
