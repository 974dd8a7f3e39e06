"""The routes: both protocols, limits, token, metrics, log, and requests that nobody should send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from halflabel.serve.app import Service, create_app, ranked
from halflabel.serve.batching import Prediction, ServedModel
from halflabel.serve.server import Limits
from served import LABELS, NumberModel, probability

Start = Callable[..., TestClient]
INFER = "/v2/models/numbers/infer"


@pytest.fixture
def log() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def start(log: list[dict[str, Any]]) -> Iterator[Start]:
    clients = []

    def start(model: NumberModel | None = None, limits: Limits | None = None, token: str | None = None,
              farthest: float | None = None) -> TestClient:
        service = Service(ServedModel("numbers", model or NumberModel(), farthest), limits)
        app = create_app(service, log=log.append, token=token)
        clients.append(TestClient(app, raise_server_exceptions=False).__enter__())
        return clients[-1]

    yield start
    for client in clients:
        client.__exit__()


@pytest.fixture
def client(start: Start) -> TestClient:
    return start()


def tensor(texts: list[Any], **changes: Any) -> dict[str, Any]:
    return {"name": "text", "shape": [len(texts)], "datatype": "BYTES", "data": texts} | changes


# --- Text Embeddings Inference ---

def test_predict_gives_all_labels_of_a_text_the_highest_first(client: TestClient) -> None:
    answer = client.post("/predict", json={"inputs": "text 20"})
    assert answer.status_code == 200
    assert [entry["label"] for entry in answer.json()] == ["food", "money", "sport"]
    assert answer.json()[0]["score"] == pytest.approx(probability(20), abs=1e-6)


def test_labels_are_escaped_and_scores_written_as_json_does(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = ['a "quoted" \\ label', "ü\n", "c"]
    monkeypatch.setattr(ServedModel, "labels", labels)
    values = np.array([[1e-7, 0.5, 0.25], [-12.5, 1e20, 3.0]])
    rows = ranked(Prediction(ServedModel("numbers", NumberModel()), values, values > 0.4))
    for row, scores in zip(rows, ([0.5, 0.25, 0.0], [1e20, 3.0, -12.5]), strict=True):
        expected = [{"label": labels[k], "score": score} for k, score in zip((1, 2, 0), scores, strict=True)]
        assert row == json.dumps(expected, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("inputs", [["text 1", "text 50", "text 7"], [["text 1"], ["text 50"], ["text 7"]]])
def test_predict_keeps_the_order_of_a_batch(client: TestClient, inputs: list[Any]) -> None:
    rows = client.post("/predict", json={"inputs": inputs, "truncate": True}).json()
    assert [row[0]["score"] for row in rows] == pytest.approx([probability(n) for n in (1, 50, 7)], abs=1e-6)


def test_a_batch_of_one_is_nested(client: TestClient) -> None:
    assert len(client.post("/predict", json={"inputs": ["text 1"]}).json()[0]) == 3


def test_predict_gives_raw_scores(client: TestClient) -> None:
    rows = client.post("/predict", json={"inputs": "text 3", "raw_scores": True}).json()
    assert [(row["label"], row["score"]) for row in rows] == [("food", 3.0), ("money", 0.0), ("sport", -3.0)]


def test_health_and_info(client: TestClient) -> None:
    assert client.get("/health").status_code == 200
    info = client.get("/info").json()
    assert info["model_id"] == "numbers" and info["max_client_batch_size"] == 256 and info["decision"] is None
    assert info["model_type"]["classifier"]["id2label"] == {"0": "food", "1": "money", "2": "sport"}


# --- Open Inference Protocol ---

def test_the_server_and_the_model_describe_themselves(client: TestClient) -> None:
    assert client.get("/v2").json()["name"] == "halflabel"
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    assert client.get("/v2/models/numbers/ready").json() == {"name": "numbers", "ready": True}
    model = client.get("/v2/models/numbers").json()
    assert model["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert model["outputs"][1] == {"name": "probability", "datatype": "FP32", "shape": [-1, 3]}
    assert model["parameters"] == {"labels": list(LABELS)}


def test_infer_gives_labels_and_probabilities(client: TestClient) -> None:
    answer = client.post(INFER, json={"id": "a", "inputs": [tensor(["text 10", "text 90"])]}).json()
    label, p = answer["outputs"]
    assert answer["id"] == "a" and answer["model_name"] == "numbers"
    assert label == {"name": "label", "datatype": "BYTES", "shape": [2], "data": ["food", "food"]}
    assert p["shape"] == [2, 3] and p["datatype"] == "FP32" and p["parameters"] == {"labels": list(LABELS)}
    assert [p["data"][0], p["data"][3]] == pytest.approx([probability(10), probability(90)], abs=1e-6)


def test_infer_gives_the_outputs_that_are_wanted(client: TestClient) -> None:
    answer = client.post(INFER, json={"inputs": [tensor(["a"])], "outputs": [{"name": "label"}]}).json()
    assert [output["name"] for output in answer["outputs"]] == ["label"]


def test_infer_ignores_what_it_does_not_know(client: TestClient) -> None:
    content = b'{"inputs": [%s], "parameters": {"\\ud800": 1}, "x": "\\ud800"}' % body(tensor(["a"]))
    assert client.post(INFER, content=content, headers={"Content-Type": "application/json"}).status_code == 200


def test_a_multilabel_model_gives_the_labels_of_its_decision(start: Start) -> None:
    client = start(NumberModel("multi-label"))
    labels, p = client.post(INFER, json={"inputs": [tensor(["text 2", "text 0"])]}).json()["outputs"]
    assert labels == {"name": "labels", "datatype": "BOOL", "shape": [2, 3], "data": [True, True, False] + [True] * 3}
    assert p["data"] == pytest.approx([0.880797, 0.5, 0.119203, 0.5, 0.5, 0.5])
    assert len(client.post("/predict", json={"inputs": "text 2"}).json()) == 3
    assert client.get("/info").json()["decision"] == "fixed"
    assert client.get("/v2/models/numbers").json()["outputs"][0] == {
        "name": "labels", "datatype": "BOOL", "shape": [-1, 3]}


# --- texts of no class ---

def test_a_text_far_from_all_classes_gets_no_label_and_is_counted(start: Start) -> None:
    client = start(farthest=0.5)
    for raw in (False, True):
        rows = client.post("/predict", json={"inputs": ["text 20", "text 90", "text 50"], "raw_scores": raw}).json()
        assert [len(row) for row in rows] == [3, 0, 3]
    assert client.post("/predict", json={"inputs": "text 90"}).json() == []
    label, p, distance = client.post(INFER, json={"inputs": [tensor(["text 20", "text 90"])]}).json()["outputs"]
    assert label["data"] == ["food", ""] and p["data"][3] == pytest.approx(probability(90), abs=1e-6)
    assert distance == {"name": "distance", "datatype": "FP32", "shape": [2], "data": [0.2, 0.9]}
    assert client.get("/v2/models/numbers").json()["outputs"][2] == {
        "name": "distance", "datatype": "FP32", "shape": [-1]}
    assert client.get("/info").json()["farthest"] == 0.5
    lines = client.get("/metrics").text.splitlines()
    assert "halflabel_abstentions_total 4.0" in lines and "halflabel_texts_total 9.0" in lines
    assert 'halflabel_labels_total{label="food"} 5.0' in lines


# --- reasons ---

def test_reasons_are_the_words_that_move_the_label(client: TestClient) -> None:
    text = "é 𝕏 number 80, and more"
    answer = client.post("/explain", json={"inputs": text}).json()
    strongest = max(answer["reasons"], key=lambda reason: reason["change"])
    assert answer["label"] == "food" and text[strongest["start"] : strongest["end"]] == "80"
    assert strongest["change"] == pytest.approx(probability(80) - probability(1), abs=1e-5)
    assert answer["score"] == pytest.approx(probability(80), abs=1e-6)
    assert answer["score_without"] == pytest.approx(probability(1), abs=1e-6)
    other = client.post("/explain", json={"inputs": text, "label": "sport"}).json()
    assert other["label"] == "sport" and min(reason["change"] for reason in other["reasons"]) < -0.1
    lines = client.get("/metrics").text.splitlines()
    assert "halflabel_texts_total 0.0" in lines, "versions of a text are not counted as texts"


@pytest.mark.parametrize(("request_body", "status", "words"), [
    ({"inputs": ["a"]}, 422, "inputs"), ({"inputs": ""}, 422, "empty"), ({"inputs": "\ud800"}, 422, "surrogate"),
    ({"inputs": "a", "label": "x"}, 422, "no such label"), ({"inputs": "a", "label": 3}, 422, "label"),
    ({"inputs": "a" * 20_001}, 413, "20,000 characters"), ({"inputs": "broken"}, 424, "weights")])
def test_reasons_that_cannot_be_given_are_refused(
        client: TestClient, request_body: Any, status: int, words: str) -> None:
    answer = client.post("/explain", content=body(request_body), headers={"Content-Type": "application/json"})
    assert answer.status_code == status and list(answer.json()) == ["error", "error_type"]
    assert words in answer.json()["error"]


def test_reasons_are_refused_in_an_overload(start: Start) -> None:
    client = start(limits=Limits(request_texts=1, queue_texts=4))
    assert client.post("/explain", json={"inputs": "a b c d e f"}).status_code == 429
    assert client.post("/explain", json={"inputs": "a b c"}).status_code == 200


# --- limits ---

def test_large_bodies_at_the_same_time_are_an_overload(start: Start) -> None:
    client = start(limits=Limits(held_bytes=1000))
    refused = client.post("/predict", json={"inputs": "a" * 1000})
    assert refused.status_code == 429 and refused.json()["error_type"] == "Overloaded"
    for _ in range(3):  # what was held is given back
        assert client.post("/predict", json={"inputs": "a" * 900}).status_code == 200


def test_too_many_texts_are_refused(start: Start) -> None:
    client = start(limits=Limits(request_texts=2))
    refused = client.post("/predict", json={"inputs": ["a", "b", "c"]})
    assert refused.status_code == 413 and refused.json()["error_type"] == "Validation"
    assert "3 texts" in refused.json()["error"]
    assert client.post("/predict", json={"inputs": ["a", "b"]}).status_code == 200
    refused = client.post(INFER, json={"inputs": [tensor(["a", "b", "c"])]})
    assert refused.status_code == 413 and list(refused.json()) == ["error"]


def test_a_large_body_is_refused_and_the_connection_closed(start: Start) -> None:
    client = start(limits=Limits(body_bytes=1000))
    refused = client.post("/predict", json={"inputs": "a" * 1000})
    assert refused.status_code == 413 and "1,000 bytes" in refused.json()["error"]
    assert refused.headers["connection"] == "close"
    assert client.post("/predict", json={"inputs": "a" * 900}).status_code == 200


@pytest.mark.parametrize(("message", "status"), [(None, 408), ({"type": "http.disconnect"}, 499)])
def test_a_body_that_never_arrives_is_given_up(
        log: list[dict[str, Any]], message: dict[str, str] | None, status: int) -> None:
    service = Service(ServedModel("numbers", NumberModel()), Limits(body_seconds=0.05))
    sent: list[Any] = []

    async def receive() -> Any:
        return message or await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/predict", "headers": []}
    asyncio.run(create_app(service, log=log.append)(scope, receive, send))
    assert [line["status"] for line in log] == [status]
    assert [part.get("status") for part in sent] == ([408, None] if status == 408 else [])


def test_a_full_queue_is_an_overload(start: Start) -> None:
    client = start(NumberModel(seconds=0.3), limits=Limits(request_texts=2, queue_texts=2))
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda n: client.post("/predict", json={"inputs": [f"text {n}"] * 2}), range(12)))
    assert {answer.status_code for answer in answers} == {200, 429}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error_type"] == "Overloaded" and refused.headers["retry-after"] == "1"
    assert client.post("/predict", json={"inputs": "text"}).status_code == 200


def test_a_model_that_takes_too_long_is_given_up(start: Start) -> None:
    client = start(NumberModel(seconds=0.3), limits=Limits(answer_seconds=0.05))
    assert client.post("/predict", json={"inputs": "text"}).status_code == 503


def test_a_model_that_fails_says_so_in_both_protocols(client: TestClient) -> None:
    failed = client.post("/predict", json={"inputs": "broken"})
    assert failed.status_code == 424 and failed.json()["error_type"] == "Backend"
    failed = client.post(INFER, json={"inputs": [tensor(["broken"])]})
    assert failed.status_code == 500 and "the weights are damaged" in failed.json()["error"]


def test_concurrent_requests_get_their_own_answers(start: Start) -> None:
    model = NumberModel(seconds=0.01)
    client = start(model)

    def ask(n: int) -> bool:
        rows = client.post("/predict", json={"inputs": [f"text {n}", f"text {n + 100}"]}).json()
        return [row[0]["score"] for row in rows] == pytest.approx([probability(n), probability(n + 100)], abs=1e-6)

    with ThreadPoolExecutor(50) as pool:
        assert all(pool.map(ask, range(100)))
    assert max(model.batches) > 2, "requests were never predicted together"


# --- token ---

@pytest.mark.parametrize("header", [None, "secret", "Bearer", "Bearer ", "Bearer wrong", "bearer secret",
                                    "Bearer secret2", "Basic c2VjcmV0"])
def test_a_wrong_token_is_refused(start: Start, header: str | None) -> None:
    client = start(token="secret")
    headers = {} if header is None else {"Authorization": header}
    for path in ("/info", "/metrics", "/openapi.json", "/v2/models/numbers", "/nothing"):
        assert client.get(path, headers=headers).status_code == 401
    refused = client.post("/predict", json={"inputs": "a"}, headers=headers)
    assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
    assert list(client.post(INFER, json={"inputs": []}, headers=headers).json()) == ["error"]


def test_the_right_token_is_accepted_and_probes_need_none(start: Start) -> None:
    client = start(token="secret")
    assert client.post("/predict", json={"inputs": "a"}, headers={"Authorization": "Bearer secret"}).status_code == 200
    for path in ("/", "/health", "/v2/health/live", "/v2/health/ready"):
        assert client.get(path).status_code == 200


# --- requests that nobody should send ---

def body(value: Any) -> bytes:
    return json.dumps(value).encode()


HOSTILE_PREDICT = [
    b"", b"{", b"[]", b"null", b"3", b'"text"', b"{}", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"NaN",
    b'{"inputs": "\xff"}',
    b'{"inputs": NaN}', b'{"inputs": "a",}', b'{"inputs": "\\ud800"}', b'{"inputs": ["a", "\\udfff"]}',
    b'{"inputs": "a\x00b"}', b'{"inputs": "' + b"a" * 2_100_000 + b'"}', b"[" * 100_000, b'{"inputs":' + b"[" * 50_000,
    b'{"inputs": ' * 20_000 + b"1" + b"}" * 20_000, b'{"inputs": ' + b"9" * 10_000 + b"}", b"1e999999",
    *map(body, [
        {"input": "a"}, {"inputs": None}, {"inputs": 3}, {"inputs": True}, {"inputs": {}}, {"inputs": []},
        {"inputs": [[]]}, {"inputs": [["a", "b"]]}, {"inputs": [[["a"]]]}, {"inputs": ["a", 3]}, {"inputs": [None]},
        {"inputs": ""}, {"inputs": " \n"}, {"inputs": ["a", ""]}, {"inputs": ["a"] * 257}, {"inputs": [["a"]] * 10_000},
        {"inputs": "a", "raw_scores": "yes"}, {"inputs": "a", "raw_scores": 1}, {"inputs": "a", "truncate": False},
        {"inputs": "a", "truncate": None}, {"inputs": {"\ud800": 1}}])]

HOSTILE_INFER = [
    b"", b"{", b"[]", b"{}", b"[" * 100_000, b'{"inputs": "\\ud800"}',
    *map(body, [
        {"inputs": None}, {"inputs": "a"}, {"inputs": []}, {"inputs": [3]}, {"inputs": [{}]},
        {"inputs": [tensor(["a"])] * 2}, {"inputs": [tensor(["a"], name="other")]},
        {"inputs": [tensor(["a"], shape=[2])]},
        {"inputs": [tensor(["a"], shape=[-1])]}, {"inputs": [tensor(["a"], shape=[1, 1])]},
        {"inputs": [tensor(["a"], shape=[])]}, {"inputs": [tensor(["a"], shape=["1"])]},
        {"inputs": [tensor(["a"], shape=[10**30])]}, {"inputs": [tensor(["a"], shape=[1.0])]},
        {"inputs": [tensor(["a"], datatype="FP32")]}, {"inputs": [tensor(["a"], datatype="\ud800")]},
        {"inputs": [tensor([1])]}, {"inputs": [tensor([["a"]])]}, {"inputs": [tensor([None])]},
        {"inputs": [tensor([])]},
        {"inputs": [tensor([""])]}, {"inputs": [tensor(["\ud800"])]}, {"inputs": [tensor(["a"], data="a")]},
        {"inputs": [tensor(["a"])], "outputs": [{"name": "nothing"}]}, {"inputs": [tensor(["a"])], "outputs": "label"},
        {"inputs": [tensor(["a"])], "id": 7}, {"inputs": [tensor(["a"])], "id": "\ud800"},
        {"inputs": [tensor(["a"], parameters=3)]}, {"inputs": [tensor(["a"] * 257)]}])]


@pytest.mark.parametrize("content", HOSTILE_PREDICT, ids=lambda content: repr(content[:40]))
def test_predict_refuses_what_it_cannot_read(client: TestClient, content: bytes) -> None:
    answer = client.post("/predict", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (413, 422)
    assert list(answer.json()) == ["error", "error_type"]
    assert answer.json()["error"].endswith(".") and len(answer.json()["error"]) < 300
    assert client.post("/predict", json={"inputs": "text 1"}).status_code == 200


@pytest.mark.parametrize("content", HOSTILE_INFER, ids=lambda content: repr(content[:70]))
def test_infer_refuses_what_it_cannot_read(client: TestClient, content: bytes) -> None:
    answer = client.post(INFER, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 413)
    assert list(answer.json()) == ["error"] and len(answer.json()["error"]) < 300


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/predict", 405), ("PUT", "/predict", 405), ("POST", "/health", 405), ("GET", INFER, 405),
    ("GET", "/nothing", 404), ("GET", "/../../etc/passwd", 404), ("GET", "/%00", 404), ("GET", "/%ff%fe", 404),
    ("GET", "/v2/models/other", 404), ("GET", "/v2/models/%ff", 404), ("GET", "/v2/models/other/ready", 404),
    ("POST", "/v2/models/numbers/unload", 404), ("GET", "/redoc", 404), ("OPTIONS", "/predict", 405)])
def test_other_paths_and_methods_are_refused(client: TestClient, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert list(answer.json()) == (["error"] if path.startswith("/v2/") else ["error", "error_type"])


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "x"])
def test_other_content_types_are_refused(client: TestClient, kind: str) -> None:
    answer = client.post("/predict", content=b'{"inputs": "a"}', headers={"Content-Type": kind})
    assert answer.status_code == 422 and "Content-Type" in answer.json()["error"]


def test_an_unknown_model_is_named_in_the_open_inference_format(client: TestClient) -> None:
    answer = client.post("/v2/models/other/infer", json={"inputs": [tensor(["a"])]})
    assert answer.status_code == 404
    assert answer.json() == {"error": "There is no model with this name; this server has 'numbers'."}


def test_nul_and_unusual_characters_are_texts(client: TestClient) -> None:
    texts = ["a\x00b", "\u202e1", "𝕏" * 100, "\ufeff1", "é" * 10_000]
    assert len(client.post("/predict", json={"inputs": texts}).json()) == 5


# --- what is seen of it ---

def test_metrics_count_requests_batches_and_labels(client: TestClient) -> None:
    client.post("/predict", json={"inputs": ["text 1", "text 2"]})
    client.post("/predict", content=b"{")
    client.get("/invented/path")
    lines = client.get("/metrics").text.splitlines()
    for line in ('halflabel_requests_total{route="/predict",status="200"} 1.0', "halflabel_texts_total 2.0",
                 'halflabel_failures_total{route="/predict"} 1.0', 'halflabel_labels_total{label="food"} 2.0',
                 'halflabel_batch_texts_bucket{le="2.0"} 1.0', "halflabel_queue_texts 0.0",
                 'halflabel_request_seconds_count{route="/predict"} 2.0',
                 'halflabel_requests_total{route="other",status="404"} 1.0'):
        assert line in lines


def test_the_log_has_a_line_for_each_request_and_no_texts(client: TestClient, log: list[dict[str, Any]]) -> None:
    client.post("/predict", json={"inputs": ["private text 1", "private text 2"]})
    client.post("/predict", content=b'{"inputs": {"private": 1}}')
    assert [(line["method"], line["path"], line["status"], line["texts"]) for line in log] == [
        ("POST", "/predict", 200, 2), ("POST", "/predict", 422, 0)]
    assert log[0]["milliseconds"] > 0 and "private" not in json.dumps(log)


def test_the_page_and_the_schema_need_no_network(client: TestClient) -> None:
    page = client.get("/")
    assert "<title>halflabel</title>" in page.text and "http" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    schema = client.get("/openapi.json").json()
    assert {"/predict", "/v2/models/{name}/infer", "/metrics"} <= schema["paths"].keys()
    assert "PredictRequest" in schema["components"]["schemas"]


def test_other_sites_cannot_read_answers(client: TestClient) -> None:
    answer = client.post("/predict", json={"inputs": "a"}, headers={"Origin": "https://elsewhere.example"})
    assert "access-control-allow-origin" not in answer.headers
