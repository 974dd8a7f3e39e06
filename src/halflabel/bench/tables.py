"""The tables of a report: ours beside the published, ranks, paired differences, protocols, time, provenance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, median

from halflabel.bench import paper
from halflabel.bench.ablation import without_pool
from halflabel.bench.claims import FORMS, score
from halflabel.bench.document import Block as Part
from halflabel.bench.document import Cell, Details, Heading, Table, Text
from halflabel.bench.measure import BEST
from halflabel.bench.ranks import Paired, average_ranks, paired
from halflabel.bench.results import LOWER, Block, Cells, Column, Results, Row, by_unit, pairs, spread, supervised
from halflabel.bench.runs import Run
from halflabel.types import Task

NAMES = {"micro_f1": "micro F1", "macro_f1": "macro F1", "ranking_loss": "ranking loss ↓",
         "lrap": "LRAP"}
Measure = tuple[str, str]  # metric and rule


@dataclass(frozen=True)
class Published:
    """What the paper printed in the tables that a queue is for."""

    tables: tuple[int, ...] = ()

    @cached_property
    def values(self) -> dict[tuple[paper.Cell, str], float]:
        return {(one.cell, one.metric): one.value for number in self.tables for one in paper.published(number)}

    def score(self, column: Column, name: str, metric: str) -> float | None:
        """What stands in the cell of a method."""
        run = Run(column.set, name, "paper", column.labelled, column.per_class,
                  0 if without_pool(name) else column.unlabelled, 0, "dev")
        cell = paper.cell_of(run)
        return None if cell is None else self.values.get((cell, metric))

    def rank(self, name: str, metric: str, task: Task) -> float | None:
        """The average rank that a table on that metric prints."""
        found = [paper.TABLES[number] for number in self.tables]
        ranks = [table.ranks[name] for table in found
                 if table.task == task and metric in table.metrics and name in table.ranks]
        return ranks[0] if ranks else None


def compared(cells: Cells) -> list[Column]:
    """Columns that methods are compared on; those with labels for all texts are a reference, not a contest."""
    reference = supervised(cells)
    return [column for column in cells if column not in reference]


def result_tables(block: Block, cells: Cells, said: Published) -> Iterator[Part]:
    """Methods by average rank: a table for each measure; of one column of texts, a table of F1 and one of ranking."""
    columns = compared(cells)
    ranks = {measure: ranks_of(cells, columns, block, measure) for measure in block.measures}
    if len(columns) == 1:
        yield Heading(columns[0].title, 3)
        for f1 in (True, False):
            measures = [one for one in block.measures if one[0].endswith("f1") == f1]
            shown = [(columns[0], measure, measure_title(*measure)) for measure in measures]
            yield from [result_table(block, cells, shown, ranks[measures[0]], said)] if shown else []
        return
    for measure in block.measures:
        yield Heading(measure_title(*measure), 3)
        yield result_table(block, cells, [(column, measure, column.title) for column in columns], ranks[measure], said)


def result_table(block: Block, cells: Cells, shown: Sequence[tuple[Column, Measure, str]], ranks: dict[str, float],
                 said: Published) -> Table:
    """Methods against what is shown: a column of texts and a measure each, under a name."""
    names = list(dict.fromkeys(name for column, _, _ in shown for name in cells[column]))
    names.sort(key=lambda name: (" -" in name, ranks.get(name, 0.0), name))

    def rank(name: str) -> Cell:
        printed = said.rank(name, shown[0][1][0], block.task)
        return Cell(f"{ranks[name]:.1f}" if name in ranks else "", f"paper {printed:.1f}" if printed else "")

    return Table(["method", "average rank", *(title for _, _, title in shown)],
                 [[f"`{name}`", rank(name), *(cell_of(column, name, cells, measure, said)
                                              for column, measure, _ in shown)] for name in names])


def measure_title(metric: str, rule: str) -> str:
    return f"{NAMES[metric]}, {rule}" if rule != BEST and metric.endswith("f1") else NAMES[metric]


def ranks_of(cells: Cells, columns: Sequence[Column], block: Block, measure: Measure) -> dict[str, float]:
    """Average ranks by the paper's rule: over all columns and both F1, or both ranking figures; without ablations."""
    f1, rule = measure[0].endswith("f1"), measure[1]
    group = [one for one in block.measures if one[0].endswith("f1") == f1 and (one[1] == rule or not f1)]
    scores: dict[str, dict[str, float]] = {}
    for one in group:
        for column in columns:
            for name, rows in cells[column].items():
                if " -" not in name:
                    scores.setdefault(name, {})[f"{one[0]} {column.title}"] = mean(row.figure(*one) for row in rows)
    return average_ranks(scores, {f"{metric} {column.title}" for metric in LOWER for column in columns})


def cell_of(column: Column, name: str, cells: Cells, measure: Measure, said: Published) -> Cell:
    """Mean ± deviation (n) with what the paper says below, and how many runs collapsed: they are in the mean."""
    printed = said.score(column, name, measure[0])
    below = [f"paper {printed:.3f}"] if printed is not None else []
    rows = cells[column].get(name, [])
    if not rows:
        return Cell("not run", "; ".join(below))
    means = {other: mean(row.figure(*measure) for row in some) for other, some in cells[column].items()}
    best = (min if measure[0] in LOWER else max)(means.values())
    if fallen := sum(row.collapsed for row in rows):
        below.append(f"{fallen} collapsed")
    return Cell(spread([row.figure(*measure) for row in rows]), "; ".join(below), strong=means[name] == best,
                link=anchor(rows), mark="warn" if fallen else "")


