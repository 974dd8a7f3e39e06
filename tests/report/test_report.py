"""Reports, model cards and pushing: what they say is true, and they are one file without network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from cli_runner import Ran, runner, write_csv
from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.data.corpus import Corpus
from halflabel.persistence.model import load
from halflabel.reasons import SPANS, explain_prediction, spans, without
from halflabel.report.facts import ReportFacts, collect, drift
from halflabel.report.page import document, model_card, page

TEST = Corpus(*tiny_texts(10, seed=5), source="test.csv")
LABELLED = tiny_texts(10)


@pytest.fixture(scope="module")
def model(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "topics"
    TextClassifier("lift", tiny_encoder, "frozen").fit(*LABELLED, tiny_texts(20, seed=1)[0]).save(folder)
    return folder


@pytest.fixture(scope="module")
def facts(model: Path) -> ReportFacts:
    pool = Corpus(tiny_texts(15, seed=2)[0], [None] * 45)
    return collect(load(model), model, test=TEST, labelled=Corpus(*LABELLED), pool=pool)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


class Outside(HTMLParser):
    """Collects everything that a page would load, and its ids."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [f"{tag} {name}={value}" for name, value in attrs
                        if name in ("src", "href", "action") and value and not value.startswith("#")]
        self.loaded += [tag] if tag in ("script", "link", "iframe") else []
        self.ids += [value for name, value in attrs if name == "id" and value]


class WordModel:
    """Predicts the second label for texts with the word `good`."""

    def probabilities(self, texts: list[str]) -> np.ndarray:
        p = np.array([0.9 if "good" in text.split() else 0.2 for text in texts])
        return np.stack([1 - p, p], axis=1)


def test_the_word_that_decides_is_the_strongest_reason() -> None:
    text = "a really good film"
    explanation = explain_prediction(WordModel(), text)  # type: ignore[arg-type]
    best = explanation.strongest(3)
    assert [text[reason.start : reason.end] for reason in best] == ["good"] and best[0].change == pytest.approx(0.7)
    assert explanation.probability == pytest.approx(0.9) and explanation.without == pytest.approx(0.2)
    assert explain_prediction(WordModel(), "").reasons == []  # type: ignore[arg-type]


def test_a_long_text_is_left_out_in_parts() -> None:
    text = " ".join(f"word{i}" for i in range(500))
    parts = spans(text)
    assert len(parts) <= SPANS and parts[0][0] == 0 and parts[-1][1] == len(text)
    assert without("one, two three", [(5, 8)]) == "one, three"


def test_the_facts_are_those_of_the_model(model: Path, facts: ReportFacts) -> None:
    classifier = TextClassifier.load(model)
    assert facts.accuracy is not None and facts.interval is not None and facts.evaluation is not None
    assert facts.accuracy[0] / facts.accuracy[1] == classifier.score(TEST.texts, TEST.labels)
    assert facts.interval[0] < facts.accuracy[0] / 30 <= facts.interval[1]
    assert [example.kind for example in facts.examples].count("unsure") == 3
    assert all((example.label == example.predicted) == (example.kind == "right")
               for example in facts.examples if example.kind != "unsure")
    assert facts.pool is not None and facts.pool.shares.sum() == pytest.approx(1.0)
    assert [point.labels for point in facts.curve] == [6, 12, 18, 24, 30]
    assert facts.labelled is not None and facts.labelled.tolist() == [10, 10, 10]


def test_drift_tells_other_texts_from_more_of_the_same() -> None:
    rng = np.random.default_rng(0)
    same, other = rng.normal(0.0, 1.0, (2, 100, 8))
    assert abs(drift(same, other) - 0.5) < 0.15 and drift(same, other + 1.5) > 0.9


def test_the_page_is_one_file_that_loads_nothing(facts: ReportFacts) -> None:
    html = page(facts)
    outside = Outside()
    outside.feed(html)
    assert outside.loaded == [] and len(outside.ids) == len(set(outside.ids))
    assert {"training", "accuracy", "trust", "examples", "labels", "pool"} <= set(outside.ids)
    assert html.count("<svg") == 3 and "http" not in re.sub(r"<text[^>]*>.*?</text>", "", html)
    assert "prefers-color-scheme: dark" in html and "var(--c1" in html and "<mark" in html


