"""Results of runs, grouped: a block holds comparable runs, a cell the seeds of one method on one sample size."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from halflabel.bench.queue import Line, Queue
from halflabel.bench.runs import FAMILIES, Run, without_pool
from halflabel.errors import DataError
from halflabel.types import Task

RULES = ("prior-quantile", "fixed")  # decision rules for several labels per text
ARGMAX = "argmax"  # the decision for one label per text
METRIC_NAMES = {"micro_f1": "micro F1", "macro_f1": "macro F1", "ranking_loss": "ranking loss ↓", "lrap": "LRAP"}
EPOCH_FIELDS = ("step", "epoch", "end", "pseudo_accuracy", "pseudo_f1", "accepted", "dlav", "dev")
UNKNOWN_COMMIT = "commit unknown"


class Measure(NamedTuple):
    """A metric under a decision rule."""

    metric: str
    rule: str

    @property
    def is_f1(self) -> bool:
        return self.metric.endswith("f1")

    @property
    def depends_on_rule(self) -> bool:
        return self.is_f1 and self.rule != ARGMAX


@dataclass(frozen=True, eq=False)
class RunResult:
    """A finished run."""

    run: Run
    line: Line  # the contents of result.json
    epochs: list[Line] = field(default_factory=list)

    def score(self, measure: Measure) -> float:
        return float(self.line["figures"][measure.rule][measure.metric])

    @property
    def collapsed(self) -> bool:
        """Whether its predictions on the test set use less than half as many labels as the truth."""
        return bool(self.line["collapse"]["collapsed"])

    @property
    def pool_abandoned(self) -> bool:
        """Whether the collapse guard abandoned the pool; older results have only a notice of it."""
        return bool(self.line.get("pool_abandoned", any("collapsed" in notice for notice in self.line["notices"])))

    @property
    def commit(self) -> str:
        """The code of the run: a short commit, marked if the tree was not clean."""
        code = self.line.get("code")
        if not code:
            return UNKNOWN_COMMIT
        return code["commit"][:10] + ("" if code["clean"] else " (modified)")

    def pseudo_label_curve(self, *, with_end: bool) -> list[tuple[float, float]]:
        """(step, accuracy of the pseudo-labels), by micro F1 for several labels per text."""
        values = [(float(line["step"]), line.get("pseudo_accuracy", line.get("pseudo_f1"))) for line in self.epochs
                  if with_end or not line.get("end")]
        return [(step, float(value)) for step, value in values if value is not None]


class Block(NamedTuple):
    """What runs have to share to be compared."""

    task: Task
    plan: str
    protocol: str
    encoder: str

    @property
    def title(self) -> str:
        kind = "one label per text" if self.task == "multi-class" else "several labels per text"
        selection = "best epoch on a dev set" if self.protocol == "dev" else "no dev set"
        return f"{kind}, {self.plan} plan, {selection}, {self.encoder}"

    @property
    def measures(self) -> list[Measure]:
        """What its tables show."""
        if self.task == "multi-class":
            return [Measure("micro_f1", ARGMAX), Measure("macro_f1", ARGMAX)]
        return [Measure(metric, rule) for rule in RULES for metric in ("micro_f1", "macro_f1")] + [
            Measure("ranking_loss", RULES[0]), Measure("lrap", RULES[0])]


class SampleSize(NamedTuple):
    """A corpus and the numbers of texts that are sampled from it: a column of a table."""

    set: str
    labelled: int
    per_class: bool
    unlabelled: int

    @classmethod
    def of(cls, run: Run) -> SampleSize:
        return cls(run.set, run.labelled, run.per_class, run.unlabelled)

    @property
    def title(self) -> str:
        count = f"{self.labelled}/class" if self.per_class else f"{self.labelled:,}"
        return f"{Path(self.set).stem if '/' in self.set else self.set} · {count} + {self.unlabelled:,}"


Cells = dict[SampleSize, dict[str, list[RunResult]]]


@dataclass(frozen=True, eq=False)
class Results:
    """The contents of a report."""

    about: Line
    runs: list[RunResult]
    failures: dict[str, str]  # description of a run, and its reason
    waiting: int

    @cached_property
    def blocks(self) -> dict[Block, Cells]:
        """Cells by block."""
        blocks: dict[Block, list[RunResult]] = {}
        for result in self.runs:
            encoder = result.run.encoder or str(result.line["plan"]["encoder"])
            block = Block(result.line["task"], result.run.plan, result.run.protocol, encoder)
            blocks.setdefault(block, []).append(result)
        return {block: cells_of(blocks[block]) for block in sorted(blocks, key=_block_order)}


def _block_order(block: Block) -> tuple[bool, int, bool, str]:
    return (block.task != "multi-class", ("paper", "laptop", "frozen").index(block.plan), block.protocol == "dev",
            block.encoder)


def cells_of(results: Sequence[RunResult]) -> Cells:
    """Results by sample size and name; a method without its pool is shown with those that have one of any size."""
    cells: Cells = {}
    names = _names(results)
    poolless = [result for result in results if without_pool(result.run.method) and not result.run.unlabelled]
    pooled = {result.run.method for result in results if result.run.unlabelled}
    for result in results:
        if result not in poolless:
            cells.setdefault(SampleSize.of(result.run), {}).setdefault(names[id(result)], []).append(result)
    ablated = [result for result in results if result.run.method in FAMILIES and not result.run.unlabelled
               and result.run.method in pooled]
    for result in ablated:  # without a pool a method is its own ablation
        names[id(result)] += " -unlabelled"
    for result in poolless + ablated:
        size = SampleSize.of(result.run)
        with_pool = [other for other in cells if other[:3] == size[:3] and other.unlabelled]
        for column in with_pool or ([] if result in ablated else [size]):
            cells.setdefault(column, {}).setdefault(names[id(result)], []).append(result)
    for methods in cells.values():
        for seeds in methods.values():
            seeds.sort(key=lambda result: result.run.seed)
    return dict(sorted(cells.items()))


def supervised(cells: Cells) -> list[SampleSize]:
    """Sizes with as many labelled texts as another size of the set has texts in total: a reference, not a contest."""
    def texts(size: SampleSize, *kinds: str) -> int:
        return max(sum(result.line["texts"][kind] for kind in kinds)
                   for seeds in cells[size].values() for result in seeds)

    references = []
    for size in (size for size in cells if not size.unlabelled):
        others = [texts(other, "labelled", "unlabelled") for other in cells
                  if other.set == size.set and other.unlabelled]
        if others and texts(size, "labelled") >= min(others):
            references.append(size)
    return references


def _names(results: Sequence[RunResult]) -> dict[int, str]:
    """The name of each result: its method, with its settings if the method has several on the same texts."""
    variants: dict[tuple[str, SampleSize], set[Any]] = {}
    for result in results:
        variants.setdefault((result.run.method, SampleSize.of(result.run)), set()).add(result.run.settings)
    names = {}
    for result in results:
        several = len(variants[result.run.method, SampleSize.of(result.run)]) > 1
        settings = result.run.changes if several else ""
        names[id(result)] = f"{result.run.method} {settings}" if settings else result.run.method
    return names


def mean_and_deviation(values: Sequence[float]) -> str:
    """Mean, deviation and number; one value has no deviation."""
    deviation = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    return f"{mean(values):.3f}{deviation} ({len(values)})"


Unit = tuple[str, int]  # set and seed: what differences are tested over


def by_unit(cells: Cells, name: str, value: Callable[[RunResult], float | None],
            sizes: Iterable[SampleSize]) -> dict[Unit, dict[SampleSize, float]]:
    """Values of a method by unit."""
    units: dict[Unit, dict[SampleSize, float]] = {}
    for size in sizes:
        for result in cells[size].get(name, []):
            if (number := value(result)) is not None:
                units.setdefault((size.set, result.run.seed), {})[size] = number
    return units


def pair_units(a: Mapping[Unit, Mapping[SampleSize, float]],
               b: Mapping[Unit, Mapping[SampleSize, float]]) -> dict[Unit, tuple[float, float]]:
    """Means over the sizes that both have, by unit: samples of one seed share texts, so they count once."""
    pairs = {}
    for unit in a.keys() & b.keys():
        if shared := sorted(a[unit].keys() & b[unit].keys()):
            pairs[unit] = mean(a[unit][size] for size in shared), mean(b[unit][size] for size in shared)
    return dict(sorted(pairs.items()))


def load_results(source: Path) -> Results:
    """The results in a queue's folder, or in a results.jsonl that was written from one."""
    if source.is_file():
        return _from_lines(source)
    queue = Queue(source)
    about, runs, failures, waiting = queue.about(), [], {}, 0
    for entry in queue:
        result = entry.result
        if entry.run is not None and result is not None:
            epochs = [{name: line[name] for name in EPOCH_FIELDS if line.get(name) is not None}
                      for line in entry.epochs]
            runs.append(RunResult(entry.run, result, epochs))
        elif entry.run is not None and entry.failure is not None:
            failures[_describe(entry.run)] = str(entry.failure.get("sentence", ""))
        else:
            waiting += 1
    return Results(about, sorted(runs, key=_run_order), failures, waiting)


def _run_order(result: RunResult) -> tuple[int, str, str, str]:
    return result.run.seed, result.run.set, result.run.method, result.run.key


def _describe(run: Run) -> str:
    settings = f", {run.changes}" if run.settings else ""
    return f"{run.method} on {SampleSize.of(run).title}, {run.plan}, {run.protocol}, seed {run.seed}{settings}"


def to_lines(results: Results) -> str:
    """All raw results as JSON lines, below a line about the queue."""
    about = {name: value for name, value in results.about.items() if name != "data"}
    head = {"about": about, "failures": results.failures, "waiting": results.waiting}
    runs = [{"result": result.line, "epochs": result.epochs} for result in results.runs]
    return "".join(json.dumps(line) + "\n" for line in (head, *runs))


def _from_lines(file: Path) -> Results:
    try:
        head, *rest = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        runs = [RunResult(Run.from_json(line["result"]["run"]), line["result"], line["epochs"]) for line in rest]
        return Results(head["about"], sorted(runs, key=_run_order), head["failures"], head["waiting"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} does not hold results of `halflabel bench` ({error}); name the folder of a queue, or "
                        "the results.jsonl that was written from one") from None
