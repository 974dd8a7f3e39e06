"""`halflabel bench` from end to end, with a tiny encoder; killed in the middle of a run and resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli_runner import Ran, forked, killed, runner, write_csv
from conftest import tiny_texts
from halflabel.bench.execute import code_version

SHORT = ("--set", "epochs=1", "--set", "epoch_steps=2", "--set", "warmup=2", "--set", "survey=50")


@pytest.fixture
def cli(capsys: Any, monkeypatch: Any) -> Ran:
    return runner(capsys, monkeypatch)


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    texts, labels = tiny_texts(30)
    write_csv(tmp_path / "mine.csv", texts, labels)
    return tmp_path / "mine.csv"


def test_a_dry_run_prints_the_exact_runs(cli: Ran) -> None:
    done = cli("bench", "paper", "--table", 2, "--dry-run")
    lines = done.out.splitlines()
    assert done.code == 0 and len(lines) == 1 + 495 + 1
    assert lines[0].split() == "set method plan labelled unlabelled protocol seed settings run".split()
    assert lines[-1] == "495 runs: 11 methods on ag_news, yelp, yahoo, 5 seeds"
    row = next(line for line in lines if line.startswith("yelp") and " bdd-f " in line).split()
    assert row[:7] == ["yelp", "bdd-f", "paper", "20/class", "20000", "dev", "0"] and "m=0.15" in row
    runs = json.loads(cli("bench", "paper", "--table", 8, "--dry-run", "--seeds", "3", "--plan", "laptop", "--encoder",
                           "minilm", "--json").out)
    kinds = {(run["plan"], run["encoder"], run["seed"]) for run in runs}
    assert len(runs) == 15 and kinds == {("laptop", "minilm", 3)}
    assert "bdd-ml -unlabelled" in {run["method"] for run in runs}


def test_a_dry_run_imports_nothing_heavy() -> None:
    code = ("import sys; sys.argv = ['halflabel', 'bench', 'paper', '--table', '2', '--dry-run']\n"
            "from halflabel.cli import main\n"
            "try:\n    main()\nexcept SystemExit:\n    pass\n"
            "assert not {'torch', 'transformers', 'sklearn', 'matplotlib', 'jinja2'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.no_cover  # other tests run the same lines
def test_quick_runs_its_grid_and_writes_the_report(cli: Ran, tiny_encoder: str, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "quick"
    arguments = ("bench", "quick", "--encoder", tiny_encoder, "--seeds", 0, "--processes", 1, *SHORT, "--out", out)
    done = cli(*arguments)
    assert done.code == 0, done.err
    assert "22 of 22 runs done" in done.out and "BDD over AM" in done.out
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "The paper's claims on these runs" in page and "sample:tags" in page and "Margin bias" in page
    found = [json.loads(line) for line in (out / "results.jsonl").read_text(encoding="utf-8").splitlines()][1:]
    assert {name: len(one["result"]["figures"]) for one in found for name in [one["result"]["task"]]} == {
        "multi-class": 1, "multi-label": 2}
    dev = [one["result"] for one in found if one["result"]["run"]["protocol"] == "dev"]
    assert len(dev) == 3 and all(one["dev"] is not None and one["texts"]["dev"] == 103 for one in dev)
    monkeypatch.setattr("halflabel.bench.figures.draw", lambda *_, **__: "")  # once is enough
    again = cli(*arguments)
    assert again.code == 0 and "22 of 22 runs done" in again.out and ": micro F1" not in again.err
    assert "22 done" in cli("bench", "status", out).out


def test_a_grid_on_a_user_file(cli: Ran, user_file: Path, tiny_encoder: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = cli("bench", "run", "--sets", user_file, "--methods", "bdd-f,am-f,ce,logreg", "--labelled",
               "2/class,4/class", "--seeds", "0,1", "--encoder", tiny_encoder, *SHORT, "--processes", 2, "--out", out)
    assert done.code == 0, done.err
    assert "16 of 16 runs done" in done.out, (out / "processes.log").read_text(encoding="utf-8")
    result = json.loads(next(out.glob("runs/*/result.json")).read_text(encoding="utf-8"))
    assert result["texts"]["test"] == 18 and result["megabytes"] > 50 and len(result["split"]["train"]) == 32
    assert {"torch", "halflabel", "cpu", "threads"} <= set(result["machine"]) and result["plan"]["name"] == "frozen"
    by_method = {line["run"]["method"]: line for line in (json.loads(file.read_text(encoding="utf-8"))
                                                          for file in out.glob("runs/*/result.json"))}
    assert by_method["bdd-f"]["pool_abandoned"] in (True, False) and by_method["am-f"]["label_angles"] == {}
    statistics = by_method["bdd-f"]["label_angles"]
    assert set(statistics) == {"food", "money", "sport"} and set(statistics["food"]) == {"a", "mu", "sigma"}
    assert result["code"] == code_version()
    assert "Learning curves" in (out / "report.html").read_text(encoding="utf-8")


def test_failed_runs_are_reported_and_the_others_done(cli: Ran, user_file: Path, tiny_encoder: str, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    from halflabel.bench import execute

    real = execute.evaluate

    def broken(model: Any, classes: Any, test: Any) -> Any:
        if model.method == "logreg":
            raise RuntimeError("out of\nluck")
        return real(model, classes, test)

    monkeypatch.setattr(execute, "evaluate", broken)
    out = tmp_path / "out"
    done = cli("bench", "run", "--sets", user_file, "--methods", "ce,logreg", "--labelled", "2/class", "--seeds", "0",
               "--encoder", tiny_encoder, *SHORT, "--out", out)
    assert done.code == 1 and "1 of 2 runs done, 1 failed" in done.out and "RuntimeError: out of luck" in done.err
    assert "RuntimeError: out of luck" in (out / "report.md").read_text(encoding="utf-8")
    assert "failed: " in cli("bench", "status", out).out
    monkeypatch.setattr(execute, "evaluate", real)
    assert cli("bench", "run", "--out", out).code == 1
    assert cli("bench", "run", "--out", out, "--retry").code == 0


def test_a_killed_bench_resumes_inside_the_run(user_file: Path, tiny_encoder: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["bench", "run", "--sets", str(user_file), "--methods", "ce,bdd-f", "--labelled", "2/class",
                 "--seeds", "0", "--plans", "laptop", "--encoder", tiny_encoder, "--set", "minutes=30", "--set",
                 "epochs=2", "--set", "epoch_steps=10", "--set", "warmup=5", "--out", str(out)]
    done = forked(*arguments, code=killed(f"step >= 10 and list(Path({str(out)!r}).glob('runs/*/result.json'))"))
    assert done.code == -signal.SIGKILL, done
    assert len(list(out.glob("runs/*/model/checkpoint-00000010"))) == 1
    first = {file: file.stat().st_mtime_ns for file in out.glob("runs/*/result.json")}
    assert len(first) == 1
    done = forked("bench", "run", "--out", out)
    assert done.code == 0, done.err
    assert "2 of 2 runs done" in done.out and all(file.stat().st_mtime_ns == when for file, when in first.items())
    assert len(list(out.glob("runs/*/result.json"))) == 2 and not list(out.glob("runs/*/model"))
    second = next(file for file in out.glob("runs/*/result.json") if file not in first)
    steps = [json.loads(line)["step"] for line in second.with_name("metrics.jsonl").read_text().splitlines()]
    assert steps[:2] == [5, 15] and steps == sorted(set(steps))  # no epoch is logged twice


@pytest.mark.parametrize(("arguments", "message"), [
    (("paper",), "give either --table or --figure"),
    (("paper", "--table", 9), "the paper has no Table 9"),
    (("paper", "--table", 1, "--dry-run"), "Table 1 describes the corpora"),
    (("paper", "--table", 2, "--seeds", "x"), "--seeds x is invalid"),
    (("paper", "--table", 2, "--plan", "slow", "--dry-run"), "unknown plan 'slow'"),
    (("paper", "--table", 2, "--out", "q"), "--data FOLDER"),
    (("quick", "--budget", "soon", "--out", "q"), "--budget soon is invalid; write 2h"),
    (("run",), "give the folder of a queue with --out"),
    (("run", "--out", "nowhere"), "nowhere is not a queue of runs"),
    (("run", "nowhere.json", "--out", "q"), "there is no file nowhere.json"),
    (("run", "grid.json", "--sets", "sample", "--out", "q"), "not both"),
    (("run", "--sets", "sample", "--methods", "ce", "--out", "q"), "a grid needs labelled"),
    (("run", "--sets", "sample", "--methods", "ce", "--labelled", "5"), "name a folder for the queue with --out"),
    (("run", "--sets", "sample", "--methods", "ce", "--labelled", "500/class", "--out", "q"), "not 500; ask for fewer"),
    (("status", "nowhere"), "nowhere is not a queue of runs"),
    (("report", "nowhere"), "nowhere is not a queue of runs"),
])
def test_user_errors_are_one_sentence(cli: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                arguments: tuple[object, ...], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("bench", *arguments)
    assert done.code == 2 and done.lines == 1 and message in done.err and done.out == "", done.err
    assert list(tmp_path.iterdir()) == []


def test_a_config_file_has_sections_for_the_commands_of_the_group(cli: Ran, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "halflabel.toml"
    file.write_text('[bench.paper]\nseeds = "7"\n[train]\nseed = 1\n', encoding="utf-8")
    assert json.loads(cli("bench", "paper", "--table", 8, "--dry-run", "--json").out)[0]["seed"] == 7
    file.write_text("[bench.paper]\nsize = 1\n", encoding="utf-8")
    done = cli("bench", "paper", "--table", 8, "--dry-run")
    assert done.code == 2 and "[bench.paper] has no option 'size'" in done.err
