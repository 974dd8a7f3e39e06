"""The commands from end to end, with a tiny encoder."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from cli_runner import FAST, Ran, runner, write_csv, write_jsonl
from conftest import tiny_texts
from halflabel import __version__
from halflabel.classifier import TextClassifier


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a labelled, an unlabelled and a test file."""
    texts, labels = tiny_texts(6)
    write_csv(tmp_path / "labelled.csv", texts, labels)
    write_csv(tmp_path / "pool.csv", tiny_texts(10, seed=1)[0])
    write_csv(tmp_path / "test.csv", *tiny_texts(8, seed=2))
    return tmp_path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Path:
    """A model that is trained once, for the tests that only use it."""
    folder = tmp_path_factory.mktemp("model") / "model"
    texts, labels = tiny_texts(8)
    settings = {"epochs": 1, "epoch_steps": 5, "warmup": 300}
    TextClassifier("ce", tiny_encoder, "frozen", settings=settings).fit(texts, labels, folder=folder)
    return folder


class TestTrain:
    def test_two_files(self, files: Path, tiny_encoder: str, cli: Ran) -> None:
        out = files / "new" / "run"
        done = cli("train", files / "labelled.csv", "--unlabelled", files / "pool.csv", "--out", out, "--encoder",
                   tiny_encoder, "--dev", files / "test.csv", "--method", "bdd-f", *FAST)
        assert done.code == 0
        assert f"halflabel predict {out} FILE" in done.out and "dev" in done.out
        assert "epoch 1" in done.err and "loss" in done.err
        done = cli("evaluate", out, files / "test.csv", "--json")
        figures = json.loads(done.out)
        assert figures["n"] == 24 and {"micro_f1", "macro_f1", "accuracy", "per_label"} <= figures.keys()
        done = cli("predict", out, files / "test.csv")
        assert len(done.out.splitlines()) == 24
        assert json.loads(done.out.splitlines()[0]).keys() == {"text", "label", "score"}

    def test_one_file_with_missing_labels(self, tmp_path: Path, tiny_encoder: str, cli: Ran) -> None:
        texts, labels = tiny_texts(6)
        pool = tiny_texts(5, seed=1)[0]
        rows = [{"text": t, "label": y} for t, y in zip(texts, labels, strict=True)]
        rows += [{"text": t, "label": None} for t in pool[:8]] + [{"text": t} for t in pool[8:]]
        write_jsonl(tmp_path / "all.jsonl", rows)
        done = cli("train", tmp_path / "all.jsonl", "--out", tmp_path / "run", "--encoder", tiny_encoder, "--json",
                   *FAST)
        said = json.loads(done.out)
        assert (said["n_labelled"], said["n_unlabelled"], said["dev"]) == (18, 15, None)
        assert said["classes"] == ["food", "money", "sport"] and "drop" not in " ".join(said["notices"])
        assert {"out", "method", "plan", "encoder", "seed", "seconds", "why"} <= said.keys()
        assert cli("predict", tmp_path / "run", tmp_path / "all.jsonl").code == 0

    def test_nan_labels_are_unlabelled(self, tmp_path: Path, tiny_encoder: str, cli: Ran) -> None:
        texts, labels = tiny_texts(4)
        write_csv(tmp_path / "all.csv", [*texts, "goal for the team"], [*labels, "nan"])
        done = cli("train", tmp_path / "all.csv", "--out", tmp_path / "run", "--encoder", tiny_encoder, "--json", *FAST)
        assert json.loads(done.out)["n_unlabelled"] == 1

    def test_a_very_long_text(self, tmp_path: Path, tiny_encoder: str, cli: Ran) -> None:
        texts, labels = tiny_texts(4)
        write_csv(tmp_path / "all.csv", [*texts, "goal " * 100_000], [*labels, "sport"])
        done = cli("train", tmp_path / "all.csv", "--out", tmp_path / "run", "--encoder", tiny_encoder, *FAST)
        assert done.code == 0

    def test_labels_of_the_pool_are_not_used(self, files: Path, tiny_encoder: str, cli: Ran) -> None:
        write_csv(files / "pool.csv", *tiny_texts(10, seed=1))
        arguments = ("train", files / "labelled.csv", "--unlabeled", files / "pool.csv", "--encoder", tiny_encoder,
                     "--method", "bdd-f", "--json", *FAST)
        plain = cli(*arguments, "--out", files / "plain")
        assert "the labels in" in plain.err and "--truth" in plain.err
        assert "pseudo_accuracy" not in (files / "plain" / "metrics.jsonl").read_text()
        measured = cli(*arguments, "--out", files / "measured", "--truth")
        assert measured.code == 0 and "labels in" not in measured.err
        assert "pseudo_accuracy" in (files / "measured" / "metrics.jsonl").read_text()
        weights = [(files / name / "model.safetensors").read_bytes() for name in ("plain", "measured")]
        assert weights[0] == weights[1]

    def test_unreadable_labels_of_the_pool_do_not_matter(self, files: Path, tiny_encoder: str, cli: Ran) -> None:
        rows = [{"text": text, "label": 0.5} for text in tiny_texts(5, seed=1)[0]]
        write_jsonl(files / "pool.jsonl", rows)
        done = cli("train", files / "labelled.csv", "--unlabelled", files / "pool.jsonl", "--out", files / "run",
                   "--encoder", tiny_encoder, *FAST)
        assert done.code == 0

    def test_notices(self, files: Path, tiny_encoder: str, cli: Ran) -> None:
        texts, labels = tiny_texts(6)
        write_csv(files / "labelled.csv", [*texts, texts[0], "  "], [*labels, labels[0], "food"])
        write_csv(files / "pool.csv", [*tiny_texts(5, seed=1)[0], texts[1]])
        write_csv(files / "dev.csv", [texts[2], "bread", "soup"], [labels[2], "food", ""])
        done = cli("train", files / "labelled.csv", "--unlabelled", files / "pool.csv", "--dev", files / "dev.csv",
                   "--out", files / "run", "--encoder", tiny_encoder, "--json", *FAST)
        said = " / ".join(json.loads(done.out)["notices"])
        for words in ("1 empty text", "1 duplicate text", "1 unlabelled text in", "1 text of", "1 row in"):
            assert words in said and words in done.err

    def test_views_from_a_file(self, files: Path, tiny_encoder: str, cli: Ran) -> None:
        pool = tiny_texts(10, seed=1)[0]
        write_jsonl(files / "views.jsonl", [{"text": text, "aug_0": text.upper()} for text in pool[:-1]])
        done = cli("train", files / "labelled.csv", "--unlabelled", files / "pool.csv", "--views",
                   files / "views.jsonl", "--method", "bdd-f", "--out", files / "run", "--encoder", tiny_encoder, *FAST)
        assert done.code == 0 and "1 unlabelled text has no views" in done.err

    def test_back_translation_of_the_pool(self, files: Path, tiny_encoder: str, cli: Ran,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
        asked = {}

        def translate(texts: list[str], **settings: object) -> list[str]:
            asked.update(settings, texts=texts)
            return [text.upper() for text in texts]

        monkeypatch.setattr("halflabel.data.augmentation.back_translate", translate)
        done = cli("train", files / "labelled.csv", "--unlabelled", files / "pool.csv", "--back-translate", "--there",
                   "a-model", "--method", "bdd-f", "--out", files / "run", "--encoder", tiny_encoder, *FAST)
        assert done.code == 0 and asked["there"] == "a-model" and "back" not in asked and len(asked["texts"]) == 30

    def test_force_replaces_a_run_and_nothing_else(self, files: Path, tiny_encoder: str, cli: Ran) -> None:
        arguments = ("train", files / "labelled.csv", "--encoder", tiny_encoder, *FAST)
        out = files / "run"
        assert cli(*arguments, "--out", out).code == 0
        before = (out / "config.json").read_text()
        failed = cli(*arguments, "--out", out, "--force", "--method", "bdd-f", "--set", "m=99")
        assert failed.code == 2 and (out / "config.json").read_text() == before
        assert cli(*arguments, "--out", out, "--force", "--seed", "7").code == 0
        assert json.loads((out / "config.json").read_text())["seed"] == 7
        other = files / "other"
        other.mkdir()
        (other / "thesis.txt").write_text("years of work")
        refused = cli(*arguments, "--out", other, "--force")
        assert refused.code == 2 and (other / "thesis.txt").exists()
        assert not [entry for entry in files.iterdir() if entry.name.startswith(".")]

    def test_a_finished_run_is_not_trained_again(self, files: Path, tiny_encoder: str, cli: Ran) -> None:
        arguments = ("train", files / "labelled.csv", "--encoder", tiny_encoder, "--out", files / "run", *FAST)
        first = cli(*arguments, "--json")
        weights = (files / "run" / "model.safetensors").stat().st_mtime_ns
        again = cli(*arguments, "--json", "--resume")
        assert again.code == 0 and "is finished" in again.err and json.loads(again.out) == json.loads(first.out)
        assert (files / "run" / "model.safetensors").stat().st_mtime_ns == weights
        changed = cli(*arguments, "--resume", "--seed", "5")
        assert changed.code == 2 and "other texts or settings" in changed.err


class TestPredict:
    def test_standard_input_is_plain_lines(self, model: Path, cli: Ran) -> None:
        done = cli("predict", model, stdin="a text, goal match\n\nbread soup\n")
        rows = [json.loads(line) for line in done.out.splitlines()]
        assert [row["text"] for row in rows] == ["a text, goal match", "", "bread soup"]
        assert rows[2]["label"] in ("food", "money", "sport") and 1 / 3 < rows[2]["score"] <= 1
        assert "1 of 3 texts were empty" in done.err

    def test_standard_input_is_json(self, model: Path, cli: Ran) -> None:
        done = cli("predict", model, "-", "--all", stdin='{"text": "bread"}\n{"text": "goal é"}\n')
        rows = [json.loads(line) for line in done.out.splitlines()]
        assert rows[1]["text"] == "goal é"
        assert all(abs(sum(row["probabilities"].values()) - 1) < 1e-5 for row in rows)

    @pytest.mark.parametrize("table", ["id,text\n1,bread soup\n2,\"goal,\n\"\"win\"\"\"\n",
                                       "Review\tlabel\nbread soup\tx\n\"goal,\n\"\"win\"\"\"\ty\n"])
    def test_standard_input_is_a_table_if_its_first_line_is_a_header(self, model: Path, cli: Ran, table: str) -> None:
        done = cli("predict", model, stdin=table)
        assert [json.loads(line)["text"] for line in done.out.splitlines()] == ["bread soup", 'goal,\n"win"']
        assert "standard input is read as csv: its first line is a header with a column" in done.err

    def test_standard_input_is_a_table_when_a_column_is_named(self, model: Path, cli: Ran) -> None:
        done = cli("predict", model, "--text-column", "b", stdin="a,b\n1,bread soup\n")
        assert json.loads(done.out)["text"] == "bread soup"

    @pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
    def test_files_by_their_ending(self, model: Path, tmp_path: Path, cli: Ran, suffix: str,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("halflabel.cli.predict.CHUNK", 5)
        texts, labels = tiny_texts(4)
        write_csv(tmp_path / "in.csv", [*texts, 'a "quoted",\ntext'], [*labels, "unheard of"])
        out = tmp_path / f"out.{suffix}"
        assert cli("predict", model, tmp_path / "in.csv", "--out", out, "--all").code == 0
        rows = {"parquet": lambda: pq.read_table(out).to_pylist(),
                "jsonl": lambda: [json.loads(line) for line in out.read_text().splitlines()],
                "csv": lambda: list(csv.DictReader(io.StringIO(out.read_text()))),
                "tsv": lambda: list(csv.DictReader(io.StringIO(out.read_text()), delimiter="\t"))}[suffix]()
        assert [row["text"] for row in rows] == [*texts, 'a "quoted",\ntext']
        assert ("probabilities" in rows[0]) == (suffix == "jsonl") != ("p_food" in rows[0])
        assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".")]

    @pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "parquet", "arrow"])
    @pytest.mark.parametrize("target", ["csv", "jsonl", "parquet"])
    def test_other_columns_are_kept(self, model: Path, tmp_path: Path, cli: Ran, kind: str, target: str) -> None:
        notes = ["a,b", None, "", 'quoted "x"', "e", "f"]
        given = [{"id": i, "label": "unknown", "body": text, "score": None, "note": note}
                 for i, (text, note) in enumerate(zip(tiny_texts(2)[0], notes, strict=True))]
        file, out = tmp_path / f"in.{kind}", tmp_path / f"out.{target}"
        table = pa.Table.from_pylist(given)
        {"csv": lambda: table.to_pandas().to_csv(file, index=False),
         "jsonl": lambda: write_jsonl(file, [{k: v for k, v in row.items() if v is not None} for row in given]),
         "json": lambda: file.write_text(json.dumps(given)), "parquet": lambda: pq.write_table(table, file),
         "arrow": lambda: feather.write_feather(table, file)}[kind]()
        done = cli("predict", model, file, "--out", out)
        assert done.code == 0, done.err
        rows = {"parquet": lambda: pq.read_table(out).to_pylist(),
                "jsonl": lambda: [json.loads(line) for line in out.read_text().splitlines()],
                "csv": lambda: list(csv.DictReader(io.StringIO(out.read_text())))}[target]()
        assert [list(row) for row in rows] == [["text", "label", "score", "id", "note"]] * 6
        assert [row["text"] for row in rows] == [row["body"] for row in given]
        assert [int(row["id"]) for row in rows] == list(range(6)) and rows[3]["note"] == 'quoted "x"'
        assert all(row["label"] in ("food", "money", "sport") for row in rows)
        if kind != "csv" and target != "csv":
            assert [row["id"] for row in rows] == list(range(6)) and rows[1]["note"] is None

    def test_columns_that_do_not_fit_into_parquet_are_refused(self, model: Path, tmp_path: Path, cli: Ran) -> None:
        write_jsonl(tmp_path / "in.jsonl", [{"text": "bread", "id": 1}, {"text": "goal", "id": {"x": "y"}}])
        done = cli("predict", model, tmp_path / "in.jsonl", "--out", tmp_path / "out.parquet")
        assert done.code == 2 and done.lines == 1 and "several types" in done.err
        assert not (tmp_path / "out.parquet").exists()
        assert cli("predict", model, tmp_path / "in.jsonl", "--out", tmp_path / "out.jsonl").code == 0

    def test_nothing_is_overwritten_without_force(self, model: Path, tmp_path: Path, cli: Ran) -> None:
        out = tmp_path / "out.csv"
        out.write_text("precious")
        assert cli("predict", model, "--out", out, stdin="bread\n").code == 2
        assert out.read_text() == "precious"
        assert cli("predict", model, "--out", out, "--force", stdin="bread\n").code == 0
        assert out.read_text().startswith("text,label,score\nbread,")

    @pytest.mark.parametrize(("arguments", "words"), [
        (["--out", "x.xyz"], "not a known format"), (["--format", "xml"], "is not known"),
        (["--format", "parquet"], "--out"), (["--out", "no/such/folder/x.csv"], "no folder")])
    def test_outputs_that_cannot_be(self, model: Path, cli: Ran, arguments: list[str], words: str) -> None:
        done = cli("predict", model, *arguments, stdin="bread\n")
        assert done.code == 2 and words in done.err and done.lines == 1 and not done.out

    @pytest.mark.parametrize(("stdin", "words"), [
        (b"", "is empty"), (b"\n \n", "is empty"), (b"bread\n\xe9t\xe9\n", "line 2: byte 7 (0xe9) is not UTF-8")])
    def test_bad_standard_input(self, model: Path, tmp_path: Path, cli: Ran, stdin: bytes, words: str) -> None:
        done = cli("predict", model, "--out", tmp_path / "x.csv", stdin=stdin)
        assert done.code == 2 and words in done.err and not list(tmp_path.glob("*x.csv*"))


