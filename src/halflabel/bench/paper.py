"""The paper's tables as data: what was published, and the runs that would measure it again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from halflabel.bench.ablation import resolve, without_pool
from halflabel.bench.runs import Run
from halflabel.errors import BadInput
from halflabel.types import Task

LOWER_IS_BETTER = frozenset({"ranking_loss"})
TASKS: dict[str, Task] = {"ag_news": "multi-class", "yelp": "multi-class", "yahoo": "multi-class",
                          "ohsumed": "multi-label", "aapd": "multi-label", "rcv1": "multi-label"}
# The paper's names of methods, and the registry's.
METHODS: dict[Task, dict[str, str]] = {
    "multi-class": {
        "NB+EM": "nb-em", "BERT+CE": "ce", "BERT+AM-S": "am-s", "BERT+AM-F": "am-f", "VAMPIRE": "vampire",
        "VAT": "vat", "UDA": "uda", "FreeMatch": "freematch", "MetaExpert": "metaexpert",
        "S2TC-BDD-S": "bdd-s", "S2TC-BDD-F": "bdd-f",
    },
    "multi-label": {
        "BERT+BCE": "bce", "BERT+AM": "am-ml", "SDRL": "sdrl", "CAP": "cap", "MetaExpert": "metaexpert-ml",
        "S2TC-BDD": "bdd-ml",
    },
}
# Sec. IV-A, "Parameter settings" and "Baselines"; what all runs share is the plan `paper`.
ANGULAR_S = {"s": 1.0, "m": 0.01, "T": 0.5, "lambda1": 1.0, "lambda2": 1.0}
ANGULAR_F = {"s": 20.0, "m": 0.3, "lambda1": 1.0, "lambda2": 0.001}
ANGULAR_ML = {"s": 20.0, "m": 0.3, "lambda1": 1.0, "lambda3": 0.001}
SETTINGS: dict[str, dict[str, float]] = {
    "am-s": ANGULAR_S, "am-f": ANGULAR_F, "am-ml": ANGULAR_ML,
    "bdd-s": ANGULAR_S | {"memory": 0.1}, "bdd-f": ANGULAR_F | {"memory": 0.1},
    "bdd-ml": ANGULAR_ML | {"memory": 0.001},
    "vat": {"eps": 5.0, "alpha": 1.0, "xi": 0.1},
}
YELP: dict[str, dict[str, float]] = {"s": {"m": 0.3, "T": 0.3}, "f": {"m": 0.15}}  # by the ending of the method


@dataclass(frozen=True)
class Table:
    """One table: what varies in it, its columns (methods of the registry) and what it measures."""

    number: int
    title: str
    task: Task | None  # None: both
    varied: Literal["corpus", "labelled", "unlabelled", "parts"]
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    ranks: Mapping[str, float]  # average ranks as printed; none for Tables 1 and 8


class Cell(NamedTuple):
    """What is measured: a method with so many labelled texts in all and so many unlabelled ones."""

    set: str
    method: str
    labelled: int
    unlabelled: int


class Published(NamedTuple):
    """One printed number; the paper gives no deviations."""

    table: int
    set: str
    method: str
    labelled: int
    unlabelled: int
    metric: str
    value: float
    deviation: float | None = None

    @property
    def cell(self) -> Cell:
        return Cell(*self[1:5])


class Statistics(NamedTuple):
    """A row of Table 1."""

    classes: int
    train: int
    dev: int
    test: int
    labels_per_text: float | None


@cache
def facts() -> dict[str, Any]:
    """What was printed, as it stands in the package."""
    found: dict[str, Any] = json.loads(files("halflabel.bench").joinpath("published.json").read_text(encoding="utf-8"))
    return found


def statistics() -> dict[str, Statistics]:
    """Table 1: the corpora by name."""
    return {name: Statistics(*row) for name, *row in facts()["1"]["rows"]}


def published(number: int) -> list[Published]:
    """All numbers of a table, row by row; cells that the paper leaves empty are not there."""
    table = facts()[str(_known(number))]
    if number == 1:
        return [Published(1, name, "", 0, 0, metric, float(value))
                for name, one in statistics().items() for metric, value in one._asdict().items() if value is not None]
    cells = []
    for metric, name, labelled, unlabelled, *model, values, _ in table["rows"]:
        for title, value in zip(table["methods"], values, strict=True):
            method = _method(name, model[0], title) if model else _method(name, title)
            if value is not None:
                cells.append(Published(number, name, method, labelled, 0 if without_pool(method) else unlabelled,
                                       metric, value))
    return cells


def table_runs(number: int, seeds: Sequence[int]) -> list[Run]:
    """The runs of a table in its order, each once under each seed: BERT-base, the paper's schedule, a dev set.

    Where a text has one label, the labelled texts are as many of each class; `cell_of` counts them in all.
    """
    if number == 1:
        raise BadInput("Table 1 describes the corpora and has no runs; choose one of 2 to 8")
    cells = dict.fromkeys(cell.cell for cell in published(number))
    return [Run(one.set, one.method, "paper", one.labelled // per_class(one.set), per_class(one.set) > 1,
                one.unlabelled, seed, "dev", settings(one.set, one.method)) for one in cells for seed in seeds]


def cell_of(run: Run) -> Cell | None:
    """Where a run stands in the paper's tables; nowhere if the paper does not have its corpus."""
    if run.set not in TASKS:
        return None
    return Cell(run.set, run.method, run.labelled * (per_class(run.set) if run.per_class else 1), run.unlabelled)


