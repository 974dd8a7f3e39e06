"""`halflabel label`: the file of answers, the session, the routes, and the page in a real browser."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

import webdriver
from cli_runner import Forked, Ran, runner, write_csv
from conftest import TOPICS, tiny_texts
from halflabel import TextClassifier, read
from halflabel.data.annotators import Answer, AnswerFile
from halflabel.errors import DataError, OutputError, SettingError
from halflabel.labelling import Labelling, Learner
from halflabel.output_folders import lock
from halflabel.serve.label_app import create_label_app
from webdriver import BACKSPACE, ENTER, MISSING, SPACE

TEXTS, TRUTH = tiny_texts(20)
TOPIC = dict(zip(TEXTS, TRUTH, strict=True))
HEADERS = {"Authorization": "Bearer secret", "Host": "127.0.0.1"}


def word_vectors(texts: list[str]) -> np.ndarray:
    """How often each word of the topics occurs."""
    words = " ".join(TOPICS.values()).split()
    return np.array([[text.split().count(word) for word in words] for text in texts], dtype=np.float32)


def session(file: Path, *, learn: bool = True, **changes: Any) -> Labelling:
    made = Labelling(**{"texts": TEXTS, "answers": AnswerFile(file), "labels": sorted(TOPICS)} | changes)
    if learn:
        texts = made.sample()
        made.start(Learner(texts, word_vectors(texts), several=made.several))
    return made


def answer_rightly(made: Labelling, number: int) -> list[str]:
    shown = []
    for _ in range(number):
        state = made.state()
        shown.append(state["text"])
        made.answer(state["key"], [TOPIC[state["text"]]])
    return shown


class TestAnswers:
    def test_the_last_line_of_a_text_counts_and_train_can_read_it_at_any_time(self, tmp_path: Path) -> None:
        file = tmp_path / "labels.jsonl"
        answers = AnswerFile(file)
        answers.label("one", "a")
        answers.label("two", "b", "not sure")
        answers.label("three", None)
        answers.add_label("c")
        assert answers.undo() == ("three", Answer(None))
        answers.label("one", "c")
        assert file.read_text().count("\n") == 6, "nothing is ever rewritten"
        corpus = read(file)
        assert dict(zip(corpus.texts, corpus.labels, strict=True)) == {"two": "b", "three": None, "one": "c"}
        again = AnswerFile(file)
        assert again.answers == answers.answers == {"two": Answer("b", "not sure"), "one": Answer("c")}
        assert again.added == ["c"] and list(again.answers) == ["two", "one"], "the last answer is undone first"

    def test_an_incomplete_last_line_is_removed(self, tmp_path: Path) -> None:
        file = tmp_path / "labels.jsonl"
        AnswerFile(file).label("one", "a")
        whole = file.read_bytes()
        file.write_bytes(whole + whole[:20])
        answers = AnswerFile(file)
        assert file.read_bytes() == whole and answers.labels == {"one": "a"} and "incomplete" in answers.notices[0]

    def test_an_answer_that_cannot_be_written_changes_nothing(self, tmp_path: Path, monkeypatch: Any) -> None:
        file = tmp_path / "labels.jsonl"
        answers = AnswerFile(file)
        answers.label("one", "a")
        whole, write = file.read_bytes(), os.write
        monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:10]))
        with pytest.raises(OutputError, match="could not be written"):
            answers.label("two", "b")
        monkeypatch.undo()
        assert file.read_bytes() == whole and answers.labels == {"one": "a"}

    def test_another_file_is_refused_and_kept(self, tmp_path: Path) -> None:
        file = tmp_path / "labels.jsonl"
        file.write_text('{"text": "one", "label": "a"}\n')
        with pytest.raises(DataError, match="line 1: not an answer"):
            AnswerFile(file)
        assert file.read_text() == '{"text": "one", "label": "a"}\n'

    def test_a_file_without_answers_is_removed(self, tmp_path: Path) -> None:
        AnswerFile(tmp_path / "labels.jsonl").close()
        assert not list(tmp_path.iterdir())


class TestSession:
    def test_guesses_and_estimates_follow_the_answers(self, tmp_path: Path) -> None:
        made = session(tmp_path / "a.jsonl", retrain_every=6)
        assert made.state()["guess"] is None and made.state()["estimates"] == []
        first = answer_rightly(made, 24)
        made.fit()
        state = made.state()
        right = [made.guesses.guess(text)[0] == (TOPIC[text],) for text in TEXTS if text not in first]  # type: ignore
        assert len(set(first)) == 24 and np.mean(right) > 0.8
        assert state["estimates"][-1][0] == 24 and state["estimates"][-1][1] > 0.5
        assert state["guess"]["probability"] > 1 / 3 and (state["labelled"], state["total"]) == (24, 60)
        made.close()
        assert {label["name"]: label["count"] for label in state["labels"]} == {
            topic: sum(TOPIC[text] == topic for text in first) for topic in TOPICS}

    def test_the_thread_fits_after_every_few_answers(self, tmp_path: Path) -> None:
        made = session(tmp_path / "a.jsonl", retrain_every=5)
        answer_rightly(made, 11)
        end = time.monotonic() + 20
        while not made.estimates and time.monotonic() < end:
            time.sleep(0.01)
        made.close()
        assert made.guesses is not None and made.estimates

    def test_a_fit_that_fails_is_reported_and_labelling_goes_on(self, tmp_path: Path) -> None:
        said: list[str] = []
        made = session(tmp_path / "a.jsonl", retrain_every=1, report=said.append)
        made.learner.words = None  # type: ignore[union-attr]
        answer_rightly(made, 6)
        end = time.monotonic() + 20
        while not said and time.monotonic() < end:
            time.sleep(0.01)
        made.close()
        assert "not up to date" in said[0] and made.state()["labelled"] == 6

    def test_undo_shows_the_text_again_with_its_answer(self, tmp_path: Path) -> None:
        made = session(tmp_path / "a.jsonl", learn=False)
        first = made.state()
        made.answer(first["key"], ["food"], "hm")
        made.undo()
        assert made.state() | {"chosen": [], "note": ""} == first
        assert (made.state()["chosen"], made.state()["note"]) == (["food"], "hm")
        with pytest.raises(DataError, match="no answer to undo"):
            made.undo()

    def test_skipped_texts_come_back_when_they_are_wanted(self, tmp_path: Path) -> None:
        made = session(tmp_path / "a.jsonl", texts=TEXTS[:3], learn=False)
        for names in (["food"], None, None):
            made.answer(made.state()["key"], names)
        state = made.state()
        assert (state["text"], state["key"], state["labelled"], state["skipped"]) == (None, None, 1, 2)
        with pytest.raises(DataError, match="no text is left to label"):
            session(tmp_path / "a.jsonl", texts=TEXTS[:3], learn=False)
        made.revisit()
        for names in (["money"], None):
            made.answer(made.state()["key"], names)
        state = made.state()
        assert (state["text"], state["labelled"], state["skipped"]) == (None, 2, 1)

    @pytest.mark.parametrize("several", [False, True])
    def test_class_names_give_guesses_before_any_answer(self, tmp_path: Path, several: bool) -> None:
        made = session(tmp_path / "a.jsonl", learn=False, several=several)
        names = {topic: [words] for topic, words in TOPICS.items()}
        made.start(Learner(made.sample(), word_vectors(made.sample()), several=several, names=names,
                           name_vectors=lambda classes: np.eye(3).repeat(12, axis=1)[[1, 2, 0]] / 12**0.5))
        made.close()
        guesses = [made.guesses.guess(text)[0] for text in TEXTS]  # type: ignore[union-attr, index]
        assert np.mean([TOPIC[text] in guess for text, guess in zip(TEXTS, guesses, strict=True)]) > 0.8
        assert np.mean([len(guess) for guess in guesses]) < 2.0

    def test_several_labels(self, tmp_path: Path) -> None:
        made = session(tmp_path / "a.jsonl", several=True, labels=[*TOPICS, "long"], retrain_every=99)
        for _ in range(30):
            state = made.state()
            long = ["long"] if len(state["text"]) > 50 else []
            made.answer(state["key"], [TOPIC[state["text"]], *long] if TOPIC[state["text"]] != "food" else long)
        made.fit()
        made.close()
        assert () in made.answers.labels.values() and ("sport", "long") in made.answers.labels.values()
        state = made.state()
        assert state["metric"] == "micro F1" and state["estimates"][-1][1] > 0.5
        assert set(state["guess"]["labels"]) <= {*TOPICS, "long"}
        corpus = read(tmp_path / "a.jsonl")
        assert corpus.task == "multi-label" and len(corpus) == 30
        with pytest.raises(SettingError, match="give --several"):
            session(tmp_path / "a.jsonl", learn=False)

    def test_texts_beyond_the_sample_are_shown_last(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("halflabel.labelling.SAMPLE", 12)
        made = session(tmp_path / "a.jsonl", retrain_every=99)
        known = set(made.sample())
        shown = answer_rightly(made, 60)
        made.close()
        assert set(shown[:12]) == known and set(shown) == set(TEXTS) and made.state()["text"] is None

    def test_a_file_of_other_texts(self, tmp_path: Path) -> None:
        AnswerFile(tmp_path / "a.jsonl").label("another text", "food")
        with pytest.raises(DataError, match=r"none of the texts in .*a.jsonl is in the pool"):
            session(tmp_path / "a.jsonl", learn=False)


@pytest.fixture
def made(tmp_path: Path) -> Labelling:
    return session(tmp_path / "a.jsonl", learn=False)


@pytest.fixture
def client(made: Labelling) -> Iterator[TestClient]:
    with TestClient(create_label_app(made, token="secret"), headers=HEADERS) as client:
        yield client


class TestRoutes:
    def test_two_pages_are_merged_by_text(self, client: TestClient, made: Labelling) -> None:
        one, other = client.get("/state").json(), client.get("/state").json()
        assert one == other
        client.post("/answer", json={"key": one["key"], "labels": ["food"]})
        after = client.post("/answer", json={"key": other["key"], "labels": ["money"], "note": "a note"}).json()
        assert made.answers.answers == {one["text"]: Answer("money", "a note")} and after["labelled"] == 1

    def test_a_label_is_added_and_used(self, client: TestClient, made: Labelling) -> None:
        added = client.post("/label", json={"name": " weather "}).json()
        assert added["labels"][-1] == {"name": "weather", "count": 0}
        assert client.post("/answer", json={"key": added["key"], "labels": ["weather"]}).json()["labelled"] == 1
        assert made.answers.labels == {added["text"]: "weather"}

    @pytest.mark.parametrize(("path", "body", "status", "words"), [
        ("answer", {"labels": ["magic"]}, 422, "There is no label 'magic'; add it first."),
        ("answer", {"labels": []}, 422, "exactly one label"),
        ("answer", {"labels": ["food", "money"]}, 422, "exactly one label"),
        ("answer", {"labels": ["food"], "key": "3-00"}, 422, "not in the pool"),
        ("answer", {"labels": ["food"], "key": "99999999999999999999-00"}, 422, "not in the pool"),
        ("answer", {"labels": ["food"], "note": 3}, 422, "note"),
        ("answer", {"labels": ["food"], "note": "\ud800"}, 422, "note"),
        ("answer", {"labels": "food"}, 422, "labels"),
        ("label", {"name": "food"}, 422, "exists already"),
        ("label", {"name": " "}, 422, "1 to 100 characters"),
        ("label", {"name": "x" * 101}, 422, "1 to 100 characters"),
        ("label", {"name": "-1"}, 422, "'-1'"),
        ("undo", {}, 422, "There is no answer to undo."),
        ("nowhere", {}, 404, "nothing here"),
    ])
    def test_what_is_wrong_is_said_and_nothing_is_written(self, path: str, body: dict[str, Any], status: int,
                                                          words: str, client: TestClient, made: Labelling) -> None:
        key = {} if path != "answer" else {"key": client.get("/state").json()["key"]}
        refused = client.post(f"/{path}", content=json.dumps(key | body), headers={"content-type": "application/json"})
        assert refused.status_code == status and words in refused.json()["error"]
        assert not made.answers.file.read_bytes()

    @pytest.mark.parametrize(("headers", "status"), [
        ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": ""}, 401),
        ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 421), ({"Host": "127.0.0.1.evil.example:8001"}, 421),
        ({"Origin": "http://127.0.0.1"}, 200), ({"Host": "[::1]:8001"}, 200), ({"Host": "localhost:8001"}, 200)])
    def test_only_the_page_itself_may_ask(self, headers: dict[str, str], status: int, client: TestClient) -> None:
        answer = client.get("/state", headers=headers)
        assert answer.status_code == status and ("text" in answer.json()) is (status == 200)
        assert "access-control-allow-origin" not in answer.headers

    def test_the_page_allows_nothing_but_itself(self, client: TestClient) -> None:
        page = client.get("/", headers={"Authorization": ""})
        policy = page.headers["content-security-policy"]
        assert "unsafe" not in policy and "default-src 'none'" in policy and policy.count("'sha256-") == 2
        assert not re.search(r"(src|href)=\"(?!data:)|innerHTML|style=", page.text) and TEXTS[0] not in page.text


@contextmanager
def labelling(folder: Path, *options: str) -> Iterator[tuple[Forked, str]]:
    """`halflabel label` as a process, and the address that it prints."""
    process = Forked("label", "pool.csv", "--out", "labels.jsonl", "--port", 0, "--retrain-every", 5, *options,
                     cwd=folder)
    try:
        end = time.monotonic() + 120
        while not (found := re.search(r"open (http://\S+) in a browser", process.errors.read_text())):
            assert time.monotonic() < end and process.returncode is None, process.errors.read_text()
            time.sleep(0.02)
        yield process, found[1]
    finally:
        process.kill()
        process.wait()


def answers_in(folder: Path) -> dict[str, Any]:
    corpus = read(folder / "labels.jsonl")
    return dict(zip(corpus.texts, corpus.labels, strict=True))


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    write_csv(tmp_path / "pool.csv", [*TEXTS, "<script>document.title = 'broken'</script> bread"])
    return tmp_path


@pytest.mark.skipif(bool(MISSING), reason=f"{' and '.join(MISSING)} is not installed")
def test_twenty_texts_by_keyboard_in_a_browser_with_a_kill_in_the_middle(pool: Path, tiny_encoder: str) -> None:
    options = ("--labels", "food,money,sport", "--encoder", tiny_encoder)
    keys, expected = {"food": "1", "money": "m", "sport": "3", "other": "o"}, dict[str, Any]()

    def label(window: webdriver.Browser) -> None:
        text = window.text("#text")
        topic = TOPIC.get(text, "food")
        expected[text] = topic
        window.press(keys[topic])
        window.wait(f"return !busy && state.text !== {json.dumps(text)}")

    with webdriver.browser() as window:
        with labelling(pool, *options) as (process, url):
            window.open(url)
            window.wait("return state")
            for _ in range(10):
                label(window)
            assert answers_in(pool) == expected and "10 labelled" in window.text("#counts")

            last = window.text("#text")
            window.press("2")
            window.wait(f"return !busy && state.text !== {json.dumps(last)}")
            window.press(BACKSPACE)
            window.wait(f"return !busy && state.text === {json.dumps(last)}")
            assert answers_in(pool) == expected | {last: None}
            window.command("/refresh", {})
            window.wait("return state")
            assert window.text("#text") == last, "a reload shows the same text"
            label(window)

            window.press("+")
            window.press(*"other", ENTER)
            window.wait("return state.labels.length === 4")
            text = window.text("#text")
            expected[text] = "other"
            window.press("N", *"a note", ENTER, keys["other"])
            window.wait(f"return !busy && state.text !== {json.dumps(text)}")
            skipped = window.text("#text")
            expected[skipped] = None
            window.press(SPACE)
            window.wait(f"return !busy && state.text !== {json.dumps(skipped)}")
            assert window.run("return $('guess').hidden"), "guesses are hidden at first"
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            window.press("1")
            window.wait("return !$('problem').hidden && !busy")
            assert "was not saved" in window.text("#problem")
        assert answers_in(pool) == expected
        with labelling(pool, *options) as (process, url):
            window.open(url)
            window.wait("return state")
            assert window.text("#counts").startswith("12 labelled, 1 skipped") and window.text("#text") not in expected
            window.press("G")
            assert window.text("#guess").startswith("Guess: ") and window.run("return state.labels.length") == 4
            while sum(value is not None for value in expected.values()) < 20:
                label(window)
            window.open(url.partition("#")[0] + "#wrong")
            window.wait("return !$('problem').hidden")
            assert "no valid token" in window.text("#problem") and not window.text("#text")
            assert window.run("return document.title") != "broken"
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(60).code == 0
    assert answers_in(pool) == expected and len(expected) == 21
    assert '"note": "a note"' in (pool / "labels.jsonl").read_text()
    assert not [path for path in pool.iterdir() if "lock" in path.name]


def serve(file: Path, bound: socket.socket) -> None:
    import uvicorn

    config = uvicorn.Config(create_label_app(session(file, learn=False), token="secret"), log_level="warning")
    uvicorn.Server(config).run(sockets=[bound])


def test_every_answer_that_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    file, acknowledged = tmp_path / "labels.jsonl", dict[str, str]()
    with socket.create_server(("127.0.0.1", 0)) as bound:
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        server = multiprocessing.get_context("fork").Process(target=serve, args=(file, bound), daemon=True)
        server.start()
        bound.close()  # or the system would accept connections that nobody answers

        def call(path: str, body: dict[str, Any] | None = None) -> Any:
            request = urllib.request.Request(f"{url}/{path}", None if body is None else json.dumps(body).encode(),
                                             HEADERS | {"Content-Type": "application/json"})
            request.add_header("Host", url[7:])
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)

        state = call("state")
        while True:
            text = state["text"]
            if len(acknowledged) == 25:
                threading.Timer(0.003, os.kill, (server.pid, signal.SIGKILL)).start()
            try:
                state = call("answer", {"key": state["key"], "labels": [TOPIC[text]]})
            except (OSError, HTTPException):
                break
            acknowledged[text] = TOPIC[text]
        server.join()
    kept = answers_in(tmp_path)
    assert len(acknowledged) >= 25 and acknowledged.items() <= kept.items() <= TOPIC.items()
    assert session(file, learn=False).state()["labelled"] == len(kept)


def test_what_is_wrong_is_said_in_one_sentence(pool: Path, tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory,
                                               capsys: Any, monkeypatch: Any) -> None:
    run: Ran = runner(capsys, monkeypatch)
    monkeypatch.setattr("halflabel.cli.label.serve_page", lambda *_: None)
    monkeypatch.chdir(pool)
    model = tmp_path_factory.mktemp("labelled") / "model"
    TextClassifier("lift", tiny_encoder, "frozen").fit(*tiny_texts(4), folder=model)
    write_csv(pool / "trained.csv", tiny_texts(4)[0])
    AnswerFile(pool / "other.jsonl").label("another text", "food")
    AnswerFile(pool / "classes.jsonl").label(TEXTS[0], "weather")
    start = ("label", "pool.csv", "--port", "0", "--out")
    with socket.create_server(("127.0.0.1", 0)) as taken, lock(pool / ".labels.jsonl.lock", pool / "labels.jsonl"):
        port = taken.getsockname()[1]
        for arguments, words in (
                ((*start[:-3], "--port", port, "--out", "new.jsonl"), f"port {port} of 127.0.0.1 cannot be used"),
                ((*start, "labels.jsonl"), "labels.jsonl is in use by another halflabel process"),
                ((*start, "other.jsonl", "--encoder", tiny_encoder), "none of the texts in other.jsonl is in pool.csv"),
                ((*start, "pool.csv"), "has to end in .jsonl"),
                ((*start, "no/folder.jsonl"), "there is no folder no"),
                ((*start, "new.jsonl", "--model", model, "--labels", "a,b"), "--labels has other labels (a, b)"),
                ((*start, "classes.jsonl", "--model", model), "classes.jsonl has other labels (weather)"),
                ((*start, "new.jsonl", "--model", model, "--several"), "leave out --several"),
                ((*start, "new.jsonl", "--model", model, "--encoder", "x"), "leave out --encoder"),
                (("label", "trained.csv", *start[2:], "new.jsonl", "--model", model), "no text is left to label")):
            done = run(*arguments)
            assert done.code == 2 and words in done.err and done.err.count("error:") == 1, done
    assert not (pool / "new.jsonl").exists() and not (pool / "no").exists()


def test_a_model_with_its_labels_guesses_at_once_and_learns(pool: Path, tiny_encoder: str, monkeypatch: Any,
                                                            capsys: Any) -> None:
    from halflabel.cli import label as command

    sessions: list[Labelling] = []
    monkeypatch.setattr(command, "serve_page", lambda session, *_: sessions.append(session))
    monkeypatch.chdir(pool)
    model = pool / "model"
    texts, labels = tiny_texts(4, seed=7)
    TextClassifier("lift", tiny_encoder, "frozen").fit(texts, labels, folder=model)
    run = runner(capsys, monkeypatch)
    assert run("label", "pool.csv", "--model", model, "--out", "more.jsonl", "--port", "0").err == ""
    (made,) = sessions
    assert made.labelled == dict(zip(texts, labels, strict=True)) and made.state()["guess"] is not None
    made.close()
    (model / "labelled.jsonl").unlink()
    done = run("label", "pool.csv", "--model", model, "--out", "more.jsonl", "--port", "0")
    assert "do not learn from answers" in done.err and sessions[1].state()["guess"] is not None
    sessions[1].close()
