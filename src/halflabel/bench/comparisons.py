"""Comparisons of methods: average ranks by the paper's rule, paired tests over seeds, and the paper's claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from halflabel.bench.paper import LOWER_IS_BETTER
from halflabel.bench.results import (
    METRIC_NAMES,
    Block,
    Cells,
    Measure,
    Results,
    RunResult,
    SampleSize,
    by_unit,
    pair_units,
    supervised,
)
from halflabel.bench.runs import FAMILIES

ALPHA, POWER = 0.05, 0.8  # level of significance; power at which a difference counts as detectable
EXACT = 16  # differences up to which all sign flips are enumerated; beyond, RESAMPLES random ones
RESAMPLES = 9_999
Value = Callable[[RunResult], float | None]


def average_ranks(scores: Mapping[str, Mapping[str, float]], lower_is_better: bool | Collection[str] = False, *,
                  missing: Literal["last", "left out"] = "last") -> dict[str, float]:
    """The mean rank of each method over all columns, 1 for the best; `scores[method][column]`.

    In a column, a method's rank is one more than the number of methods that are better, so that equal scores share
    the better rank. A method without a score ranks behind all that have one, or its mean is over the columns it has.
    `lower_is_better` applies to all columns, or names those in which the lower score wins.
    """
    columns = list(dict.fromkeys(column for row in scores.values() for column in row))
    lower = set(columns) if lower_is_better is True else set(lower_is_better or ())
    ranks: dict[str, list[int]] = {method: [] for method in scores}
    for column in columns:
        sign = -1 if column in lower else 1
        values = {method: sign * row[column] for method, row in scores.items() if column in row}
        for method in scores:
            if method in values:
                ranks[method].append(1 + sum(other > values[method] for other in values.values()))
            elif missing == "last":
                ranks[method].append(1 + len(values))
    return {method: float(np.mean(places)) if places else float("nan") for method, places in ranks.items()}


class PairedTest(NamedTuple):
    """The difference of two methods over the same seeds."""

    difference: float  # mean of a - b
    deviation: float  # of a - b, as a sample; NaN for one seed
    n: int
    p: float  # two-sided, of the sign-flip test; never below 2 / 2**n
    low: float  # 95 % interval of the difference, by Student's t
    high: float

    @property
    def detectable(self) -> float:
        """The smallest true difference that a t-test over so many units of this deviation finds with POWER."""
        if self.n < 2:
            return float("inf")
        quantiles = stats.t.ppf([1 - ALPHA / 2, POWER], self.n - 1)
        return float(quantiles.sum()) * self.deviation / self.n**0.5


def paired_test(a: Sequence[float], b: Sequence[float]) -> PairedTest:
    """Compares scores of the same seeds, in the same order.

    Under the null hypothesis each difference could have the other sign: p is the share of all sign flips under which
    the mean is as far from zero. With five seeds p is at least 0.0625, with three at least 0.25.
    """
    assert len(a) == len(b) > 0, "a score of both for each seed"
    d = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    n, difference = len(d), float(d.mean())
    if n == 1:
        return PairedTest(difference, float("nan"), n, 1.0, -float("inf"), float("inf"))
    deviation = float(d.std(ddof=1))
    margin = float(stats.t.ppf(0.975, n - 1)) * deviation / n**0.5
    return PairedTest(difference, deviation, n, sign_flip_p(d), difference - margin, difference + margin)


def sign_flip_p(d: np.ndarray) -> float:
    """Two-sided p of the mean of differences (N,): exact for few, by a fixed random sample of signs for many.

    By hand, since scipy's permutation test takes twenty times as long to enumerate the signs.
    """
    n = len(d)
    flips = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 if n <= EXACT else np.vstack(
        [np.zeros(n, dtype=np.int64), np.random.default_rng(0).integers(0, 2, (RESAMPLES, n))])
    sums = np.abs((1 - 2 * flips) @ d)
    return float(np.mean(sums >= sums[0] * (1 - 1e-12)))


def holm(p: Sequence[float]) -> list[float]:
    """p-values corrected for how many there are, by Holm's step-down rule; scipy has only false discovery rates."""
    order, adjusted = np.argsort(p), np.empty(len(p))
    steps = [(len(p) - rank) * p[i] for rank, i in enumerate(order)]
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0) if steps else []
    return [float(value) for value in adjusted]


