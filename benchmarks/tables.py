"""Writes the tables of the documentation, and the report of the reduced protocol, from the committed results.

    python benchmarks/tables.py [--check]

`--check` writes nothing and fails if one of them is stale, if a table has lost its place in the documentation, or if
prose states an accuracy (a number with three decimals) that no table has and that is not marked `<!-- by hand -->`.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from halflabel.bench.comparisons import paired_test
from halflabel.bench.report import interval, signed

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
TARGETS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"<!-- table: ([\w-]+) -->\n(.*?)<!-- end -->", flags=re.S)
BY_HAND = "<!-- by hand -->"
ALL_STEPS, ALL_STEPS_OF_OTHERS = 375, 250  # of the plan `laptop`
MANY_COMMITS = 6  # more than that are not listed one by one
REDUCED, POOL = Path(__file__).parent / "reduced", 4000  # the reduced protocol, its unlabelled texts
Line = dict[str, Any]


def main() -> None:
    from halflabel.bench.comparisons import evaluate_claims
    from halflabel.bench.report import make_document
    from halflabel.bench.results import load_results

    tables = {name: with_commits(make) for name, make in TABLES.items()}
    results = load_results(REDUCED / "results.jsonl")
    report = make_document(results, evaluate_claims(results))
    wanted = {file: filled(file, tables) for file in TARGETS} | {REDUCED / "report.md": report.markdown()}
    stale = {file: text for file, text in wanted.items() if file.read_text(encoding="utf-8") != text}
    if "--check" in sys.argv:
        sys.exit("\n".join([*(f"{file.relative_to(ROOT)} is stale: run python benchmarks/tables.py" for file in stale),
                            *lost_tables(), *unsupported_figures(tables)]) or 0)
    for file, text in stale.items():
        file.write_text(text, encoding="utf-8")
    (REDUCED / "report.html").write_text(report.html(), encoding="utf-8")  # not compared: its figures depend on fonts


def filled(file: Path, tables: dict[str, str]) -> str:
    """The file with each `<!-- table: name -->` block replaced."""
    def block(found: re.Match[str]) -> str:
        return f"<!-- table: {found[1]} -->\n{tables[found[1]]}\n<!-- end -->"

    return BLOCK.sub(block, file.read_text(encoding="utf-8"))


def lost_tables() -> list[str]:
    """Tables that no document shows."""
    shown = {found[1] for file in TARGETS for found in BLOCK.finditer(file.read_text(encoding="utf-8"))}
    return [f"the table {name} is in no document" for name in TABLES if name not in shown]


def unsupported_figures(tables: dict[str, str]) -> list[str]:
    """Accuracies in paragraphs that no table has and that are not marked as taken by hand."""
    number = r"(?<![\w.,])\d\.\d{3}(?![\w.])"
    known = set(re.findall(number, "\n".join(tables.values())))
    found = []
    for file in TARGETS:
        text = file.read_text(encoding="utf-8")
        prose = re.sub(r"```.*?```|`[^`]*`", "", BLOCK.sub("", text), flags=re.S) if BLOCK.search(text) else ""
        for paragraph in re.split(r"\n\s*\n", prose):
            unknown = [x for x in re.findall(number, paragraph) if x not in known]
            if unknown and BY_HAND not in paragraph and not paragraph.startswith(("    ", "|")):
                found.append(f"{file.relative_to(ROOT)} states {', '.join(unknown)}, which no table has")
    return found


def lines(name: str, folder: Path = RESULTS) -> list[Line]:
    file = folder / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def grouped(rows: Iterable[Line], *keys: str) -> dict[tuple[Any, ...], list[Line]]:
    groups: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
        _in_table[id(row)] = row
    return groups


_in_table: dict[int, Line] = {}  # the runs that the table which is being made has grouped


def with_commits(make: Callable[[], str]) -> str:
    """A table, and below it the commits and, if several, the processors of its runs, unless it groups none."""
    _in_table.clear()
    table = make()
    runs = Counter(commit_of(row) for row in _in_table.values())
    if not runs or not table.startswith("|"):
        return table
    unknown, known = runs.pop("", 0), [f"{commit} ({number})" for commit, number in runs.items()]
    older = [f"{unknown} from before commits were recorded"] if unknown else []
    shown = known if len(known) <= MANY_COMMITS else [f"{len(known)} commits from {known[0]} to {known[-1]}"]
    processors = Counter(row["machine"]["cpu"] for row in _in_table.values() if "machine" in row)
    by_processor = ", ".join(f"{cpu} ({number})" for cpu, number in processors.items())
    where = f" By processor: {by_processor}." if len(processors) > 1 else ""
    return f"{table}\n\n<sub>Runs by commit: {', '.join([*shown, *older])}.{where}{shortened(_in_table.values())}</sub>"


def shortened(rows: Iterable[Line]) -> str:
    """A sentence on fine-tuned runs that had no time for all steps of their plan; empty if there are none."""
    found: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        method = str(row.get("method", ""))
        full = ALL_STEPS if method.startswith("lift/") else ALL_STEPS_OF_OTHERS
        if "/laptop" in method and "per_class" in row and row.get("steps", full) < full:
            found[full].append(row["steps"])
    return "".join(f" Fine-tuned runs without time for all {full} steps: {len(steps)} (at least {min(steps)} steps)."
                   for full, steps in found.items())


def commit_of(row: Line) -> str:
    """The commit that a run was made with, `+` if the tree had changes; empty if it was not recorded."""
    code = row.get("code") or {}
    return str(code.get("commit") or "")[:7] + "+" * (code.get("clean") is False)


def spread(values: list[float]) -> str:
    """Mean and deviation over seeds; one seed has no deviation."""
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{deviation} ({len(values)})"


def markdown(head: list[str], body: list[list[str]]) -> str:
    if not body:
        return "Not run yet."
    rows = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def accuracy(name: str, file: str = "accuracy", measure: str = "accuracy") -> str:
    """A measure on the official test texts of a set by method and labels per class."""
    rows = [row for row in accuracy_lines(file) if row["set"] == name]
    cells, shots = grouped(rows, "method", "per_class"), sorted({row["per_class"] for row in rows})
    others = sorted({row["method"] for row in rows} - set(DECIDE), key=lambda method: ("/laptop" not in method, method))
    body = []
    for method, label in (DECIDE | {method: labelled(method) for method in others}).items():
        found = [cells.get((method, n), []) for n in shots]
        if any(found):
            body.append([label, *(spread([row[measure] for row in cell]) if cell else "" for cell in found)])
    return markdown(["", *(f"{n} label{'s' * (n != 1)} per class" for n in shots)], body)


def sealed_differences() -> str:
    """Differences of accuracy over the same samples of the sealed sets; BDD less AM without what the guard changed."""
    used = {method for pair in SEALED_PAIRS for method in pair}
    runs = {key: row for key, (row,) in grouped((row for row in accuracy_lines("sealed") if row["method"] in used),
                                                "set", "method", "per_class", "seed").items()}
    shots = sorted({per_class for _, _, per_class, _ in runs})

    def cell(name: str, method: str, other: str, per_class: int) -> str:
        pairs = [(row, runs[name, other, n, seed]) for (found, kind, n, seed), row in runs.items()
                 if (found, kind, n) == (name, method, per_class) and (name, other, n, seed) in runs]
        kept = [pair for pair in pairs
                if not method.startswith("bdd") or not any("abandoned" in row["why"] for row in pair)]
        apart = f"{len(pairs) - len(kept)} abandoned" if len(kept) < len(pairs) else ""
        if not kept:
            return apart
        test = paired_test(*zip(*((row["accuracy"], to["accuracy"]) for row, to in kept), strict=True))
        return f"{signed(test.difference)} ({interval(test)})" + f", {apart}" * bool(apart)

    body = [[f"{DECIDE.get(method) or labelled(method)} less {DECIDE.get(other) or labelled(other)}", name,
             *(cell(name, method, other, n) for n in shots)]
            for method, other in SEALED_PAIRS for name in ("trec6", "mr2", "ohsumed23")]
    return markdown(["difference", "set", *(f"{n} labels per class" for n in shots)],
                    [row for row in body if any(row[2:])])


def sealed_again() -> str:
    """Accuracy of the default on the sealed sets, in three runs, the second of which was interrupted in part."""
    order = {"sealed": "first", "sealed-again": "second", "sealed-third": "third"}
    runs = {file: grouped((row for row in accuracy_lines(file) if row["method"].startswith("lift/")),
                          "set", "method", "per_class") for file in order}
    shots = sorted({per_class for _, _, per_class in runs["sealed"]})

    def cell(name: str, method: str, per_class: int) -> str:
        found = [rows.get((name, method, per_class)) for rows in runs.values()]
        return ", ".join(spread([row["accuracy"] for row in rows]) if rows else "-" for rows in found) * any(found)

    labels = DECIDE | {"lift/laptop, contrast with EM": "**halflabel**, contrast with EM (interrupted)",
                       "lift/laptop, 15 minutes of one core": "**halflabel**, 15 minutes of one core (interrupted)"}
    body = [[name, label, *(cell(name, method, n) for n in shots)] for name in ("trec6", "mr2", "ohsumed23")
            for method, label in labels.items()]
    return markdown(["set", "", *(f"{n} labels per class: {', '.join(order.values())}" for n in shots)],
                    [row for row in body if any(row[2:])])


def labelled(method: str) -> str:
    """`bdd-s/frozen+names` in words."""
    kind, _, plan = method.removesuffix("+names").partition("/")
    return f"`{kind}`, plan `{plan}`" + ", told class names" * method.endswith("+names")


def accuracy_lines(file: str = "accuracy") -> list[Line]:
    """Runs of `benchmarks/accuracy.py` with the default encoder; `+names` after a method that was told class names."""
    return [row | {"method": row["method"] + "+names" * bool(row.get("names"))} for row in lines(file)
            if not row.get("encoder")]


def torture() -> str:
    """What the torture bench tried, and what went wrong."""
    by = {what: rows for (what,), rows in grouped(lines("torture"), "what").items()}
    kills, together = by["kills"], by["together"]
    disk = {(row["job"], row["kind"], row.get("place"), row.get("kilobytes")): row["good"] for row in by["disk"]}
    body = [["SIGKILL at a random moment, then resumed", f"{sum(row['kills'] for row in kills):,} kills in "
             f"{len({row['job'] for row in kills})} kinds of jobs",
             f"{sum(bool(row['problems'] or row['lost'] or row['different'] or row['left_behind']) for row in kills)} "
             "rounds lost or changed something"],
            ["full disk, read-only folder", f"{len(by['disk'])} times",
             f"{sum(not good for good in disk.values())} went wrong when last tried"]]
    for what, label in (("files", "damaged or hostile files"), ("models", "mutated model folders")):
        body.append([label, f"{sum(row['cases'] for row in by[what]):,}",
                     f"{sum(sum(row['defects'].values()) for row in by[what])} defects; "
                     f"{sum(row['refused'] for row in by[what]):,} refused"])
    body.append(["processes in one folder and one cache", f"{len(together)} rounds",
                 f"{sum(not row['good'] for row in together)} went wrong"])
    for row in by["soak summary"][-2:]:
        body.append([f"soak, `{row['process']}`", f"{row['minutes']} minutes", f"{row['first_mb']:.0f} MB after ten "
                     f"minutes, {row['last_mb']:.0f} MB at the end; open files {row['open_files'][0]} and "
                     f"{row['open_files'][1]}"])
    return markdown(["what", "how often", "result"], body)


DECIDE = {"lift/laptop+names": "**halflabel**, told class names", "lift/laptop": "**halflabel**",
          "lift/frozen+names": "**halflabel**, plan `frozen`, told class names",
          "lift/frozen": "**halflabel**, plan `frozen`", "setfit": "SetFit", "self-training": "self-training",
          "logreg": "logistic regression", "constant": "one class"}
SEALED_PAIRS = (("lift/laptop", "setfit"), ("lift/laptop", "lift/frozen"), ("lift/laptop", "logreg"),
                ("lift/laptop", "bdd-s/laptop"), ("lift/frozen", "logreg"),
                ("lift/frozen+names", "lift/frozen"), ("lift/frozen", "bdd-f/frozen"),
                ("bdd-f/frozen", "am-f/frozen"), ("bdd-s/frozen", "am-s/frozen"),
                ("bdd-f/laptop", "am-f/laptop"), ("bdd-s/laptop", "am-s/laptop"))


def decide() -> str:
    """Accuracy with 10 labels per class on each test set, and training time."""
    cells = grouped((row for row in accuracy_lines() if row["per_class"] == 10), "set", "method")
    sets = sorted({name for name, _ in cells})
    body = []
    for method, label in DECIDE.items():
        found = [cells.get((name, method), []) for name in sets]
        if not any(found):
            continue
        body.append([label, *(spread([row["accuracy"] for row in cell]) + ("" if method == "constant" else
                              f", {statistics.median(row['seconds'] for row in cell):.0f} s") if cell else "not run"
                              for cell in found)])
    return markdown(["", *sets], body)


def encoders() -> str:
    """Accuracy of `lift` on frozen vectors by encoder and set, and the time to encode in that of minilm."""
    rows = [row for row in lines("encoders") if "accuracy" in row]
    sets, body = sorted({(row["set"], row["per_class"]) for row in rows}), []
    times = grouped((row for row in lines("encoders") if "times" in row), "encoder")
    for (name,), some in grouped(rows, "encoder").items():
        cells = grouped(some, "set", "per_class")
        scores = [spread([row["accuracy"] for row in cells[key]]) if key in cells else "not run" for key in sets]
        turns = [row["times"] for row in times.get((name,), [])]
        body.append([name.replace("+", " + "), str(some[0]["width"]), *scores,
                     f"{statistics.median(turns):.1f}" if turns else "not run"])
    return markdown(["encoder", "width", *(f"{name}, {n} per class" for name, n in sets), "time to encode"], body)


def encoders_laptop() -> str:
    """Accuracy of fine-tuned `lift` on official tests by encoder, where more than one was measured."""
    rows = [row | {"encoder": row.get("encoder") or "minilm"} for row in lines("accuracy")
            if row["method"] == "lift/laptop" and row.get("names")]
    others = {(row["set"], row["per_class"]) for row in rows if row["encoder"] != "minilm"}
    cells = grouped((row for row in rows if (row["set"], row["per_class"]) in others), "set", "per_class", "encoder")
    body = [[name, str(per_class), encoder, spread([row["accuracy"] for row in some]),
             f"{statistics.median(row['seconds'] for row in some):.0f} s"]
            for (name, per_class, encoder), some in sorted(cells.items(), reverse=True)]
    return markdown(["set", "labels per class", "encoder", "accuracy", "time (median)"], body)


def balance() -> str:
    """BDD against AM on each set, and the mean difference over paired seeds."""
    body = []
    runs = [row | {"plan": row["plan"] + steps(row["settings"])} for row in lines("balance")]
    for (plan, name, per_class, unlabelled), rows in sorted(
            grouped(runs, "plan", "set", "per_class", "unlabelled").items()):
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


def bdd(plan: str) -> str:
    """Accuracy of AM, and the mean difference of each variant of balanced angles from it over the same seeds."""
    arms = ("bdd", "oracle", "placebo", "uniform", "weights", "shrunk")
    body = []
    runs = [row for row in lines("bdd") if row["plan"] == plan]
    for (name, form), rows in sorted(grouped(runs, "set", "form").items()):
        by = {arm: {row["seed"]: row for row in some} for (arm,), some in grouped(rows, "arm").items()}
        am = by.get("am", {})
        gaps = [[row["accuracy"] - am[seed]["accuracy"] for seed, row in by.get(arm, {}).items() if seed in am]
                for arm in arms]
        ratio = statistics.mean(max(row["true_a"]) / min(row["true_a"]) for row in am.values())
        share = statistics.mean(map(recovered, by.get("bdd", {}).values())) if by.get("bdd") else float("nan")
        body.append([name, f"-{form.upper()}", spread([row["accuracy"] for row in am.values()]),
                     *(f"{statistics.mean(gap):+.3f}" + (f" ± {statistics.stdev(gap):.3f}" if len(gap) > 1 else "")
                       if gap else "not run" for gap in gaps), f"{ratio:.2f}", f"{share:+.2f}"])
    return markdown(["set", "form", "AM", *arms, "true ratio of a", "recovered"], body)


def recovered(row: Line) -> float:
    """The slope of a regression of log a_k, by pseudo-labels, on log a_k by true labels: 1 if all was recovered."""
    true, found = ([math.log(a) for a in row[key]] for key in ("true_a", "a"))
    return sum(x * y for x, y in zip(true, found, strict=True)) / sum(x * x for x in true)


def steps(settings: dict[str, float]) -> str:
    """What was not as the plan has it: how many steps, or which weights of the objective and rates."""
    weights = "".join(f", {name} {value:g}" for name, value in settings.items() if name.startswith("lambda"))
    if "warmup" not in settings:
        return weights or "".join(f", {name} {value:g}" for name, value in settings.items())
    return f", {settings['warmup']} + {settings['epochs'] * settings['epoch_steps']} steps" + weights


def floor() -> str:
    """Each method with its pool against its labels alone: mean gain, and in how many splits it was a loss."""
    rows = lines("floor")
    shots, body = sorted({row["per_class"] for row in rows}), []
    for (plan, name, method), cell in sorted(grouped(rows, "plan", "set", "method").items()):
        shown = []
        for n in shots:
            found = [row for row in cell if row["per_class"] == n]
            alone, both = ([row[side] for row in found] for side in ("labels", "both"))
            lower = sum(b < a for a, b in zip(alone, both, strict=True))
            shown += ([f"{statistics.mean(alone):.3f} → {statistics.mean(both):.3f}", f"{lower} of {len(found)}"]
                      if found else ["not run", ""])
        collapses = sum("collapsed" in " ".join(row["notices"]) for row in cell)
        body.append([plan, name, f"`{method}`", *shown, str(collapses)])
    head = [x for n in shots for x in (f"{n} labels per class", "lower")]
    return markdown(["plan", "set", "method", *head, "collapses"], body)


def compared() -> list[Line]:
    """Runs of the paper's method for several labels and of what it is compared with there."""
    return [row for row in lines("multilabel") if row["method"].split("/")[0] in COMPARED]


