"""The paper's tables as data: the published numbers, and the runs that measure them again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from halflabel.bench.runs import Run, RunSettings, resolve, without_pool
from halflabel.errors import SettingError
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
# Corpus, method, labelled and unlabelled texts of the runs behind a figure; Fig. 2 is computed.
FIGURES: dict[int, tuple[tuple[str, str, int, int], ...]] = {
    1: (("ag_news", "am-f", 100, 20_000), ("ag_news", "am-f", 20_100, 0),
        ("aapd", "am-ml", 200, 20_000), ("aapd", "am-ml", 20_200, 0)),
    4: (("ag_news", "bdd-f", 100, 20_000), ("ag_news", "am-f", 100, 20_000),
        ("aapd", "bdd-ml", 200, 20_000), ("aapd", "am-ml", 200, 20_000)),
}
Varied = Literal["corpus", "labelled", "unlabelled", "parts"]


@dataclass(frozen=True)
class PaperTable:
    """One table: what varies in it, its columns (registered methods) and its metrics."""

    number: int
    title: str
    task: Task | None  # None: both
    varied: Varied
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    ranks: Mapping[str, float]  # average ranks as printed; none for Tables 1 and 8


class PaperCell(NamedTuple):
    """What a printed number was measured on: a method and the numbers of labelled (in total) and unlabelled texts."""

    set: str
    method: str
    labelled: int
    unlabelled: int


class PublishedScore(NamedTuple):
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
    def cell(self) -> PaperCell:
        return PaperCell(*self[1:5])


class CorpusStatistics(NamedTuple):
    """A row of Table 1."""

    classes: int
    train: int
    dev: int
    test: int
    labels_per_text: float | None


@cache
def printed_tables() -> dict[str, Any]:
    """The contents of published.json: the paper's tables as printed, by number."""
    tables: dict[str, Any] = json.loads(files("halflabel.bench").joinpath("published.json").read_text(encoding="utf-8"))
    return tables


def statistics() -> dict[str, CorpusStatistics]:
    """Table 1: the corpora by name."""
    return {name: CorpusStatistics(*row) for name, *row in printed_tables()["1"]["rows"]}


def published(number: int) -> list[PublishedScore]:
    """All numbers of a table, row by row, without the cells that the paper leaves empty."""
    if str(number) not in printed_tables():
        raise SettingError(f"the paper has no Table {number}; choose one of 1 to {len(printed_tables())}")
    if number == 1:
        return [PublishedScore(1, name, "", 0, 0, metric, float(value)) for name, corpus in statistics().items()
                for metric, value in corpus._asdict().items() if value is not None]
    table, scores = printed_tables()[str(number)], []
    for metric, name, labelled, unlabelled, *model, values, _ in table["rows"]:
        for title, value in zip(table["methods"], values, strict=True):
            method = _method(name, model[0], title) if model else _method(name, title)
            if value is not None:
                scores.append(PublishedScore(number, name, method, labelled, 0 if without_pool(method) else unlabelled,
                                             metric, value))
    return scores


def table_runs(number: int, seeds: Sequence[int]) -> list[Run]:
    """The runs of a table in its order, each once under each seed: BERT-base, the paper's schedule, a dev set."""
    if number == 1:
        raise SettingError("Table 1 describes the corpora and has no runs; choose one of 2 to 8")
    cells = dict.fromkeys(score.cell for score in published(number))
    return [_run(cell, seed) for cell in cells for seed in seeds]


def figure_runs(number: int, seeds: Sequence[int]) -> list[Run]:
    """The runs that a figure of the paper is drawn from."""
    if number not in FIGURES:
        raise SettingError(f"Figure {number} has no runs; choose 1 (spread of angles) or 4 (pseudo-labels)")
    return [_run(PaperCell(*cell), seed) for cell in FIGURES[number] for seed in seeds]


def _run(cell: PaperCell, seed: int) -> Run:
    """The run of a cell; the paper draws multi-class labelled texts evenly, so they are counted per class."""
    classes = classes_drawn_evenly(cell.set)
    return Run(cell.set, cell.method, "paper", cell.labelled // classes, classes > 1, cell.unlabelled, seed, "dev",
               settings(cell.set, cell.method))


def cell_of(run: Run) -> PaperCell | None:
    """The cell of the paper's tables that a run measures; None for corpora that the paper does not have."""
    if run.set not in TASKS:
        return None
    classes = classes_drawn_evenly(run.set) if run.per_class else 1
    return PaperCell(run.set, run.method, run.labelled * classes, run.unlabelled)


def classes_drawn_evenly(name: str) -> int:
    """The number of classes that labelled texts are drawn from evenly; 1 for multi-label and unknown corpora."""
    return statistics()[name].classes if TASKS.get(name) == "multi-class" else 1


def settings(name: str, method: str) -> RunSettings:
    """The paper's settings for a method on a corpus, without those that an ablation changes."""
    resolved, changes = resolve(method)
    values = SETTINGS.get(resolved, {})
    if name == "yelp" and values:
        values = values | YELP.get(resolved.rpartition("-")[2], {})
    return tuple(sorted((key, value) for key, value in values.items() if key not in changes))


def score_matrix(scores: Iterable[PublishedScore]) -> tuple[dict[str, dict[str, float]], set[str]]:
    """Numbers as `comparisons.average_ranks` takes them, and the columns in which the lower one wins."""
    rows: dict[str, dict[str, float]] = {}
    lower = set()
    for score in scores:
        column = f"{score.metric} {score.set} {score.labelled} {score.unlabelled}"
        rows.setdefault(score.method, {})[column] = score.value
        if score.metric in LOWER_IS_BETTER:
            lower.add(column)
    return rows, lower


def _method(name: str, title: str, ablation: str = "") -> str:
    return f"{METHODS[TASKS[name]][title]} {ablation}".strip()


def _table(number: int) -> PaperTable:
    table, scores = printed_tables()[str(number)], published(number)
    tasks = {TASKS[score.set] for score in scores}
    ranked = [_method(scores[0].set, title) for title in table["methods"]] if "ranks" in table else []
    methods = tuple(ranked or dict.fromkeys(score.method for score in scores if score.method))
    varied: Varied = ("corpus" if number == 1 else "parts" if number == 8 else
                      "labelled" if number in (2, 4, 5) else "unlabelled")
    return PaperTable(number, table["title"], tasks.pop() if len(tasks) == 1 else None, varied, methods,
                      tuple(dict.fromkeys(score.metric for score in scores)),
                      dict(zip(ranked, table.get("ranks", []), strict=True)))


TABLES: dict[int, PaperTable] = {number: _table(number) for number in range(1, 9)}
