"""The report on a queue: report.html, report.md and results.jsonl."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, median
from typing import Any

from halflabel import __version__
from halflabel.atomic import write_text
from halflabel.bench import figures, paper
from halflabel.bench.comparisons import (
    ALPHA,
    CLAIMS,
    POWER,
    ClaimResult,
    PairedTest,
    average_ranks,
    evaluate_claims,
    measure_name,
    paired_test,
    score,
)
from halflabel.bench.document import DataTable, Details, Document, Element, Heading, Paragraph, TableCell
from halflabel.bench.results import (
    Block,
    Cells,
    Measure,
    Results,
    RunResult,
    SampleSize,
    by_unit,
    load_results,
    mean_and_deviation,
    pair_units,
    supervised,
    to_lines,
)
from halflabel.bench.runs import FAMILIES, Run, without_pool
from halflabel.errors import DataError
from halflabel.types import Task

MARKS = {"holds": "good", "contradicted": "bad"}


def write_report(source: Path) -> dict[str, Any]:
    """Writes the files next to the runs (or next to a results.jsonl); returns their paths and the claims."""
    results = load_results(source)
    if not results.runs and not results.failures:
        raise DataError(f"{source} has no finished run yet; resume it with `halflabel bench run --out {source}`")
    folder = source.parent if source.is_file() else source
    claims = evaluate_claims(results)
    document = make_document(results, claims)
    write_text(folder / "report.html", document.html())
    write_text(folder / "report.md", document.markdown())
    if source.is_dir():
        write_text(folder / "results.jsonl", to_lines(results))
    return {"html": str(folder / "report.html"), "markdown": str(folder / "report.md"), "runs": len(results.runs),
            "failed": len(results.failures), "waiting": results.waiting,
            "claims": [{"claim": claim.claim, "where": claim.where, "a": claim.a, "b": claim.b,
                        "measure": claim.measure, "mean_a": claim.mean_a, "mean_b": claim.mean_b,
                        "difference": claim.test.difference, "n": claim.test.n, "p": claim.test.p,
                        "verdict": claim.verdict} for claim in claims]}


def make_document(results: Results, claims: list[ClaimResult]) -> Document:
    """All sections in their order."""
    title = str(results.about.get("title", "Benchmark"))
    return Document(f"halflabel bench: {title}", lead(results), [
        *protocol(results), *claim_section(claims, results), *result_sections(results), *protocol_comparison(results),
        *paired_differences(results), *figure_section(results), *collapsed_runs(results), *time_and_memory(results),
        *failed_runs(results), *provenance(results)])


def lead(results: Results) -> str:
    collapsed = sum(result.collapsed for result in results.runs)
    counts = [f"{len(results.runs)} runs are done", f"{len(results.failures)} failed", f"{results.waiting} are left",
              f"{collapsed} collapsed"]
    days = sorted({result.line["finished"][:10] for result in results.runs})
    when = "" if not days else f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    return (f"{', '.join(counts)}.{f' They were done {when}.' if when else ''} Written by halflabel {__version__}; raw "
            "results are in `results.jsonl`.")


def protocol(results: Results) -> Iterator[Element]:
    """What was done, before the results."""
    yield Heading("What is measured", id="protocol")
    yield Paragraph(
        "A sample takes labelled texts (per class, or in total at random) and a pool from the training texts of a set, "
        "by its seed alone; all methods of a column train on the same samples. Scores are on the set's test texts, "
        "which nothing is fitted on. Strong views are word edits, made once for a set and shared by all runs. Numbers "
        "are mean ± deviation over seeds (number of runs); the best mean of a column is bold. Collapsed runs, whose "
        "predictions use less than half as many labels as the truth, stay in the mean and are counted below it.")
    sets: dict[str, tuple[str, int, int, int]] = {}
    for result in results.runs:
        texts = result.line["texts"]
        dev = max(texts["dev"], sets.get(result.run.set, ("", 0, 0, 0))[2])
        sets[result.run.set] = (result.line["task"], result.line["labels"], dev, texts["test"])
    yield DataTable(["set", "task", "labels", "dev texts", "test texts"],
                    [[name, task, f"{labels:,}", f"{dev:,}" if dev else "-", f"{test:,}"]
                     for name, (task, labels, dev, test) in sets.items()], text_columns=2)


def claim_section(claims: list[ClaimResult], results: Results) -> Iterator[Element]:
    """The paper's claims, one by one."""
    yield Heading("The paper's claims on these runs", id="claims")
    yield Paragraph(
        "A difference is between two methods on the same samples. Its units are pairs of a set and a seed (samples of "
        "one seed with more or fewer labels share texts, so their mean counts once); n is the number of units. p is "
        "two-sided, by sign flips: with n units it is at least 2 / 2ⁿ, so 0.25 with three and 0.0625 with five; "
        f"below it stands p corrected for all {len(claims)} comparisons of this table (Holm). The interval below a "
        "difference is a bootstrap over sets and over seeds within them, since seeds of one set share its test texts. "
        f"**detectable** is the true difference that these units would show with a power of {POWER:.0%} before the "
        f"correction. **holds** and **contradicted**: corrected p < {ALPHA} and an interval without zero; otherwise "
        "only the direction is given, and the claim is neither shown nor refuted here.")
    rows: list[list[TableCell | str]] = []
    previous = ""
    for claim in claims:
        rows.append([TableCell(claim.claim, CLAIMS[claim.claim]) if claim.claim != previous else "",
                     TableCell(f"`{claim.a}` over `{claim.b}`", f"{claim.measure}; {claim.where}"),
                     f"{claim.mean_a:.4f}", f"{claim.mean_b:.4f}",
                     TableCell(signed(claim.test.difference, 4), f"{signed(claim.low, 4)} to {signed(claim.high, 4)}"),
                     f"{claim.test.detectable:.4f}" if claim.test.n > 1 else "-", str(claim.test.n),
                     TableCell(p_value(claim.test), f"{claim.adjusted_p:.3f}"),
                     TableCell(claim.verdict, mark=MARKS.get(claim.verdict, ""))])
        previous = claim.claim
    yield DataTable(["claim", "compared", "first", "second", "difference", "detectable", "n", "p", "verdict"], rows,
                    text_columns=2)
    yield from mixed_commits(results.runs)
    if untested := [name for name in CLAIMS if name not in {claim.claim for claim in claims}]:
        yield Paragraph(f"No runs for: {', '.join(untested)}.")
    yield Details("The difference on each set and number of labels", [DataTable(
        ["claim", "compared", "where", "set", "difference", "seeds"],
        [[claim.claim, f"`{claim.a}` over `{claim.b}`, {claim.measure}", claim.where, name, signed(gap, 4), str(count)]
         for claim in claims for name, gap, count in claim.by_size], text_columns=4)])


