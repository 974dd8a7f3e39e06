"""Grids: which methods meet which corpora, counts and seeds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from halflabel.bench.ablation import FAMILIES, resolve, without_pool
from halflabel.bench.runs import PLANS, Run, checked
from halflabel.bench.sets import OURS, dev_size, parts_of
from halflabel.errors import BadInput
from halflabel.types import Task

POOL = 20_000  # unlabelled texts, at most, where a grid does not say
OWN = ("bdd-s", "bdd-f", "am-s", "am-f", "bdd-ml", "am-ml")  # the paper's methods
ABLATIONS = tuple(f"{full} {part}" for full in FAMILIES for part in ("-regularization", "-unlabelled"))
PAPER = (*OWN, *ABLATIONS, "ce", "bce")  # with these, every claim of the paper can be looked at
GROUPS = ("all", "paper")


@dataclass(frozen=True)
class Grid:
    """All combinations of these, as far as a method is for the labels of a corpus."""

    sets: tuple[str, ...]
    methods: tuple[str, ...]  # names, "all", or "paper": the paper's own, their ablations, ce and bce
    labelled: tuple[str, ...]  # "10/class", "100" (in all), or "all": every training text, and so no pool
    plans: tuple[str, ...] = ("frozen",)
    protocols: tuple[str, ...] = ("none",)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    unlabelled: int | None = None  # None: what the largest draw and a dev set leave, up to POOL
    settings: tuple[tuple[str, float], ...] = ()
    encoder: str | None = None

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Grid:
        """A grid as a person writes it: lists, or single values where one is enough."""
        known = {f.name for f in fields(cls)}
        if unknown := [name for name in given if name not in known]:
            raise BadInput(f"a grid has no field '{unknown[0]}'; it has {', '.join(sorted(known))}")
        if missing := [name for name in ("sets", "methods", "labelled") if not given.get(name)]:
            raise BadInput(f"a grid needs {missing[0]}; it needs sets, methods and labelled")
        lists: dict[str, Any] = {name: tuple(str(one) for one in _listed(given[name]))
                 for name in ("sets", "methods", "labelled", "plans", "protocols") if name in given}
        rest = {name: given[name] for name in ("unlabelled", "encoder") if name in given}
        lists |= {"seeds": tuple(_listed(given["seeds"]))} if "seeds" in given else {}
        return cls(**lists, **rest, settings=tuple(sorted(dict(given.get("settings") or {}).items())))


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def read_grid(file: Path) -> list[Run | Grid]:
    """A JSON file: one grid or a list of grids, or {"runs": [...]} with every run written out."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"there is no file {file}; mend the path") from None
    except ValueError as error:
        raise BadInput(f"{file} is not valid JSON ({error}); mend it") from None
    try:
        if isinstance(found, dict) and "runs" in found:
            return [Run.from_json(one) for one in found["runs"]]
        return [Grid.from_json(one) for one in _listed(found)]
    except (TypeError, AttributeError, ValueError) as error:
        raise BadInput(f"{file}: {error}") from None


def expanded(grids: Iterable[Run | Grid], data: Path | None) -> list[Run]:
    """The runs of grids: quick plans first, then seed after seed, so that what stops early has all cells alike."""
    runs = [run for grid in grids for run in ([grid] if isinstance(grid, Run) else runs_of(grid, data))]
    return sorted(dict.fromkeys(runs), key=lambda run: (PLANS.index(run.plan), run.seed))


def runs_of(grid: Grid, data: Path | None) -> list[Run]:
    """The runs of one grid; corpora are opened, since their labels decide which methods fit."""
    runs, idle = [], set(grid.methods) - set(GROUPS)  # of a group, those take part that fit
    for name in grid.sets:
        parts = parts_of(name, data)
        pool = pool_size(grid, name, len(parts.train), len({*parts.train.labels}), bringing_dev=parts.dev is not None)
        for method in (one for one in named(grid.methods) if task_of(one) == parts.test.task):
            idle.discard(method)
            for count, per_class in (amount(one, len(parts.train)) for one in grid.labelled):
                if per_class and parts.test.task == "multi-label":
                    continue
                everything = count == len(parts.train) and not per_class
                unlabelled = 0 if everything or without_pool(method) else pool
                runs += [checked(Run(name, method, plan, count, per_class, unlabelled, seed, protocol,
                                     fitting(method, grid.settings), grid.encoder))
                         for plan in grid.plans for protocol in grid.protocols for seed in grid.seeds]
    if idle:
        raise BadInput(f"the method {sorted(idle)[0]} fits none of the sets {', '.join(grid.sets)}: it is for "
                       f"{task_of(sorted(idle)[0])} texts; leave it out, or add such a set")
    if not runs:
        raise BadInput("the grid has no runs: where texts have several labels, labelled texts are counted in all "
                       "(200), not per class (25/class)")
    return runs


