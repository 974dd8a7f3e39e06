"""Results of runs, put together: rows by cell, cells by what they can be compared under."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from halflabel.bench.ablation import FAMILIES, without_pool
from halflabel.bench.measure import BEST, RULES
from halflabel.bench.queue import Line, Queue
from halflabel.bench.runs import Run
from halflabel.errors import BadInput
from halflabel.types import Task

EPOCH = ("step", "epoch", "end", "pseudo_accuracy", "pseudo_f1", "accepted", "dlav", "dev")  # kept of an epoch's line
LOWER = frozenset({"ranking_loss"})


@dataclass(frozen=True, eq=False)
class Row:
    """A finished run."""

    run: Run
    result: Line
    epochs: list[Line] = field(default_factory=list)

    def figure(self, metric: str, rule: str) -> float:
        return float(self.result["figures"][rule][metric])

    @property
    def collapsed(self) -> bool:
        return bool(self.result["collapse"]["collapsed"])

    @property
    def restarts(self) -> int:
        """How often training noticed a collapse of its pseudo-labels and began again."""
        return sum("collapsed" in notice for notice in self.result["notices"])


class Block(NamedTuple):
    """What runs have to share before methods are compared at all."""

    task: Task
    plan: str
    protocol: str
    encoder: str

    @property
    def title(self) -> str:
        kind = "one label per text" if self.task == "multi-class" else "several labels per text"
        choice = "best epoch by a dev set" if self.protocol == "dev" else "no dev set"
        return f"{kind}, {self.plan} plan, {choice}, {self.encoder}"

    @property
    def measures(self) -> list[tuple[str, str]]:
        """(metric, rule) that its tables show."""
        if self.task == "multi-class":
            return [("micro_f1", BEST), ("macro_f1", BEST)]
        return [(metric, rule) for rule in RULES for metric in ("micro_f1", "macro_f1")] + [
            ("ranking_loss", RULES[0]), ("lrap", RULES[0])]


class Column(NamedTuple):
    """Texts that methods of a block are compared on."""

    set: str
    labelled: int
    per_class: bool
    unlabelled: int

    @property
    def title(self) -> str:
        count = f"{self.labelled}/class" if self.per_class else f"{self.labelled:,}"
        return f"{Path(self.set).stem if '/' in self.set else self.set} · {count} + {self.unlabelled:,}"


Cells = dict[Column, dict[str, list[Row]]]


@dataclass(frozen=True, eq=False)
class Results:
    """All that a report is made of."""

    about: Line
    rows: list[Row]
    failures: dict[str, str]  # a run in words, and its sentence
    waiting: int

    @property
    def blocks(self) -> dict[Block, Cells]:
        """Cells by what they can be compared under."""
        found: dict[Block, list[Row]] = {}
        for row in self.rows:
            task: Task = row.result["task"]
            encoder = row.run.encoder or str(row.result["plan"]["encoder"])
            found.setdefault(Block(task, row.run.plan, row.run.protocol, encoder), []).append(row)
        return {block: cells_of(rows) for block, rows in sorted(found.items(), key=lambda pair: _order(pair[0]))}


def _order(block: Block) -> tuple[bool, int, bool, str]:
    return (block.task != "multi-class", ("paper", "laptop", "frozen").index(block.plan), block.protocol == "dev",
            block.encoder)


def cells_of(rows: Sequence[Row]) -> Cells:
    """Rows by column and name; a method less its pool stands beside those that have one, whatever its size."""
    cells: Cells = {}
    named = names_of(rows)
    bare = [row for row in rows if without_pool(row.run.method) and not row.run.unlabelled]
    pooled = {row.run.method for row in rows if row.run.unlabelled}
    for row in rows:
        if row not in bare:
            cells.setdefault(column_of(row.run), {}).setdefault(named[id(row)], []).append(row)
    alone = [row for row in rows if row.run.method in FAMILIES and not row.run.unlabelled and row.run.method in pooled]
    for row in alone:  # with no pool a method is its own ablation
        named[id(row)] += " -unlabelled"
    for row in bare + alone:
        mine = column_of(row.run)
        beside = [column for column in cells if column[:3] == mine[:3] and column.unlabelled]
        for column in beside or ([] if row in alone else [mine]):
            cells.setdefault(column, {}).setdefault(named[id(row)], []).append(row)
    for some in cells.values():
        for found in some.values():
            found.sort(key=lambda row: row.run.seed)
    return dict(sorted(cells.items()))


def supervised(cells: Cells) -> list[Column]:
    """Columns in which as many texts have labels as another column of the set has texts at all: a reference."""
    def texts(column: Column, *kinds: str) -> int:
        return max(sum(row.result["texts"][kind] for kind in kinds) for rows in cells[column].values() for row in rows)

    found = []
    for column in (one for one in cells if not one.unlabelled):
        others = [texts(one, "labelled", "unlabelled") for one in cells if one.set == column.set and one.unlabelled]
        if others and texts(column, "labelled") >= min(others):
            found.append(column)
    return found


def column_of(run: Run) -> Column:
    return Column(run.set, run.labelled, run.per_class, run.unlabelled)


def names_of(rows: Sequence[Row]) -> dict[int, str]:
    """What each row is called: its method, and its settings where the method has several on the same texts."""
    kinds: dict[tuple[str, Column], set[Any]] = {}
    for row in rows:
        kinds.setdefault((row.run.method, column_of(row.run)), set()).add(row.run.settings)
    found = {}
    for row in rows:
        several = len(kinds[row.run.method, column_of(row.run)]) > 1
        settings = " ".join(f"{name}={value:g}" for name, value in row.run.settings)
        found[id(row)] = f"{row.run.method} {settings}" if several and settings else row.run.method
    return found


def spread(values: Sequence[float]) -> str:
    """Mean, deviation and number; one value has no deviation."""
    deviation = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    return f"{mean(values):.3f}{deviation} ({len(values)})"


def by_unit(cells: Cells, name: str, value: Callable[[Row], float | None],
            where: Iterable[Column] | None = None) -> dict[tuple[str, int], dict[Column, float]]:
    """Values of a method by (set, seed): the units over which differences are tested."""
    found: dict[tuple[str, int], dict[Column, float]] = {}
    for column in cells if where is None else where:
        for row in cells[column].get(name, []):
            if (said := value(row)) is not None:
                found.setdefault((column.set, row.run.seed), {})[column] = said
    return found


def pairs(a: Mapping[tuple[str, int], Mapping[Column, float]],
          b: Mapping[tuple[str, int], Mapping[Column, float]]) -> dict[tuple[str, int], tuple[float, float]]:
    """Means over the columns that both have, by (set, seed): draws of one seed share texts, so they count once."""
    found = {}
    for unit in a.keys() & b.keys():
        if both := sorted(a[unit].keys() & b[unit].keys()):
            found[unit] = mean(a[unit][one] for one in both), mean(b[unit][one] for one in both)
    return dict(sorted(found.items()))


def load(source: Path) -> Results:
    """The results in a queue's folder, or in a results.jsonl that was written from one."""
    if source.is_file():
        return _from_lines(source)
    queue = Queue(source)
    about, rows, failures, waiting = queue.about(), [], {}, 0
    for entry in queue:
        result = entry.result
        if entry.run is not None and result is not None:
            rows.append(Row(entry.run, result, [kept(line) for line in entry.metrics]))
        elif entry.run is not None and entry.failure is not None:
            failures[in_words(entry.run)] = str(entry.failure.get("sentence", ""))
        else:
            waiting += 1
    return Results(about, sorted(rows, key=_place), failures, waiting)