# Tables of results


@dataclass(frozen=True)
class PublishedValues:
    """What the paper printed in the tables that a queue reproduces."""

    tables: tuple[int, ...] = ()

    @cached_property
    def scores(self) -> dict[tuple[paper.PaperCell, str], float]:
        return {(score.cell, score.metric): score.value for number in self.tables for score in paper.published(number)}

    def score(self, size: SampleSize, name: str, metric: str) -> float | None:
        """The printed number of a method."""
        run = Run(size.set, name, "paper", size.labelled, size.per_class,
                  0 if without_pool(name) else size.unlabelled, 0, "dev")
        cell = paper.cell_of(run)
        return None if cell is None else self.scores.get((cell, metric))

    def rank(self, name: str, metric: str, task: Task) -> float | None:
        """The printed average rank in the table of that metric."""
        tables = [paper.TABLES[number] for number in self.tables]
        return next((table.ranks[name] for table in tables
                     if table.task == task and metric in table.metrics and name in table.ranks), None)


def result_sections(results: Results) -> Iterator[Element]:
    published = PublishedValues(tuple(results.about.get("tables", [])))
    for i, (block, cells) in enumerate(results.blocks.items()):
        yield Heading(block.title[0].upper() + block.title[1:], id=f"block-{i}")
        yield from result_tables(block, cells, published)