class TestEvaluate:
    def test_the_table(self, model: Path, tmp_path: Path, cli: Ran) -> None:
        texts, labels = tiny_texts(4, seed=3)
        write_csv(tmp_path / "t.csv", [*texts, "bread"], [*labels, ""])
        done = cli("evaluate", model, tmp_path / "t.csv")
        assert done.code == 0 and "macro F1" in done.out and "sport" in done.out and "1 row in" in done.err

    def test_labels_that_training_never_saw_are_missed_and_named(self, model: Path, tmp_path: Path, cli: Ran) -> None:
        texts, labels = tiny_texts(4, seed=3)
        write_csv(tmp_path / "known.csv", texts, labels)
        write_csv(tmp_path / "t.csv", [*texts, "rook takes", "king moves"], [*labels, "chess", "chess"])
        known, both = (json.loads(cli("evaluate", model, tmp_path / name, "--json").out) for name in
                       ("known.csv", "t.csv"))
        assert known["unseen"] == [] and both["unseen"] == ["chess"] and both["n"] == 14
        assert both["accuracy"] == pytest.approx(known["accuracy"] * 12 / 14)
        assert both["per_label"]["chess"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "n": 2}
        f1 = [row["f1"] for row in both["per_label"].values()]
        assert len(f1) == 4 and both["macro_f1"] == pytest.approx(sum(f1) / 4)
        done = cli("evaluate", model, tmp_path / "t.csv")
        assert done.code == 0 and "1 of the labels in" in done.err and "not seen in training" in done.err
        assert "chess" in done.err and "chess" in done.out

    def test_labels_of_which_none_is_known(self, model: Path, tmp_path: Path, cli: Ran) -> None:
        write_csv(tmp_path / "t.csv", ["bread", "goal"], ["Food", "Sport"])
        done = cli("evaluate", model, tmp_path / "t.csv")
        assert done.code == 2 and "t.csv, text 1" in done.err and "'Food'" in done.err and done.lines == 1

    def test_no_labels(self, model: Path, tmp_path: Path, cli: Ran) -> None:
        write_csv(tmp_path / "t.csv", ["bread"])
        assert "--label-column" in cli("evaluate", model, tmp_path / "t.csv").err


