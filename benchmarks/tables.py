"""Writes the tables of the documentation from the committed results; `--check` only says whether they agree.

    python benchmarks/tables.py [--check]
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
TARGETS = ("README.md", "docs/results.md")
Line = dict[str, Any]


def main() -> None:
    tables = {name: make() for name, make in TABLES.items()}
    stale = [name for name in TARGETS if (ROOT / name).read_text(encoding="utf-8") != filled(ROOT / name, tables)]
    if "--check" in sys.argv:
        sys.exit(f"tables are stale in {', '.join(stale)}: run python benchmarks/tables.py" if stale else 0)
    for target in stale:
        (ROOT / target).write_text(filled(ROOT / target, tables), encoding="utf-8")


def filled(file: Path, tables: dict[str, str]) -> str:
    """The file with each `<!-- table: name -->` block written anew."""
    def block(found: re.Match[str]) -> str:
        return f"<!-- table: {found[1]} -->\n{tables[found[1]]}\n<!-- end -->"

    return re.sub(r"<!-- table: ([\w-]+) -->\n.*?<!-- end -->", block, file.read_text(encoding="utf-8"), flags=re.S)


def lines(name: str) -> list[Line]:
    file = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def grouped(rows: Iterable[Line], *keys: str) -> dict[tuple[Any, ...], list[Line]]:
    groups: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return groups


def spread(values: list[float]) -> str:
    """Mean and deviation over seeds; one seed has no deviation."""
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{deviation} ({len(values)})"


def markdown(head: list[str], body: list[list[str]]) -> str:
    if not body:
        return "Not run yet."
    rows = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def accuracy() -> str:
    """Accuracy on the official AG News test set by method and labels per class."""
    rows = [row for row in lines("accuracy") if row["set"] == "ag_news"]
    cells, shots = grouped(rows, "method", "per_class"), sorted({row["per_class"] for row in rows})
    body = []
    for method in ("default", "setfit", "self-training", "logreg"):
        found = [cells.get((method, n), []) for n in shots]
        if any(found):
            scores = [spread([row["accuracy"] for row in cell]) if cell else "not run" for cell in found]
            seconds = [f"{statistics.mean(row['seconds'] for row in cell):.0f} s" if cell else "" for cell in found]
            body.append([NAMES.get(method, method), *(x for pair in zip(scores, seconds, strict=True) for x in pair)])
    return markdown(["method", *(x for n in shots for x in (f"{n} labels per class", "time"))], body)


def balance() -> str:
    """BDD against AM on each set, and the mean difference over paired seeds."""
    body = []
    for (plan, name, per_class, unlabelled), rows in grouped(
            lines("balance"), "plan", "set", "per_class", "unlabelled").items():
        by = grouped(rows, "method")
        for kind in ("s", "f"):
            bdd, am = ({row["seed"]: row for row in by.get((f"{side}-{kind}",), [])} for side in ("bdd", "am"))
            seeds = sorted(bdd.keys() & am.keys())
            if seeds:
                gaps = [bdd[seed]["accuracy"] - am[seed]["accuracy"] for seed in seeds]
                pseudo = [statistics.mean(side[seed]["pseudo_accuracy"] for seed in seeds) for side in (bdd, am)]
                body.append([plan, name, f"{per_class} + {unlabelled}", f"-{kind.upper()}",
                             spread([bdd[seed]["accuracy"] for seed in seeds]),
                             spread([am[seed]["accuracy"] for seed in seeds]), f"{statistics.mean(gaps):+.3f}",
                             f"{pseudo[0]:.3f} / {pseudo[1]:.3f}"])
    return markdown(["plan", "set", "labels per class + pool", "form", "BDD", "AM", "difference",
                     "pseudo-labels right, BDD / AM"], body)


def start() -> str:
    """Pool accuracy after each part of the closed-form start, and by angles."""
    stages = ("logistic", "gaussian", "pooled", "smoothed", "words", "rule", "angles", "balanced")
    body = [[name, str(per_class), *(f"{statistics.mean(row[stage] for row in rows):.3f}" for stage in stages),
             str(len(rows))]
            for (name, per_class), rows in grouped(lines("start"), "set", "per_class").items()]
    return markdown(["set", "labels per class", *stages, "splits"], body)


def speed() -> str:
    """Texts per second of the two loops, medians over repeats, and their ratio."""
    by = grouped(lines("speed"), "loop")
    rate = {loop: statistics.median(row["texts_per_second"] for row in rows) for (loop,), rows in by.items()}
    body = [[NAMES.get(loop, loop), f"{rate[loop]:.0f}", f"{rate[loop] / rate['plain']:.2f}",
             spread([row["accuracy"] for row in by[(loop,)]])] for loop in rate]
    return markdown(["loop", "texts per second", "ratio", "accuracy after"], body)


def throughput() -> str:
    """Texts per second of each way, and medians over turns of the ratios within a turn."""
    body = []
    for (name,), rows in grouped(lines("throughput"), "set").items():
        turns = {repeat: {row["way"]: row for row in turn} for (repeat,), turn in grouped(rows, "repeat").items()}
        for way in dict.fromkeys(row["way"] for row in rows):
            mine = [(turn, turn[way]) for turn in turns.values() if way in turn]
            cells = [f"{statistics.median(row['texts_per_second'] for _, row in mine):.0f}"]
            for rival in ("sentence-transformers", "pipeline"):
                ratios = [row["texts_per_second"] / turn[rival]["texts_per_second"]
                          for turn, row in mine if rival in turn]
                cells.append(f"{statistics.median(ratios):.2f}" if ratios else "not run")
            cells.append(f"{statistics.median(row['flops'] / row['peak'] for _, row in mine):.0%}")
            for key in ("cosine", "same_labels"):
                found = [row[key] for _, row in mine if key in row]
                cells.append(f"{min(found):.4f}" if found else "")
            body.append([name, NAMES.get(way, way), *cells])
    return markdown(["set", "way", "texts per second", "to sentence-transformers", "to the pipeline",
                     "of the products' peak", "min cosine to fp32", "same labels as fp32"], body)


def race() -> str:
    """SetFit's accuracy and time, and the quickest plan that reaches that accuracy."""
    body = []
    for row in lines("race"):
        name = row["winner"]
        mine = row["tried"][name] if name else None
        body.append([str(row["per_class"]), str(row["seed"]), f"{row['setfit']['accuracy']:.3f}",
                     f"{row['setfit']['seconds']:.0f} s", name or "none reached it",
                     f"{mine['accuracy']:.3f}" if mine else "", f"{mine['seconds']:.0f} s" if mine else "",
                     f"{row['share']:.2f}" if mine else ""])
    return markdown(["labels per class", "split", "SetFit", "its time", "first plan as good", "accuracy", "time",
                     "share of SetFit's time"], body)