def contested_sizes(cells: Cells) -> list[SampleSize]:
    """Sizes that methods are compared on, without the fully supervised references."""
    references = supervised(cells)
    return [size for size in cells if size not in references]


def result_tables(block: Block, cells: Cells, published: PublishedValues) -> Iterator[Element]:
    """Methods by average rank: a table for each measure, or for a single sample size one of F1 and one of ranking."""
    sizes = contested_sizes(cells)
    if len(sizes) == 1:
        yield Heading(sizes[0].title, 3)
        for is_f1 in (True, False):
            columns = [(sizes[0], measure, measure_name(measure)) for measure in block.measures
                       if measure.is_f1 == is_f1]
            if columns:
                yield from result_table(block, cells, columns, published)
        return
    for measure in block.measures:
        yield Heading(measure_name(measure), 3)
        yield from result_table(block, cells, [(size, measure, size.title) for size in sizes], published)


def result_table(block: Block, cells: Cells, columns: Sequence[tuple[SampleSize, Measure, str]],
                 published: PublishedValues) -> Iterator[Element]:
    """Methods against columns: a sample size, a measure and a title each."""
    measure = columns[0][1]
    ranks = ranks_of(cells, contested_sizes(cells), block, measure)
    names = list(dict.fromkeys(name for size, *_ in columns for name in cells[size]))
    names.sort(key=lambda name: (" -" in name, ranks.get(name, 0.0), name))

    def rank_cell(name: str) -> TableCell:
        printed = published.rank(name, measure.metric, block.task)
        return TableCell(f"{ranks[name]:.1f}" if name in ranks else "", f"paper {printed:.1f}" if printed else "")

    yield DataTable(["method", "average rank", *(title for *_, title in columns)],
                    [[f"`{name}`", rank_cell(name), *(score_cell(size, name, cells, measure, published)
                                                      for size, measure, _ in columns)] for name in names])
    yield from mixed_commits(result for size, *_ in columns for seeds in cells[size].values() for result in seeds)


def ranks_of(cells: Cells, sizes: Sequence[SampleSize], block: Block, measure: Measure) -> dict[str, float]:
    """Average ranks by the paper's rule: over all sizes and both F1, or both ranking metrics; without ablations."""
    group = [other for other in block.measures if other.is_f1 == measure.is_f1
             and (other.rule == measure.rule or not measure.is_f1)]
    scores: dict[str, dict[str, float]] = {}
    for other in group:
        for size in sizes:
            for name, seeds in cells[size].items():
                if " -" not in name:
                    value = mean(result.score(other) for result in seeds)
                    scores.setdefault(name, {})[f"{other.metric} {size.title}"] = value
    return average_ranks(scores, {f"{metric} {size.title}" for metric in paper.LOWER_IS_BETTER for size in sizes})


def score_cell(size: SampleSize, name: str, cells: Cells, measure: Measure, published: PublishedValues) -> TableCell:
    """Mean ± deviation (n), and below it the published number and how many runs collapsed."""
    printed = published.score(size, name, measure.metric)
    below = [f"paper {printed:.3f}"] if printed is not None else []
    seeds = cells[size].get(name, [])
    if not seeds:
        return TableCell("not run", "; ".join(below))
    means = {other: mean(result.score(measure) for result in results) for other, results in cells[size].items()}
    best = (min if measure.metric in paper.LOWER_IS_BETTER else max)(means.values())
    if collapsed := sum(result.collapsed for result in seeds):
        below.append(f"{collapsed} collapsed")
    return TableCell(mean_and_deviation([result.score(measure) for result in seeds]), "; ".join(below),
                     strong=means[name] == best, link=anchor(seeds), mark="warn" if collapsed else "")


def anchor(seeds: Sequence[RunResult]) -> str:
    """The id of the list of runs behind a number."""
    return f"runs-{seeds[0].run.key}"


def mixed_commits(results: Iterable[RunResult]) -> Iterator[Element]:
    """A line below a table whose runs come from several versions of the code."""
    counts: dict[str, int] = {}
    for result in {id(result): result for result in results}.values():
        counts[result.commit] = counts.get(result.commit, 0) + 1
    if len(counts) > 1:
        parts = ", ".join(f"{commit} ({number} runs)" for commit, number in sorted(counts.items()))
        yield Paragraph(f"These runs come from several versions of the code: {parts}.")