class TestAbout:
    def test_methods(self, cli: Ran) -> None:
        found = {entry["name"]: entry for entry in json.loads(cli("methods", "--json").out)}
        assert found["bdd-f"]["settings"]["m"] == 0.3
        assert {name for name, entry in found.items() if entry["default"]} == {"lift", "lift-ml"}
        done = cli("methods")
        assert "bdd-f" in done.out and "S2TC-BDD-F" in done.out and "m=0.3" in done.out and "the default" in done.out

    def test_info(self, model: Path, cli: Ran) -> None:
        assert json.loads(cli("info", "--json").out)["halflabel"] == __version__
        assert "minilm" in cli("info").out
        known = json.loads(cli("info", model, "--json").out)
        assert known["method"] == "ce" and known["classes"] == ["food", "money", "sport"] and known["finished"]
        described = cli("info", model).out
        assert "last metrics" in described and "unknown" not in described and "\ndev " not in described
        assert cli("info", model.parent).code == 2

    def test_version_and_bare_command(self, cli: Ran) -> None:
        assert cli("--version").out == f"halflabel {__version__}\n"
        bare = cli()
        assert bare.code == 0 and "Usage: halflabel" in bare.out

    def test_help_imports_nothing_heavy(self) -> None:
        code = ("import sys\nfrom halflabel.cli import main\nsys.argv = ['halflabel', 'train', '--help']\n"
                "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
                "print([m for m in ('torch', 'transformers', 'sklearn', 'pyarrow', 'numpy') if m in sys.modules])")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"

    def test_help_tells_the_default_plan(self, cli: Ran) -> None:
        assert f"({TextClassifier().plan})" in cli("train", "--help").out


def test_demo(tmp_path: Path, tiny_encoder: str, cli: Ran) -> None:
    out = tmp_path / "demo"
    arguments = ("demo", "--out", out, "--plan", "frozen", "--encoder", tiny_encoder)
    done = cli(*arguments)
    assert done.code == 0
    assert "labels only" in done.out and "labels + unlabelled" in done.out and done.out.count("->") == 3
    results = json.loads((out / "demo.json").read_text())
    assert [row["method"] for row in results] == ["lift", "lift"] and results[0]["labelled"] == results[1]["labelled"]
    assert results[0]["unlabelled"] == 0 < results[1]["unlabelled"]
    assert cli("evaluate", out / "model", out / "test.csv").code == 0
    tags = ("--label-column", "tags", "--encoder", tiny_encoder, "--json", *FAST)
    done = cli("train", out / "labelled.csv", "--unlabelled", out / "unlabelled.csv", "--out", tmp_path / "tags", *tags)
    assert done.code == 0 and json.loads(done.out)["method"] == "lift-ml" and len(json.loads(done.out)["classes"]) == 12
    (out / "demo.json").unlink()
    refused = cli(*arguments)
    assert refused.code == 2 and "earlier demo" in refused.err and (out / "model").is_dir()
