"""Ctrl-C and SIGKILL in a process of its own; a resumed run ends with the same weights."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli_runner import Ran, runner, write_csv
from conftest import tiny_texts

STEPS = ("--set", "epochs=3", "--set", "epoch_steps=40", "--set", "warmup=10", "--set", "labelled_batch=4",
         "--set", "unlabelled_batch=8")


def start(arguments: list[str]) -> subprocess.Popen[str]:
    code = "import torch; torch.set_num_threads(1); from halflabel.cli import main; main()"
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env=os.environ)


def stop_in_the_middle(arguments: list[str], out: Path, sign: signal.Signals) -> tuple[int, str]:
    known = set(out.glob("checkpoint-*"))
    process = start(arguments)
    limit = time.monotonic() + 60
    while not set(out.glob("checkpoint-*")) - known and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.01)
    process.send_signal(sign)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


@pytest.fixture(params=["bdd-f", "bdd-ml"])
def arguments(request: pytest.FixtureRequest, tmp_path: Path, tiny_encoder: str) -> list[str]:
    texts, labels = tiny_texts(5)
    several = [f'["{name}", "long"]' if i % 3 else f'["{name}"]' for i, name in enumerate(labels)]
    write_csv(tmp_path / "labelled.csv", texts, several if request.param == "bdd-ml" else labels)
    write_csv(tmp_path / "pool.csv", tiny_texts(20, seed=1)[0])
    return ["train", str(tmp_path / "labelled.csv"), "--unlabelled", str(tmp_path / "pool.csv"), "--encoder",
            tiny_encoder, "--method", request.param, "--plan", "laptop", "--minutes", "30", *STEPS]


def test_interrupted_and_killed_runs_resume_to_the_same_weights(tmp_path: Path, arguments: list[str], cli: Ran) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "a stopped run"
    assert cli(*arguments, "--out", whole).code == 0

    first = [*arguments, "--checkpoint-seconds", "0.1", "--out", str(stopped)]
    code, err = stop_in_the_middle(first, stopped, signal.SIGKILL)
    assert code == -signal.SIGKILL
    again = [*first, "--resume"]
    assert list(stopped.glob("checkpoint-*")), err

    code, err = stop_in_the_middle(again, stopped, signal.SIGINT)
    assert code == 130, err
    assert "saved in" in err and f"--out '{stopped}' --resume" in err and "Traceback" not in err
    assert cli(*again).code == 0
    for name in ("model.safetensors", "metrics.jsonl", *(file.name for file in whole.glob("decision.json"))):
        assert (stopped / name).read_bytes() == (whole / name).read_bytes(), name
    assert not list(stopped.glob("checkpoint-*"))