def multilabel() -> str:
    """F1 under both decisions, ranking loss and LRAP by set and method, then F1 averaged over the sets."""
    body = []
    rows = compared()
    for (name, labelled, unlabelled, method), some in sorted(
            grouped(rows, "set", "labelled", "unlabelled", "method").items()):
        f1 = [spread([row[rule][key] for row in some]) for rule in RULES for key in ("micro_f1", "macro_f1")]
        ranks = [f"{statistics.mean(row[RULES[0]][key] for row in some):.3f}" for key in ("ranking_loss", "lrap")]
        empty = [f"{statistics.mean(row[rule]['empty'] / row['n'] for row in some):.0%}" for rule in RULES]
        body.append([name, f"{labelled} + {unlabelled}", NAMES.get(method, method), *f1, *ranks, " / ".join(empty)])
    return markdown(["set", "labelled + pool", "method", *(f"{kind} F1, {rule}" for rule in RULES
                     for kind in ("micro", "macro")), "ranking loss", "LRAP", "no label"], body)


def multilabel_rest() -> str:
    """Micro and macro F1 on training texts outside the sample, under both decisions."""
    body = [[name, f"{labelled} + {unlabelled}", method.removesuffix("/frozen"),
             *(spread([row[rule][key] for row in some]) for rule in RULES for key in ("micro_f1", "macro_f1"))]
            for (name, labelled, unlabelled, method), some in sorted(
                grouped(lines("multilabel-rest"), "set", "labelled", "unlabelled", "method").items())]
    return markdown(["set", "labelled + pool", "method", *(f"{kind} F1, {rule}" for rule in RULES
                                                           for kind in ("micro", "macro"))], body)


