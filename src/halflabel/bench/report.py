"""The report on a queue: report.html, report.md and results.jsonl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from halflabel import __version__
from halflabel.atomic import write_text
from halflabel.bench.claims import CLAIMS, SURE, Finding, findings
from halflabel.bench.document import Block as Part
from halflabel.bench.document import Cell, Details, Document, Heading, Table, Text
from halflabel.bench.figures import angle_histograms, learning_curves, margin_bias, pseudo_labels, spread_of_angles
from halflabel.bench.results import Results, load, to_lines
from halflabel.bench.tables import (
    Published,
    interval,
    p_value,
    paired_differences,
    protocols,
    provenance,
    result_tables,
    signed,
    time_and_memory,
)
from halflabel.errors import BadInput

MARKS = {"holds": "good", "contradicted": "bad"}


def write_report(source: Path) -> dict[str, Any]:
    """Writes the files beside the runs (or beside a results.jsonl), and says what became of the claims."""
    results = load(source)
    if not results.rows and not results.failures:
        raise BadInput(f"{source} holds no finished run yet; go on with `halflabel bench run --out {source}`")
    folder = source.parent if source.is_file() else source
    found = findings(results)
    made = document(results, found)
    write_text(folder / "report.html", made.html())
    write_text(folder / "report.md", made.markdown())
    if source.is_dir():
        write_text(folder / "results.jsonl", to_lines(results))
    return {"html": str(folder / "report.html"), "markdown": str(folder / "report.md"), "runs": len(results.rows),
            "failed": len(results.failures), "waiting": results.waiting,
            "claims": [{"claim": one.claim, "where": one.where, "a": one.a, "b": one.b, "measure": one.measure,
                        "mean_a": one.mean_a, "mean_b": one.mean_b, "difference": one.test.difference, "n": one.test.n,
                        "p": one.test.p, "verdict": one.verdict} for one in found]}


def document(results: Results, found: list[Finding]) -> Document:
    """All sections in their order."""
    title = str(results.about.get("title", "Benchmark"))
    return Document(f"halflabel bench: {title}", lead(results), [
        *protocol(results), *claims(found), *tables(results), *protocols(results), *differences(results),
        *pictures(results), *collapses(results), *time_and_memory(results), *failures(results), *provenance(results)])


def lead(results: Results) -> str:
    collapsed = sum(row.collapsed for row in results.rows)
    parts = [f"{len(results.rows)} runs are done", f"{len(results.failures)} failed", f"{results.waiting} are left",
             f"{collapsed} collapsed"]
    days = sorted({row.result["finished"][:10] for row in results.rows})
    when = f" They were done {'on ' + days[0] if len(days) == 1 else f'from {days[0]} to {days[-1]}'}." if days else ""
    return f"{', '.join(parts)}.{when} Written by halflabel {__version__}; raw results are in `results.jsonl`."


def protocol(results: Results) -> Iterator[Part]:
    """What was done, before what came of it."""
    yield Heading("What is measured", id="protocol")
    yield Text("A draw takes labelled texts (per class, or in all at random) and a pool from the training texts of a "
               "set, by its seed alone; all methods of a column see the same draws. Scores are on the set's test "
               "texts, which nothing is fitted on. Strong views are word edits, made once for a set and shared by all "
               "runs. Numbers are mean ± deviation over seeds (number of runs); the best mean of a column is bold. "
               "Collapsed runs, whose predictions use less than half as many labels as the truth, stay in the mean and "
               "are counted below it.")
    sets: dict[str, tuple[str, int, int, int]] = {}
    for row in results.rows:
        texts = row.result["texts"]
        dev = max(texts["dev"], sets.get(row.run.set, ("", 0, 0, 0))[2])
        sets[row.run.set] = (row.result["task"], row.result["labels"], dev, texts["test"])
    yield Table(["set", "task", "labels", "dev texts", "test texts"],
                [[name, task, f"{labels:,}", f"{dev:,}" if dev else "-", f"{test:,}"]
                 for name, (task, labels, dev, test) in sets.items()], words=2)


def claims(found: list[Finding]) -> Iterator[Part]:
    """The paper's claims, one by one."""
    yield Heading("The paper's claims on these runs", id="claims")
    yield Text("A difference is between two methods on the same splits. Its units are pairs of a set and a seed (draws "
               "of one seed with more or fewer labels share texts, so their mean counts once); n is the number of "
               "units. p is two-sided, by flipping signs: n units cannot say less than 2 / 2ⁿ, so three cannot say "
               f"less than 0.25 and five not less than 0.0625. **holds**: higher with p < {SURE}; **contradicted**: "
               f"lower with p < {SURE}; else the direction is given, and the claim is neither shown nor refuted here.")
    rows, before = [], ""
    for one in found:
        rows.append([Cell(one.claim, CLAIMS[one.claim]) if one.claim != before else "",
                     Cell(f"`{one.a}` over `{one.b}`", f"{one.measure}; {one.where}"), f"{one.mean_a:.4f}",
                     f"{one.mean_b:.4f}", Cell(signed(one.test.difference, 4), interval(one.test, 4)),
                     str(one.test.n), p_value(one.test), Cell(one.verdict, mark=MARKS.get(one.verdict, ""))])
        before = one.claim
    yield Table(["claim", "compared", "first", "second", "difference", "n", "p", "verdict"], rows, words=2)
    missing = [name for name in CLAIMS if name not in {one.claim for one in found}]
    if missing:
        yield Text(f"No runs for: {', '.join(missing)}.")
    yield Details("The difference on each set", [
        Table(["claim", "compared", "where", "set", "difference", "seeds"],
              [[one.claim, f"`{one.a}` over `{one.b}`, {one.measure}", one.where, name, signed(gap, 4), str(count)]
               for one in found for name, gap, count in one.sets], words=4)])


