"""Grids: combinations of corpora, methods, sizes and seeds, expanded to runs and validated before they are queued."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from halflabel.bench.corpora import PROTOCOL_SETTINGS, dev_size, open_corpus, run_data
from halflabel.bench.runs import FAMILIES, PLANS, Run, RunSettings, resolve, validate, without_pool
from halflabel.errors import HalflabelError, SettingError
from halflabel.types import Task

POOL_LIMIT = 20_000  # unlabelled texts, at most, where a grid gives no number
# With these methods every claim of the paper can be tested.
PAPER_GROUP = (*FAMILIES, *(family.without_bdd for family in FAMILIES.values()),
               *(f"{name} {part}" for name in FAMILIES for part in ("-regularization", "-unlabelled")), "ce", "bce")
GROUPS = ("all", "paper")


@dataclass(frozen=True)
class Grid:
    """All combinations of these, except methods that are for the other kind of labels."""

    sets: tuple[str, ...]
    methods: tuple[str, ...]  # names, "all", or "paper": the paper's methods, their ablations, ce and bce
    labelled: tuple[str, ...]  # "10/class", "100" (in total), or "all": every training text, which leaves no pool
    plans: tuple[str, ...] = ("frozen",)
    protocols: tuple[str, ...] = ("none",)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    unlabelled: int | None = None  # None: what the largest labelled sample and a dev set leave, up to POOL_LIMIT
    settings: RunSettings = ()
    encoder: str | None = None

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Grid:
        """A grid from lists, or single values where one is enough."""
        known = {f.name for f in fields(cls)}
        if unknown := [name for name in content if name not in known]:
            raise SettingError(f"a grid has no field '{unknown[0]}'; it has {', '.join(sorted(known))}")
        if missing := [name for name in ("sets", "methods", "labelled") if not content.get(name)]:
            raise SettingError(f"a grid needs {missing[0]}; give sets, methods and labelled")
        values: dict[str, Any] = {name: tuple(map(str, _as_list(content[name])))
                                  for name in ("sets", "methods", "labelled", "plans", "protocols") if name in content}
        values |= {name: content[name] for name in ("unlabelled", "encoder") if name in content}
        values |= {"seeds": tuple(_as_list(content["seeds"]))} if "seeds" in content else {}
        return cls(**values, settings=tuple(sorted(dict(content.get("settings") or {}).items())))


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def read_grids(file: Path) -> list[Run | Grid]:
    """A JSON file: one grid or a list of grids, or {"runs": [...]} with single runs."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingError(f"there is no file {file}; check the path") from None
    except ValueError as error:
        raise SettingError(f"{file} is not valid JSON ({error}); fix it") from None
    try:
        if isinstance(content, dict) and "runs" in content:
            return [Run.from_json(run) for run in content["runs"]]
        return [Grid.from_json(grid) for grid in _as_list(content)]
    except (TypeError, AttributeError, ValueError) as error:
        raise SettingError(f"{file}: {error}") from None


def expand(grids: Iterable[Run | Grid], data: Path | None) -> list[Run]:
    """The runs of grids: quick plans first, then seed by seed, so that an early stop leaves complete cells."""
    runs = [run for grid in grids for run in ([grid] if isinstance(grid, Run) else _grid_runs(grid, data))]
    return sorted(dict.fromkeys(runs), key=lambda run: (PLANS.index(run.plan), run.seed))


def _grid_runs(grid: Grid, data: Path | None) -> list[Run]:
    """The runs of one grid; corpora are opened, since their labels decide which methods apply."""
    methods = _methods(grid.methods)
    runs, unused = [], set(grid.methods) - set(GROUPS)  # of a group, only the applicable methods run
    for name in grid.sets:
        parts = open_corpus(name, data)
        classes = len({*parts.train.labels})
        pool = _pool_size(grid, name, len(parts.train), classes, sample_dev=parts.dev is None)
        for method in (method for method in methods if _task(method) == parts.test.task):
            unused.discard(method)
            for count, per_class in (_label_budget(budget, len(parts.train)) for budget in grid.labelled):
                if per_class and parts.test.task == "multi-label":
                    continue
                fully_labelled = count == len(parts.train) and not per_class
                unlabelled = 0 if fully_labelled or without_pool(method) else pool
                runs += [validate(Run(name, method, plan, count, per_class, unlabelled, seed, protocol,
                                      _applicable(grid.settings, method), grid.encoder))
                         for plan in grid.plans for protocol in grid.protocols for seed in grid.seeds]
    if unused:
        method = min(unused)
        raise SettingError(f"the method {method} fits none of the sets {', '.join(grid.sets)}: it is {_task(method)}; "
                           "remove it, or add such a set")
    if not runs:
        raise SettingError("the grid has no runs: for several labels per text, give labelled texts in total (200), not "
                           "per class (25/class)")
    return runs


