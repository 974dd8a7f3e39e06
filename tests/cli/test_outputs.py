"""Commands never destroy files of others, and two processes never write into one folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli_runner import FAST, Forked, Ran, forked, killed, runner, write_csv
from conftest import tiny_texts
from halflabel.classifier import TextClassifier
from halflabel.errors import HalflabelError
from halflabel.output_folders import LOCK, try_lock

LONG = ("--plan", "laptop", "--minutes", "30", "--method", "bdd-f", "--set", "epochs=2", "--set", "epoch_steps=30",
        "--set", "warmup=10", "--set", "labelled_batch=4", "--set", "unlabelled_batch=8")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the commands run in, with a labelled, an unlabelled and a test file."""
    write_csv(tmp_path / "labelled.csv", *tiny_texts(5))
    write_csv(tmp_path / "pool.csv", tiny_texts(10, seed=1)[0])
    write_csv(tmp_path / "test.csv", *tiny_texts(3, seed=2))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "model"
    settings = {"epochs": 1, "epoch_steps": 2, "warmup": 2}
    TextClassifier("ce", tiny_encoder, "frozen", settings=settings).fit(*tiny_texts(5), folder=folder)
    return folder


@pytest.fixture
def model(trained: Path, files: Path) -> Path:
    """A model of this test's own."""
    shutil.copytree(trained, files / "model")
    return Path("model")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


class TestOneAtATime:
    def test_two_trainings_into_one_folder(self, files: Path, tiny_encoder: str) -> None:
        arguments = ("train", "labelled.csv", "--unlabelled", "pool.csv", "--out", "run", "--encoder", tiny_encoder)
        both = [Forked(*arguments, *LONG), Forked(*arguments, *LONG)]
        ended = [process.wait() for process in both]
        codes = [done.code for done in ended]
        assert sorted(codes) == [0, 2], ended
        winner, said = both[codes.index(0)], ended[codes.index(2)].err
        assert f"run is in use by another halflabel process (pid {winner.pid})" in said and "Traceback" not in said
        lines = [json.loads(line) for line in (files / "run" / "metrics.jsonl").read_text().splitlines()]
        assert [line["epoch"] for line in lines if line.get("end")] == [lines[-1]["epoch"]]
        assert not list((files / "run").glob(".*"))

    def test_a_killed_training_goes_on_and_leaves_no_trace(self, files: Path, tiny_encoder: str) -> None:
        arguments = ("train", "labelled.csv", "--unlabelled", "pool.csv", "--out", "run", "--encoder", tiny_encoder,
                     *LONG, "--checkpoint-seconds", "0.1")
        assert forked(*arguments, code=killed("step >= 12")).code == -signal.SIGKILL
        stale = files / "run" / f".model.safetensors-{'0' * 32}"
        stale.touch()
        assert (files / "run" / LOCK).exists()
        both = [Forked(*arguments, "--resume"), Forked(*arguments, "--resume")]
        ended = [process.wait() for process in both]
        assert sorted(done.code for done in ended) == [0, 2], ended
        assert not list((files / "run").glob(".*")) and (files / "run" / "model.safetensors").exists()

    def test_all_that_write_into_a_folder(self, files: Path, model: Path, tiny_encoder: str, cli: Ran) -> None:
        texts, labels = tiny_texts(5)
        for command, folder in (
                ("train labelled.csv --resume --out model", model), ("train labelled.csv --force --out model", model),
                ("tune model --dev test.csv", model), ("demo --out demo", Path("demo")),
                ("split labelled.csv --labelled 1/class --out parts", Path("parts")),
                ("predict model pool.csv --shard 5 --out shards", Path("shards"))):
            with other_process(folder):
                done = cli(*command.split())
                assert done.code == 2 and f"{folder} is in use by another halflabel process" in done.err, command
        with other_process(model), pytest.raises(HalflabelError, match="in use"):
            TextClassifier("ce", tiny_encoder, "frozen").fit(texts, labels, folder=model, resume=True)
        with try_lock(files / f".small{LOCK}"):
            done = cli("export", "model", "--onnx", "small")
            assert done.code == 2 and f"small is in use by another halflabel process (pid {os.getpid()})" in done.err
        assert not (files / "parts").exists() and not (files / "shards").exists()


class other_process:  # noqa: N801
    """Holds a folder as another process would."""

    def __init__(self, folder: Path) -> None:
        code = ("import sys; from pathlib import Path; from halflabel.output_folders import RUN, locked\n"
                f"with locked(Path({str(folder)!r}), RUN):\n    print('mine', flush=True); sys.stdin.read()")
        self.process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=os.environ)

    def __enter__(self) -> None:
        assert self.process.stdout is not None and self.process.stdout.readline().strip() == "mine"

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


