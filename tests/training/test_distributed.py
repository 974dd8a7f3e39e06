"""Two processes that train one model: the weights of a single process, one writer, and a lost process.

    python tests/training/test_distributed.py FOLDER ENCODER      # what the tests start, and then compare
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from halflabel.processes import Process
from halflabel.training.checkpoint import read_tensors, write_tensors
from halflabel.training.distributed import ALONE, Ranks

KILLED_AT = 6  # steps, of which two are warm-up and three are the first epoch
OPTIONS = ("--method", "bdd-f", "--plan", "laptop", "--device", "cpu", "--precision", "fp32", "--set", "epochs=2",
           "--set", "epoch_steps=3", "--set", "warmup=2", "--set", "labelled_batch=4", "--set", "unlabelled_batch=7",
           "--set", "head_rate=1e-4")  # at a higher one the pool is abandoned


def train(folder: Path, encoder: str, name: str, rank: int, number: int, *words: str, killed: bool = False) -> int:
    """One process of a run by the command line; writes the state that it ends with. Returns its exit code."""
    from halflabel import fitting
    from halflabel.cli.app import main
    from halflabel.training.loop import Trainer

    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(number), "MASTER_ADDR": "localhost",
                   "MASTER_PORT": words[0]}
    fit, step, objectives = fitting.fit, Trainer.train_step, []

    def fit_and_write(*args: object, **kwargs: object) -> object:
        trained = fit(*args, **kwargs)  # type: ignore[arg-type]
        write_tensors(folder / f"{name}-{rank}-of-{number}.safetensors", dict(objectives[-1].state_dict()))
        return trained

    def step_or_die(self: Trainer, *args: object) -> object:
        objectives.append(self.objective)
        if killed and rank == 1 and self.step == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, *args)  # type: ignore[arg-type]

    fitting.fit, Trainer.train_step = fit_and_write, step_or_die  # type: ignore[assignment, method-assign]
    # the measurement of the time budget would die already
    fitting.fit_to_minutes = lambda *args, **kwargs: None
    sys.argv = ["halflabel", "train", str(folder / "labelled.csv"), "--unlabelled", str(folder / "pool.csv"),
                "--encoder", encoder, "--out", str(folder / name), *OPTIONS, *words[1:]]
    with open(folder / f"{name}-{rank}-of-{number}.txt", "w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
    return 0


def start(folder: Path, encoder: str, name: str, number: int, *words: str, killed: bool = False) -> list[int]:
    """Forks the processes of a run, which spares them the imports; their exit codes."""
    children = []
    for rank in range(number):
        if not (child := os.fork()):
            code = 1
            with suppress(BaseException):
                code = train(folder, encoder, name, rank, number, *words, killed=killed)
            os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def launch(folder: Path, encoder: str) -> None:
    """All runs, one after the other."""
    import socket

    import halflabel.cli.app  # noqa: F401
    from halflabel.encoders.loading import load_encoder
    from halflabel.fitting import fit  # noqa: F401

    load_encoder(encoder)  # so that the forked processes have all modules

    def port() -> str:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            return str(free.getsockname()[1])

    torch.set_num_threads(1)
    codes = {"one": start(folder, encoder, "one", 1, port()), "two": start(folder, encoder, "two", 2, port()),
             "killed": start(folder, encoder, "killed", 2, port(), killed=True),
             "alone": start(folder, encoder, "killed", 1, port(), "--resume"),
             "resumed": start(folder, encoder, "killed", 2, port(), "--resume")}
    (folder / "codes.json").write_text(json.dumps(codes))


@pytest.fixture(scope="module")
def runs(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all runs."""
    from cli_runner import forked, write_csv
    from conftest import tiny_texts

    folder = tmp_path_factory.mktemp("distributed")
    write_csv(folder / "labelled.csv", *tiny_texts(4))
    write_csv(folder / "pool.csv", tiny_texts(8, seed=1)[0])
    environment = os.environ | {"HALFLABEL_CACHE": str(folder / "cache")}
    code = f"import runpy; runpy.run_path({__file__!r}, run_name='__main__')"
    done = forked(folder, tiny_encoder, code=code, env=environment)
    assert done.code == 0, done
    return folder


def test_two_processes_end_with_the_weights_of_one(runs: Path) -> None:
    one, first, second = (read_tensors(runs / f"{name}.safetensors") for name in ("one-0-of-1", "two-0-of-2",
                                                                                  "two-1-of-2"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    for name, tensor in one.items():  # parameters, the statistics of Eqs. 6 to 8, and the thresholds
        torch.testing.assert_close(first[name], tensor, atol=1e-5, rtol=1e-4)
    assert float(one["network.angles.mass"].sum()) > 12 and float(one["pseudo_labels.confidence"]) > 1 / 3  # a pool
    saved = read_tensors(runs / "two/model.safetensors")
    assert all(torch.equal(saved[name], first[f"network.{name}"]) for name in saved)


def test_one_process_writes_and_prints(runs: Path) -> None:
    assert json.loads((runs / "codes.json").read_text())["two"] == [0, 0]
    assert "cpu in fp32, 2 processes" in (runs / "two-0-of-2.txt").read_text()
    assert (runs / "two-1-of-2.txt").read_text() == ""
    assert json.loads((runs / "two/config.json").read_text())["compute"]["processes"] == 2
    steps, alone = ([json.loads(line)["step"] for line in (runs / name / "metrics.jsonl").read_text().splitlines()]
                    for name in ("two", "one"))
    assert steps == alone


def test_a_killed_process_ends_the_run_with_a_checkpoint_that_resumes(runs: Path) -> None:
    codes = json.loads((runs / "codes.json").read_text())
    assert codes["killed"] == [130, -signal.SIGKILL] and codes["resumed"] == [0, 0]
    whole, resumed = (read_tensors(runs / f"{name}-0-of-2.safetensors") for name in ("two", "killed"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_run_is_resumed_by_as_many_processes(runs: Path) -> None:
    assert json.loads((runs / "codes.json").read_text())["alone"] == [2]
    refused = (runs / "killed-0-of-1.txt").read_text()
    assert "was started by 2 processes, this command by 1; resume it with as many" in refused
    assert len(refused.splitlines()) == 1


def test_shares_cover_all_rows() -> None:
    shares = [Ranks(Process(rank, 3)).share(7) for rank in range(3)]
    assert {len(share) for share in shares} == {3} and np.concatenate(shares)[:7].tolist() == list(range(7))
    assert ALONE.share(4).tolist() == [0, 1, 2, 3] and len(ALONE.share(0)) == 0


if __name__ == "__main__":
    launch(Path(sys.argv[1]), sys.argv[2])
