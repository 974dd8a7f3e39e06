"""The report says what the numbers say: means, ranks, claims, the paper's figures, where each comes from."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from halflabel.bench.claims import findings
from halflabel.bench.queue import Queue
from halflabel.bench.report import document, write_report
from halflabel.bench.results import Results, Row, load
from halflabel.bench.runs import Run
from halflabel.errors import BadInput
from made import RUN, result

EMPTY = ("meta", "br", "rect", "circle", "line", "path", "polygon", "link", "img")


def rows() -> list[Row]:
    """BDD above AM by 0.1 under six seeds on two sets, less the pool it is worse, with one collapsed run."""
    found = []
    for name in ("sample", "other"):
        for seed in range(6):
            for method, score in (("bdd-f", 0.70), ("am-f", 0.60), ("ce", 0.65), ("bdd-f -unlabelled", 0.72)):
                run = replace(RUN, set=name, seed=seed, method=method, unlabelled=0 if "-un" in method else 800)
                pseudo = score if method in ("bdd-f", "am-f") else None
                made = result(run, score + 0.01 * seed, pseudo=pseudo, dlav=0.05,
                              collapsed=(name, seed, method) == ("sample", 0, "am-f"))
                epochs = [{"step": step, "pseudo_accuracy": score + step / 1e4} for step in (100, 200)]
                found.append(Row(run, made, epochs if made["pseudo"] else []))
            run = replace(RUN, set=name, seed=seed, method="am-f", labelled=1000, per_class=False, unlabelled=0)
            found.append(Row(run, result(run, 0.8, dlav=0.02 + 0.001 * seed, labelled=1000)))
    return found


@pytest.fixture
def results() -> Results:
    return Results({"title": "known <numbers>"}, rows(), {"ce on x": "it <failed>; mend it"}, 2)


class Balanced(HTMLParser):
    """Notes what is opened and not closed, and everything that leads outside."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in EMPTY:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action") and not (value or "").startswith("#"):
                self.outside.append(str(value))
            if name == "id":
                assert value not in self.ids, f"{value} stands twice"
                self.ids.add(str(value))
            if name == "href":
                self.links.add(str(value).removeprefix("#"))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY:
            assert self.open.pop() == tag


def test_claims_have_the_right_numbers(results: Results) -> None:
    found = {one.claim: one for one in findings(results)}
    bdd = found["BDD over AM"]
    assert bdd.test.difference == pytest.approx(0.1) and bdd.test.n == 12 and bdd.verdict == "holds"
    tenth = pytest.approx(0.1)
    assert bdd.mean_a == pytest.approx(0.725) and bdd.sets == (("other", tenth, 6), ("sample", tenth, 6))
    pool = found["unlabelled texts help"]
    assert pool.test.difference == pytest.approx(-0.02) and pool.verdict == "contradicted"
    assert found["pseudo-labels are right more often"].test.difference == pytest.approx(0.1)
    dlav = found["angles spread unevenly"]
    assert dlav.mean_a == pytest.approx(0.05) and dlav.mean_b == pytest.approx(0.0225) and dlav.verdict == "holds"
    assert "regularization helps" not in found


def test_few_splits_cannot_show_a_claim() -> None:
    some = Results({}, [row for row in rows() if row.run.set == "sample" and row.run.seed < 3], {}, 0)
    bdd = next(one for one in findings(some) if one.claim == "BDD over AM")
    assert bdd.test.p == 0.25 and bdd.verdict == "higher, p ≥ 0.05"


def test_draws_of_one_seed_count_once() -> None:
    more = [Row(replace(row.run, labelled=20), row.result | {"run": replace(row.run, labelled=20).to_json()})
            for row in rows() if row.run.per_class]
    bdd = next(one for one in findings(Results({}, rows() + more, {}, 0)) if one.claim == "BDD over AM")
    assert bdd.test.n == 12


def test_html_is_whole_and_leads_nowhere(results: Results) -> None:
    page = document(results, findings(results)).html()
    parser = Balanced()
    parser.feed(page)
    assert parser.open == [] and parser.outside == [] and parser.links <= parser.ids
    assert not re.search(r"https?://|<script|@import|url\(", page)
    assert "prefers-color-scheme: dark" in page and "known &lt;numbers&gt;" in page and "it &lt;failed&gt;" in page
    pictures = re.findall(r"<svg.*?</svg>", page, flags=re.S)
    assert len(pictures) == 4 and all(ElementTree.fromstring(one).tag == "svg" for one in pictures)