def tables(results: Results) -> Iterator[Part]:
    said = Published(tuple(results.about.get("tables", [])))
    for i, (block, cells) in enumerate(results.blocks.items()):
        yield Heading(block.title[0].upper() + block.title[1:], id=f"block-{i}")
        yield from result_tables(block, cells, said)


def differences(results: Results) -> Iterator[Part]:
    yield Heading("Paired differences", id="paired")
    yield Text("The paper's methods against every other of their block: mean difference in micro F1 over pairs of a "
               "set and a seed, its 95 % interval by Student's t, in how many pairs it is higher, and p as above.")
    for block, cells in results.blocks.items():
        yield from paired_differences(block, cells)


def pictures(results: Results) -> Iterator[Part]:
    yield Heading("Figures", id="figures")
    yield from spread_of_angles(results)
    yield margin_bias()
    yield from pseudo_labels(results)
    yield from learning_curves(results)
    yield from angle_histograms(results)


def collapses(results: Results) -> Iterator[Part]:
    """Runs that fell in on few labels, and those that noticed it in time."""
    rows = [[f"`{row.run.method}`", row.run.set, row.run.plan, str(row.run.seed),
             f"{row.result['collapse']['labels_used']:g} of {row.result['collapse']['labels_there']:g}",
             "yes" if row.collapsed else "no", str(row.restarts), f"`{row.run.key}`"]
            for row in results.rows if row.collapsed or row.restarts]
    yield Heading("Collapsed runs", id="collapsed")
    if not rows:
        yield Text("None: no run's predictions fell in on few labels, and none noticed that its pseudo-labels did.")
        return
    yield Text("Labels in use are exp of the entropy of their shares, in predictions and in the truth. A restart is a "
               "collapse of pseudo-labels that training noticed and went back from.")
    yield Table(["method", "set", "plan", "seed", "labels in use", "collapsed", "restarts", "run"], rows, words=3)


def failures(results: Results) -> Iterator[Part]:
    if results.failures:
        yield Heading("Failed runs", id="failed")
        yield Table(["run", "why"], list(map(list, results.failures.items())), words=2)