def paired_differences(results: Results) -> Iterator[Element]:
    """The paper's methods against every other, over the same samples."""
    yield Heading("Paired differences", id="paired")
    yield Paragraph("The paper's methods against every other of their block: mean difference in micro F1 over pairs of "
                    "a set and a seed, its 95 % interval by Student's t, in how many pairs it is higher, and p as "
                    "above.")
    for block, cells in results.blocks.items():
        value, sizes = score(block.measures[0]), contested_sizes(cells)
        names = dict.fromkeys(name for size in sizes for name in cells[size])
        rows = []
        for name in (name for name in FAMILIES if name in names):
            for other in (other for other in names if other != name):
                pairs = pair_units(by_unit(cells, name, value, sizes), by_unit(cells, other, value, sizes))
                if pairs:
                    test = paired_test([x for x, _ in pairs.values()], [y for _, y in pairs.values()])
                    wins = sum(x > y for x, y in pairs.values())
                    rows.append([f"`{name}`", f"`{other}`", signed(test.difference), interval(test),
                                 f"{wins} of {test.n}", p_value(test)])
        if rows:
            yield Heading(block.title, 3)
            yield DataTable(["method", "against", "difference", "95 % interval", "higher in", "p"], rows,
                            text_columns=2)


def protocol_comparison(results: Results) -> Iterator[Element]:
    """Cells that ran with a dev set and without one, side by side."""
    blocks, rows = results.blocks, []
    for block, cells in blocks.items():
        with_dev = blocks.get(block._replace(protocol="dev"))
        if block.protocol != "none" or with_dev is None:
            continue
        for size in (size for size in cells if size in with_dev):
            for name in (name for name in cells[size] if name in with_dev[size]):
                without, dev = ({result.run.seed: result.score(block.measures[0]) for result in side[size][name]}
                                for side in (cells, with_dev))
                if seeds := sorted(without.keys() & dev.keys()):
                    test = paired_test([dev[seed] for seed in seeds], [without[seed] for seed in seeds])
                    rows.append([f"`{name}`", f"{size.title}, {block.plan}",
                                 mean_and_deviation([without[seed] for seed in seeds]),
                                 mean_and_deviation([dev[seed] for seed in seeds]), signed(test.difference),
                                 p_value(test)])
    if rows:
        yield Heading("With a dev set and without", id="protocols")
        yield Paragraph("The same samples under both protocols, micro F1. With a dev set the epoch with the best dev "
                        "score is kept, as in the papers; its labels are not available to the runs without one.")
        yield DataTable(["method", "where", "no dev set", "dev set", "difference", "p"], rows, text_columns=2)


def figure_section(results: Results) -> Iterator[Element]:
    yield Heading("Figures", id="figures")
    yield from figures.dlav_bars(results)
    yield figures.margin_bias()
    yield from figures.pseudo_label_curves(results)
    yield from figures.learning_curves(results)
    yield from figures.angle_histograms(results)


def collapsed_runs(results: Results) -> Iterator[Element]:
    """Runs whose predictions collapsed to few labels, and those whose collapse guard abandoned the pool."""
    rows = [[f"`{result.run.method}`", result.run.set, result.run.plan, str(result.run.seed),
             f"{result.line['collapse']['labels_used']:g} of {result.line['collapse']['labels_there']:g}",
             "yes" if result.collapsed else "no", "yes" if result.pool_abandoned else "no", f"`{result.run.key}`"]
            for result in results.runs if result.collapsed or result.pool_abandoned]
    yield Heading("Collapsed runs", id="collapsed")
    if not rows:
        yield Paragraph("None: no run's predictions collapsed to few labels, and no run abandoned its pool.")
        return
    yield Paragraph("Labels in use are exp of the entropy of their shares, in predictions and in the truth. A run "
                    "whose pseudo-labels collapse during training abandons its pool and trains on labelled texts only.")
    yield DataTable(["method", "set", "plan", "seed", "labels in use", "collapsed", "pool abandoned", "run"], rows,
                    text_columns=3)


