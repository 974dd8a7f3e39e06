"""Ctrl-C and SIGKILL in a process of its own; a resumed run ends with the same weights."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from cli_runner import Ran, forked, killed, runner, write_csv
from conftest import tiny_texts

STEPS = ("--set", "epochs=3", "--set", "epoch_steps=10", "--set", "warmup=6", "--set", "labelled_batch=4",
         "--set", "unlabelled_batch=8")


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

    first = [*arguments, "--checkpoint-seconds", "0.001", "--out", stopped]
    done = forked(*first, code=killed("step >= 9"))
    assert done.code == -signal.SIGKILL and (stopped / "checkpoint-00000009").exists(), done
    again = [*first, "--resume"]
    done = forked(*again, code=killed("step >= 20", signal.SIGINT))
    assert done.code == 130, done
    assert "saved in" in done.err and f"--out '{stopped}' --resume" in done.err and "Traceback" not in done.err
    assert [path.name for path in stopped.glob("checkpoint-*")] == ["checkpoint-00000021"], "the step was finished"
    assert cli(*again).code == 0
    for name in ("model.safetensors", "metrics.jsonl", *(file.name for file in whole.glob("decision.json"))):
        assert (stopped / name).read_bytes() == (whole / name).read_bytes(), name
    assert not list(stopped.glob("checkpoint-*"))