def multilabel_mean() -> str:
    """Means over the sets of the mean over seeds, for methods that ran on the same sets and seeds."""
    rows = compared()
    runs = {method: {(row["set"], row["seed"]) for row in some} for (method,), some in grouped(rows, "method").items()}
    body = []
    for (method,), some in sorted(grouped(rows, "method").items()):
        by = grouped(some, "set")
        means = [statistics.mean(statistics.mean(row[rule][key] for row in per) for per in by.values())
                 for rule in RULES for key in ("micro_f1", "macro_f1")]
        body.append([NAMES.get(method, method), *(f"{x:.3f}" for x in means),
                     f"{len(by)} sets, {len(runs[method])} runs"])
    return markdown(["method", *(f"{kind} F1, {rule}" for rule in RULES for kind in ("micro", "macro")), "over"], body)


def stretch() -> str:
    """F1 of bdd-ml minus am-ml, averaged over the labels of each kind, and how many there were in all runs."""
    kinds: dict[str, Callable[[float, int], bool]] = {
        "a below 0.9": lambda a, n: a < 0.9, "0.9 to 1.1": lambda a, n: 0.9 <= a <= 1.1,
        "above 1.1": lambda a, n: a > 1.1, "0 to 2 positives": lambda a, n: n < 3, "3 to 9": lambda a, n: 3 <= n < 10,
        "10 and more": lambda a, n: n >= 10}
    body = []
    for (name, weight), rows in grouped(lines("stretch"), "set", "lambda1").items():
        labels = [label for row in rows for label in zip(row["stretch"], row["positives"], row["bdd-ml"], row["am-ml"],
                                                         strict=True)]
        shown = []
        for kind in kinds.values():
            gains = [bdd - am for a, n, bdd, am in labels if kind(a, n)]
            shown.append(f"{statistics.mean(gains):+.3f} ({len(gains)})" if gains else "none")
        body.append([name, "yes" if weight else "no", *shown])
    return markdown(["set", "pseudo-labels", *kinds], body)


def parity() -> str:
    """How far pieces of ours are from those of USB on the same inputs."""
    return markdown(["what", "steps", "largest difference", "mean"],
                    [[row["what"], str(row["steps"]), f"{row['largest_difference']:.0e}", f"{row['mean']:.3f}"]
                     for row in lines("parity")])


def methods(plan: str) -> str:
    """Every method on each set under one plan, 25 labels per class and 4,000 pool texts, best first by the mean."""
    wanted = {"plan": plan, "per_class": 25, "unlabelled": 4000}
    rows = [row for row in lines("methods") if wanted.items() <= row.items()]
    cells, sets = grouped(rows, "method", "set"), list(dict.fromkeys(row["set"] for row in rows))
    body = []
    for (method,), mine in grouped(rows, "method").items():
        found = [cells.get((method, name), []) for name in sets]
        scores = [spread([row["accuracy"] for row in cell]) if cell else "not run" for cell in found]
        means = [statistics.mean(row["accuracy"] for row in cell) if cell else 0.0 for cell in found]
        seconds = statistics.median(row["seconds"] for row in mine)
        body.append((statistics.mean(means), [f"`{method}`", *scores, f"{seconds:.0f} s"]))
    chance = ["chance", *(f"{1 / next(row['labels'] for row in rows if row['set'] == name):.3f}" for name in sets), ""]
    table = [row for _, row in sorted(body, key=lambda pair: -pair[0])]
    return markdown(["method", *sets, "time (median)"], [*table, chance] if table else [])


