"""No surprise: no network, nothing written outside --out and the cache, the user's umask, no texts in messages."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cli_runner import FAST, Ran, runner, write_csv
from conftest import tiny_texts

SECRET = "match team goal 4711"


@pytest.fixture
def cli(capsys: Any, monkeypatch: Any) -> Ran:
    return runner(capsys, monkeypatch)


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object, **options: object) -> NoReturn:
        raise AssertionError("a socket was opened")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refused)


def test_train_and_predict_stay_within_their_outputs(
    tmp_path: Path, tiny_encoder: str, cli: Ran, monkeypatch: pytest.MonkeyPatch, no_sockets: None
) -> None:
    work, home, temporary = (tmp_path / name for name in ("work", "home", "temporary"))
    for folder in (work, home, temporary):
        folder.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)  # the tiny encoder is a folder: nobody asked for the network
    texts, labels = tiny_texts(4)
    write_csv(work / "labelled.csv", [SECRET, *texts], ["sport", *labels])
    before = os.umask(0o027)
    try:
        done = [cli("train", "labelled.csv", "--encoder", tiny_encoder, "--out", "model", *FAST),
                cli("predict", "model", "labelled.csv", "--out", "labels.csv")]
    finally:
        os.umask(before)
    assert [ended.code for ended in done] == [0, 0], done
    assert not [ended for ended in done if SECRET in ended.out + ended.err]
    assert {path.name for path in work.iterdir()} == {"labelled.csv", "model", "labels.csv"}
    assert not [path for path in (*home.rglob("*"), *temporary.rglob("*")) if path.is_file()]
    written = [path for path in work.rglob("*") if path.is_file() and path.name != "labelled.csv"]
    assert {oct(path.stat().st_mode & 0o777) for path in written} == {"0o640"}
    with_texts = {path.name for path in written if SECRET.encode() in path.read_bytes()}
    assert with_texts == {"labels.csv", "labelled.jsonl"}  # the predictions, and the labelled texts that a run keeps
