"""Label Studio's ML backend protocol: predictions, annotations as answers, and configurations that do not fit."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from cli_runner import runner
from conftest import tiny_texts
from halflabel import TextClassifier, read
from halflabel.data.annotators import AnswerFile
from halflabel.serve.app import Service, create_app
from halflabel.serve.batching import ServedModel
from halflabel.serve.label_studio import add_label_studio
from halflabel.serve.server import Limits
from served import LABELS, NumberModel, probability

Start = Callable[..., TestClient]


def config(choices: tuple[str, ...] = LABELS, *, choice: str = "single", text: str = "$body") -> str:
    options = "".join(f'<Choice value="{name}"/>' for name in choices)
    return (f'<View><!-- topics --><Header value="Topic?"/><Text name="shown" value="{text}"/>'
            f'<Choices name="topic" toName="shown" choice="{choice}">{options}</Choices></View>')


@pytest.fixture
def start() -> Iterator[Start]:
    clients = []

    def start(model: NumberModel | None = None, answers: AnswerFile | None = None, **options: Any) -> TestClient:
        service = Service(ServedModel("numbers", model or NumberModel(), version="numbers-1"), Limits(request_texts=2))
        app = create_app(service, log=lambda _: None, add_routes=partial(add_label_studio, answers=answers), **options)
        clients.append(TestClient(app, raise_server_exceptions=False).__enter__())
        return clients[-1]

    yield start
    for client in clients:
        client.__exit__()


def tasks(*texts: Any) -> list[dict[str, Any]]:
    return [{"id": 10 + i, "data": {"body": text}, "annotations": []} for i, text in enumerate(texts)]


def event(action: str, text: str, *choices: str, number: int = 7, **changes: Any) -> dict[str, Any]:
    result = [{"from_name": "topic", "to_name": "shown", "type": "choices", "value": {"choices": list(choices)}}]
    annotation = {"id": number, "result": result if choices else [], "was_cancelled": False} | changes
    return {"action": action, "project": {"id": 1, "label_config": config()}, "task": tasks(text)[0],
            "annotation": annotation}


@pytest.mark.parametrize("prefix", ["", "/label-studio"])
def test_a_project_is_connected_and_its_tasks_are_predicted(start: Start, prefix: str) -> None:
    client = start()
    assert client.get(f"{prefix}/health").json()["status"] == "UP"
    setup = {"project": "1.1", "schema": config(), "hostname": "http://x", "access_token": "t", "extra_params": None}
    assert client.post(f"{prefix}/setup", json=setup).json() == {"model_version": "numbers-1"}
    body = {"tasks": tasks("text 90", "text 1", "text 30"), "project": "1.1", "label_config": config(), "params": {}}
    results = client.post(f"{prefix}/predict", json=body).json()["results"]
    first = results[0]["result"][0]
    assert first == {"from_name": "topic", "to_name": "shown", "type": "choices", "value": {"choices": ["food"]},
                     "score": pytest.approx(probability(90), abs=1e-6)}
    assert {(row["cluster"], row["model_version"]) for row in results} == {(0, "numbers-1")}
    scores = [row["score"] for row in results]
    assert scores[1] < scores[2] < scores[0], "the most doubtful text has the lowest score, which is shown first"
    assert 0 <= scores[1] < 0.02


def test_several_labels_are_several_choices_or_none(start: Start) -> None:
    client = start(NumberModel("multi-label"))
    body = {"tasks": tasks("text 2", "text 0"), "label_config": config(choice="multiple")}
    first, second = client.post("/predict", json=body).json()["results"]
    assert first["result"][0]["value"]["choices"] == ["food", "money"]
    assert len(second["result"][0]["value"]["choices"]) == 3 and second["score"] == 0.0
    refused = client.post("/setup", json={"schema": config()})
    assert refused.status_code == 422 and 'choice="multiple"' in refused.json()["error"]


@pytest.mark.parametrize(("label_config", "words"), [
    (config((*LABELS, "weather")), "'weather' is not a label of the model; its labels are food, money, sport"),
    (config(("food", "sport")), "'money' is not among the choices"),
    (config().replace("Choices", "Labels"), "no elements <Choices>"),
    (config().replace('value="$body"', 'value="always this"'), "toName"),
    (config().replace('toName="shown"', 'toName="other"'), "toName"),
    ("<View>", "not valid XML"),
    ('<!DOCTYPE View [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + config(("&x;",)), "document type"),
])
def test_a_configuration_that_does_not_fit_is_refused_in_a_sentence(start: Start, label_config: str, words: str
                                                                      ) -> None:
    client = start()
    for path, body in (("/setup", {"schema": label_config}),
                       ("/predict", {"tasks": tasks("text 1"), "label_config": label_config})):
        refused = client.post(path, json=body)
        assert refused.status_code == 422 and words in refused.json()["error"], refused.json()


@pytest.mark.parametrize("data", [None, "", 5])
def test_a_task_without_text_is_named(start: Start, data: Any) -> None:
    refused = start().post("/predict", json={"tasks": tasks("a", data), "label_config": config()})
    assert refused.status_code == 422 and refused.json()["error"] == "Task 11 has no text under 'body'."


def test_annotations_become_answers_that_update_can_read(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    client = start(answers=AnswerFile(file))

    def send(body: dict[str, Any]) -> Any:
        answer = client.post("/webhook", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()["answers"]

    assert send(event("ANNOTATION_CREATED", "one", "food")) == 1
    assert send(event("ANNOTATION_CREATED", "two", "weather", number=8)) == 1, "a new class is for the next update"
    assert send(event("ANNOTATION_UPDATED", "one", "sport")) == 1
    assert send(event("ANNOTATION_CREATED", "three", number=9, was_cancelled=True)) == 1
    assert send(event("ANNOTATION_CREATED", "four", "money", number=10)) == 1
    assert send({"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 10}, {"id": 99}]}) == 1
    assert send({"action": "START_TRAINING", "project": "1.1"}) == send({"action": "PROJECT_UPDATED"}) == 0
    corpus = read(file)
    assert dict(zip(corpus.texts, corpus.labels, strict=True)) == {"one": "sport", "two": "weather", "three": None,
                                                                   "four": None}
    assert AnswerFile(file).answers["one"].source == 7, "deletions are understood after a restart"


def test_an_annotation_that_is_no_label_is_refused_and_not_written(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    client = start(answers=AnswerFile(file))
    for body, words in ((event("ANNOTATION_CREATED", "one", "food", "sport"), "2 choices"),
                        ({"action": "ANNOTATION_CREATED", "project": 1}, "project"),
                        ({"action": "ANNOTATIONS_DELETED"}, "annotations"),
                        (event("ANNOTATION_CREATED", " ", "food"), "no text")):
        refused = client.post("/webhook", json=body)
        assert refused.status_code == 422 and words in refused.json()["error"], refused.text
    assert file.read_bytes() == b""


def test_several_labels_and_numbers_keep_their_type(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    client = start(NumberModel("multi-label"), AnswerFile(file))
    for text, choices in (("one", ("food", "sport")), ("two", ())):
        assert client.post("/webhook", json=event("ANNOTATION_CREATED", text, *choices)).status_code == 201
    assert [json.loads(line)["label"] for line in file.read_text().splitlines()] == [["food", "sport"], []]


def test_without_a_file_annotations_are_acknowledged(start: Start) -> None:
    answer = start().post("/webhook", json=event("ANNOTATION_CREATED", "one", "food"))
    assert answer.status_code == 201 and answer.json() == {"status": "ok", "answers": 0}


@pytest.mark.parametrize(("header", "status"), [
    ("Basic " + base64.b64encode(b"anyone:secret").decode(), 201), ("Bearer secret", 201),
    ("Basic " + base64.b64encode(b"anyone:wrong").decode(), 401), ("Basic secret", 401), ("Basic ö", 401),
    ("secret", 401), ("", 401)])
def test_the_token_is_the_password_of_basic_authentication(start: Start, header: str, status: int) -> None:
    client = start(token="secret")
    headers = {"Authorization": header.encode()} if header else {}
    assert client.post("/label-studio/webhook", json={"action": "PROJECT_UPDATED"}, headers=headers
                       ).status_code == status
    assert client.get("/label-studio/health").status_code == 200


def test_the_command_serves_with_answers_and_refuses_files_that_do_not_fit(
        tiny_encoder: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    texts, labels = tiny_texts(2)
    TextClassifier("logreg", encoder=tiny_encoder, plan="frozen").fit(texts, labels).save(tmp_path / "topics")
    run = runner(capsys, monkeypatch)
    AnswerFile(tmp_path / "several.jsonl").label("a", ("x", "y"))
    for options, words in ((("--answers", "a.jsonl"), "give --label-studio"),
                           (("--label-studio", "--answers", "a.csv"), "--answers a.csv has to end in .jsonl"),
                           (("--label-studio", "--answers", tmp_path / "several.jsonl"), "several labels")):
        done = run("serve", tmp_path / "topics", "--port", 0, *options)
        assert done.code == 2 and done.lines == 1 and words in done.err, done.err

    def talk(app: Any, *_: Any) -> None:
        with TestClient(app) as client:
            setup = client.post("/setup", json={"schema": config()})
            assert setup.json()["model_version"].startswith("topics-"), setup.text
            body = {"tasks": tasks(*texts), "label_config": config()}
            assert len(client.post("/predict", json=body).json()["results"]) == len(texts)
            assert client.post("/webhook", json=event("ANNOTATION_CREATED", "one", "food")).status_code == 201

    from halflabel.serve import server

    monkeypatch.setattr(server, "run", talk)
    done = run("serve", tmp_path / "topics", "--port", 0, "--label-studio", "--answers", tmp_path / "new.jsonl")
    assert done.code == 0, done.err
    assert list(read(tmp_path / "new.jsonl").labels) == ["food"]
