"""Errors that a user can fix: exit code 2, one sentence, nothing left behind; and precedence of config files."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from cli_runner import FAST, Ran, runner, write_csv, write_jsonl
from conftest import tiny_texts


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with one good and many bad files."""
    monkeypatch.chdir(tmp_path)
    texts, labels = tiny_texts(4)
    write_csv(tmp_path / "good.csv", texts, labels)
    write_csv(tmp_path / "pool.csv", tiny_texts(4, seed=1)[0])
    write_csv(tmp_path / "half.csv", [*tiny_texts(2, seed=1)[0], "bread"], [*tiny_texts(2, seed=1)[1], ""])
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("text,label\n")
    write_csv(tmp_path / "one.csv", texts, ["food"] * len(texts))
    write_csv(tmp_path / "none.csv", texts)
    write_csv(tmp_path / "dev.csv", ["bread", "goal"], ["food", "chess"])
    write_jsonl(tmp_path / "minus.jsonl", [{"text": "goal", "label": "sport"}, {"text": "bread", "label": "-1"}])
    write_jsonl(tmp_path / "lists.jsonl", [{"text": "goal", "label": ["sport"]}, {"text": "bread", "label": ["food"]}])
    (tmp_path / "latin.csv").write_bytes("text,label\né,a\n".encode("latin-1"))
    write_jsonl(tmp_path / "views.jsonl", [{"text": "not in the pool", "aug_0": "x"}])
    write_csv(tmp_path / "conflicts.csv", ["bread", "bread", "goal", "goal"], ["food", "sport", "food", "sport"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("something")
    return tmp_path


BAD = {
    "missing file": (["nowhere.csv"], "nowhere.csv"),
    "empty file": (["empty.csv"], "empty.csv is empty"),
    "only a header": (["header.csv"], "no rows"),
    "one class": (["one.csv"], "one.csv: there is only one class, 'food'"),
    "no labels": (["none.csv"], "none.csv: there is no label"),
    "label -1 as text": (["minus.jsonl"], "minus.jsonl, line 2"),
    "lists of labels": (["lists.jsonl", "--method", "ce"], "lists.jsonl: the labels are sets of labels"),
    "latin-1": (["latin.csv"], "line 2: byte"),
    "unknown column": (["good.csv", "--text-column", "body"], "no column 'body'"),
    "missing pool": (["good.csv", "--unlabelled", "nowhere.csv"], "nowhere.csv"),
    "unknown label in dev": (["good.csv", "--dev", "dev.csv"], "dev.csv, text 2: the label 'chess' is unknown"),
    "dev without labels": (["good.csv", "--dev", "none.csv"], "none.csv: no text has a label"),
    "half the truth": (["good.csv", "--unlabelled", "half.csv", "--truth"], "1 of 7 unlabelled texts"),
    "unknown method": (["good.csv", "--method", "magic"], "no method 'magic'"),
    "unknown plan": (["good.csv", "--plan", "magic"], "no plan 'magic'"),
    "unknown encoder": (["good.csv", "--encoder", "./no-such-folder"], "no-such-folder"),
    "no value": (["good.csv", "--set", "epochs"], "--set 'epochs' is not KEY=VALUE"),
    "unknown setting": (["good.csv", "--set", "magic=1"], "'magic'"),
    "word for a number": (["good.csv", "--set", "epochs=many"], "epochs=many is out of range"),
    "fraction of an epoch": (["good.csv", "--set", "epochs=1.5"], "epochs=1.5 is out of range"),
    "out of range": (["good.csv", "--method", "bdd-f", "--set", "m=99"], "m=99"),
    "not a number": (["good.csv", "--method", "bdd-f", "--set", "m=nan"], "m=nan"),
    "contradictory labels": (["conflicts.csv"], "conflicts.csv: there is no label at all"),
    "no minutes": (["good.csv", "--minutes", "0"], "minutes=0"),
    "full folder": (["good.csv", "--out", "full"], "full is not empty"),
    "a file as folder": (["good.csv", "--out", "good.csv"], "good.csv is a file"),
    "nothing to resume": (["good.csv", "--resume"], "no run to resume"),
    "resume and force": (["good.csv", "--resume", "--force"], "one of them"),
    "views without pool": (["good.csv", "--method", "bdd-f", "--views", "views.jsonl"], "--unlabelled"),
    "views that nothing uses": (["good.csv", "--method", "ce", "--unlabelled", "pool.csv", "--views", "views.jsonl"],
                                "uses no strong views"),
    "views of other texts": (["good.csv", "--method", "bdd-f", "--unlabelled", "pool.csv", "--views", "views.jsonl"],
                             "none of the unlabelled texts"),
    "two kinds of views": (["good.csv", "--unlabelled", "pool.csv", "--views", "views.jsonl", "--back-translate"],
                           "choose one"),
    "missing config": (["good.csv", "--config", "no.toml"], "no.toml"),
}


@pytest.mark.parametrize("case", BAD)
def test_one_sentence_and_nothing_left(case: str, here: Path, tiny_encoder: str, cli: Ran) -> None:
    arguments, words = BAD[case]
    before = sorted(here.rglob("*"))
    defaults = [] if "--encoder" in arguments else ["--encoder", tiny_encoder]
    defaults += [] if "--out" in arguments else ["--out", "deep/run"]
    defaults += [] if "--plan" in arguments else FAST[:2]
    done = cli("train", *arguments, *defaults, "--set", "warmup=2", "--set", "epoch_steps=2")
    assert done.code == 2, done
    assert done.err.startswith("error: ") and words in done.err, done.err
    assert done.lines == 1 and not done.out, done
    left = [entry for entry in here.rglob("*") if "cache" not in entry.relative_to(here).parts]
    assert sorted(left) == before


@pytest.mark.skipif(os.name != "posix" or not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk(here: Path, tiny_encoder: str, cli: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "deep/run")

    monkeypatch.setattr("halflabel.persistence.model.write_config", full)
    done = cli("train", "good.csv", "--out", "deep/run", "--encoder", tiny_encoder, *FAST)
    assert done.code == 2 and not (here / "deep").exists()
    assert "deep/run: No space left on device; free some space" in done.err


@pytest.mark.parametrize(("error", "words"), [
    (FileNotFoundError(errno.ENOENT, "No such file", "lost"), "lost: No such file; check the path"),
    (PermissionError(errno.EACCES, "Permission denied", "theirs"), "theirs: Permission denied; change the permissions"),
    (OSError(errno.EIO, "Input/output error"), "error: Input/output error; check the path and the disk")])
def test_the_remedy_follows_from_the_error(error: OSError, words: str, here: Path, cli: Ran,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("halflabel.cli.train.check_run_folder", fail)
    done = cli("train", "good.csv", "--out", "run")
    assert done.code == 2 and words in done.err and "space" not in done.err and done.lines == 1


@pytest.mark.parametrize("pool", [[], ["--unlabelled", "pool.csv"]])
def test_a_cache_that_cannot_be_written(pool: list[str], here: Path, tiny_encoder: str, cli: Ran,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALFLABEL_CACHE", str(here / "good.csv" / "cache"))
    done = cli("train", "good.csv", *pool, "--out", "run", "--encoder", tiny_encoder, *FAST)
    assert done.code == 2 and "set HALFLABEL_CACHE to a folder that can be written" in done.err and done.lines == 1


@pytest.mark.parametrize("file", ["one.csv", "none.csv", "empty.csv", "conflicts.csv", "minus.jsonl"])
def test_check_finds_the_errors_that_stop_training(file: str, here: Path, tiny_encoder: str, cli: Ran) -> None:
    done = cli("check", file, "--no-tokens")
    assert done.code == 2 and "error: " in done.out
    assert cli("train", file, "--out", "run", "--encoder", tiny_encoder, *FAST).code == 2


def test_ctrl_c_before_the_first_step(here: Path, tiny_encoder: str, cli: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        (here / "deep" / "run").mkdir(parents=True, exist_ok=True)
        raise KeyboardInterrupt

    monkeypatch.setattr("halflabel.fitting.fit", interrupted)
    monkeypatch.setattr("halflabel.classifier.fit", interrupted)
    done = cli("train", "good.csv", "--out", "deep/run", "--encoder", tiny_encoder, *FAST)
    assert done.code == 130 and "nothing was kept" in done.err and not (here / "deep").exists()
    done = cli("demo", "--out", "deep/run", "--encoder", tiny_encoder)
    assert done.code == 130 and "nothing was kept" in done.err and not (here / "deep").exists()


def test_usage_errors(cli: Ran, here: Path) -> None:
    assert cli("train").code == 2
    assert cli("train", "good.csv", "--seed", "x", "--out", "a").code == 2
    too_large = cli("train", "good.csv", "--seed", "9" * 23, "--out", "a")
    assert too_large.code == 2 and "'--seed'" in too_large.err and "4294967295" in too_large.err
    assert cli("fly").code == 2


def test_an_unexpected_error_is_not_hidden(here: Path, cli: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.cli.train.check_run_folder", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli("train", "good.csv", "--out", "run")


class TestPrecedence:
    """config file < environment < flags"""

    def seed(self, cli: Ran, encoder: str, *arguments: object) -> int:
        done = cli("train", "--out", "run", "--force", "--encoder", encoder, "--json", *FAST[:2], *arguments)
        assert done.code == 0, done
        return int(json.loads(done.out)["seed"])

    def test_order(self, here: Path, tiny_encoder: str, cli: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
        (here / "halflabel.toml").write_text(
            '[train]\nseed = 3\nlabelled = "good.csv"\nunlabeled = ["pool.csv"]\n'
            "[train.set]\nepochs = 1\nepoch_steps = 2\nwarmup = 2\n[predict]\ntext-column = 'text'\n")
        assert self.seed(cli, tiny_encoder) == 3
        plan = json.loads((here / "run" / "config.json").read_text())
        assert plan["plan"]["epochs"] == 1 and plan["texts"]["unlabelled"] == 12
        (here / "other.toml").write_text('[train]\nseed = 4\nset = ["epochs=1", "epoch_steps=2", "warmup=2"]\n')
        assert self.seed(cli, tiny_encoder, "good.csv", "--config", "other.toml") == 4
        monkeypatch.setenv("HALFLABEL_TRAIN_SEED", "5")
        assert self.seed(cli, tiny_encoder) == 5
        assert self.seed(cli, tiny_encoder, "--seed", "6") == 6

    @pytest.mark.parametrize(("content", "words"), [
        ("[train]\nsed = 3\n", "[train] has no option 'sed'"), ("[fly]\nseed = 3\n", "'fly' is not a command"),
        ("seed = 3\n", "'seed' is not a command"), ("train = 3\n", "not a section"), ("[train\n", "not valid TOML"),
        ("[train]\nseed = [1, 2]\n", "[train] seed is a list"), ("[train]\nout = 2020-01-01\n", "is a date")])
    def test_mistakes(self, here: Path, cli: Ran, content: str, words: str) -> None:
        (here / "halflabel.toml").write_text(content)
        done = cli("train", "good.csv", "--out", "run")
        assert done.code == 2 and words in done.err and done.lines == 1