def methods_several(plan: str, rule: str | None = None) -> str:
    """Micro and macro F1 of every method for several labels on each set, under its own decision or under `rule`."""
    rows = [row for row in lines("multilabel") if row["method"].endswith(f"/{plan}")]
    cells, body = grouped(rows, "method", "set"), []
    for (name,), mine in grouped(rows, "method").items():
        method = name.split("/")[0]
        decision = rule or (RULES[0] if method in BY_FREQUENCY else RULES[1])
        found = [cells.get((name, one), []) for one in SEVERAL]
        shown = [f"{spread([row[decision][key] for row in cell])}" if cell else "not run"
                 for cell in found for key in ("micro_f1", "macro_f1")]
        means = [statistics.mean(row[decision]["micro_f1"] for row in cell) if cell else 0.0 for cell in found]
        seconds = statistics.median(row["seconds"] for row in mine)
        body.append((statistics.mean(means), [f"`{method}`", decision, *shown, f"{seconds:.0f} s"]))
    head = ["method", "decision", *(f"{one}, {kind} F1" for one in SEVERAL for kind in ("micro", "macro"))]
    return markdown([*head, "time (median)"], [row for _, row in sorted(body, key=lambda pair: -pair[0])])


def reduced_runs(task: str, plan: str) -> list[dict[str, Any]]:
    """Runs of the reduced protocol, without dev sets and ablations."""
    rows = [{**result, **result["run"]} for line in lines("results", REDUCED) if (result := line.get("result"))]
    wanted = {"task": task, "plan": plan, "protocol": "none", "unlabelled": POOL}
    return [row for row in rows if wanted.items() <= row.items() and " -" not in row["method"]]


def reduced(task: str, rule: str) -> str:
    """The reduced protocol on frozen vectors without a dev set: micro F1 by method and labels, the mean of its sets."""
    rows = reduced_runs(task, "frozen")
    counts, sets = sorted({row["labelled"] for row in rows}), {row["set"] for row in rows}
    body = []
    for (method,), mine in grouped(rows, "method").items():
        cells = grouped(mine, "labelled", "seed")
        seeds = sorted({row["seed"] for row in mine})
        found = [[statistics.mean(row["figures"][rule]["micro_f1"] for row in cells[n, seed])
                  for seed in seeds if len(cells[n, seed]) == len(sets)] for n in counts]
        if all(found):
            body.append((statistics.mean(map(statistics.mean, found)), [f"`{method}`", *map(spread, found)]))
    return markdown(["method", *(f"{n} texts" if task == "multi-label" else f"{n} per class" for n in counts)],
                    [row for _, row in sorted(body, key=lambda pair: -pair[0])])


def reduced_tuned(task: str, rule: str) -> str:
    """The reduced protocol fine-tuned: micro F1 by method and set."""
    rows = reduced_runs(task, "laptop")
    sets, cells = sorted({row["set"] for row in rows}), grouped(rows, "method", "set")
    body = [[f"`{method}`", *(spread([row["figures"][rule]["micro_f1"] for row in cells[method, name]])
                              if cells[method, name] else "not run" for name in sets)]
            for method in sorted({row["method"] for row in rows})]
    return markdown(["method", *sets], body)


def start() -> str:
    """Pool accuracy after each part of the closed-form start, and by angles."""
    stages = ("logistic", "gaussian", "pooled", "smoothed", "words", "rule", "angles", "balanced")
    body = [[name, str(per_class), *(f"{statistics.mean(row[stage] for row in rows):.3f}" for stage in stages),
             str(len(rows))]
            for (name, per_class), rows in grouped(lines("start"), "set", "per_class").items()]
    return markdown(["set", "labels per class", *stages, "splits"], body)


def names() -> str:
    """Accuracy of the closed form without class names, with them, and with names that mean nothing."""
    kinds, body = ("none", "names", "opaque"), []
    for (name, per_class), rows in sorted(grouped(lines("names"), "set", "per_class").items()):
        by = {kind: {row["seed"]: row["accuracy"] for row in rows if row["names"] == kind} for kind in kinds}
        seeds = set.intersection(*(set(by[kind]) for kind in kinds if by[kind]))  # the same splits in each column
        if seeds and (all(by.values()) or not per_class):
            body.append([name, str(per_class), *(f"{statistics.mean(by[kind][seed] for seed in seeds):.3f}" if by[kind]
                                                 else "" for kind in kinds), str(len(seeds))])
    return markdown(["set", "labels per class", "no names", "names", "opaque names", "splits"], body)


def trust() -> str:
    """Runs of the closed form below labels alone, with a switch and with the mixture that replaced it."""
    rows = lines("trust")
    ways: dict[str, Callable[[Line], float]] = {
        "switch": lambda row: row["trust_1" if row["evidence"] >= 3.0 else "trust_0"],
        "mixture (`lift`)": lambda row: row["mixture"]}
    return markdown(["", *LOSSES], [
        [name, *losses([(row["labels_only"], way(row), row["n_test"]) for row in rows])] for name, way in ways.items()])


def splits() -> str:
    """What the evidence for clusters says in other draws of the random splits, by their number."""
    rows, body = [row for row in lines("trust") if row.get("draws")], []
    for number in sorted({number for row in rows for number in row["draws"]}):
        draws = [(value, row["trust_1"] - row["trust_0"]) for row in rows for value in row["draws"][number]]
        deviation = statistics.mean(statistics.stdev(row["draws"][number]) for row in rows)
        given_up = sum(value < 0.0 and gain > 0.02 for value, gain in draws)
        believed = sum(value > EVEN and gain < -0.02 for value, gain in draws)
        helpful, harmful = (sum(sign * gain > 0.02 for _, gain in draws) for sign in (1, -1))
        body.append([number, str(len(rows)), f"{deviation:.2f}",
                     f"{given_up} of {helpful}", f"{believed} of {harmful}"])
    return markdown(["random splits", "samples", "deviation of L", "draws that give up clusters worth over 2 points",
                     "draws that trust clusters that cost over 2 points by half or more"], body)


EVEN = math.log(0.7 / 0.3)  # evidence from which on the trust is a half


def trust_official() -> str:
    """Runs of the default below logistic regression on the same labels, by plan, class names and labels per class."""
    place = itemgetter("set", "per_class", "seed")
    alone = {place(row): row["accuracy"] for row in accuracy_lines() if row["method"] == "logreg"}
    runs = [row for row in accuracy_lines() if row["method"] in DEFAULTS and place(row) in alone]
    body = []
    for (method,), rows in sorted(grouped(runs, "method").items(), key=lambda item: DEFAULTS.index(item[0][0])):
        plan, _, names = method.removeprefix("lift/").partition("+")
        counts = sorted({row["per_class"] for row in rows})
        for label, some in [*((str(n), {n}) for n in counts), ("all", set(counts))]:
            body.append([f"`{plan}`", "told" if names else "not told", label, *losses(
                [(alone[place(row)], row["accuracy"], row["n_test"]) for row in rows if row["per_class"] in some])])
    return markdown(["plan", "class names", "labels per class", *LOSSES], body)


DEFAULTS = ("lift/frozen", "lift/frozen+names", "lift/laptop", "lift/laptop+names")
Pair = tuple[float, float, int]  # accuracies on labels alone and with the pool, test texts
LOSSES = ("runs", "labels alone", "with the pool", "below labels alone", "by more than noise", "largest loss")


def losses(pairs: list[Pair]) -> list[str]:
    """Mean accuracies, how often the pool costs accuracy, how often by more than two standard errors, and how much."""
    lost = [alone - found for alone, found, _ in pairs]
    noise = [2 * (2 * alone * (1 - alone) / n) ** 0.5 for alone, _, n in pairs]
    return [str(len(pairs)), *(f"{statistics.mean(pair[i] for pair in pairs):.3f}" for i in (0, 1)),
            str(sum(loss > 0 for loss in lost)),
            str(sum(loss > bound for loss, bound in zip(lost, noise, strict=True))), f"{max(0.0, *lost):.3f}"]


def votes() -> str:
    """Accuracy of lift's network alone, with words, and with neighbours as well."""
    body, plain = [], [row for row in lines("votes") if not row.get("settings") and not row.get("names")]
    for (name, plan, per_class), rows in sorted(grouped(plain, "set", "plan", "per_class").items()):
        body.append([name, plan, str(per_class), *(spread([row[who] for row in rows])
                                                   for who in ("network", "words", "all")),
                     f"{statistics.mean(row['calibration_error'] for row in rows):.3f}"])
    return markdown(["set", "plan", "labels per class", "network", "and words", "and neighbours",
                     "calibration error of all"], body)