def anchor(rows: Sequence[Row]) -> str:
    """Where the runs behind a number are listed."""
    return f"runs-{rows[0].run.key}"


def p_value(test: Paired) -> str:
    return f"{test.p:.3f}" if test.n > 1 else "-"


def interval(test: Paired, digits: int = 3) -> str:
    """The 95 % interval of a difference."""
    return f"{signed(test.low, digits)} to {signed(test.high, digits)}" if test.n > 1 else "-"


def signed(value: float, digits: int = 3) -> str:
    """A difference with its sign."""
    return f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def paired_differences(block: Block, cells: Cells) -> Iterator[Part]:
    """The paper's own methods against every other, over the same splits."""
    metric, rule = block.measures[0]
    value, columns = score(metric, rule), compared(cells)
    names = dict.fromkeys(name for column in columns for name in cells[column])
    rows = []
    for own in (name for name in FORMS.values() if name in names):
        mine = by_unit(cells, own, value, columns)
        for other in (name for name in names if name != own):
            both = pairs(mine, by_unit(cells, other, value, columns))
            if both:
                test = paired([x for x, _ in both.values()], [y for _, y in both.values()])
                wins = sum(x > y for x, y in both.values())
                rows.append([f"`{own}`", f"`{other}`", signed(test.difference), interval(test), f"{wins} of {test.n}",
                             p_value(test)])
    if rows:
        yield Heading(block.title, 3)
        yield Table(["method", "against", "difference", "95 % interval", "higher in", "p"], rows, words=2)


def protocols(results: Results) -> Iterator[Part]:
    """Cells that ran with a dev set and without one, side by side."""
    blocks, rows = results.blocks, []
    for block, cells in blocks.items():
        other = blocks.get(block._replace(protocol="dev"))
        if block.protocol != "none" or other is None:
            continue
        metric, rule = block.measures[0]
        for column in (one for one in cells if one in other):
            for name in (one for one in cells[column] if one in other[column]):
                one, two = ({row.run.seed: row.figure(metric, rule) for row in side[column][name]}
                            for side in (cells, other))
                seeds = sorted(one.keys() & two.keys())
                if seeds:
                    test = paired([two[seed] for seed in seeds], [one[seed] for seed in seeds])
                    rows.append([f"`{name}`", f"{column.title}, {block.plan}", spread([one[seed] for seed in seeds]),
                                 spread([two[seed] for seed in seeds]), signed(test.difference), p_value(test)])
    if rows:
        yield Heading("With a dev set and without", id="protocols")
        yield Text("The same draws under both protocols, micro F1. With a dev set the epoch with the best score on the "
                   "dev texts is kept, as in the papers; those are labels that the method without one does not have.")
        yield Table(["method", "where", "no dev set", "dev set", "difference", "p"], rows, words=2)


def time_and_memory(results: Results) -> Iterator[Part]:
    """Medians by plan and method."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in results.rows:
        groups.setdefault((row.run.plan, row.run.method), []).append(row)
    rows = [[plan, f"`{method}`", f"{median(row.result['seconds'] for row in some):.1f}",
             f"{median(row.result['cpu_seconds'] for row in some):.1f}",
             f"{max(row.result['megabytes'] for row in some):,.0f}", str(len(some))]
            for (plan, method), some in sorted(groups.items())]
    yield Heading("Time and memory", id="time")
    yield Text("Training alone, as medians over runs; seconds by the clock, which hold whatever else the machine did, "
               "and by the processor. Frozen vectors are computed once and kept: the first run that needs them pays "
               "for them. Memory is the largest of the whole process during any run.")
    yield Table(["plan", "method", "seconds", "processor seconds", "peak MB", "runs"], rows, words=2)


def provenance(results: Results) -> Iterator[Part]:
    """Every run behind every number."""
    machines = list(dict.fromkeys(map(known, results.rows)))
    yield Heading("Where each number comes from", id="provenance")
    yield Text("Every mean above leads here. A run is named by the hash of its settings (`runs/KEY` in the queue's "
               "folder); the split is a hash of the labelled and unlabelled texts in order.")
    yield Table(["machine", "what it is"], [[letter(i), ", ".join(f"{name} {value}" for name, value in one)]
                                            for i, one in enumerate(machines)], words=2)
    listed: set[str] = set()  # a method less its pool stands in several columns
    for block, cells in results.blocks.items():
        yield Heading(block.title, 3)
        for column, some in cells.items():
            for name, rows in some.items():
                if anchor(rows) not in listed:
                    listed.add(anchor(rows))
                    lines = [source_of(row, block.measures[0], letter(machines.index(known(row)))) for row in rows]
                    yield Details(f"{name}, {column.title}", [Table(SOURCE, lines)], id=anchor(rows))


SOURCE = ("run", "seed", "micro F1", "seconds", "split", "machine", "halflabel", "finished", "notices")


def source_of(row: Row, measure: Measure, machine: str) -> list[str]:
    """One run as a line of the provenance."""
    notices = [*(["collapsed"] if row.collapsed else []), *row.result["notices"]]
    return [f"`{row.run.key}`", str(row.run.seed), f"{row.figure(*measure):.4f}", f"{row.result['seconds']:.1f}",
            f"`{row.result['split']['train'][:12]}`", machine, row.result["machine"]["halflabel"],
            row.result["finished"][:16].replace("T", " "), "; ".join(notices) or "-"]


def known(row: Row) -> tuple[tuple[str, str], ...]:
    """The machine of a run, as what can be compared."""
    return tuple(sorted((name, str(value)) for name, value in row.result["machine"].items()))


def letter(i: int) -> str:
    return chr(ord("A") + i) if i < 26 else f"M{i}"
