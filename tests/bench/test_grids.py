"""Grids expand to exact runs, and samples are functions of corpus, sizes and seed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halflabel.bench.corpora import open_corpus, run_data
from halflabel.bench.grids import Grid, expand, quick_grids, read_grids, validate_runs
from halflabel.bench.paper import figure_runs
from halflabel.errors import HalflabelError, SettingError
from made import RUN


def test_the_quick_grid() -> None:
    runs = expand(quick_grids([0, 1]), None)
    assert len(set(runs)) == len(runs) == 44 and [run.seed for run in runs] == [0] * 22 + [1] * 22
    cells = {(run.set, run.method, run.labelled, run.per_class, run.unlabelled, run.protocol) for run in runs}
    assert {run.plan for run in runs} == {"frozen"}
    methods = {"bdd-s", "bdd-f", "am-s", "am-f", "bdd-s -regularization", "bdd-f -regularization", "ce", "freematch",
           "lift", "logreg"}
    assert {cell for cell in cells if cell[0] == "sample" and cell[5] == "none"} == {
        *(("sample", name, 10, True, 800, "none") for name in methods),
        *(("sample", f"{name} -unlabelled", 10, True, 0, "none") for name in ("bdd-s", "bdd-f")),
        ("sample", "am-f", 1033, False, 0, "none")}
    assert {cell[1] for cell in cells if cell[5] == "dev"} == {"bdd-f", "am-f", "ce"}
    assert {cell[1:5] for cell in cells if cell[0] == "sample:tags"} == {
        *((name, 150, False, 700) for name in ("bdd-ml", "am-ml", "bdd-ml -regularization", "bce")),
        ("bdd-ml -unlabelled", 150, False, 0), ("am-ml", 1033, False, 0)}
    assert validate_runs([run for run in runs if run.seed == 0], None) == []


def test_methods_run_on_corpora_of_their_kind_of_labels() -> None:
    grid = Grid(("sample", "sample:tags"), ("ce", "bce", "bdd-f -unlabelled"), ("5/class", "100"), seeds=(3,),
                settings=(("m", 0.2), ("minutes", 2)), plans=("frozen", "laptop"))
    counts = Counter((run.set, run.method, run.plan) for run in expand([grid], None))
    assert counts == {("sample", name, plan): 2 for name in ("ce", "bdd-f -unlabelled") for plan in ("frozen", "laptop")
                     } | {("sample:tags", "bce", plan): 1 for plan in ("frozen", "laptop")}
    settings = {run.method: dict(run.settings) for run in expand([grid], None)}
    assert settings == {"ce": {"minutes": 2}, "bce": {"minutes": 2}, "bdd-f -unlabelled": {"m": 0.2, "minutes": 2}}


def test_the_pool_leaves_room_for_labelled_and_dev_texts() -> None:
    grid = Grid(("sample",), ("ce",), ("2/class", "20/class"), protocols=("none", "dev"), seeds=(0,))
    runs = expand([grid], None)
    assert {run.unlabelled for run in runs} == {1033 - 8 * 20 - 103} and validate_runs(runs, None) == []


def test_a_file_of_grids_or_of_runs(tmp_path: Path) -> None:
    file = tmp_path / "grid.json"
    grid = {"sets": "sample", "methods": ["ce"], "labelled": ["2/class", 40], "seeds": [0, 5], "unlabelled": 100}
    file.write_text(json.dumps([grid]), encoding="utf-8")
    assert [(run.labelled, run.seed) for run in expand(read_grids(file), None)] == [(2, 0), (40, 0), (2, 5), (40, 5)]
    file.write_text(json.dumps({"runs": [RUN.to_json()]}), encoding="utf-8")
    assert read_grids(file) == [RUN]


@pytest.mark.parametrize(("grid", "message"), [
    ({"methods": ["ce"], "labelled": [5]}, "a grid needs sets"),
    ({"sets": ["sample"], "methods": ["ce"], "labelled": [5], "sizes": 3}, "a grid has no field 'sizes'"),
    ({"sets": ["sample"], "methods": ["cee"], "labelled": [5]}, "no method 'cee'"),
    ({"sets": ["sample"], "methods": ["ce -all"], "labelled": [5]}, "no ablation of 'ce'"),
    ({"sets": ["sample"], "methods": ["ce"], "labelled": ["5/label"]}, "--labelled 5/label is invalid"),
    ({"sets": ["sample"], "methods": ["bce"], "labelled": [50]}, "bce fits none of the sets sample"),
    ({"sets": ["sample:tags"], "methods": ["bce"], "labelled": ["5/class"]}, "give labelled texts in total"),
    ({"sets": ["sample"], "methods": ["ce"], "labelled": [50], "plans": "slow"}, "unknown plan 'slow'"),
    ({"sets": ["nowhere.csv"], "methods": ["ce"], "labelled": [50]}, "there is no corpus 'nowhere.csv'"),
    ({"sets": ["yelp"], "methods": ["ce"], "labelled": [50]}, "give the folder of its files with --data FOLDER"),
])
def test_invalid_grids_are_an_error(tmp_path: Path, grid: dict[str, Any], message: str) -> None:
    file = tmp_path / "grid.json"
    file.write_text(json.dumps(grid), encoding="utf-8")
    with pytest.raises(HalflabelError, match=message):
        expand(read_grids(file), None)


@pytest.mark.parametrize(("run", "message"), [
    (replace(RUN, labelled=100), "has 97 texts of 'facilities', not 100; ask for fewer"),
    (replace(RUN, unlabelled=960), "953 training texts beside the labelled ones, too few for 960 unlabelled texts"),
    (replace(RUN, unlabelled=900, protocol="dev"), "too few for 900 unlabelled and 103 dev texts"),
    (replace(RUN, labelled=2000, per_class=False), "has 1,033 training texts, not 2,000"),
    (replace(RUN, set="sample:tags", method="bdd-ml"), "give labelled texts in total .200., not per class"),
    (replace(RUN, settings=(("smoothness", 1.0),)), "bdd-f on sample: 'smoothness' is no setting"),
    (replace(RUN, set="sample:tags", per_class=False, labelled=50), "the labels are sets of labels"),
])
def test_runs_that_cannot_work_are_an_error_before_they_start(run: Any, message: str) -> None:
    with pytest.raises(HalflabelError, match=message):
        validate_runs([run], None)


def test_samples() -> None:
    parts = open_corpus("sample", None)
    none, dev = (run_data(replace(RUN, protocol=protocol), parts) for protocol in ("none", "dev"))
    assert none.sample.labelled.texts == dev.sample.labelled.texts and none.sample.pool.texts == dev.sample.pool.texts
    assert none.dev is None and dev.dev is not None and len(dev.dev) == 103
    assert set(Counter(none.sample.labelled.labels).values()) == {10} and len(none.sample.pool) == 800
    disjoint = [set(none.sample.labelled.texts), set(none.sample.pool.texts), set(dev.dev.texts)]
    assert sum(map(len, disjoint)) == len(set.union(*disjoint))
    fewer = run_data(replace(RUN, labelled=5, unlabelled=0), parts)
    assert set(fewer.sample.labelled.texts) < disjoint[0]
    other = run_data(replace(RUN, seed=1), parts)
    assert set(other.sample.labelled.texts) != disjoint[0] and other.test.texts == none.test.texts
    small = run_data(replace(RUN, settings=(("test_texts", 50.0), ("dev_texts", 7.0)), protocol="dev"), parts)
    assert len(small.test) == 50 and small.dev is not None and len(small.dev) == 7


def test_the_runs_of_figures() -> None:
    assert [(run.set, run.method, run.labelled, run.unlabelled) for run in figure_runs(4, [0])][:2] == [
        ("ag_news", "bdd-f", 25, 20_000), ("ag_news", "am-f", 25, 20_000)]
    with pytest.raises(SettingError, match="Figure 2 has no runs"):
        figure_runs(2, [0])