def _methods(names: Sequence[str]) -> list[str]:
    """Method names with groups expanded; an error for an unknown one."""
    from halflabel.methods.registry import METHODS

    groups = dict(zip(GROUPS, (tuple(METHODS), PAPER_GROUP), strict=True))
    methods = list(dict.fromkeys(method for name in names for method in groups.get(name, (name,))))
    for method in methods:
        _task(method)
    return methods


def _task(method: str) -> Task:
    """The kind of labels that a method or an ablation is for."""
    from halflabel.methods.registry import find

    return find(resolve(method).method).task


def _applicable(settings: RunSettings, method: str) -> RunSettings:
    """The settings that a method or its plan has; the others are for other methods of the grid."""
    from halflabel.methods.registry import find
    from halflabel.plans import adjustable

    name, changes = resolve(method)
    registered = find(name)
    known = {*PROTOCOL_SETTINGS, *registered.defaults, *([] if registered.no_steps else adjustable())} - set(changes)
    return tuple((key, value) for key, value in settings if key in known)


def _label_budget(text: str, train: int) -> tuple[int, bool]:
    """Count and whether it is per class: `10/class`, `100` in total, or `all` training texts."""
    if text == "all":
        return train, False
    number, slash, unit = text.partition("/")
    if not number.isdigit() or int(number) < 1 or (slash and unit != "class"):
        raise SettingError(f"--labelled {text} is invalid; write 100 (texts in total), 25/class or all")
    return int(number), bool(slash)


def _pool_size(grid: Grid, name: str, train: int, classes: int, *, sample_dev: bool) -> int:
    """Unlabelled texts: the grid's number, or what its largest labelled sample and dev set leave."""
    if grid.unlabelled is not None:
        return grid.unlabelled
    budgets = [_label_budget(budget, train) for budget in grid.labelled if budget != "all"]
    labelled = max((count * (classes if per_class else 1) for count, per_class in budgets), default=0)
    dev = dev_size(name, train) if "dev" in grid.protocols and sample_dev else 0
    return max(0, min(POOL_LIMIT, train - labelled - dev))


def quick_grids(seeds: Sequence[int], encoder: str | None = None,
                settings: Mapping[str, Any] | None = None) -> list[Run | Grid]:
    """The paper's claims in minutes, on the corpus in the package: its methods, ablations and some others."""
    shared: dict[str, Any] = {"seeds": tuple(seeds), "encoder": encoder,
                              "settings": tuple(sorted((settings or {}).items()))}
    return [
        Grid(("sample",), ("paper", "freematch", "lift", "logreg"), ("10/class",), unlabelled=800, **shared),
        Grid(("sample:tags",), ("paper",), ("150",), unlabelled=700, **shared),
        Grid(("sample",), ("am-f",), ("all",), **shared),  # supervised: the reference for DLAV
        Grid(("sample:tags",), ("am-ml",), ("all",), **shared),
        Grid(("sample",), ("bdd-f", "am-f", "ce"), ("10/class",), protocols=("dev",), unlabelled=800, **shared),
    ]


def validate_runs(runs: Sequence[Run], data: Path | None) -> list[str]:
    """Notices about the corpora; an error for a missing corpus, too few texts or a wrong setting."""
    from halflabel.bench.execute import make_classifier

    notices: dict[str, None] = {}
    for name in dict.fromkeys(run.set for run in runs):
        parts = open_corpus(name, data)
        notices |= dict.fromkeys(parts.notices)
        of_corpus = [run for run in runs if run.set == name]
        for run in {(run.method, run.plan, run.settings): run for run in of_corpus}.values():
            try:
                make_classifier(run).chosen_settings(parts.test.task)
            except HalflabelError as error:
                raise type(error)(f"{run.method} on {name}: {error}") from None
        for run in {(run.labelled, run.per_class, run.unlabelled, run.protocol): run for run in of_corpus}.values():
            run_data(run, parts)
    return list(notices)