def schedule() -> str:
    """Accuracy and processor seconds of fine-tuned lift with shorter schedules, on the same samples."""
    tuned = [row for row in lines("votes") if row["plan"] == "laptop"]
    body = []
    for (name, per_class, seed), rows in sorted(grouped(tuned, "set", "per_class", "seed").items()):
        usual = next(row for row in rows if not row.get("settings"))
        for row in sorted(rows, key=lambda row: -row["seconds"]):
            settings = "".join(f" {key}={value:g}" for key, value in (row.get("settings") or {}).items())
            body.append([name, str(per_class), str(seed), f"`--set{settings}`" if settings else "as it is",
                         f"{row['all']:.3f}", f"{row['seconds'] / usual['seconds']:.2f}"])
    return markdown(["set", "labels per class", "seed", "schedule", "accuracy", "time"], body)


def contrast() -> str:
    """Accuracy of fine-tuned lift by the weight of contrast against label anchors."""
    body = [[name, str(per_class), f"{weight:g}", *(spread([row[who] for row in rows])
                                                    for who in ("network", "accuracy"))]
            for (name, per_class, weight), rows in sorted(grouped(lines("contrast"), "set", "per_class",
                                                                  "weight").items())]
    return markdown(["set", "labels per class", "weight of contrast", "network", "with votes"], body)


def pairs() -> str:
    """Accuracy of fine-tuned lift without contrast and as it is, and of SetFit.

    The accuracy that was expected and the calibration error are those of the runs that use contrast.
    """
    body = []
    for (name, per_class), rows in sorted(grouped(lines("pairs"), "set", "per_class").items()):
        off, auto, setfit = ([row for row in rows if row["method"] == method] for method in ("off", "auto", "setfit"))
        used = [row for row in auto if row["contrast"]]
        told = [row for row in used if row.get("expected") is not None]
        columns = [(off, "accuracy"), (auto, "accuracy"), (setfit, "accuracy"), (told, "expected"), (told, "ece")]
        cells = [spread([row[what] for row in some]) if some else "" for some, what in columns]
        body.append([name, str(per_class), *cells, f"{len(used)} of {len(auto)}"])
    return markdown(["set", "labels per class", "without", "`lift`", "SetFit", "expected with contrast",
                     "calibration error", "runs of `lift` that use it"], body)


def unequal() -> str:
    """Accuracy and macro F1 of each method by how unequal the classes of the pool are, and how texts were labelled."""
    methods = ("lift", "am-f", "self-training", "logreg")
    body = []
    shipped = [row for row in lines("unequal") if not (row.get("way") or row.get("per_class") or row.get("at_most"))]
    for (name, ratio, draw), rows in grouped(shipped, "set", "ratio", "labelled").items():
        by = grouped(rows, "method")
        cells = [" / ".join(f"{statistics.mean(row[what] for row in by[(method,)]):.3f}"
                            for what in ("accuracy", "macro_f1")) if (method,) in by else "not run"
                 for method in methods]
        body.append([name, f"{ratio} : 1", {"equal": "5 of each class", "random": "as many at random"}[draw], *cells,
                     str(max(map(len, by.values())))])
    return markdown(["set", "largest to smallest class", "labelled", *(f"`{method}`" for method in methods), "samples"],
                    body)


def unequal_ways() -> str:
    """Accuracy of `lift` by other rules, on the samples that the shipped ones were chosen on."""
    ways = ("", *dict.fromkeys(row["way"] for row in lines("unequal") if row.get("way")))
    cells = grouped([row | {what: row.get(what) or default for what, default in
                            (("per_class", 5), ("at_most", 2500), ("way", ""))}
                     for row in lines("unequal") if row["method"] == "lift"], "set", "at_most", "per_class", "ratio",
                    "labelled")
    body = []
    for (name, at_most, per_class, ratio, draw), rows in cells.items():
        by = grouped(rows, "way")
        if len(by) > 1:
            body.append([name, f"{at_most:,}", f"{per_class}{' on average' * (draw == 'random')}", f"{ratio} : 1",
                         *(f"{statistics.mean(row['accuracy'] for row in by[(way,)]):.3f}" if (way,) in by else ""
                           for way in ways), str(max(map(len, by.values())))])
    return markdown(["set", "pool, at most", "labels per class", "largest to smallest class", "`lift`",
                     *(way.replace("_", " ") for way in ways[1:]), "samples"], body)


def speed() -> str:
    """Texts per second of the two loops, medians over repeats, and their ratio."""
    by = grouped(lines("speed"), "loop")
    rate = {loop: statistics.median(row["texts_per_second"] for row in rows) for (loop,), rows in by.items()}
    body = [[NAMES.get(loop, loop), f"{rate[loop]:.0f}", f"{rate[loop] / rate['plain']:.2f}",
             spread([row["accuracy"] for row in by[(loop,)]])] for loop in rate]
    return markdown(["loop", "texts per second", "ratio", "accuracy after"], body)


def pool() -> str:
    """Rates and peaks of resident memory with a pool of each size; the largest size has the last word on rates."""
    names = {("ingest", "jsonl"): "read in, jsonl", ("ingest", "parquet"): "read in, parquet",
             ("open", "jsonl"): "open", ("access", "jsonl"): "look at random rows",
             ("train", "frozen"): "train bdd-s, frozen vectors", ("train", "tokens"): "train bdd-s, token ids",
             ("train", "default"): "train lift (default)"}
    body = []
    for (what, how, texts), rows in grouped(lines("pool"), "what", "how", "texts").items():
        row = rows[-1]
        rate = (f"{row['seconds']:.4f} s" if what == "open" else f"{row['per_second']:,}/s" if "per_second" in row
                else f"{row['seconds']:.0f} s")
        cpu = (f"{row['cpu_seconds']:.4f} s" if what == "open" else f"{row['per_cpu_second']:,}/s"
               if "per_cpu_second" in row else f"{row['cpu_seconds']:.0f} s")
        peak = f"{row['peak_mb']:.0f} MB" if "peak_mb" in row else ""
        before = f"{row['before_mb']:.0f} MB" if "before_mb" in row else ""
        body.append([names[what, how], f"{texts:,}", rate, cpu, peak, before])
    return markdown(["what", "texts", "by the clock", "by processor time", "peak memory", "before it began"], body)


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


def minutes() -> str:
    """Accuracy of the default by its time limit, and of SetFit, with the time that training took."""
    body = []
    for (method, limit), rows in grouped(lines("minutes"), "method", "minutes").items():
        label = {"lift/frozen": "plan `frozen`", "setfit": "SetFit"}.get(method, f"`--minutes {limit or 0:g}`")
        steps = {row["steps"] for row in rows} if method == "lift/laptop" else set()
        body.append([label, " to ".join(map(str, sorted({min(steps), max(steps)}))) if steps else "",
                     spread([row["accuracy"] for row in rows]),
                     f"{statistics.median(row['seconds'] for row in rows) / 60:.1f}"])
    return markdown(["", "steps", "accuracy", "minutes of training"], body)


def paper_row() -> str:
    """Micro F1 of a row of the paper's Table II, as published and by its plan on another encoder."""
    published = {"ce": 0.839, "am-s": 0.856, "am-f": 0.870, "freematch": 0.862, "bdd-s": 0.872, "bdd-f": 0.876}
    by = grouped(lines("paper_row"), "encoder", "epochs", "method")
    columns = sorted({(encoder, epochs) for encoder, epochs, _ in by})
    body = [[f"`{method}`", f"{value:.3f}", *(spread([row["accuracy"] for row in by[*column, method]])
                                              if (*column, method) in by else "not run" for column in columns)]
            for method, value in published.items() if columns]
    return markdown(["method", "paper: BERT-base, 50,000 steps",
                     *(f"{encoder}, {1000 * epochs:,} steps" for encoder, epochs in columns)], body)