def named(methods: Sequence[str]) -> list[str]:
    """Methods by name, groups of them written out."""
    from halflabel.methods.registry import METHODS

    groups = dict(zip(GROUPS, (tuple(METHODS), PAPER), strict=True))
    found = list(dict.fromkeys(one for name in methods for one in groups.get(name, (name,))))
    for name in found:
        task_of(name)
    return found


def task_of(method: str) -> Task:
    """Which labels a method or an ablation is for; an unknown one is refused."""
    from halflabel.methods.registry import find

    return find(resolve(method).method).task


def fitting(method: str, settings: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """The settings that a method or its plan has; the others are for other methods of the grid."""
    from halflabel.methods.registry import find
    from halflabel.plans import adjustable

    found, changes = find(resolve(method).method), resolve(method).changes
    known = {*OURS, *found.defaults, *([] if found.no_steps else adjustable())} - set(changes)
    return tuple((name, value) for name, value in settings if name in known)


def amount(asked: str, whole: int) -> tuple[int, bool]:
    """`10/class` as 10 of each class, `100` as 100 in all, `all` as every training text."""
    if asked == "all":
        return whole, False
    number, slash, unit = asked.partition("/")
    if not number.isdigit() or int(number) < 1 or (slash and unit != "class"):
        raise BadInput(f"--labelled {asked} is not understood; write 100 (texts in all), 25/class or all")
    return int(number), bool(slash)


def pool_size(grid: Grid, name: str, train: int, classes: int, *, bringing_dev: bool) -> int:
    """Unlabelled texts: what was asked for, or what every draw of the grid leaves room for."""
    if grid.unlabelled is not None:
        return grid.unlabelled
    counts = [amount(one, train) for one in grid.labelled if one != "all"]
    taken = max((count * (classes if per_class else 1) for count, per_class in counts), default=0)
    dev = dev_size(name, train) if "dev" in grid.protocols and not bringing_dev else 0
    return max(0, min(POOL, train - taken - dev))


# What every clone can run: the corpus inside the package.
def quick(seeds: Sequence[int], encoder: str | None = None,
          settings: Mapping[str, Any] | None = None) -> list[Run | Grid]:
    """The paper's claims in minutes: its methods, their ablations and some others, on queues and on tags."""
    shared: dict[str, Any] = {"seeds": tuple(seeds), "encoder": encoder,
                              "settings": tuple(sorted((settings or {}).items()))}
    return [
        Grid(("sample",), ("paper", "freematch", "lift", "logreg"), ("10/class",), unlabelled=800, **shared),
        Grid(("sample:tags",), ("paper",), ("150",), unlabelled=700, **shared),
        Grid(("sample",), ("am-f",), ("all",), **shared),  # supervised: what DLAV is compared with
        Grid(("sample:tags",), ("am-ml",), ("all",), **shared),
        Grid(("sample",), ("bdd-f", "am-f", "ce"), ("10/class",), protocols=("dev",), unlabelled=800, **shared),
    ]


# Where and on how many texts the paper drew its figures.
FIGURES: dict[int, tuple[tuple[str, str, int, int], ...]] = {
    1: (("ag_news", "am-f", 100, 20_000), ("ag_news", "am-f", 20_100, 0),
        ("aapd", "am-ml", 200, 20_000), ("aapd", "am-ml", 20_200, 0)),
    4: (("ag_news", "bdd-f", 100, 20_000), ("ag_news", "am-f", 100, 20_000),
        ("aapd", "bdd-ml", 200, 20_000), ("aapd", "am-ml", 200, 20_000)),
}


def figure_runs(number: int, seeds: Sequence[int]) -> list[Run]:
    """The runs that a figure of the paper is drawn from; Fig. 2 is computed and has none."""
    from halflabel.bench.paper import per_class, settings

    if number not in FIGURES:
        raise BadInput(f"Figure {number} has no runs; choose 1 (spread of angles) or 4 (pseudo-labels)")
    return [Run(name, method, "paper", labelled // per_class(name), per_class(name) > 1, unlabelled, seed, "dev",
                settings(name, method)) for name, method, labelled, unlabelled in FIGURES[number] for seed in seeds]