class TestForce:
    def test_keeps_other_files_the_input_included(self, files: Path, model: Path, tiny_encoder: str, cli: Ran) -> None:
        shutil.move("labelled.csv", model / "labelled.csv")
        (model / "checkpoint-best").mkdir()
        (model / "checkpoint-best" / "mine.txt").write_text("mine")
        done = cli("train", "model/labelled.csv", "--out", "model", "--force", "--seed", 7, "--json", "--encoder",
                   tiny_encoder, *FAST)
        assert done.code == 0, done.err
        assert "model also contains checkpoint-best, labelled.csv; files that halflabel did not" in done.err
        assert json.loads(done.out)["notices"] and json.loads((model / "config.json").read_text())["seed"] == 7
        assert (model / "labelled.csv").exists() and (model / "checkpoint-best" / "mine.txt").read_text() == "mine"
        assert not list(model.glob(".*"))

    @pytest.mark.parametrize("config", [None, '{"model_type": "bert"}'])
    def test_leaves_other_folders_alone(self, files: Path, config: str | None, cli: Ran) -> None:
        (files / "bert").mkdir()
        for name in ("config.json", "run.json") if config else ("thesis.txt",):
            (files / "bert" / name).write_text(config or "years of work")
        before = contents(files)
        done = cli("train", "labelled.csv", "--out", "bert", "--force")
        assert done.code == 2 and "bert does not look like a run" in done.err and contents(files) == before

    def test_refuses_what_stands_in_the_way(self, model: Path, files: Path, cli: Ran) -> None:
        (model / "decision.json").mkdir()
        before = contents(files)
        done = cli("train", "labelled.csv", "--out", "model", "--force")
        assert done.code == 2 and "decision.json is a folder" in done.err and contents(files) == before

    def test_an_interrupted_start_brings_the_old_model_back(self, files: Path, model: Path, tiny_encoder: str, cli: Ran,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("halflabel.fitting.train", interrupted)
        before = contents(model)
        done = cli("train", "labelled.csv", "--out", "model", "--force", "--encoder", tiny_encoder, *FAST)
        assert done.code == 130 and "nothing was kept" in done.err and contents(model) == before


class TestInputs:
    """An output that is an input is refused, whatever leads to it."""

    @pytest.mark.parametrize("command", [
        "train labelled.csv --out model --force --encoder model/encoder",
        "train model/metrics.jsonl --out model --force",
        "train labelled.csv --dev linked.jsonl --out model --force",
        "train model --out model --force",
        "predict model test.csv --out test.csv --force",
        "predict model labelled.csv test.csv --out soft.csv --force",
        "predict model test.csv --out hard.csv --force",
        "predict model te*.csv --out test.csv --force",
        "predict model texts --out texts/a.csv --force",
        "predict model test.csv --out model/config.json --format jsonl --force",
        "augment test.csv --out hard.csv --force",
        "export-to csv model test.csv --out soft.csv --force",
        "export-to csv model labelled.csv --out model/decision.json --force",
        "tune model --dev model/decision.json",
        "bench run --sets queue/report.md --methods ce --labelled 1/class --out queue"])
    def test_refused(self, files: Path, model: Path, command: str, cli: Ran) -> None:
        (model / "decision.json").write_text("{}")
        os.link(model / "metrics.jsonl", "linked.jsonl")
        os.link("test.csv", "hard.csv")
        os.symlink("test.csv", "soft.csv")
        for folder, name in (("texts", "a.csv"), ("queue", "report.md")):
            Path(folder).mkdir()
            shutil.copy("test.csv", Path(folder) / name)
        before = contents(files)
        done = cli(*command.split())
        assert done.code == 2 and "would be replaced, but it is an input" in done.err and done.lines == 1, done
        assert contents(files) == before

    def test_standard_input_is_an_input(self, files: Path, model: Path) -> None:
        before = contents(files)
        done = forked("predict", "model", "--out", "test.csv", "--force", stdin=Path("test.csv"))
        assert done.code == 2 and "is an input (-)" in done.err and contents(files) == before

    def test_what_is_no_file_is_not_replaced(self, model: Path, cli: Ran) -> None:
        os.mkfifo("pipe.jsonl")
        done = cli("predict", model, "--out", "pipe.jsonl", "--force", stdin="bread\n")
        assert done.code == 2 and "pipe.jsonl exists already" in done.err and Path("pipe.jsonl").is_fifo()


class TestLinks:
    def test_a_file_is_written_through(self, files: Path, model: Path, cli: Ran) -> None:
        (files / "far").mkdir()
        os.symlink("far/labels.jsonl", "labels.jsonl")
        for _ in range(2):
            assert cli("predict", "model", "pool.csv", "--out", "labels.jsonl", "--force").code == 0
        assert (files / "labels.jsonl").is_symlink()
        assert len((files / "far" / "labels.jsonl").read_text().splitlines()) == 30

    def test_a_folder_is_written_through(self, files: Path, tiny_encoder: str, cli: Ran) -> None:
        os.symlink("far/run", "run")
        arguments = ("train", "labelled.csv", "--out", "run", "--encoder", tiny_encoder, *FAST)
        assert cli(*arguments).code == 0
        assert "run is not empty" in cli(*arguments).err
        assert cli(*arguments, "--force", "--seed", 3).code == 0
        assert (files / "run").is_symlink()
        assert json.loads((files / "far" / "run" / "config.json").read_text())["seed"] == 3
        assert not [path for path in files.rglob(".*") if "cache" not in path.parts]


def test_a_second_demo_replaces_only_its_own_files(files: Path, tiny_encoder: str, cli: Ran,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    from halflabel.cli import demo

    arguments = ("demo", "--out", "demo", "--plan", "frozen", "--encoder", tiny_encoder)
    assert cli(*arguments).code == 0
    for name in ("demo/mine.csv", "demo/model/notes.txt", "demo/labelled.csv"):
        Path(name).write_text("mine")
    before = contents(files / "demo")

    def failing(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(demo, "measure", failing)
        assert cli(*arguments).code == 130 and contents(files / "demo") == before
    done = cli(*arguments)
    assert done.code == 0 and "demo also contains mine.csv, model/notes.txt; files that halflabel" in done.err
    after = contents(files / "demo")
    assert after.keys() == before.keys() and after["mine.csv"] == after["model/notes.txt"] == b"mine"
    assert after["labelled.csv"] != b"mine"
