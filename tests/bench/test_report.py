"""The report: means, ranks, claims, figures, published numbers, and the provenance of each number."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from halflabel.bench.comparisons import evaluate_claims
from halflabel.bench.queue import Queue
from halflabel.bench.report import make_document, write_report
from halflabel.bench.results import Results, RunResult, load_results
from halflabel.bench.runs import Run
from halflabel.errors import DataError, OutputError
from made import RUN, result

EMPTY = ("meta", "br", "rect", "circle", "line", "path", "polygon", "use", "link", "img")


def runs() -> list[RunResult]:
    """BDD above AM by 0.1 under six seeds on two sets, above both without a pool, and one collapsed run."""
    results = []
    for name in ("sample", "other"):
        for seed in range(6):
            for method, score in (("bdd-f", 0.70), ("am-f", 0.60), ("ce", 0.65), ("bdd-f -unlabelled", 0.72)):
                run = replace(RUN, set=name, seed=seed, method=method, unlabelled=0 if "-un" in method else 800)
                pseudo = score if method in ("bdd-f", "am-f") else None
                line = result(run, score + 0.01 * seed, pseudo=pseudo, dlav=0.05,
                              collapsed=(name, seed, method) == ("sample", 0, "am-f"))
                epochs = [{"step": step, "pseudo_accuracy": score + step / 1e4} for step in (100, 200)]
                results.append(RunResult(run, line, epochs if line["pseudo"] else []))
            run = replace(RUN, set=name, seed=seed, method="am-f", labelled=1000, per_class=False, unlabelled=0)
            results.append(RunResult(run, result(run, 0.8, dlav=0.02 + 0.001 * seed, labelled=1000)))
    return results


@pytest.fixture
def results() -> Results:
    return Results({"title": "known <numbers>"}, runs(), {"ce on x": "it <failed>; fix it"}, 2)


class Balanced(HTMLParser):
    """Collects open tags, ids, and links inside and outside of the page."""

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
                assert value not in self.ids, f"{value} is not unique"
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
    claims = {claim.claim: claim for claim in evaluate_claims(results)}
    bdd = claims["BDD over AM"]
    assert bdd.test.difference == pytest.approx(0.1) and bdd.test.n == 12 and bdd.verdict == "holds"
    tenth = pytest.approx(0.1)
    assert bdd.mean_a == pytest.approx(0.725)
    assert [(title.partition(" ")[0], gap, n) for title, gap, n in bdd.by_size] == [
        ("other", tenth, 6), ("sample", tenth, 6)]
    assert (bdd.low, bdd.high) == (tenth, tenth) and bdd.adjusted_p > bdd.test.p
    pool = claims["unlabelled texts help"]
    assert pool.test.difference == pytest.approx(-0.02) and pool.verdict == "contradicted"
    assert claims["more accurate pseudo-labels"].test.difference == pytest.approx(0.1)
    dlav = claims["uneven label angles"]
    assert dlav.mean_a == pytest.approx(0.05) and dlav.mean_b == pytest.approx(0.0225) and dlav.verdict == "holds"
    assert "regularization helps" not in claims


def test_few_seeds_cannot_show_a_claim() -> None:
    few = Results({}, [result for result in runs() if result.run.set == "sample" and result.run.seed < 3], {}, 0)
    bdd = next(claim for claim in evaluate_claims(few) if claim.claim == "BDD over AM")
    assert bdd.test.p == 0.25 and bdd.verdict == "higher, not shown"


def test_pairs_with_an_abandoned_pool_are_also_reported_apart() -> None:
    def abandoned(result: RunResult) -> RunResult:
        line = result.line | {"pool_abandoned": result.run.seed < 2 and result.run.method.startswith("bdd")}
        return RunResult(result.run, line, result.epochs)

    found = {claim.claim: claim for claim in evaluate_claims(Results({}, list(map(abandoned, runs())), {}, 0))}
    assert found["BDD over AM"].test.n == 12 and found["BDD over AM, pools kept"].test.n == 8


def test_samples_of_one_seed_count_once() -> None:
    more = [RunResult(replace(result.run, labelled=20),
                      result.line | {"run": replace(result.run, labelled=20).to_json()})
            for result in runs() if result.run.per_class]
    claims = evaluate_claims(Results({}, runs() + more, {}, 0))
    bdd = next(claim for claim in claims if claim.claim == "BDD over AM")
    assert bdd.test.n == 12


def test_html_is_well_formed_and_self_contained(results: Results) -> None:
    page = make_document(results, evaluate_claims(results)).html()
    parser = Balanced()
    parser.feed(page)
    assert parser.open == [] and parser.outside == [] and parser.links <= parser.ids
    assert not re.search(r"https?://|<script|@import|url\((?!#)", page)
    assert "prefers-color-scheme: dark" in page and "known &lt;numbers&gt;" in page and "it &lt;failed&gt;" in page
    pictures = re.findall(r"<svg.*?</svg>", page, flags=re.S)
    assert len(pictures) == 4 and all(ElementTree.fromstring(svg).tag == "svg" for svg in pictures)


def test_tables_have_means_deviations_ranks_and_collapses(results: Results) -> None:
    text = make_document(results, evaluate_claims(results)).markdown()
    assert "48 runs" not in text and "60 runs are done, 1 failed, 2 are left, 1 collapsed" in text
    table = text[text.index("### micro F1") : text.index("### macro F1")]
    assert "| method | average rank | other · 10/class + 800 | sample · 10/class + 800 |" in table
    assert "| `bdd-f` | 1.0 | 0.725 ± 0.019 (6) | 0.725 ± 0.019 (6) |" in table
    assert "| `am-f` | 3.0 | 0.625 ± 0.019 (6) | 0.625 ± 0.019 (6); 1 collapsed |" in table
    assert "| `bdd-f -unlabelled` |  | **0.745 ± 0.019 (6)** |" in table and "1,000" not in table
    assert "| `bdd-f` | `am-f` | +0.100 |" in text and "| 12 of 12 |" in text
    assert f"| `{runs()[0].run.key}` | 0 | 0.7000 |" in text and "a processor" in text
    assert "| frozen | `ce` | 2.0 | 1.5 | 512 | 12 |" in text


def test_both_protocols_are_compared() -> None:
    dev = [RunResult(run, result(run, 0.9))
           for run in (replace(other.run, protocol="dev") for other in runs() if other.run.method == "ce")]
    text = make_document(Results({}, runs() + dev, {}, 0), []).markdown()
    assert "| `ce` | sample · 10/class + 800, frozen | 0.675 ± 0.019 (6) | 0.900 ± 0.000 (6) | +0.225 | 0.031 |" in text


def test_both_decision_rules_for_several_labels_per_text() -> None:
    several = Run("sample:tags", "bdd-ml", "frozen", 150, False, 700, 0, "none")
    text = make_document(Results({}, [RunResult(several, result(several, 0.5))], {}, 0), []).markdown()
    assert "| micro F1, prior-quantile | macro F1, prior-quantile | micro F1, fixed | macro F1, fixed |" in text
    assert "| method | average rank | ranking loss ↓ | LRAP |" in text


def test_published_numbers_and_ranks_are_shown() -> None:
    run = Run("ag_news", "bdd-f", "paper", 25, True, 20_000, 0, "dev")
    text = make_document(Results({"tables": [2]}, [RunResult(run, result(run, 0.881))], {}, 0), []).markdown()
    assert "**0.881 (1)**; paper 0.876" in text and "1.0; paper 1.0" in text


def test_settings_distinguish_rows_of_one_method_on_the_same_texts() -> None:
    runs = [replace(RUN, settings=(("m", m),)) for m in (0.1, 0.3)]
    text = make_document(Results({}, [RunResult(run, result(run, 0.5)) for run in runs], {}, 0), []).markdown()
    assert "| `bdd-f m=0.1` |" in text and "| `bdd-f m=0.3` |" in text


def test_older_results_have_no_commit_and_tables_of_mixed_code_say_so() -> None:
    lines = [result(replace(RUN, seed=seed), 0.5, commit=commit, clean=seed != 2)
             for seed, commit in enumerate((None, "a" * 40, "b" * 40))]
    old, new, modified = (RunResult(Run.from_json(line["run"]), line) for line in lines)
    assert [run.commit for run in (old, new, modified)] == ["commit unknown", "a" * 10, f"{'b' * 10} (modified)"]
    text = make_document(Results({}, [old, new, modified], {}, 0), []).markdown()
    mixed = (f"These runs come from several versions of the code: {'a' * 10} (1 runs), {'b' * 10} (modified) (1 runs), "
             "commit unknown (1 runs).")
    table = text[text.index("### sample") : text.index("## Paired differences")]
    assert mixed in table and "| 0.1.0 | commit unknown |" in text
    assert "several versions" not in make_document(Results({}, [old], {}, 0), []).markdown()


def test_an_abandoned_pool_is_listed_for_older_and_newer_results() -> None:
    older = result(RUN, 0.5) | {"notices": ["step 400: pseudo-labels collapsed to few classes; giving up the pool"]}
    newer = result(replace(RUN, seed=1), 0.5, commit="c" * 40) | {"pool_abandoned": True}
    results = [RunResult(Run.from_json(line["run"]), line) for line in (older, newer)]
    kept = RunResult(replace(RUN, seed=2), result(RUN, 0.5))
    text = make_document(Results({}, [*results, kept], {}, 0), []).markdown()
    section = text[text.index("## Collapsed runs") : text.index("## Time and memory")]
    assert section.count("| no | yes |") == 2


def test_a_report_is_reproduced_from_its_raw_results(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue")
    finished = runs()
    queue.add([run.run for run in finished], {"title": "again", "data": "/somewhere/else"})
    for entry, run in zip(queue, finished, strict=True):
        entry.finish(run.line, run.epochs)
    report = write_report(queue.folder)
    assert report["runs"] == 60 and report["claims"][0]["verdict"] == "holds"
    pages = [(queue.folder / name).read_bytes() for name in ("report.html", "report.md")]
    raw = tmp_path / "results.jsonl"
    raw.write_bytes((queue.folder / "results.jsonl").read_bytes())
    write_report(raw)
    assert [(tmp_path / name).read_bytes() for name in ("report.html", "report.md")] == pages
    assert b"/somewhere" not in raw.read_bytes() and len(load_results(raw).runs) == 60


def test_a_source_without_results_is_an_error(tmp_path: Path) -> None:
    Queue(tmp_path / "queue").add([RUN], {})
    with pytest.raises(DataError, match="has no finished run yet"):
        write_report(tmp_path / "queue")
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n', encoding="utf-8")
    with pytest.raises(DataError, match="does not hold results of `halflabel bench`"):
        write_report(tmp_path / "x.jsonl")
    with pytest.raises(OutputError, match="is not a queue of runs"):
        write_report(tmp_path)
