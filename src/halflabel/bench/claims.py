"""The paper's claims against the runs that there are: differences over the same splits, their number, and p."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean

from halflabel.bench.measure import BEST
from halflabel.bench.ranks import Paired, paired
from halflabel.bench.results import LOWER, Block, Cells, Column, Results, Row, by_unit, pairs, supervised

SURE = 0.05
FORMS = {"S": "bdd-s", "F": "bdd-f", "ML": "bdd-ml"}
PLAIN = {"bdd-s": "am-s", "bdd-f": "am-f", "bdd-ml": "am-ml"}  # less BDD
BARE = {"bdd-s": "ce", "bdd-f": "ce", "bdd-ml": "bce"}  # labelled texts and the usual loss
Value = Callable[[Row], float | None]


@dataclass(frozen=True)
class Finding:
    """One claim on one block of runs: `a` is claimed to be above `b`."""

    claim: str
    block: Block
    measure: str
    a: str
    b: str
    mean_a: float
    mean_b: float
    test: Paired
    sets: tuple[tuple[str, float, int], ...]  # difference and number of splits on each set

    @property
    def verdict(self) -> str:
        """What the numbers say, by one rule for all claims."""
        if self.test.p < SURE:
            return "holds" if self.test.difference > 0 else "contradicted"
        side = "higher" if self.test.difference > 0 else "lower" if self.test.difference < 0 else "equal"
        return f"{side}, p ≥ {SURE}"

    @property
    def where(self) -> str:
        return f"{self.block.plan} plan, {'dev set' if self.block.protocol == 'dev' else 'no dev set'}"


CLAIMS = {
    "BDD over AM": "Balanced angles are better than angles as they are (ablation -BDD; Tables 2-8).",
    "unlabelled texts help": "The method is better than the same one without unlabelled texts (ablation -unlabelled).",
    "regularization helps": "The method is better than the same one without its penalty (ablation -regularization).",
    "better than labels alone": "The method is better than the usual loss on labelled texts (ablation -all).",
    "BDD matters more than regularization": "Leaving out BDD costs more than leaving out the penalty (Table 8).",
    "pseudo-labels are right more often": "Pseudo-labels are more accurate with BDD, at the end of training (Fig. 4).",
    "right more often all along": "The same, as a mean over training (Fig. 4).",
    "angles spread unevenly": "Label-angle variances differ more in semi-supervised than in supervised training, by "
                              "the average difference of variances on test texts, in square radians (Fig. 1).",
}


def findings(results: Results) -> list[Finding]:
    """Every claim on every block that has the runs for it, claim by claim."""
    found = [one for block, cells in results.blocks.items() for one in of_block(block, cells)]
    return sorted(found, key=lambda one: list(CLAIMS).index(one.claim))


def of_block(block: Block, cells: Cells) -> Iterator[Finding]:
    """The claims on one block; the supervised columns serve the last of them alone."""
    columns = [column for column in cells if column.unlabelled]
    for full in FORMS.values():
        asked = [("BDD over AM", full, PLAIN[full]), ("unlabelled texts help", full, f"{full} -unlabelled"),
                 ("regularization helps", full, f"{full} -regularization"),
                 ("better than labels alone", full, BARE[full]),
                 ("BDD matters more than regularization", f"{full} -regularization", PLAIN[full])]
        for claim, a, b in asked:
            for measure in headline(block):
                yield from compared(claim, block, measure_name(*measure), cells, columns, (a, b), score(*measure))
        both = (full, PLAIN[full])
        yield from compared("pseudo-labels are right more often", block, "pseudo-labels", cells, columns, both, at_end)
        yield from compared("right more often all along", block, "pseudo-labels", cells, columns, both, all_along)
    for plain in PLAIN.values():
        yield from uneven(block, cells, columns, plain)


def headline(block: Block) -> list[tuple[str, str]]:
    """The measures that a claim is judged by: micro F1, under both decisions where there are several labels."""
    return [(metric, rule) for metric, rule in block.measures if metric == "micro_f1"]


def measure_name(metric: str, rule: str) -> str:
    name = {"micro_f1": "micro F1", "macro_f1": "macro F1"}.get(metric, metric)
    return name if rule == BEST else f"{name}, {rule}"


def score(metric: str, rule: str) -> Value:
    sign = -1.0 if metric in LOWER else 1.0
    return lambda row: sign * row.figure(metric, rule)


def at_end(row: Row) -> float | None:
    """How right the pseudo-labels are after the last step."""
    return row.result["pseudo"]


def all_along(row: Row) -> float | None:
    """How right the pseudo-labels are on average over the epochs."""
    found = [line.get("pseudo_accuracy", line.get("pseudo_f1")) for line in row.epochs]
    known = [value for value in found if value is not None]
    return mean(known) if known else None


def compared(claim: str, block: Block, measure: str, cells: Cells, columns: list[Column], names: tuple[str, str],
             value: Value) -> Iterator[Finding]:
    """A finding, if both methods have runs on the same splits."""
    a, b = (by_unit(cells, name, value, columns) for name in names)
    yield from tested(claim, block, measure, names, pairs(a, b))


def tested(claim: str, block: Block, measure: str, names: tuple[str, str],
           both: dict[tuple[str, int], tuple[float, float]]) -> Iterator[Finding]:
    if not both:
        return
    a, b = ([pair[side] for pair in both.values()] for side in (0, 1))
    sets = {name: [x - y for (one, _), (x, y) in both.items() if one == name] for name, _ in both}
    yield Finding(claim, block, measure, *names, mean(a), mean(b), paired(a, b),
                  tuple((name, mean(gaps), len(gaps)) for name, gaps in sets.items()))


def uneven(block: Block, cells: Cells, columns: list[Column], plain: str) -> Iterator[Finding]:
    """DLAV of AM with few labels and a pool, against AM with the labels of at least as many texts."""
    def dlav(row: Row) -> float:
        return float(row.result["angles"]["dlav"])

    few, full = (by_unit(cells, plain, dlav, where) for where in (columns, supervised(cells)))
    units = {unit: (mean(few[unit].values()), mean(full[unit].values())) for unit in sorted(few.keys() & full.keys())}
    yield from tested("angles spread unevenly", block, "DLAV", (f"{plain}, few labels", f"{plain}, all labels"), units)
