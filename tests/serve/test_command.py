"""`halflabel serve` as a process: it answers, reloads, stops when it is told to, and says what is wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_runner import Forked, runner
from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.cli.folders import open_model, sample_texts
from halflabel.cli.serve import WARM_UP


@pytest.fixture(scope="module")
def model(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts, labels = tiny_texts(4)
    folder = tmp_path_factory.mktemp("served") / "topics"
    TextClassifier(method="logreg", encoder=tiny_encoder, plan="frozen", random_state=0).fit(texts, labels).save(folder)
    return folder


@contextmanager
def serving(model: Path, *options: str) -> Iterator[tuple[Forked, str]]:
    """The process and its URL."""
    process = Forked("serve", model, "--port", 0, *options)
    try:
        yield process, wait_for(process.errors, r"serving .* at (http://\S+),")
    finally:
        process.kill()
        process.wait()


def wait_for(log: Path, pattern: str, seconds: float = 60.0) -> str:
    end = time.monotonic() + seconds
    while not (found := re.search(pattern, log.read_text())):
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)
    return found[1]


def post(url: str, inputs: Any) -> Any:
    request = urllib.request.Request(f"{url}/predict", json.dumps({"inputs": inputs}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def test_a_served_model_answers_as_in_python_reloads_and_stops_after_what_it_accepted(
        model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "topics"
    shutil.copytree(model, folder)
    texts = tiny_texts(8, seed=3)[0]
    same_precision = open_model(model, consistent=True)
    same_precision.probabilities(sample_texts()[:WARM_UP])
    p = same_precision.probabilities(texts)
    highest = np.sort(p, axis=1)
    clear = [texts[i] for i in np.argsort(highest[:, -2] - highest[:, -1])[:8]]  # no rounding changes their labels
    expected = {text: same_precision.classes.names[p[texts.index(text)].argmax()] for text in clear}
    with serving(folder) as (process, url):
        scores = [{entry["label"]: entry["score"] for entry in row} for row in post(url, texts)]
        served = np.array([[row[str(label)] for label in same_precision.classes.names] for row in scores])
        np.testing.assert_allclose(served, p, atol=1e-5)
        np.testing.assert_allclose(served, TextClassifier.load(model).predict_proba(texts), atol=0.01)

        answers, lost = list[bool](), list[Exception]()
        stop = threading.Event()

        def load(text: str) -> None:
            while not stop.is_set():
                try:
                    answers.append(post(url, text)[0]["label"] == expected[text])
                except (urllib.error.URLError, ConnectionError) as error:
                    lost.append(error)
                    return

        threads = [threading.Thread(target=load, args=(text,)) for text in clear]
        for thread in threads:
            thread.start()
        os.kill(process.pid, signal.SIGHUP)
        wait_for(process.errors, "(reloaded) ")
        (folder / "config.json").write_text("{}")
        os.kill(process.pid, signal.SIGHUP)
        wait_for(process.errors, "(was not reloaded)")
        assert not lost
        os.kill(process.pid, signal.SIGTERM)
        done = process.wait(30)
        assert done.code == 0
        stop.set()
        for thread in threads:
            thread.join()
    assert answers and all(answers)
    # a connection that was refused or reset was never accepted; of those that were, every one got its answer
    lines = [json.loads(line) for line in done.err.splitlines() if line.startswith("{")]
    assert {line["status"] for line in lines} == {200} and len(lines) == len(answers) + 1
    assert not set(re.findall(r"\w+", done.err)) & {"stadium", "oven", "invoice"}, "the log has texts"


def test_what_is_wrong_is_said_in_one_sentence(model: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    run = runner(capsys, monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        in_use = run("serve", model, "--port", port)
    assert in_use.code == 2 and in_use.lines == 1
    assert f"port {port} of 127.0.0.1 cannot be used (Address already in use)" in in_use.err
    (tmp_path / "empty").mkdir()
    for arguments, words in [
            ((tmp_path / "empty",), "contains no halflabel model"), ((tmp_path / "nothing",), "nothing"),
            ((model, "--host", "no.such.host.invalid"), "--host"), ((model, "--token", ""), "--token"),
            ((model, "--token", "a\nb"), "--token"), ((model, "--backend", "x"), "backend"),
            ((model, "--unknown"), "needs at least 19 labelled texts"), ((model, "--coverage", 2), "coverage of 2"),
            ((model, "--device", "abacus"), "no device 'abacus'"), ((model, "--precision", "x"), "no precision 'x'")]:
        done = run("serve", *arguments, "--port", 0)
        assert done.code == 2 and done.lines == 1 and words in done.err, (arguments, done.err)


@pytest.mark.parametrize("consistent", [True, False])
def test_a_served_model_encodes_few_texts_as_it_encodes_many(
        model: Path, consistent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from halflabel.persistence import model as models

    given, encode = list[bool](), models.encode

    def watched(*arguments: Any, **options: Any) -> Any:
        given.append(options["consistent"])
        return encode(*arguments, **options)

    monkeypatch.setattr(models, "encode", watched)
    open_model(model, consistent=consistent).probabilities(["goal"])
    assert given == [consistent]


@pytest.mark.parametrize("package", ["fastapi", "uvicorn", "prometheus_client"])
def test_a_missing_package_is_named_with_the_line_that_installs_it(
        package: str, model: Path, capsys: Any, monkeypatch: Any) -> None:
    from halflabel.cli import serve

    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == package else object())
    done = runner(capsys, monkeypatch)("serve", model)
    assert done.code == 2
    assert done.err == f"error: {package} is not installed; pip install 'halflabel[serve]'\n"


@pytest.mark.parametrize("command", ["serve", "predict"])
def test_starting_a_command_imports_no_server(command: str) -> None:
    code = (f"import sys; sys.argv = ['halflabel', {command!r}, '--help']\n"
            "from halflabel.cli import main\n"
            "try:\n    main()\nexcept SystemExit:\n    pass\n"
            "assert not {'fastapi', 'starlette', 'uvicorn', 'prometheus_client'} & set(sys.modules)\n")
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