def time_and_memory(results: Results) -> Iterator[Element]:
    """Medians by plan and method."""
    groups: dict[tuple[str, str], list[RunResult]] = {}
    for result in results.runs:
        groups.setdefault((result.run.plan, result.run.method), []).append(result)
    rows = [[plan, f"`{method}`", f"{median(result.line['seconds'] for result in group):.1f}",
             f"{median(result.line['cpu_seconds'] for result in group):.1f}",
             f"{max(result.line['megabytes'] for result in group):,.0f}", str(len(group))]
            for (plan, method), group in sorted(groups.items())]
    yield Heading("Time and memory", id="time")
    yield Paragraph("Training only, as medians over runs: wall-clock seconds, which include whatever else the machine "
                    "did, and processor seconds. Vectors of a frozen encoder are cached: the first run that needs them "
                    "pays for them. Memory is the peak of the process over all runs.")
    yield DataTable(["plan", "method", "seconds", "processor seconds", "peak MB", "runs"], rows, text_columns=2)


def failed_runs(results: Results) -> Iterator[Element]:
    if results.failures:
        yield Heading("Failed runs", id="failed")
        yield DataTable(["run", "reason"], [[run, reason] for run, reason in results.failures.items()], text_columns=2)


# Where each number comes from

RUN_COLUMNS = ("run", "seed", "micro F1", "seconds", "split", "machine", "halflabel", "code", "finished", "notices")


def provenance(results: Results) -> Iterator[Element]:
    """Every run behind every number."""
    machines = list(dict.fromkeys(map(machine_of, results.runs)))
    yield Heading("Where each number comes from", id="provenance")
    yield Paragraph("Every mean above links to its runs. A run is named by the hash of its settings (`runs/KEY` in the "
                    "queue's folder); the split is a hash of the labelled and unlabelled texts in order; the code is "
                    "the git commit that the run was executed with.")
    yield DataTable(["machine", "description"],
                    [[letter(i), ", ".join(f"{name} {value}" for name, value in machine)]
                     for i, machine in enumerate(machines)], text_columns=2)
    listed: set[str] = set()  # a method without its pool is shown in several columns
    for block, cells in results.blocks.items():
        yield Heading(block.title, 3)
        for size, methods in cells.items():
            for name, seeds in methods.items():
                if anchor(seeds) not in listed:
                    listed.add(anchor(seeds))
                    lines = [run_line(result, block.measures[0], letter(machines.index(machine_of(result))))
                             for result in seeds]
                    yield Details(f"{name}, {size.title}", [DataTable(RUN_COLUMNS, lines)], id=anchor(seeds))


def run_line(result: RunResult, measure: Measure, machine: str) -> list[str]:
    """One run as a row of the provenance."""
    notices = [*(["collapsed"] if result.collapsed else []), *result.line["notices"]]
    return [f"`{result.run.key}`", str(result.run.seed), f"{result.score(measure):.4f}",
            f"{result.line['seconds']:.1f}", f"`{result.line['split']['train'][:12]}`", machine,
            result.line["machine"]["halflabel"], result.commit, result.line["finished"][:16].replace("T", " "),
            "; ".join(notices) or "-"]


def machine_of(result: RunResult) -> tuple[tuple[str, str], ...]:
    """The machine of a run, hashable."""
    return tuple(sorted((name, str(value)) for name, value in result.line["machine"].items()))


def letter(i: int) -> str:
    return chr(ord("A") + i) if i < 26 else f"M{i}"


def p_value(test: PairedTest) -> str:
    return "-" if test.n == 1 else "<0.001" if test.p < 0.0005 else f"{test.p:.3f}"


def interval(test: PairedTest, digits: int = 3) -> str:
    """The 95 % interval of a difference."""
    return f"{signed(test.low, digits)} to {signed(test.high, digits)}" if test.n > 1 else "-"


def signed(value: float, digits: int = 3) -> str:
    """A difference with its sign."""
    return f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
