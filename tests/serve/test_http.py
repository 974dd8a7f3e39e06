"""A server on a socket: every kind of model, clients that are slow or speak no HTTP, and the page in a real browser."""

from __future__ import annotations

import json
import logging
import socket
import sys
import time
import urllib.request
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import webdriver
from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.cli.folders import open_model
from halflabel.cli.predict import farthest_known
from halflabel.persistence.model import load
from halflabel.serve import server
from halflabel.serve.app import Service, create_app
from halflabel.serve.batching import ServedModel
from halflabel.serve.server import Gate, JsonLines, Limits
from halflabel.students.cascade import Cascade
from served import NumberModel, listening
from webdriver import ENTER, MISSING

CONTROL = "\ue009"  # a key, as WebDriver calls it
TEXTS, TRUTH = tiny_texts(10, seed=9)


@pytest.fixture(scope="module")
def models(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained model, its student, and their cascade."""
    folder = tmp_path_factory.mktemp("models")
    settings = {"epochs": 2, "epoch_steps": 8, "warmup": 100}
    TextClassifier("ce", tiny_encoder, "frozen", settings=settings).fit(*tiny_texts(20)).save(folder / "trained")
    student = TextClassifier.load(folder / "trained").distill(tiny_texts(60, seed=1)[0])
    student.save(folder / "student")
    threshold = float(np.median(student.probabilities(TEXTS).max(axis=1)))
    Cascade(replace(student, threshold=threshold), threshold, lambda: load(folder / "trained")).save(folder / "cascade")
    return folder


def app_of(model: Any, farthest: float | None = None, limits: Limits | None = None) -> Gate:
    return create_app(Service(ServedModel("model", model, farthest), limits), log=lambda _: None)


def post(url: str, body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


@pytest.mark.parametrize("kind", ["trained", "student", "cascade"])
def test_each_kind_of_model_is_served(models: Path, kind: str) -> None:
    model = open_model(models / kind, consistent=True)
    p = np.asarray(model.probabilities(TEXTS))
    with listening(app_of(model)) as url:
        rows = post(f"{url}/predict", {"inputs": TEXTS})
        served = [[{entry["label"]: entry["score"] for entry in row}[str(name)] for name in model.classes.names]
                  for row in rows]
        np.testing.assert_allclose(served, p, atol=1e-3)
        answer = post(f"{url}/v2/models/model/infer", {"inputs": [
            {"name": "text", "shape": [len(TEXTS)], "datatype": "BYTES", "data": TEXTS}]})
        assert np.mean([label == true for label, true in zip(answer["outputs"][0]["data"], TRUTH, strict=True)]) > 0.7
        assert post(f"{url}/explain", {"inputs": "goal stadium"})["reasons"]


def test_texts_of_no_class_get_no_label_at_the_stated_rate(models: Path) -> None:
    model = open_model(models / "trained", consistent=True)
    with listening(app_of(model, farthest_known(model, 0.5))) as url:
        rows = post(f"{url}/predict", {"inputs": TEXTS})
        abstained = sum(not row for row in rows)
        assert 3 <= abstained <= 27
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            assert f"halflabel_abstentions_total {abstained}.0" in answer.read().decode().splitlines()


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """A connection to a server of the number model."""
    with listening(app_of(NumberModel(), limits=Limits(body_seconds=0.3, body_bytes=100_000))) as url, \
            socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=10) as opened:
        yield opened


def rest(opened: socket.socket) -> tuple[int, Any]:
    """Status and content of the last answer on a connection that the server closes."""
    received = b"".join(iter(lambda: opened.recv(65536), b""))
    header, _, content = received.rpartition(b"\r\n\r\n")
    return int(header.rpartition(b"HTTP/1.1 ")[2][:3]), json.loads(content)


HEADER = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"POST /pred", HEADER[:40], b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET"])
def test_a_header_that_does_not_arrive_is_given_up(
        sent: bytes, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.3)
    opened = request.getfixturevalue("connection")
    opened.sendall(sent)
    status, content = rest(opened)
    assert status == 408 and content["error_type"] == "Validation" and "header did not arrive" in content["error"]


def test_a_body_that_arrives_slowly_is_given_up(connection: socket.socket) -> None:
    connection.sendall(HEADER % 1000 + b'{"inputs"')
    status, content = rest(connection)
    assert status == 408 and "body did not arrive" in content["error"]


@pytest.mark.parametrize("sent", [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"nothing\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"GET / HTTP/1.1\r\nX: \x00\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 66_000,  # few more than the limit: all are read before the close
    b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], ids=lambda sent: repr(sent[:40]))
def test_what_is_not_http_is_refused(connection: socket.socket, sent: bytes) -> None:
    connection.sendall(sent)
    status, content = rest(connection)
    assert status == 400 and list(content) == ["error", "error_type"] and "HTTP/1.1" in content["error"]


def test_a_client_that_still_sends_a_large_body_sees_why_it_is_refused(connection: socket.socket) -> None:
    connection.sendall(HEADER % 900_000)
    for _ in range(9):
        connection.sendall(b" " * 100_000)
        time.sleep(0.005)
    status, content = rest(connection)
    assert status == 413 and "100,000 bytes" in content["error"]


def test_a_client_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "READ_SECONDS", 0.2)
    schema = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    with listening(app_of(NumberModel())) as url, socket.socket() as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        opened.settimeout(10)
        opened.connect(("127.0.0.1", int(url.rsplit(":", 1)[1])))
        with pytest.raises(ConnectionError):
            deque(map(opened.sendall, repeat(schema)))
        assert post(f"{url}/predict", {"inputs": "text 1"})


def test_what_uvicorn_logs_is_an_entry_of_the_log() -> None:
    entries: list[dict[str, Any]] = []
    logger = logging.Logger("a")
    logger.addHandler(JsonLines(entries.append))
    try:
        raise ValueError("no")
    except ValueError:
        logger.error("Exception in %s\n", "a", exc_info=sys.exc_info())
    assert entries[0]["level"] == "error" and entries[0]["message"] == "Exception in a"
    assert entries[0]["traceback"].endswith("ValueError: no") and json.dumps(entries)


@pytest.mark.skipif(bool(MISSING), reason=f"{' and '.join(MISSING)} is not installed")
def test_the_page_shows_label_probabilities_and_reasons(models: Path) -> None:
    model = open_model(models / "trained", consistent=True)
    with listening(app_of(model, farthest_known(model, 0.9))) as url, webdriver.browser() as window:
        window.open(url)
        window.wait("return name")
        text = "𝕏 <b>the</b> match was a goal by the striker of the league"
        window.run(f"$('text').value = {json.dumps(text)}")
        window.run("$('text').focus()")
        keys = ("keyDown", CONTROL), ("keyDown", ENTER), ("keyUp", ENTER), ("keyUp", CONTROL)
        window.command("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": [
            {"type": kind, "value": key} for kind, key in keys]}]})
        window.wait("return document.querySelectorAll('mark').length")
        explained = post(f"{url}/explain", {"inputs": text})
        assert window.text("#text-again") == text and window.text("#reasons-of") == f"Words for {explained['label']}"
        marked = window.run("return [...document.querySelectorAll('mark')].map(mark => mark.textContent)")
        assert marked == [text[reason["start"] : reason["end"]] for reason in explained["reasons"]]
        assert f"{100 * explained['score_without']:.1f}\u00a0%" in window.text("#why")
        assert len(window.run("return [...document.querySelectorAll('#labels tr')].map(row => row.innerText)")) == 3
        widths = window.run("return [...document.querySelectorAll('.bar > div')].map(bar => "
                            "bar.firstChild.getBoundingClientRect().width / bar.getBoundingClientRect().width)")
        assert widths[0] == pytest.approx(explained["score"], abs=0.01) and sum(widths) == pytest.approx(1, abs=0.02)

        window.run("document.querySelectorAll('#labels button')[2].click()")
        other = window.run("return document.querySelectorAll('#labels button')[2].dataset.label")
        window.wait(f"return $('reasons-of').textContent === 'Words for {other}' && $('why').children.length")

        window.run("$('text').value = 'zzz qqq xxx'; $('form').requestSubmit()")
        window.wait("return $('text-again').textContent === 'zzz qqq xxx'")
        label = post(f"{url}/v2/models/model/infer", {"inputs": [
            {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["zzz qqq xxx"]}]})["outputs"][0]["data"][0]
        assert window.text("#verdict").startswith(label or "No label far from all classes")
        window.run("$('text').value = ' '; $('form').requestSubmit()")
        window.wait("return !$('problem').hidden")
        assert window.text("#problem") == "Text 0 is empty; leave it out."

        window.open(f"{url}/docs")
        window.wait("return document.querySelectorAll('section').length")
        paths = window.run("return fetch('openapi.json').then(response => response.json())")["paths"]
        headings = window.run("return [...document.querySelectorAll('h2')].map(heading => heading.textContent)")
        assert set(headings) == {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
        captions = window.run("return [...document.querySelectorAll('caption')].map(caption => caption.textContent)")
        assert {"PredictRequest", "LabelScore", "InferRequest"} <= set(captions)