def hierarchical_interval(by_set: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """95 % bootstrap interval of the mean over sets: sets are resampled, and seeds within each of them.

    Seeds of one set share its test texts, so that many seeds on few sets say little about other sets.
    """
    rng, sets = np.random.default_rng(0), [np.asarray(values, dtype=np.float64) for values in by_set.values()]
    means = np.stack([rng.choice(values, (RESAMPLES, len(sets), len(values))).mean(axis=2) for values in sets], axis=2)
    drawn = rng.integers(len(sets), size=(RESAMPLES, len(sets), 1))
    low, high = np.quantile(np.take_along_axis(means, drawn, axis=2).mean(axis=(1, 2)), (0.025, 0.975))
    return float(low), float(high)


CLAIMS = {
    "BDD over AM": "Balanced angles are better than unbalanced ones (ablation -BDD; Tables 2-8).",
    "BDD over AM, pools kept": "The same over the samples on which neither run abandoned its pool: one that did "
                               "restarts as AM on the labelled texts, so that such pairs are equal.",
    "unlabelled texts help": "The method is better than the same one without unlabelled texts (ablation -unlabelled).",
    "regularization helps": "The method is better than the same one without its penalty (ablation -regularization).",
    "better than labels alone": "The method is better than the usual loss on labelled texts (ablation -all); for "
                                "several labels per text under prior-quantile, since with few labels that loss "
                                "predicts next to none above a threshold of 0.5.",
    "BDD matters more than regularization": "Removing BDD costs more than removing the penalty (Table 8).",
    "more accurate pseudo-labels": "Pseudo-labels are more accurate with BDD, at the end of training (Fig. 4).",
    "more accurate throughout training": "The same, as a mean over training (Fig. 4).",
    "uneven label angles": "Label-angle variances differ more in semi-supervised than in supervised training, by "
                           "the average difference of variances on test texts, in square radians (Fig. 1).",
}


@dataclass(frozen=True)
class ClaimResult:
    """One claim on one block of runs: `a` is claimed to be above `b`."""

    claim: str
    block: Block
    measure: str
    a: str
    b: str
    mean_a: float
    mean_b: float
    test: PairedTest
    low: float  # 95 % interval over sets and seeds
    high: float
    by_size: tuple[tuple[str, float, int], ...]  # difference and number of seeds on each sample size
    adjusted_p: float = 1.0  # of the test, corrected for all claims

    @property
    def verdict(self) -> str:
        """One rule for all claims: both the corrected test and the interval over sets agree, or the direction alone."""
        if self.adjusted_p < ALPHA and (self.low > 0 or self.high < 0):
            return "holds" if self.test.difference > 0 else "contradicted"
        side = "higher" if self.test.difference > 0 else "lower" if self.test.difference < 0 else "equal"
        return f"{side}, not shown"

    @property
    def where(self) -> str:
        return f"{self.block.plan} plan, {'dev set' if self.block.protocol == 'dev' else 'no dev set'}"


def evaluate_claims(results: Results) -> list[ClaimResult]:
    """Every claim on every block that has the runs for it, claim by claim."""
    tested = [claim for block, cells in results.blocks.items() for claim in _claims_of(block, cells)]
    adjusted = holm([claim.test.p for claim in tested])
    corrected = [replace(claim, adjusted_p=p) for claim, p in zip(tested, adjusted, strict=True)]
    return sorted(corrected, key=lambda result: list(CLAIMS).index(result.claim))


def _claims_of(block: Block, cells: Cells) -> Iterator[ClaimResult]:
    """The claims on one block; its supervised runs serve only the last of them."""
    sizes = [size for size in cells if size.unlabelled]

    def compare(claim: str, measure: str, a: str, b: str, value: Value) -> Iterator[ClaimResult]:
        of_a, of_b = (by_unit(cells, name, value, sizes) for name in (a, b))
        gaps = [(size.title, score - of_b[unit][size]) for unit, scores in of_a.items() if unit in of_b
                for size, score in scores.items() if size in of_b[unit]]
        yield from _claim(claim, block, measure, (a, b), pair_units(of_a, of_b), gaps)

    for full, family in FAMILIES.items():
        compared = [("BDD over AM", full, family.without_bdd), ("unlabelled texts help", full, f"{full} -unlabelled"),
                    ("regularization helps", full, f"{full} -regularization"),
                    ("better than labels alone", full, family.supervised),
                    ("BDD matters more than regularization", f"{full} -regularization", family.without_bdd)]
        for claim, a, b in compared:
            for measure in block.measures:
                if measure.metric == "micro_f1" and (claim != "better than labels alone" or measure.rule != "fixed"):
                    yield from compare(claim, measure_name(measure), a, b, score(measure))
                    if claim == "BDD over AM":
                        yield from compare(f"{claim}, pools kept", measure_name(measure), a, b,
                                           _if_pool_kept(score(measure)))
        yield from compare("more accurate pseudo-labels", "pseudo-labels", full, family.without_bdd, _at_end)
        yield from compare("more accurate throughout training", "pseudo-labels", full, family.without_bdd,
                           _over_training)
    for family in FAMILIES.values():
        yield from _uneven_angles(block, cells, sizes, family.without_bdd)


def measure_name(measure: Measure) -> str:
    """The metric, and its decision rule for several labels per text."""
    name = METRIC_NAMES[measure.metric]
    return f"{name}, {measure.rule}" if measure.depends_on_rule else name


def score(measure: Measure) -> Value:
    """The value of a run under a measure, with its sign changed where lower is better."""
    sign = -1.0 if measure.metric in LOWER_IS_BETTER else 1.0
    return lambda result: sign * result.score(measure)


def _if_pool_kept(value: Value) -> Value:
    return lambda result: None if result.pool_abandoned else value(result)


def _at_end(result: RunResult) -> float | None:
    return result.line["pseudo"]


def _over_training(result: RunResult) -> float | None:
    values = [value for _, value in result.pseudo_label_curve(with_end=True)]
    return mean(values) if values else None


def _claim(claim: str, block: Block, measure: str, names: tuple[str, str],
           units: dict[tuple[str, int], tuple[float, float]],
           gaps: Iterable[tuple[str, float]]) -> Iterator[ClaimResult]:
    """The result of a claim, if both methods have runs on the same samples; `gaps` by the title of the sample size."""
    if not units:
        return
    a, b = ([pair[side] for pair in units.values()] for side in (0, 1))
    by_set, by_size = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for (name, _), (x, y) in units.items():
        by_set[name].append(x - y)
    for title, gap in gaps:
        by_size[title].append(gap)
    yield ClaimResult(claim, block, measure, *names, mean(a), mean(b), paired_test(a, b),
                      *hierarchical_interval(by_set),
                      tuple((title, mean(values), len(values)) for title, values in by_size.items()))


def _uneven_angles(block: Block, cells: Cells, sizes: list[SampleSize], method: str) -> Iterator[ClaimResult]:
    """DLAV of AM with few labels and a pool, against AM with labels for at least as many texts."""
    few, full = (by_unit(cells, method, lambda result: float(result.line["angles"]["dlav"]), where)
                 for where in (sizes, supervised(cells)))
    units = {unit: (mean(few[unit].values()), mean(full[unit].values())) for unit in sorted(few.keys() & full.keys())}
    yield from _claim("uneven label angles", block, "DLAV", (f"{method}, few labels", f"{method}, all labels"), units,
                      [(name, x - y) for (name, _), (x, y) in units.items()])