def per_class(name: str) -> int:
    """Classes of a corpus of the paper among which labelled texts are drawn evenly; 1 for any other corpus."""
    return statistics()[name].classes if TASKS.get(name) == "multi-class" else 1


def settings(name: str, method: str) -> tuple[tuple[str, float], ...]:
    """What the paper sets for a method on a corpus; what an ablation changes is left to `ablation.resolve`."""
    resolved, changes = resolve(method)
    found = SETTINGS.get(resolved, {})
    if name == "yelp" and found:
        found = found | YELP.get(resolved.rpartition("-")[2], {})
    return tuple(sorted((key, value) for key, value in found.items() if key not in changes))


def scores(cells: Iterable[Published]) -> tuple[dict[str, dict[str, float]], set[str]]:
    """Numbers as `ranks.average_ranks` takes them, and the columns in which the lower one wins."""
    rows: dict[str, dict[str, float]] = {}
    low = set()
    for cell in cells:
        column = f"{cell.metric} {cell.set} {cell.labelled} {cell.unlabelled}"
        rows.setdefault(cell.method, {})[column] = cell.value
        if cell.metric in LOWER_IS_BETTER:
            low.add(column)
    return rows, low


def _method(name: str, title: str, part: str = "") -> str:
    return f"{METHODS[TASKS[name]][title]} {part}".strip()


def _known(number: int) -> int:
    if str(number) not in facts():
        raise BadInput(f"the paper has no Table {number}; choose one of 1 to {len(facts())}")
    return number


def _table(number: int) -> Table:
    found, cells = facts()[str(number)], published(number)
    tasks = {TASKS[cell.set] for cell in cells}
    named = [_method(cells[0].set, title) for title in found["methods"]] if "ranks" in found else []
    methods = tuple(named or dict.fromkeys(cell.method for cell in cells if cell.method))
    varied: Literal["corpus", "labelled", "unlabelled", "parts"] = (
        "corpus" if number == 1 else "parts" if number == 8 else "labelled" if number in (2, 4, 5) else "unlabelled")
    return Table(number, found["title"], tasks.pop() if len(tasks) == 1 else None, varied, methods,
                 tuple(dict.fromkeys(cell.metric for cell in cells)),
                 dict(zip(named, found.get("ranks", []), strict=True)))


TABLES: dict[int, Table] = {number: _table(number) for number in range(1, 9)}