def busy() -> str:
    """Seconds of short runs, alone and beside busy processes, with threads as set by halflabel and by libraries."""
    body = []
    for (plan, way), rows in grouped(lines("busy"), "plan", "way").items():
        seconds = {row["busy"]: row["seconds"] for row in rows}
        body.append([f"`{plan}`", way, *(f"{seconds[busy]:.0f} s" if busy in seconds else "not run"
                                         for busy in (False, True))])
    return markdown(["plan", "threads as set by", "alone", "all cores busy"], body)


def growth() -> str:
    """Time and peak memory by method, plan and size of the pool."""
    return markdown(["method", "plan", "unlabelled texts", "minutes", "peak memory, GB", "ms per text"],
                    [[row["method"], row["plan"], f"{row['unlabelled']:,}", f"{row['seconds'] / 60:.1f}",
                      f"{row['megabytes'] / 1024:.2f}", f"{1000 * row['seconds'] / row['unlabelled']:.1f}"]
                     for row in lines("growth")])


def calibration() -> str:
    """Expected calibration error by data set, labels per class and plan, with and without temperature.

    Runs of the plan `laptop` are those of `benchmarks/accuracy.py`, with class names, and so are frozen ones with few
    labels, without class names.
    """
    test = [row | {"part": "test"} for row in accuracy_lines()
            if row["method"] == "lift/laptop+names" or (row["method"] == "lift/frozen" and row["per_class"] < 10)]
    body = []
    for (name, shots, plan, part), rows in sorted(grouped([*lines("calibration"), *test], "set", "per_class", "plan",
                                                          "part").items()):
        errors, without = [row["ece"] for row in rows], [row["ece_without"] for row in rows if "ece_without" in row]
        body.append([name, str(shots), plan, part, f"{statistics.mean(row['accuracy'] for row in rows):.3f}",
                     spread(errors), f"{max(errors):.3f}", spread(without) if without else "not measured"])
    return markdown(["set", "labels per class", "plan", "texts", "accuracy", "calibration error", "worst sample",
                     "without temperature"], body)


def unknown() -> str:
    """How well unknown texts are told from known ones, by data set and unknown classes."""
    body = []
    for (name, classes), rows in grouped((row | {"unknown": tuple(row["unknown"])} for row in lines("unknown")),
                                         "set", "unknown").items():
        parts = {share: [row for row in rows if row["foreign"] == share] for share in (0.0, 0.3)}
        what = "out-of-scope texts" if not classes else f"{len(classes)} classes" if len(classes) > 3 else (
            "class " * (len(classes) == 1) + "classes " * (len(classes) > 1) + ", ".join(map(str, classes)))

        def mean(key: str, share: float = 0.0, parts: dict[float, list[Line]] = parts) -> str:
            return f"{statistics.mean(row[key] for row in parts[share]):.3f}" if parts[share] else "not run"

        body.append([name, what, str(len(parts[0.0])), mean("auroc"), mean("auroc", 0.3), mean("auroc_confidence"),
                     mean("coverage"), mean("answered_accuracy"), mean("accuracy"), mean("accuracy", 0.3)])
    return markdown(["set", "unknown", "samples", "AUROC", "with 30 % unknown in the pool", "of the confidence",
                     "coverage at 0.95", "accuracy of answered texts", "of all texts", "with 30 % unknown in the pool"],
                    body)


def foreign() -> str:
    """Points that unknown texts in the pool cost `lift`, by the ways to use the pool."""
    rows = [row | {"unknown": tuple(row["unknown"])} for row in lines("foreign")]
    accuracy = {(row["set"], row["unknown"], row["per_class"], row["seed"], row["foreign"], row["way"]): row["accuracy"]
                for row in rows}
    body = []
    for (name, classes, per_class), some in grouped(rows, "set", "unknown", "per_class").items():
        seeds = sorted({row["seed"] for row in some})

        def mean(way: str, share: float = 0.0, base: str | None = None, *, seeds: list[int] = seeds,
                 start: tuple[Any, ...] = (name, classes, per_class)) -> str:
            found = [accuracy[key] - (accuracy[*start, seed, 0.0, base] if base else 0.0)
                     for seed in seeds if (key := (*start, seed, share, way)) in accuracy]
            if not found:
                return ""
            return f"{100 * statistics.mean(found):+.1f}" if base else f"{statistics.mean(found):.3f}"

        body.append([name, ", ".join(map(str, classes)) or "none", str(per_class), str(len(seeds)),
                     mean("labels_alone"), mean("whole_pool"),
                     *(mean(way, share, "whole_pool") for share, way in
                       ((0.0, "near_pool"), (0.0, "known_pool"), (0.3, "whole_pool"), (0.3, "near_pool"),
                        (0.3, "known_pool")))])
    return markdown(["set", "unknown classes", "labels per class", "samples", "labels alone", "known pool, all texts",
                     "known pool, near texts", "known pool, `lift`", "30 % unknown, all texts",
                     "30 % unknown, near texts", "30 % unknown, `lift`"],
                    sorted(body, key=lambda row: (row[0], int(row[2]), row[1])))


class Curve(NamedTuple):
    """Mean accuracy of a strategy after each round, and of `random`, over the seeds that both have."""

    accuracy: np.ndarray
    random: np.ndarray
    seeds: int


def curves(part: str) -> dict[str, dict[str, Curve]]:
    """Simulated labelling by set and strategy, of the part `choose` or `report`."""
    found: dict[str, dict[str, Curve]] = defaultdict(dict)
    runs = [row for row in lines("active_learning") if row["learner"] == "logistic" and row["part"] == part]
    for (name,), rows in grouped(runs, "set").items():
        by = {strategy: {row["seed"]: row["accuracy"] for row in some}
              for (strategy,), some in grouped(rows, "strategy").items()}
        for strategy, mine in by.items():
            if seeds := sorted(mine.keys() & by.get("random", {}).keys()):
                means = [np.mean([side[seed] for seed in seeds], axis=0) for side in (mine, by["random"])]
                found[name][strategy] = Curve(means[0], means[1], len(seeds))
    return found