def test_texts_are_escaped(model: Path) -> None:
    nasty = Corpus(['<script>alert("x")</script> match team', "bread soup `code` **b**"], ["sport", "<b>new</b>"])
    html = page(collect(load(model), model, test=nasty))
    assert "<script" not in html and "<b>new" not in html and "&lt;b&gt;new" in html


def test_a_report_without_texts_states_what_held_out_labels_say(model: Path) -> None:
    text = document(collect(load(model), model)).markdown()
    assert "labelled texts, each predicted without its label" in text and "95% interval" in text
    frozen = collect(load(model), model, labelled=Corpus(*LABELLED))
    assert frozen.evaluation is not None and len(frozen.evaluation.truth) == 30 and not frozen.examples


@pytest.mark.parametrize(("name", "labels"), [("0.1-lift", ["sport", "food"]), ("0.1-bdd-ml", [("sport",), ()])])
def test_models_of_an_older_version_and_of_several_labels_have_a_report(name: str, labels: list[Any]) -> None:
    folder = Path(__file__).parent.parent / "models" / name
    facts = collect(load(folder), folder, test=Corpus(["match team goal", "bread soup"], labels, source="two.csv"))
    text = document(facts).markdown()
    assert ("micro F1" in text) == (name == "0.1-bdd-ml") and "two.csv" in text and "two.csv" in model_card(facts)
    assert document(collect(load(folder), folder)).markdown().count("not measured") == 1


def test_the_card_has_the_metadata_of_the_hub(facts: ReportFacts) -> None:
    card = model_card(facts)
    metadata = yaml.safe_load(card.split("---")[1])
    assert metadata["library_name"] == "halflabel" and metadata["pipeline_tag"] == "text-classification"
    result = metadata["model-index"][0]["results"][0]["metrics"][0]
    assert facts.evaluation is not None
    assert (result["type"], result["value"]) == ("accuracy", round(float(facts.evaluation.correct.mean()), 4))
    assert "30 labelled and 60 unlabelled texts" in card and "| food | 10 |" in card


def test_the_commands_write_and_refuse(model: Path, tmp_path: Path, run: Ran) -> None:
    write_csv(tmp_path / "test.csv", TEST.texts, TEST.labels)
    out = tmp_path / "page.html"
    done = run("report", model, tmp_path / "test.csv", "--out", out, "--card", "--quiet")
    assert done.code == 0 and out.read_text().startswith("<!doctype html>")
    assert (tmp_path / "MODEL_CARD.md").read_text().startswith("---\n")
    done = run("evaluate", model, tmp_path / "test.csv", "--report", out)
    assert done.code == 2 and done.lines == 1 and "exists already" in done.err
    done = run("evaluate", model, tmp_path / "test.csv", "--report", out, "--force")
    assert done.code == 0 and "accuracy" in done.out
    done = run("report", tmp_path / "nowhere", "--out", tmp_path / "x.html")
    assert done.code == 2 and done.lines == 1 and not (tmp_path / "x.html").exists()
    done = run("report", model, "--out", model / "model.safetensors", "--force")
    assert done.code == 2 and "it is an input" in done.err


def test_pushing_is_one_commit_of_model_and_card(model: Path, monkeypatch: pytest.MonkeyPatch, run: Ran) -> None:
    sent: dict[str, Any] = {}

    def create_repo(api: object, repo: str, **options: Any) -> None:
        sent["repo"] = (repo, options)

    def create_commit(api: object, repo: str, operations: list[Any], **options: Any) -> Any:
        sent["files"] = {operation.path_in_repo: operation for operation in operations}
        return SimpleNamespace(commit_url=f"https://hub/{repo}/commit/1")

    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", create_repo)
    monkeypatch.setattr("huggingface_hub.HfApi.create_commit", create_commit)
    done = run("push", model, "me/topics", "--private")
    assert done.code == 0 and done.out == "pushed to https://hub/me/topics/commit/1\n"
    assert sent["repo"] == ("me/topics", {"private": True, "exist_ok": True})
    files = {"README.md", "config.json", "model.safetensors", "unknown.safetensors", "checksums.json"}
    assert files <= set(sent["files"]) and "texts.safetensors" not in sent["files"]
    with sent["files"]["README.md"].as_file() as file:
        assert file.read().startswith(b"---\n")


def test_without_network_pushing_is_refused_in_one_sentence(model: Path, run: Ran) -> None:
    done = run("push", model, "me/topics")  # tests run with HF_HUB_OFFLINE
    assert done.code == 2 and done.lines == 1 and "me/topics could not be pushed" in done.err and "token" in done.err
