"""The published numbers agree with themselves, and the grid is the paper's."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest

from halflabel import TextClassifier
from halflabel.bench.comparisons import average_ranks
from halflabel.bench.paper import (
    LOWER_IS_BETTER,
    METHODS,
    TABLES,
    TASKS,
    PublishedScore,
    cell_of,
    printed_tables,
    published,
    score_matrix,
    statistics,
    table_runs,
)
from halflabel.bench.runs import resolve
from halflabel.errors import SettingError
from halflabel.methods.registry import METHODS as REGISTRY

RANKED = range(2, 8)
WARMED_UP = ("bdd-ml", "am-ml", "cap", "metaexpert-ml")
# Printed ranks that do not follow from the printed numbers, with what does.
WRONG_RANKS = {(7, "cap"): ("3.7", "3.6"), (7, "metaexpert-ml"): ("2.6", "2.5"), (7, "bdd-ml"): ("1.3", "1.2")}
# Rows in which the number in bold is not the best, or not the only best: bold ones, best ones.
WRONG_BOLD = {
    (2, "macro_f1", "ag_news", 1000, 20000): ({"S2TC-BDD-F"}, {"S2TC-BDD-S", "S2TC-BDD-F"}),
    (3, "micro_f1", "yahoo", 100, 0): ({"BERT+AM-F"}, {"MetaExpert"}),
}


def rounded(value: float) -> str:
    return str(Decimal(repr(round(float(value), 6))).quantize(Decimal("0.1"), ROUND_HALF_UP))


def cell(number: int, *key: object) -> float:
    values = [score.value for score in published(number)
              if (score.metric, score.set, score.method, score.labelled, score.unlabelled) == key]
    assert len(values) == 1
    return values[0]


@pytest.mark.parametrize("number", RANKED)
def test_average_ranks_are_those_printed(number: int) -> None:
    """Equal scores share the better rank; the mean is over all rows of both metrics; halves are rounded up."""
    computed = average_ranks(*score_matrix(published(number)))
    assert computed.keys() == TABLES[number].ranks.keys()
    differ = {(number, method): (f"{printed:.1f}", rounded(computed[method]))
              for method, printed in TABLES[number].ranks.items() if rounded(computed[method]) != f"{printed:.1f}"}
    assert differ == {key: value for key, value in WRONG_RANKS.items() if key[0] == number}


def test_other_rules_for_equal_scores_do_not_give_the_printed_ranks() -> None:
    from scipy.stats import rankdata

    def misses(ties: str) -> int:
        count = 0
        for number in range(2, 7):
            table = printed_tables()[str(number)]
            totals = [0.0] * len(table["methods"])
            for metric, *_, values, _ in table["rows"]:
                sign = 1 if metric in LOWER_IS_BETTER else -1
                ranks = rankdata([9.0 if value is None else sign * value for value in values], ties)
                totals = [total + rank for total, rank in zip(totals, ranks, strict=True)]
            count += sum(rounded(total / len(table["rows"])) != f"{printed:.1f}"
                         for total, printed in zip(totals, table["ranks"], strict=True))
        return count

    assert misses("min") == 0
    assert min(misses("average"), misses("max"), misses("dense")) >= 10


@pytest.mark.parametrize("number", RANKED)
def test_bold_numbers_are_the_best(number: int) -> None:
    table, wrong = printed_tables()[str(number)], {}
    for metric, name, labelled, unlabelled, values, bold in table["rows"]:
        known = [value for value in values if value is not None]
        best = min(known) if metric in LOWER_IS_BETTER else max(known)
        winners = {title for title, value in zip(table["methods"], values, strict=True) if value == best}
        if winners != set(bold):
            wrong[(number, metric, name, labelled, unlabelled)] = (set(bold), winners)
    assert wrong == {key: value for key, value in WRONG_BOLD.items() if key[0] == number}
    lowest = min(table["ranks"])
    assert table["bold_rank"] == [title for title, rank in zip(table["methods"], table["ranks"], strict=True)
                                  if rank == lowest]


def test_every_table_has_all_its_cells() -> None:
    assert {number: len(published(number)) for number in TABLES} == {
        1: 27, 2: 18 * 11, 3: 24 * 10 - 6, 4: 18 * 6, 5: 18 * 6, 6: 24 * 5, 7: 24 * 5, 8: 8 * 5}
    for number in RANKED:
        counted = Counter((score.metric, score.set) for score in published(number))
        rows = 3 if TABLES[number].varied == "labelled" else 4
        absent = {(metric, name): 1 for metric in TABLES[number].metrics for name in TASKS if number == 3}
        wanted = {(metric, name): rows * len(TABLES[number].methods) - absent.get((metric, name), 0)
                  for metric in TABLES[number].metrics for name in TASKS if TASKS[name] == TABLES[number].task}
        assert counted == wanted
    assert all(score.deviation is None for number in TABLES for score in published(number))


@pytest.mark.parametrize(("varied", "other"), [(3, 2), (6, 4), (7, 5)])
def test_tables_agree_where_they_show_the_same_runs(varied: int, other: int) -> None:
    left, right = ({tuple(score[1:6]): score.value for score in published(number)} for number in (varied, other))
    shared = left.keys() & right.keys()
    assert len(shared) == 2 * 3 * len(TABLES[varied].methods)
    assert {key: (left[key], right[key]) for key in shared if left[key] != right[key]} == {}


def test_the_ablation_repeats_rows_of_other_tables() -> None:
    for score in published(8):
        name, _, part = score.method.partition(" ")
        key = (score.metric, score.set, name, 100)
        pool = 20000 if score.set == "ag_news" else 10000
        ranking = score.metric in ("ranking_loss", "lrap")
        tables = (2, 3) if score.set == "ag_news" else (5, 7) if ranking else (4, 6)
        if part == "":
            assert score.value == cell(tables[0], *key, pool)
        elif part == "-bdd":
            assert score.value == cell(tables[0], score.metric, score.set, resolve(score.method).method, 100, pool)
        elif part == "-unlabelled":
            assert score.unlabelled == 0 and score.value == cell(tables[1], *key, 0)
        elif part == "-all" and score.set == "ag_news":
            assert score.unlabelled == 0 and score.value == cell(2, score.metric, score.set, "ce", 100, pool)


def test_tables_are_numbered_and_described() -> None:
    assert list(TABLES) == [*range(1, 9)] and all(table.number == number for number, table in TABLES.items())
    assert TABLES[2].methods == tuple(METHODS["multi-class"].values())
    assert TABLES[3].methods == tuple(m for m in TABLES[2].methods if m != "ce") and TABLES[3].varied == "unlabelled"
    assert TABLES[4].methods == tuple(METHODS["multi-label"].values()) == TABLES[5].methods
    assert TABLES[5].metrics == ("ranking_loss", "lrap") and TABLES[8].task is None and TABLES[8].varied == "parts"


def test_statistics_of_the_corpora() -> None:
    assert statistics()["rcv1"] == (103, 23149, 2000, 781265, 3.24)
    assert statistics()["ag_news"].labels_per_text is None
    assert PublishedScore(1, "yelp", "", 0, 0, "test", 50000.0) in published(1)
    for name, corpus in statistics().items():  # the largest run of each table fits
        runs = [run for number in range(2, 9) for run in table_runs(number, [0]) if run.set == name]
        assert max(cell_of(run).labelled + run.unlabelled for run in runs) + corpus.dev <= corpus.train


@pytest.mark.parametrize("number", range(2, 9))
def test_runs_find_their_published_numbers(number: int) -> None:
    runs = table_runs(number, [0])
    assert {cell_of(run) for run in runs} == {score.cell for score in published(number)}
    assert cell_of(replace(runs[0], set="mine")) is None


def test_runs_are_the_grid_of_the_table() -> None:
    runs = table_runs(2, [0, 1, 2, 3, 4])
    assert len(runs) == len(set(runs)) == 3 * 3 * 11 * 5
    assert {(run.plan, run.protocol, run.per_class, run.encoder) for run in runs} == {("paper", "dev", True, None)}
    assert {(run.set, run.labelled, run.unlabelled) for run in runs} == {
        (name, labelled // classes, 40000 if name == "yahoo" else 20000)
        for name, classes in (("ag_news", 4), ("yelp", 5), ("yahoo", 10)) for labelled in (100, 1000, 10000)}
    assert len(table_runs(3, [0])) == 3 * (4 * 10 - 1)
    assert not [run for run in table_runs(3, [0]) if run.method == "vampire" and run.unlabelled == 0]
    assert table_runs(4, [3]) == table_runs(5, [3]) and table_runs(6, [3]) == table_runs(7, [3])
    assert {(run.labelled, run.per_class) for run in table_runs(4, [0]) if run.set == "aapd"} == {
        (200, False), (2000, False), (20000, False)}
    assert len(table_runs(8, [0, 1])) == 3 * 5 * 2


@pytest.mark.parametrize(("name", "method", "wanted"), [
    ("ag_news", "bdd-s", {"s": 1.0, "m": 0.01, "T": 0.5, "lambda1": 1.0, "lambda2": 1.0, "memory": 0.1}),
    ("yelp", "bdd-s", {"s": 1.0, "m": 0.3, "T": 0.3, "lambda1": 1.0, "lambda2": 1.0, "memory": 0.1}),
    ("yelp", "am-s", {"s": 1.0, "m": 0.3, "T": 0.3, "lambda1": 1.0, "lambda2": 1.0}),
    ("yahoo", "bdd-f", {"s": 20.0, "m": 0.3, "lambda1": 1.0, "lambda2": 0.001, "memory": 0.1}),
    ("yelp", "bdd-f", {"s": 20.0, "m": 0.15, "lambda1": 1.0, "lambda2": 0.001, "memory": 0.1}),
    ("yelp", "vat", {"eps": 5.0, "alpha": 1.0, "xi": 0.1}),
    ("yelp", "uda", {}),
])
def test_settings_of_a_corpus(name: str, method: str, wanted: dict[str, float]) -> None:
    run = next(run for run in table_runs(2, [0]) if (run.set, run.method) == (name, method))
    assert dict(run.settings) == wanted


def test_runs_can_be_made_and_have_the_papers_schedule() -> None:
    for run in {run for number in range(2, 9) for run in table_runs(number, [0])}:
        name, changes = resolve(run.method)
        both = {**changes, **dict(run.settings)}
        assert len(both) == len(changes) + len(run.settings), "neither overrides the other"
        chosen = TextClassifier(name, plan=run.plan, settings=both).chosen_settings(TASKS[run.set])
        plan = chosen.plan
        if REGISTRY[name].no_steps:
            continue
        assert (plan.epochs, plan.epoch_steps, plan.max_tokens) == (50, 1000, 256)
        assert (plan.encoder_rate, plan.head_rate, plan.encoder) == (1e-5, 1e-3, "bert-base-uncased")
        batches = (8, 8) if name in ("ce", "bce") else (4, 8)
        assert (plan.labelled_batch, plan.unlabelled_batch) == batches or name == "vampire"
        if name not in ("vampire", "sdrl"):  # which read, or settle, before they begin
            assert (plan.warmup, plan.warmup_batch) == ((5000, 8) if name in WARMED_UP else (0, 0))
        if name.startswith(("bdd", "am")):
            assert plan.ema == (0.0 if run.method == "bdd-ml -all" else 0.999)


def test_tables_without_runs_are_refused() -> None:
    with pytest.raises(SettingError, match="Table 1 describes the corpora"):
        table_runs(1, [0])
    with pytest.raises(SettingError, match="no Table 9; choose one of 1 to 8"):
        table_runs(9, [0])


def test_the_documentation_counts_the_runs() -> None:
    text = (Path(__file__).parent.parent.parent / "docs" / "paper.md").read_text(encoding="utf-8")
    section = text.partition("## The tables")[2].partition("### What is set where")[0]
    counted = {int(number): int(runs) for number, runs in re.findall(r"^\| (\d) \|.*\| (\d+) \|$", section, re.M)}
    assert counted == {number: len(table_runs(number, range(5))) for number in range(2, 9)}
    assert f"{len({run for number in counted for run in table_runs(number, range(5))}):,} runs" in section