def growth() -> str:
    """Time and peak memory by plan and size of the pool."""
    return markdown(["plan", "unlabelled texts", "minutes", "peak memory, GB", "ms per text"],
                    [[row["plan"], f"{row['unlabelled']:,}", f"{row['seconds'] / 60:.1f}",
                      f"{row['megabytes'] / 1024:.2f}", f"{1000 * row['seconds'] / row['unlabelled']:.1f}"]
                     for row in lines("growth")])


def startup() -> str:
    """Seconds from the start of a process to its end."""
    return markdown(["what", "median", "slowest"],
                    [[row["task"], f"{row['seconds']:.2f} s", f"{row['slowest']:.2f} s"] for row in lines("startup")])


def machine() -> str:
    """What the figures were measured on."""
    seen = sorted({json.dumps({k: v for k, v in row["machine"].items() if k != "threads"}, sort_keys=True)
                   for name in ("accuracy", "balance", "start", "speed", "throughput", "race", "growth",
                                "startup")
                   for row in lines(name)})
    return "\n".join("- " + ", ".join(f"{key} {value}" for key, value in json.loads(one).items()) for one in seen)


NAMES = {"default": "**halflabel** (default)", "setfit": "SetFit",
         "self-training": "self-training (scikit-learn), frozen",
         "logreg": "logistic regression, frozen", "halflabel": "halflabel", "plain": "plain PyTorch, fp32"}
TABLES: dict[str, Callable[[], str]] = {
    "accuracy": accuracy, "balance": balance, "start": start, "speed": speed, "throughput": throughput,
    "race": race, "growth": growth, "startup": startup, "machine": machine}

if __name__ == "__main__":
    main()