def labels_needed(curve: np.ndarray, random: np.ndarray) -> float:
    """Suggested labels after which a curve first reaches that of `random` at 100; infinite if it never does.

    NaN if the start is already as good, since then the number says nothing.
    """
    goal = random[100 // BATCH]
    if curve[0] >= goal:
        return np.nan
    if not (curve >= goal).any():
        return np.inf
    i = int((curve >= goal).argmax())
    return float(BATCH * (i - (curve[i] - goal) / (curve[i] - curve[i - 1])))


def active_learning(part: str) -> str:
    """Simulated labelling: area under the curve, and the labels that reach the accuracy of `random` at 100."""
    found = curves(part)
    strategies = dict.fromkeys(strategy for by in found.values() for strategy in by)

    def in_words(needed: float) -> str:
        return "–" if np.isnan(needed) else f"{needed:.0f}" if np.isfinite(needed) else "over 200"

    body = []
    for strategy in strategies:
        needed = {name: labels_needed(by[strategy].accuracy, by[strategy].random)
                  for name, by in found.items() if strategy in by}
        shown = [f"{by[strategy].accuracy.mean():.3f}, {in_words(needed[name])} ({by[strategy].seeds})"
                 if strategy in by else "not run" for name, by in found.items()]
        known = [value for value in needed.values() if not np.isnan(value)]
        complete = len(needed) == len(found)
        body.append([f"`{strategy}`" if " " not in strategy else strategy, *shown,
                     in_words(statistics.mean(known)) if complete else ""])
    return markdown(["strategy", *found, "mean labels needed"], body)


def active_learning_gaps() -> str:
    """`balanced` against `random` on the same seeds: differences in area, at 100 and at 200 labels."""
    body = []
    for (name,), rows in grouped((row for row in lines("active_learning")
                                  if row["learner"] == "logistic" and row["part"] == "report"), "set").items():
        by = {strategy: {row["seed"]: np.array(row["accuracy"]) for row in some}
              for (strategy,), some in grouped(rows, "strategy").items()}
        seeds = sorted(by.get("balanced", {}).keys() & by.get("random", {}).keys())
        gaps = [by["balanced"][seed] - by["random"][seed] for seed in seeds]
        if gaps:
            body.append([name, *(spread([float(gap) for gap in values]) for values in (
                [gap.mean() for gap in gaps], [gap[100 // BATCH] for gap in gaps], [gap[-1] for gap in gaps]))])
    return markdown(["set", "area", "at 100 labels", "at 200 labels"], body)


def label_errors() -> str:
    """How well wrong labels are found, by set and share of wrong labels, beside cleanlab."""
    body = []
    for (name, per_class, share), rows in grouped(lines("label_errors"), "set", "per_class", "share").items():
        by = grouped(rows, "finder")
        cells = [" / ".join(f"{statistics.mean(row[key] for row in by[(finder,)]):{form}}"
                            for finder in ("halflabel", "cleanlab"))
                 for key, form in (("listed", ".0f"), ("precision", ".2f"), ("recall", ".2f"),
                                   ("precision_first", ".2f"))]
        body.append([name, str(per_class), f"{share:.0%}", *cells])
    return markdown(["set", "labels per class", "wrong", "listed, halflabel / cleanlab", "precision", "recall",
                     "precision of the first 20"], body)


def noise() -> str:
    """Accuracy of `lift` on frozen vectors with wrong labels, by what was done about them."""
    rows = lines("noise")
    cells, shares = grouped(rows, "set", "per_class", "remedy", "share"), sorted({row["share"] for row in rows})
    body = [[name, str(per_class), remedy, *(spread([row["accuracy"] for row in cells[name, per_class, remedy, share]])
                                             if (name, per_class, remedy, share) in cells else "not run"
                                             for share in shares)]
            for name, per_class, remedy in grouped(rows, "set", "per_class", "remedy")]
    return markdown(["set", "labels per class", "labels", *(f"{share:.0%} wrong" for share in shares)], body)


def startup() -> str:
    """Seconds from the start of a process to its end."""
    return markdown(["what", "median", "slowest"],
                    [[row["task"], f"{row['seconds']:.2f} s", f"{row['slowest']:.2f} s"] for row in lines("startup")])


def students(part: str, plan: str = "frozen") -> str:
    """Accuracy of students, alone and in a cascade: by the penalty, or on the test set with their speed.

    A teacher whose encoder was trained has its labelled texts per class named with the set, and no speed of its own.
    """
    body, tested = [], part == "test" and plan == "frozen"
    rows = [row | {"penalty": "" if row["model"] == "teacher" else str(row["strength"])} for row in lines("students")
            if row["part"] == part and row["plan"] == plan]
    rows = rows if plan == "frozen" else [row | {"set": f"{row['set']}, {row['per_class']} per class"} for row in rows]
    rows.sort(key=lambda row: (row["set"], row["model"] != "teacher", row["model"]))
    timed = grouped((row for row in lines("students") if row["part"] == "speed"), "set", "model")
    for (name, model, penalty), cell in grouped(rows, "set", "model", "penalty").items():
        some = list({row["seed"]: row for row in cell}.values())  # the teacher is the same for each penalty
        teacher = {row["seed"]: row["accuracy"] for row in rows if row["set"] == name and row["model"] == "teacher"}
        loss = statistics.mean(teacher[row["seed"]] - row["accuracy"] for row in some)
        body.append([name, model, *([] if tested else [penalty]), spread([row["accuracy"] for row in some]),
                     f"{100 * loss:.1f}" if model != "teacher" else "",
                     *(f"{statistics.mean(row[key] for row in some):.1%}" if all(key in row for row in some) else ""
                       for key in ("agreement", "answered_by_student")),
                     *(f"{statistics.median(row[key] for row in timed[name, model]):,.1f}"
                       if (name, model) in timed else "not run" for key in ("times_fp32", "times_bf16") if tested)])
    return markdown(["set", "model", *([] if tested else ["penalty"]), "accuracy", "points lost", "agreement",
                     "by the student", *(["times fp32", "times bf16"] if tested else [])], body)


def students_command() -> str:
    """Seconds of `halflabel predict STUDENT`, the last run of each part."""
    rows = {row["part"]: row for row in lines("students") if row["part"] in ("million", "startup")}
    return markdown(["texts", "seconds (median)", "slowest", "runs"], [
        [f"{row['texts']:,}", f"{row['seconds']:.2f}", f"{row['slowest']:.2f}", str(row["repeats"])]
        for row in rows.values()])


def scoring(what: str) -> list[Line]:
    return [row for row in lines("scoring") if row["what"] == what]


def scoring_kills() -> str:
    """Jobs that were killed and resumed, by engine."""
    body = []
    for (engine,), rows in grouped(scoring("kill"), "how").items():
        during = [row["shards_at_kill"] for row in rows if row["killed_in_time"]]
        body.append([engine, str(len(rows)), f"{len(during)}, with {min(during)} to {max(during)} of 40 shards written",
                     f"{rows[0]['texts']:,}", f"{sum(row['equal'] for row in rows)} of {len(rows)}"])
    return markdown(["engine", "jobs", "killed before their end", "texts of each", "equal to the job left alone"], body)


def scoring_overhead() -> str:
    """Median seconds of the plain command and of Ray for the same texts."""
    body = []
    for (model, texts), rows in grouped(scoring("overhead"), "model", "texts").items():
        by = {how: statistics.median(row["seconds"] for row in some) for (how,), some in grouped(rows, "how").items()}
        if len(by) == 2:
            body.append([model, f"{texts:,}", f"{by['local']:.0f} s", f"{by['ray']:.0f} s",
                         f"{by['ray'] / by['local'] - 1:+.0%}"])
    return markdown(["model", "texts", "local", "Ray", "overhead"], body)


def scoring_memory() -> str:
    """Peak memory by number of texts."""
    by = grouped(scoring("memory"), "texts", "how")
    return markdown(["texts", "Parquet", "jsonl"], [
        [f"{texts:,}", *(f"{by[texts, how][-1]['peak_mb']:.0f} MB" if (texts, how) in by else "not run"
                         for how in ("parquet", "jsonl"))] for texts in sorted({texts for texts, _ in by})])


def scoring_cost() -> str:
    """Minutes for a million texts by model and number of texts."""
    return markdown(["model", "texts", "time", "minutes per million", "processor minutes per million"], [
        [row["how"], f"{row['texts']:,}", f"{row['seconds']:.0f} s", f"{row['per_million']['seconds'] / 60:.1f}",
         f"{row['per_million']['cpu_seconds'] / 60:.1f}"] for row in scoring("cost")])


def scale_cost() -> str:
    """Processor seconds for a million texts of a pool, by what is done with them and their number."""
    costs = cost_per_million()
    sizes = sorted({texts for by_size in costs.values() for texts in by_size})
    return markdown(["", *(f"{texts:,} texts" for texts in sizes)], [
        [name, *(f"{by_size[texts]:,.0f} s" if texts in by_size else "" for texts in sizes)]
        for name, by_size in costs.items()])


def cost_per_million() -> dict[str, dict[int, float]]:
    """Processor seconds for a million texts, by step and number of texts."""
    costs: dict[str, dict[int, float]] = defaultdict(dict)
    for row in lines("pool"):
        if row["what"] == "ingest" and row["how"] == "parquet":
            costs["read, clean and deduplicate"][row["texts"]] = 1e6 / row["per_cpu_second"]
        elif row["what"] == "train":
            costs[POOL_TRAINING[row["how"]]][row["texts"]] = 1e6 * row["cpu_seconds"] / row["texts"]
    for row in scoring("cost"):
        costs[f"score, {row['how']}"][row["texts"]] = row["per_million"]["cpu_seconds"]
    return costs


POOL_TRAINING = {"frozen": "train bdd-s on vectors, all encoded", "tokens": "train bdd-s, surveys of a part",
                 "default": "train lift, on a sample"}


def processes() -> str:
    """Accuracy with one process and with two, by seed."""
    by_seed = grouped(lines("processes"), "seed")
    body = [[str(seed), *(f"{row['accuracy']:.4f}" for row in sorted(rows, key=lambda row: row["processes"]))]
            for (seed,), rows in by_seed.items()]
    return markdown(["seed", "one process", "two processes"], body)


def supply() -> str:
    """The versions with which the installed package was used, by how they were chosen; the last run of each."""
    runs = {row["how"]: row["versions"] for row in lines("supply") if "versions" in row}
    names = next(iter(runs.values()))
    return markdown(["", *(SUPPLY[how] for how in runs)], [[name, *(versions[name] for versions in runs.values())]
                                                           for name in names])


def wheels() -> str:
    """For which of the pinned dependencies the registry has wheels, by version of Python; the last look."""
    looks = {row["python"]: row for row in lines("supply") if row["how"] == "wheels"}
    return markdown(["Python", "wheels of", "none of"], [
        [python, f"{len(row['available'])} of {len(row['available']) + len(row['missing'])} dependencies",
         ", ".join(row["missing"]) or "-"] for python, row in looks.items()])


def machine() -> str:
    """What the figures were measured on."""
    seen = sorted({json.dumps({k: v for k, v in row["machine"].items() if k != "threads"}, sort_keys=True)
                   for file in sorted(RESULTS.glob("*.jsonl")) for row in lines(file.stem) if "machine" in row})
    return "\n".join("- " + ", ".join(f"{key} {value}" for key, value in json.loads(one).items()) for one in seen)


BATCH = 20  # labels in a round of simulated labelling
SUPPLY = {"pinned": "wheel, constraints.txt", "lowest": "wheel, lower bounds", "sdist": "sdist, constraints.txt"}
RULES = ("prior-quantile", "fixed")
SEVERAL = ("arxiv54", "pubmed_mesh23", "goemotions")
BY_FREQUENCY = ("lift-ml", "lift-ml+names", "bdd-ml", "am-ml")  # which decide by the first of the rules
COMPARED = (*BY_FREQUENCY, "bce", "logreg", "setfit")
NAMES = {"setfit": "SetFit",
         "self-training": "self-training (scikit-learn), frozen",
         "logreg": "logistic regression, frozen", "halflabel": "halflabel", "plain": "plain PyTorch, fp32",
         "tuned": "plain PyTorch, bf16, sorted by length", "onnxruntime": "ONNX Runtime, fp32, sorted by length"}
def serving(part: str, head: list[str], cells: Callable[[Line], list[str]]) -> str:
    """The last run of a part of the load test for each model and number of texts in a request."""
    rows = {(row["model"], row.get("request_texts", 32)): row for row in lines("serving") if row["part"] == part and (
        part != "throughput" or row["texts"] / row["texts_per_second"] >= 1.0)}  # else start-up hides it
    return markdown(["model", *head], [[name, *cells(row)] for (name, _), row in rows.items()])


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms"


def names_several() -> str:
    """Micro and macro F1 of the closed form for several labels, by kind of class names."""
    kinds, body = ("none", "names", "opaque", "wrong"), []
    for (name, per_class, labelled), rows in sorted(grouped(lines("names-several"), "set", "per_class",
                                                            "labelled").items()):
        by = grouped(rows, "names")
        cells = [[f"{statistics.mean(row[key] for row in by[kind,]):.3f}" if (kind,) in by else "" for kind in kinds]
                 for key in ("micro_f1", "macro_f1")]
        used = [f"{sum(row['uses_names'] for row in by[kind,])} of {len(by[kind,])}" if (kind,) in by else ""
                for kind in kinds[1:]]
        body.append([name, str(per_class), str(labelled), *(f"{micro} / {macro}" if micro else "" for micro, macro in
                                                            zip(*cells, strict=True)), ", ".join(filter(None, used))])
    return markdown(["set", "labels per label", "labelled texts", "no names", "names", "opaque names", "wrong names",
                     "runs that use names, opaque, wrong"], body)


def answers(row: Line) -> str:
    """How many requests got which status."""
    return ", ".join(f"{status}: {number:,}" for status, number in row["statuses"].items())


serving_throughput = partial(serving, "throughput", [
    "texts per request", "served", "`halflabel predict`", "ratio (rounds)"], lambda row: [
    f"{row.get('request_texts', 32)}", f"{row['texts_per_second']:,.0f} texts/s",
    f"{row['predict_texts_per_second']:,.0f} texts/s",
    f"{row['ratio']:.2f} ({', '.join(f'{ratio:.2f}' for ratio in row.get('ratios', [])) or row['rounds']})"])
serving_latency = partial(serving, "latency", ["requests per second", "p50", "p99"], lambda row: [
    f"{row['requests_per_second']:,.0f}", milliseconds(row["p50"]), milliseconds(row["p99"])])
serving_overload = partial(
    serving, "overload", ["reached, then sent per second", "statuses", "p99 of answers", "memory before, most",
                          "p50 before, after"], lambda row: [
        f"{row['capacity']:,.0f}, {row['requests_per_second']:,.0f}", answers(row), milliseconds(row["p99"]),
        f"{row['megabytes_before']:,.0f}, {row['megabytes_most']:,.0f} MB",
        f"{milliseconds(row['p50_before'])}, {milliseconds(row['p50_after'])}"])
serving_hostile = partial(serving, "hostile", ["statuses", "improper", "memory before, after"], lambda row: [
    answers(row), str(row["wrong"]), f"{row['megabytes_before']:,.0f}, {row['megabytes_after']:,.0f} MB"])

TABLES: dict[str, Callable[[], str]] = {
    **{f"accuracy-{name}": partial(accuracy, name) for name in ("ag_news", "arxiv_topics10", "clinc150", "sst5")},
    **{f"sealed-{name}": partial(accuracy, name, "sealed") for name in ("trec6", "mr2", "ohsumed23")},
    "sealed-ohsumed23-macro": partial(accuracy, "ohsumed23", "sealed", "macro_f1"),
    "sealed-differences": sealed_differences, "sealed-again": sealed_again,
    "decide": decide, "torture": torture, "balance": balance, "bdd": partial(bdd, "frozen"),
    "bdd-laptop": partial(bdd, "laptop"), "paper-row": paper_row,
    "floor": floor, "start": start, "names": names, "names-several": names_several, "votes": votes,
    "schedule": schedule, "trust": trust, "splits": splits, "trust-official": trust_official,
    "contrast": contrast,
    "pairs": pairs, "unequal": unequal, "unequal-ways": unequal_ways,
    "speed": speed, "machine": machine, "supply": supply, "wheels": wheels,
    "multilabel": multilabel, "multilabel-mean": multilabel_mean,
    "multilabel-rest": multilabel_rest, "stretch": stretch, "parity": parity,
    "methods": partial(methods, "frozen"), "methods-laptop": partial(methods, "laptop"),
    "methods-several": partial(methods_several, "frozen"),
    "methods-several-prior": partial(methods_several, "frozen", RULES[0]),
    "methods-several-laptop": partial(methods_several, "laptop"), "pool": pool, "throughput": throughput, "race": race,
    "busy": busy, "growth": growth, "minutes": minutes, "startup": startup, "calibration": calibration,
    "unknown": unknown,
    "active-learning": partial(active_learning, "report"),
    "active-learning-choice": partial(active_learning, "choose"), "active-learning-gaps": active_learning_gaps,
    "label-errors": label_errors, "noise": noise, "foreign": foreign,
    "scoring-kills": scoring_kills, "scoring-overhead": scoring_overhead,
    "scoring-memory": scoring_memory, "scoring-cost": scoring_cost, "scale-cost": scale_cost, "processes": processes,
    "serving-throughput": serving_throughput, "serving-latency": serving_latency,
    "serving-overload": serving_overload, "serving-hostile": serving_hostile,
    "reduced": partial(reduced, "multi-class", "argmax"),
    "reduced-several": partial(reduced, "multi-label", "prior-quantile"),
    "students": partial(students, "test"), "students-choose": partial(students, "choose"),
    "students-laptop": partial(students, "test", "laptop"),
    "students-command": students_command,
    "encoders": encoders, "encoders-laptop": encoders_laptop,
    "reduced-tuned": partial(reduced_tuned, "multi-class", "argmax"),
    "reduced-tuned-several": partial(reduced_tuned, "multi-label", "prior-quantile")}

if __name__ == "__main__":
    main()
