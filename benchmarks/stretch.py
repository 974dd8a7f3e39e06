"""Where balancing costs several labels: F1 of each label with and without it, by its stretch a_k and its positives.

    python benchmarks/stretch.py --data FOLDER [--sets arxiv54 ...] [--seeds 0 1 2 3 4]

Draws are those of multilabel.py, on frozen vectors, under `prior-quantile`. Each pair, `bdd-ml` and `am-ml`, runs with
pseudo-labels and without (lambda1 = 0), and is measured on training texts outside the draw.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kept import scores
from multilabel import SETS

from halflabel import TextClassifier
from halflabel.data.labels import Classes
from halflabel.methods.bdd import BalancedAngles
from protocol import Draw, Results, draw_any, load

MEASURED = 3000  # texts outside the draw, at most


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    results = Results("stretch")
    for name in options.sets:
        train = load(options.data, name, "train")
        classes, (labelled, unlabelled) = Classes.of(train.labels), SETS[name]
        for seed in options.seeds:
            draw = draw_any(train, labelled, min(unlabelled, len(train) - labelled - MEASURED // 2), seed)
            for weight in (1.0, 0.0):
                key = {"set": name, "labelled": labelled, "pool": len(draw.pool), "seed": seed, "lambda1": weight}
                if not results.has(**key):
                    line = pair(draw, classes, weight, seed)
                    results.add(**key, **line)
                    print(key, *(f"{m} {np.mean(line[m]):.3f}" for m in ("bdd-ml", "am-ml")), flush=True)


def pair(draw: Draw, classes: Classes, weight: float, seed: int) -> dict[str, Any]:
    """F1 of every label by both methods, the stretch that balancing gave it, and its labelled positives."""
    y, texts = classes.matrix(draw.labelled.labels), draw.rest.texts[:MEASURED]
    truth = classes.matrix(draw.rest.labels[:MEASURED]) > 0
    found: dict[str, Any] = {"positives": y.sum(axis=0).astype(int).tolist(), "n": len(texts)}
    for method in ("bdd-ml", "am-ml"):
        clf = TextClassifier(method, plan="frozen", random_state=seed, settings={"lambda1": weight})
        clf.fit(draw.labelled.texts, y, unlabelled=draw.pool.texts)
        said = clf.decision_(scores(clf.model_, texts), "prior-quantile") > 0
        both, either = (truth & said).sum(axis=0), truth.sum(axis=0) + said.sum(axis=0)
        found[method] = (2 * both / np.maximum(either, 1)).round(4).tolist()
        angles = clf.model_.network.angles
        if isinstance(angles, BalancedAngles):
            found["stretch"] = angles.stretch().numpy().round(3).tolist()
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
