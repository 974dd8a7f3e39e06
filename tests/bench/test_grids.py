"""Grids are written out exactly, and draws are functions of corpus, numbers and seed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halflabel.bench.check import check
from halflabel.bench.grids import Grid, expanded, figure_runs, quick, read_grid
from halflabel.bench.sets import drawn, parts_of
from halflabel.errors import BadInput
from made import RUN


def test_the_quick_grid() -> None:
    runs = expanded(quick([0, 1]), None)
    assert len(set(runs)) == len(runs) == 44 and [run.seed for run in runs] == [0] * 22 + [1] * 22
    cells = {(run.set, run.method, run.labelled, run.per_class, run.unlabelled, run.protocol) for run in runs}
    assert {run.plan for run in runs} == {"frozen"}
    one = {"bdd-s", "bdd-f", "am-s", "am-f", "bdd-s -regularization", "bdd-f -regularization", "ce", "freematch",
           "lift", "logreg"}
    assert {cell for cell in cells if cell[0] == "sample" and cell[5] == "none"} == {
        *(("sample", name, 10, True, 800, "none") for name in one),
        *(("sample", f"{name} -unlabelled", 10, True, 0, "none") for name in ("bdd-s", "bdd-f")),
        ("sample", "am-f", 1033, False, 0, "none")}
    assert {cell[1] for cell in cells if cell[5] == "dev"} == {"bdd-f", "am-f", "ce"}
    assert {cell[1:5] for cell in cells if cell[0] == "sample:tags"} == {
        *((name, 150, False, 700) for name in ("bdd-ml", "am-ml", "bdd-ml -regularization", "bce")),
        ("bdd-ml -unlabelled", 150, False, 0), ("am-ml", 1033, False, 0)}
    assert check([run for run in runs if run.seed == 0], None) == []


def test_methods_meet_the_corpora_whose_labels_they_are_for() -> None:
    grid = Grid(("sample", "sample:tags"), ("ce", "bce", "bdd-f -unlabelled"), ("5/class", "100"), seeds=(3,),
                settings=(("m", 0.2), ("minutes", 2)), plans=("frozen", "laptop"))
    found = Counter((run.set, run.method, run.plan) for run in expanded([grid], None))
    assert found == {("sample", name, plan): 2 for name in ("ce", "bdd-f -unlabelled") for plan in ("frozen", "laptop")
                     } | {("sample:tags", "bce", plan): 1 for plan in ("frozen", "laptop")}
    settings = {run.method: dict(run.settings) for run in expanded([grid], None)}
    assert settings == {"ce": {"minutes": 2}, "bce": {"minutes": 2}, "bdd-f -unlabelled": {"m": 0.2, "minutes": 2}}


def test_a_pool_leaves_room_for_every_draw_and_the_dev_texts() -> None:
    grid = Grid(("sample",), ("ce",), ("2/class", "20/class"), protocols=("none", "dev"), seeds=(0,))
    runs = expanded([grid], None)
    assert {run.unlabelled for run in runs} == {1033 - 8 * 20 - 103} and check(runs, None) == []


def test_a_file_of_grids_or_of_runs(tmp_path: Path) -> None:
    file = tmp_path / "grid.json"
    grid = {"sets": "sample", "methods": ["ce"], "labelled": ["2/class", 40], "seeds": [0, 5], "unlabelled": 100}
    file.write_text(json.dumps([grid]), encoding="utf-8")
    assert [(run.labelled, run.seed) for run in expanded(read_grid(file), None)] == [(2, 0), (40, 0), (2, 5), (40, 5)]
    file.write_text(json.dumps({"runs": [RUN.to_json()]}), encoding="utf-8")
    assert read_grid(file) == [RUN]


@pytest.mark.parametrize(("grid", "said"), [
    ({"methods": ["ce"], "labelled": [5]}, "a grid needs sets"),
    ({"sets": ["sample"], "methods": ["ce"], "labelled": [5], "sizes": 3}, "a grid has no field 'sizes'"),
    ({"sets": ["sample"], "methods": ["cee"], "labelled": [5]}, "no method 'cee'"),
    ({"sets": ["sample"], "methods": ["ce -all"], "labelled": [5]}, "no ablation of 'ce'"),
    ({"sets": ["sample"], "methods": ["ce"], "labelled": ["5/label"]}, "--labelled 5/label is not understood"),
    ({"sets": ["sample"], "methods": ["bce"], "labelled": [50]}, "bce fits none of the sets sample"),
    ({"sets": ["sample:tags"], "methods": ["bce"], "labelled": ["5/class"]}, "counted in all"),
    ({"sets": ["sample"], "methods": ["ce"], "labelled": [50], "plans": "slow"}, "plan 'slow' is not known"),
    ({"sets": ["nowhere.csv"], "methods": ["ce"], "labelled": [50]}, "there is no corpus 'nowhere.csv'"),
    ({"sets": ["yelp"], "methods": ["ce"], "labelled": [50]}, "say with --data FOLDER"),
])
def test_grids_that_cannot_be_run_are_refused(tmp_path: Path, grid: dict[str, Any], said: str) -> None:
    file = tmp_path / "grid.json"
    file.write_text(json.dumps(grid), encoding="utf-8")
    with pytest.raises(BadInput, match=said):
        expanded(read_grid(file), None)


@pytest.mark.parametrize(("run", "said"), [
    (replace(RUN, labelled=100), "has 97 texts of 'facilities', not 100; ask for fewer"),
    (replace(RUN, unlabelled=960), "953 training texts beside the labelled ones, too few for 960 unlabelled texts"),
    (replace(RUN, unlabelled=900, protocol="dev"), "too few for 900 unlabelled and 103 dev texts"),
    (replace(RUN, labelled=2000, per_class=False), "has 1,033 training texts, not 2,000"),
    (replace(RUN, set="sample:tags", method="bdd-ml"), "counted in all, not per class"),
    (replace(RUN, settings=(("smoothness", 1.0),)), "bdd-f on sample: 'smoothness' is no setting"),
    (replace(RUN, set="sample:tags", per_class=False, labelled=50), "the labels are sets of labels"),
])
def test_runs_that_cannot_be_done_are_refused_at_once(run: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        check([run], None)


def test_draws() -> None:
    parts = parts_of("sample", None)
    none, dev = (drawn(replace(RUN, protocol=protocol), parts) for protocol in ("none", "dev"))
    assert none.draw.labelled.texts == dev.draw.labelled.texts and none.draw.pool.texts == dev.draw.pool.texts
    assert none.dev is None and dev.dev is not None and len(dev.dev) == 103
    assert set(Counter(none.draw.labelled.labels).values()) == {10} and len(none.draw.pool) == 800
    apart = [set(none.draw.labelled.texts), set(none.draw.pool.texts), set(dev.dev.texts)]
    assert sum(map(len, apart)) == len(set.union(*apart))
    fewer = drawn(replace(RUN, labelled=5, unlabelled=0), parts)
    assert set(fewer.draw.labelled.texts) < apart[0]
    other = drawn(replace(RUN, seed=1), parts)
    assert set(other.draw.labelled.texts) != apart[0] and other.test.texts == none.test.texts
    small = drawn(replace(RUN, settings=(("test_texts", 50.0), ("dev_texts", 7.0)), protocol="dev"), parts)
    assert len(small.test) == 50 and small.dev is not None and len(small.dev) == 7


def test_the_runs_of_figures() -> None:
    assert [(run.set, run.method, run.labelled, run.unlabelled) for run in figure_runs(4, [0])][:2] == [
        ("ag_news", "bdd-f", 25, 20_000), ("ag_news", "am-f", 25, 20_000)]
    with pytest.raises(BadInput, match="Figure 2 has no runs"):
        figure_runs(2, [0])