def _place(row: Row) -> tuple[int, str, str, str]:
    return row.run.seed, row.run.set, row.run.method, row.run.key


def kept(line: Line) -> Line:
    """What a report needs of an epoch's line."""
    return {name: line[name] for name in EPOCH if line.get(name) is not None}


def in_words(run: Run) -> str:
    settings = "".join(f", {name}={value:g}" for name, value in run.settings)
    return f"{run.method} on {column_of(run).title}, {run.plan}, {run.protocol}, seed {run.seed}{settings}"


def to_lines(results: Results) -> str:
    """All raw results, a line of JSON for each run below one that says what they are."""
    about = {name: value for name, value in results.about.items() if name != "data"}
    head = {"about": about, "failures": results.failures, "waiting": results.waiting}
    rows = [{"result": row.result, "epochs": row.epochs} for row in results.rows]
    return "".join(json.dumps(line) + "\n" for line in (head, *rows))


def _from_lines(file: Path) -> Results:
    try:
        head, *rest = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        rows = [Row(Run.from_json(line["result"]["run"]), line["result"], line["epochs"]) for line in rest]
        return Results(head["about"], sorted(rows, key=_place), head["failures"], head["waiting"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{file} does not hold results of `halflabel bench` ({error}); name the folder of a queue, or "
                       "the results.jsonl that was written from one") from None