def test_tables_have_means_deviations_ranks_and_collapses(results: Results) -> None:
    text = document(results, findings(results)).markdown()
    assert "48 runs" not in text and "60 runs are done, 1 failed, 2 are left, 1 collapsed" in text
    table = text[text.index("### micro F1") : text.index("### macro F1")]
    assert "| method | average rank | other · 10/class + 800 | sample · 10/class + 800 |" in table
    assert "| `bdd-f` | 1.0 | 0.725 ± 0.019 (6) | 0.725 ± 0.019 (6) |" in table
    assert "| `am-f` | 3.0 | 0.625 ± 0.019 (6) | 0.625 ± 0.019 (6); 1 collapsed |" in table
    assert "| `bdd-f -unlabelled` |  | **0.745 ± 0.019 (6)** |" in table and "1,000" not in table
    assert "| `bdd-f` | `am-f` | +0.100 |" in text and "| 12 of 12 |" in text
    assert f"| `{rows()[0].run.key}` | 0 | 0.7000 |" in text and "a processor" in text
    assert "| frozen | `ce` | 2.0 | 1.5 | 512 | 12 |" in text


def test_both_protocols_stand_side_by_side() -> None:
    dev = [Row(replace(row.run, protocol="dev"), result(replace(row.run, protocol="dev"), 0.9))
           for row in rows() if row.run.method == "ce"]
    text = document(Results({}, rows() + dev, {}, 0), []).markdown()
    assert "| `ce` | sample · 10/class + 800, frozen | 0.675 ± 0.019 (6) | 0.900 ± 0.000 (6) | +0.225 | 0.031 |" in text


def test_both_decisions_where_texts_have_several_labels() -> None:
    several = Run("sample:tags", "bdd-ml", "frozen", 150, False, 700, 0, "none")
    text = document(Results({}, [Row(several, result(several, 0.5))], {}, 0), []).markdown()
    assert "| micro F1, prior-quantile | macro F1, prior-quantile | micro F1, fixed | macro F1, fixed |" in text
    assert "| method | average rank | ranking loss ↓ | LRAP |" in text


def test_published_numbers_and_ranks_stand_beside_ours() -> None:
    run = Run("ag_news", "bdd-f", "paper", 25, True, 20_000, 0, "dev")
    text = document(Results({"tables": [2]}, [Row(run, result(run, 0.881))], {}, 0), []).markdown()
    assert "**0.881 (1)**; paper 0.876" in text and "1.0; paper 1.0" in text


def test_settings_part_rows_of_one_method_on_the_same_texts() -> None:
    runs = [replace(RUN, settings=(("m", m),)) for m in (0.1, 0.3)]
    text = document(Results({}, [Row(run, result(run, 0.5)) for run in runs], {}, 0), []).markdown()
    assert "| `bdd-f m=0.1` |" in text and "| `bdd-f m=0.3` |" in text


def test_a_report_is_written_anew_from_its_own_raw_results(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue")
    found = rows()
    queue.add([row.run for row in found], {"title": "again", "data": "/somewhere/else"})
    for entry, row in zip(queue, found, strict=True):
        entry.finish(row.result, row.epochs)
    said = write_report(queue.folder)
    assert said["runs"] == 60 and said["claims"][0]["verdict"] == "holds"
    pages = [(queue.folder / name).read_bytes() for name in ("report.html", "report.md")]
    raw = tmp_path / "results.jsonl"
    raw.write_bytes((queue.folder / "results.jsonl").read_bytes())
    write_report(raw)
    assert [(tmp_path / name).read_bytes() for name in ("report.html", "report.md")] == pages
    assert b"/somewhere" not in raw.read_bytes() and len(load(raw).rows) == 60


def test_what_holds_no_results_is_refused(tmp_path: Path) -> None:
    Queue(tmp_path / "queue").add([RUN], {})
    with pytest.raises(BadInput, match="holds no finished run yet"):
        write_report(tmp_path / "queue")
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n', encoding="utf-8")
    with pytest.raises(BadInput, match="does not hold results of `halflabel bench`"):
        write_report(tmp_path / "x.jsonl")
    with pytest.raises(BadInput, match="holds no queue of runs"):
        write_report(tmp_path)
