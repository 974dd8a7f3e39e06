"""Commands on data: check, split, augment, export-to, cache, and predict on streams."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cli_runner import FAST, Ran, runner, write_csv, write_jsonl
from conftest import tiny_texts
from halflabel.cache_limit import in_use
from halflabel.classifier import TextClassifier
from halflabel.cli.predict import chunks, rows_of
from halflabel.data.cleaning import check_language
from halflabel.data.pool import open_pool
from halflabel.data.readers.files import File
from halflabel.data.readers.read import read


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Path:
    """A model, trained once for all tests that only predict."""
    folder = tmp_path_factory.mktemp("shared") / "model"
    settings = {"epochs": 1, "epoch_steps": 5, "warmup": 300}
    TextClassifier("ce", tiny_encoder, "frozen", settings=settings).fit(*tiny_texts(8), folder=folder)
    return folder


class TestCheck:
    def test_good_data(self, tmp_path: Path, tiny_encoder: str, cli: Ran) -> None:
        write_csv(tmp_path / "a.csv", *tiny_texts(4))
        write_csv(tmp_path / "pool.csv", tiny_texts(6, seed=1)[0])
        arguments = ("check", tmp_path / "a.csv", "--unlabelled", tmp_path / "pool.csv", "--encoder", tiny_encoder)
        done = cli(*arguments, "--strict", "--json")
        result = json.loads(done.out)
        counts = [result[name] for name in ("labelled", "unlabelled", "errors", "warnings")]
        assert done.code == 0 and counts == [12, 18, 0, 0]
        assert result["labels"] == {"food": 4, "money": 4, "sport": 4}
        assert result["estimate"]["minutes"] >= 0 and result["estimate"]["gigabytes"] > 0.5
        assert "training with the plan laptop takes" in cli(*arguments).out

    def test_every_problem_is_reported(self, tmp_path: Path, tiny_encoder: str, cli: Ran) -> None:
        texts, labels = tiny_texts(4)
        rows = [*zip(texts, labels, strict=True), (texts[0], labels[0]), (texts[1], "chess"), (" ", "food"),
                ("\u00c3\u00a9clair bread", "food"), ("bread \ufffd", "food"), ("x\x01y", "food"), ("goal", "Sport "),
                ("goal " * 100, "sport")]
        write_jsonl(tmp_path / "a.jsonl", [{"text": t, "label": y, "body": "one two three " * 60} for t, y in rows])
        write_csv(tmp_path / "pool.csv", [*tiny_texts(3, seed=1)[0], texts[3], texts[3], ""])
        write_csv(tmp_path / "dev.csv", [texts[2]], [labels[2]])
        arguments = ("check", tmp_path / "a.jsonl", "--unlabelled", tmp_path / "pool.csv", "--dev",
                     tmp_path / "dev.csv", "--encoder", tiny_encoder)
        done = cli(*arguments, "--json")
        result = " / ".join(finding["what"] for finding in json.loads(done.out)["findings"])
        for words in ("1 empty text in", "duplicate text", "the same text has different labels", "look like one label",
                      "single text", "U+FFFD", "Latin-1", "control characters", "'body'", "the same text is labelled",
                      "dev and the labelled", "exceed the limit"):
            assert words in result, words
        assert done.code == 0 and cli(*arguments, "--strict", "--no-tokens").code == 1
        assert all(finding["action"] for finding in json.loads(done.out)["findings"])

    @pytest.mark.parametrize(("content", "words"), [
        ("text,label\na,x\nb,x\n", "1 different labels"), ("text\na\n", "0 different labels"), ("", "is empty"),
        ("text,label\na,-1\nb,x\n", "'-1'")])
    def test_errors(self, tmp_path: Path, cli: Ran, content: str, words: str) -> None:
        (tmp_path / "a.csv").write_text(content)
        done = cli("check", tmp_path / "a.csv", "--no-tokens", "--json")
        assert done.code == 2 and any(words in finding["what"] for finding in json.loads(done.out)["findings"])
        assert cli("check", tmp_path / "a.csv", "--no-tokens").code == 2

    def test_unknown_labels_in_dev(self, tmp_path: Path, cli: Ran) -> None:
        write_csv(tmp_path / "a.csv", *tiny_texts(2))
        write_csv(tmp_path / "dev.csv", ["rook"], ["chess"])
        done = cli("check", tmp_path / "a.csv", "--dev", tmp_path / "dev.csv", "--no-tokens")
        assert done.code == 2 and "'chess' is unknown" in done.out


class TestSplit:
    def test_parts_and_fingerprint(self, tmp_path: Path, cli: Ran) -> None:
        write_csv(tmp_path / "all.csv", *tiny_texts(30))
        result = [json.loads(cli("split", tmp_path / "all.csv", "--labelled", "5/class", "--dev", "9", "--test", "0.2",
                               "--seed", "3", "--out", tmp_path / name, "--json", "--format", "csv").out)
                for name in ("one", "two")]
        assert result[0]["fingerprint"] == result[1]["fingerprint"] and result[0]["test"] == 18
        parts = {name: read(tmp_path / "one" / f"{name}.csv") for name in ("labelled", "unlabelled", "dev", "test")}
        assert [len(part) for part in parts.values()] == [15, 48, 9, 18]
        assert sorted(text for part in parts.values() for text in part.texts) == sorted(tiny_texts(30)[0])
        assert set(parts["unlabelled"].labels) == {None}
        assert json.loads((tmp_path / "one" / "split.json").read_text())["seed"] == 3

    @pytest.mark.parametrize(("arguments", "words"), [
        (["--labelled", "many"], "not understood"), (["--labelled", "5/class", "--dev", "x"], "--dev x"),
        (["--labelled", "99/class"], "left for labelled"), (["--labelled", "5", "--format", "xml"], "not known"),
        (["--labelled", "5/class", "--test", "1.5"], "not a fraction")])
    def test_mistakes_leave_no_files(self, tmp_path: Path, cli: Ran, arguments: list[str], words: str) -> None:
        write_csv(tmp_path / "all.csv", *tiny_texts(8))
        done = cli("split", tmp_path / "all.csv", *arguments, "--out", tmp_path / "deep" / "parts")
        assert done.code == 2 and words in done.err and done.lines == 1 and not (tmp_path / "deep").exists()

    def test_a_folder_that_is_not_empty_is_refused(self, tmp_path: Path, cli: Ran) -> None:
        write_csv(tmp_path / "all.csv", *tiny_texts(8))
        assert "exists already" in cli("split", tmp_path / "all.csv", "--labelled", "1/class", "--out", tmp_path).err


class TestHeldOutTexts:
    """Training on a test set, and evaluating on training texts, are noticed."""

    @pytest.fixture
    def parts(self, tmp_path: Path, cli: Ran) -> Path:
        write_csv(tmp_path / "all.csv", *tiny_texts(12))
        cli("split", tmp_path / "all.csv", "--labelled", "3/class", "--dev", "6", "--test", "6", "--out",
            tmp_path / "parts")
        return tmp_path / "parts"

    def test_a_glob_that_matches_the_test_set(self, parts: Path, tmp_path: Path, tiny_encoder: str, cli: Ran) -> None:
        arguments = ("--method", "ce", "--encoder", tiny_encoder, "--json", *FAST)
        glob = json.loads(cli("train", parts / "*.jsonl", "--out", tmp_path / "a", *arguments).out)
        for name in ("dev", "test"):
            assert any(f"{name}.jsonl is the {name} set of a split" in notice for notice in glob["notices"])
        named = json.loads(cli("train", parts / "labelled.jsonl", "--unlabelled", parts / "unlabelled.jsonl", "--dev",
                               parts / "dev.jsonl", "--out", tmp_path / "b", *arguments).out)
        assert not any("of a split" in notice for notice in named["notices"])

        def evaluation_notices(model: str) -> list[str]:
            return json.loads(cli("evaluate", tmp_path / model, parts / "test.jsonl", "--json").out)["notices"]

        assert evaluation_notices("b") == []
        assert [notice.partition(" in ")[0] for notice in evaluation_notices("a")] == ["6 of the 6 texts"]
        assert "labelled training texts" in evaluation_notices("a")[0]

    def test_pool_texts_and_a_damaged_file_of_hashes(self, tmp_path: Path, tiny_encoder: str, cli: Ran) -> None:
        texts, labels = tiny_texts(6)
        write_csv(tmp_path / "a.csv", texts[:9], labels[:9])
        write_csv(tmp_path / "test.csv", texts, labels)
        assert cli("train", tmp_path / "a.csv", "--unlabelled", tmp_path / "test.csv", "--method", "ce", "--encoder",
                   tiny_encoder, "--out", tmp_path / "run", *FAST).code == 0
        notices = json.loads(cli("evaluate", tmp_path / "run", tmp_path / "test.csv", "--json").out)["notices"]
        assert ["9 of the 18 texts" in notice for notice in notices] == [True, True]
        assert "were labelled" in notices[0] and "were unlabelled" in notices[1]
        (tmp_path / "run" / "texts.safetensors").write_bytes(b"x")
        done = cli("evaluate", tmp_path / "run", tmp_path / "test.csv")
        assert done.code == 2 and "texts.safetensors is damaged" in done.err and done.lines == 1


class TestAugment:
    @pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
    def test_views_for_training(self, tmp_path: Path, tiny_encoder: str, cli: Ran, suffix: str) -> None:
        write_csv(tmp_path / "pool.csv", *tiny_texts(8, seed=1))
        out = tmp_path / f"views.{suffix}"
        assert "views differ" in cli("augment", tmp_path / "pool.csv", "--views", "2", "--out", out).out
        corpus = read(out)
        assert len(corpus.views[0]) == 2 and any(view != text for text, (view, _) in
                                                 zip(corpus.texts, corpus.views, strict=True))
        write_csv(tmp_path / "a.csv", *tiny_texts(4))
        done = cli("train", tmp_path / "a.csv", "--unlabelled", out, "--method", "bdd-f", "--encoder", tiny_encoder,
                   "--out", tmp_path / "run", *FAST)
        assert done.code == 0, done.err

    def test_negations_numbers_and_labels_stay(self, tmp_path: Path, cli: Ran) -> None:
        texts = [f"not the {i} sport is never it was for a goal of the team" for i in range(20)]
        write_csv(tmp_path / "a.csv", texts, ["sport", "food"] * 10)
        cli("augment", tmp_path / "a.csv", "--share", "1", "--keep", "goal", "--out", tmp_path / "v.csv")
        for i, (view,) in enumerate(read(tmp_path / "v.csv").views):
            assert {"not", "never", str(i), "sport", "goal"} <= set(view.split()), view

    def test_back_translation(self, tmp_path: Path, cli: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("halflabel.data.augmentation.back_translate",
                            lambda texts, **more: [text.upper() for text in texts])
        write_csv(tmp_path / "a.csv", ["bread", "goal"])
        cli("augment", tmp_path / "a.csv", "--how", "backtranslate", "--out", tmp_path / "v.csv")
        assert read(tmp_path / "v.csv").views == [("BREAD",), ("GOAL",)]
        assert cli("augment", tmp_path / "a.csv", "--how", "magic", "--out", tmp_path / "w.csv").code == 2


class TestPredictStreams:
    def test_shards_are_never_lost(self, model: Path, tmp_path: Path, cli: Ran,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
        from halflabel.scoring import shards

        monkeypatch.setattr(shards, "CHUNK", 4)
        texts = tiny_texts(10, seed=4)[0]
        write_csv(tmp_path / "in.csv", texts)
        arguments = ("predict", model, tmp_path / "in.csv", "--out", tmp_path / "out", "--shard", 8, "--format", "csv")
        asked: list[int] = []
        honest = shards.predicted_rows

        def failing(fitted: Any, chunk: list[Any], rule: Any, **options: Any) -> list[dict[str, Any]]:
            asked.append(len(chunk))
            if sum(asked) > 20:
                raise KeyboardInterrupt
            return honest(fitted, chunk, rule, **options)

        monkeypatch.setattr(shards, "predicted_rows", failing)
        stopped = cli(*arguments)
        assert stopped.code == 130 and "--resume" in stopped.err
        done = sorted(path.name for path in (tmp_path / "out").glob("part-*"))
        assert done == ["part-00000-000000000000.csv", "part-00000-000000000008.csv"]
        monkeypatch.setattr(shards, "predicted_rows", honest)
        assert cli(*arguments).code == 2
        assert "30 predictions in 4 shards" in (out := cli(*arguments, "--resume").out) and "16 of them before" in out
        assert list(read(str(tmp_path / "out" / "part-*.csv")).texts) == texts
        assert "format = csv, not jsonl" in cli(*arguments[:-1], "jsonl", "--resume").err

    def test_the_format_of_the_input(self, model: Path, tmp_path: Path, cli: Ran) -> None:
        write_csv(tmp_path / "in.csv", ["bread", "goal"])
        assert cli("predict", model, tmp_path / "in.csv", "--format", "same").out.startswith("text,label,score\n")
        (tmp_path / "in.txt").write_text("bread\n")
        assert json.loads(cli("predict", model, tmp_path / "in.txt", "--format", "same").out)["text"] == "bread"

    @pytest.mark.parametrize(("arguments", "words"), [
        (["--resume"], "--out"), (["--shard", "5"], "--out"), (["--shard", "5", "--out", "in.txt"], "is a file"),
        (["--engine", "local"], "--out"), (["--engine", "slurm", "--out", "o"], "local, ray"),
        (["--workers", "2", "--out", "o"], "--engine ray")])
    def test_mistakes(self, model: Path, tmp_path: Path, cli: Ran, monkeypatch: pytest.MonkeyPatch,
                      arguments: list[str], words: str) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "in.txt").write_text("bread\n")
        done = cli("predict", model, "in.txt", *arguments)
        assert done.code == 2 and words in done.err and done.lines == 1

    def test_output_appears_while_input_arrives_and_a_closed_pipe_is_no_error(self, model: Path) -> None:
        process = subprocess.Popen([sys.executable, "-m", "halflabel", "predict", str(model)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write("bread\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["text"] == "bread"
        process.stdout.close()
        process.stdin.write("goal\n" * 100)
        process.stdin.close()
        result = process.stderr.read()
        assert process.wait(timeout=60) == 0 and result == ""
        process.stderr.close()


def test_lines_are_passed_on_when_no_more_arrive_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    monkeypatch.setattr("halflabel.cli.predict.PATIENCE", 0.05)
    monkeypatch.setattr("halflabel.cli.predict.CHUNK", 4)
    with open(ours) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        os.write(theirs, b"\xef\xbb\xbfone\r\ntw")
        received = ([row["text"] for row in chunk] for chunk in chunks(rows_of(File("-"), None)))
        assert next(received) == ["one"]
        for written, expected in ((b"o\n\nthree\nf", ["two", "", "three"]), (b"\n" * 5, ["f", "", "", ""])):
            os.write(theirs, written)
            assert next(received) == expected
        os.write(theirs, b"the end")
        os.close(theirs)
        assert list(received) == [["", "the end"]]


def test_cache_is_counted_and_cleared(tmp_path: Path, tiny_encoder: str, cli: Ran) -> None:
    write_csv(tmp_path / "a.csv", *tiny_texts(4))
    write_csv(tmp_path / "pool.csv", tiny_texts(8, seed=1)[0])
    arguments = ("train", tmp_path / "a.csv", "--unlabelled", tmp_path / "pool.csv", "--encoder", tiny_encoder,
                 "--method", "bdd-s")
    assert cli(*arguments, "--out", tmp_path / "one", *FAST).code == 0
    laptop = ("--set", "epochs=1", "--set", "epoch_steps=2", "--set", "warmup=2")
    assert cli(*arguments, "--out", tmp_path / "two", *laptop).code == 0
    received = json.loads(cli("cache", "--json").out)
    assert all(received[name]["files"] for name in ("pools", "tokens", "vectors"))
    with in_use(next((tmp_path / "cache" / "pools").iterdir())):
        kept = cli("cache", "--clear").out
    assert "MB removed" in kept and "in use by running processes, which stay: 1" in kept
    assert json.loads(cli("cache", "--json").out)["pools"]["files"]
    assert "which stay" not in cli("cache", "--clear").out
    received = json.loads(cli("cache", "--json").out)
    assert not any(received[name]["files"] for name in ("pools", "tokens", "vectors", "translations"))


@pytest.mark.parametrize("tool", ["label-studio", "doccano", "prodigy", "csv"])
def test_suggestions_corrected_by_a_person_train_the_next_model(tool: str, model: Path, tmp_path: Path,
                                                                tiny_encoder: str, cli: Ran) -> None:
    texts, truth = tiny_texts(6, seed=5)
    write_csv(tmp_path / "pool.csv", texts)
    out = tmp_path / {"label-studio": "tasks.json", "csv": "s.csv"}.get(tool, "s.jsonl")
    assert cli("export-to", tool, model, tmp_path / "pool.csv", "--out", out).code == 0
    assert cli("export-to", tool, model, tmp_path / "pool.csv", "--out", out).code == 2  # it is there already
    corrected = tmp_path / f"corrected{out.suffix}"
    person(tool, out, corrected, dict(zip(texts[:12], truth[:12], strict=True)))
    corpus = read(corrected)
    assert [label for label in corpus.labels if label is not None] == truth[:12] and len(corpus) == 18
    done = cli("train", corrected, "--out", tmp_path / "next", "--encoder", tiny_encoder, "--json", *FAST)
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert (result["n_labelled"], result["n_unlabelled"]) == (12, 6)


def person(tool: str, suggested: Path, corrected: Path, truth: dict[str, str]) -> None:
    """Sets the right label of some texts, as the tool would export it, and leaves the others unannotated."""
    if tool == "csv":
        rows = read(suggested)
        write_csv(corrected, rows.texts, [truth.get(text, "") for text in rows.texts])
        return
    if tool == "label-studio":
        tasks = json.loads(suggested.read_text())
        for i, one in enumerate(tasks):
            result = json.loads(json.dumps(one["predictions"][0]["result"]))
            label = truth.get(one["data"]["text"])
            result[0]["value"]["choices"] = [label]
            one |= {"id": i, "annotations": [{"was_cancelled": False, "result": result}] if label else []}
        corrected.write_text(json.dumps(tasks))
        return
    rows = [json.loads(line) for line in suggested.read_text().splitlines()]
    for i, row in enumerate(rows):
        label = truth.get(row["text"])
        if tool == "doccano":
            row |= {"id": i, "label": [label] if label else [], "Comments": []}
        else:
            row |= {"accept": [label] if label else [], "answer": "accept" if label else "ignore"}
    write_jsonl(corrected, rows)


ENCODED = {"cp1252": "Soupe à l’oignon, 5 €", "utf-16": "Хлеб и масло", "shift_jis": "試合のゴール",
           "utf-16-le": "größer"}


@pytest.mark.parametrize("encoding", ENCODED)
@pytest.mark.parametrize("suffix", ["txt", "csv", "jsonl", "txt.gz"])
def test_files_in_other_encodings(encoding: str, suffix: str, model: Path, tmp_path: Path, cli: Ran) -> None:
    texts = [f"{ENCODED[encoding]} {i}" for i in range(40)]
    lines = {"csv": ["text", *(f'"{text}"' for text in texts)],
             "jsonl": [json.dumps({"text": text}, ensure_ascii=False) for text in texts]}.get(suffix, texts)
    data = "".join(f"{line}\n" for line in lines).encode(encoding)
    (tmp_path / f"in.{suffix}").write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    for source, stdin in ((tmp_path / f"in.{suffix}", b""), ("-", data)):
        done = cli("predict", model, source, "--encoding", encoding, stdin=stdin)
        assert done.code == 0 and [json.loads(line)["text"] for line in done.out.splitlines()] == texts


def test_encodings_are_checked_and_belong_to_one_command(model: Path, tmp_path: Path, cli: Ran) -> None:
    (tmp_path / "in.txt").write_bytes("Soupe à l’oignon\n".encode("cp1252"))
    for name in ("magic", "rot13", "zlib"):
        done = cli("predict", model, tmp_path / "in.txt", "--encoding", name)
        assert done.code == 2 and f"'{name}' is not known" in done.err and done.lines == 1
    done = cli("predict", model, tmp_path / "in.txt", "--encoding", "shift_jis")
    assert done.code == 2 and "not shift_jis" in done.err and done.lines == 1
    assert cli("predict", model, tmp_path / "in.txt", "--encoding", "cp1252").code == 0
    done = cli("predict", model, tmp_path / "in.txt")
    assert done.code == 2 and "or name its encoding with --encoding" in done.err


def test_an_encoding_does_not_concern_parquet_and_is_part_of_a_pool(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"text": ["größer", "kleiner"]}), tmp_path / "a.parquet")
    assert list(read(File(str(tmp_path / "a.parquet"), "cp1252")).texts) == ["größer", "kleiner"]
    (tmp_path / "pool.txt").write_bytes("größer\n".encode())
    pools = [list(open_pool([File(str(tmp_path / "pool.txt"), encoding)])[0].texts) for encoding in ("utf-8", "cp1252")]
    assert pools == [["größer"], ["grÃ¶ÃŸer"]]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_columns_are_joined(kind: str, model: Path, tmp_path: Path, cli: Ran) -> None:
    file, names = tmp_path / f"in.{kind}", ("--text-column", "Title, body")
    given = [{"id": str(i), "title": f"goal {i}" if i else "", "body": "bread soup", "label": ("food", "sport")[i % 2]}
             for i in range(4)]
    joined = ["bread soup", *(f"goal {i}\nbread soup" for i in range(1, 4))]
    pa_table = pa.Table.from_pylist(given)
    {"csv": lambda: file.write_text("id,title,body,label\n" + "".join(",".join(row.values()) + "\n" for row in given)),
     "jsonl": lambda: write_jsonl(file, given), "parquet": lambda: parquet.write_table(pa_table, file)}[kind]()
    assert list(read(str(file), text="title,body").texts) == joined
    assert list(open_pool([file], text="title,body")[0].texts) == joined
    rows = [json.loads(line) for line in cli("predict", model, file, *names).out.splitlines()]
    assert [row["text"] for row in rows] == joined and [row["id"] for row in rows] == list("0123")
    assert "title" not in rows[0]
    assert cli("check", file, *names).code == 0
    done = cli("predict", model, file, "--text-column", "title,content")
    assert done.code == 2 and "has no column 'content'" in done.err


def test_quiet_prints_results_and_errors_only(tiny_encoder: str, tmp_path: Path, cli: Ran) -> None:
    write_csv(tmp_path / "a.csv", [*tiny_texts(4)[0], ""], [*tiny_texts(4)[1], "food"])
    arguments = ("train", tmp_path / "a.csv", "--encoder", tiny_encoder, "--method", "ce", *FAST)
    assert "notice:" in cli(*arguments, "--out", tmp_path / "loud").err
    quiet = cli(*arguments, "--out", tmp_path / "quiet", "--quiet")
    assert quiet.code == 0 and quiet.err == ""
    predicted = cli("predict", tmp_path / "quiet", "-q", stdin="\n\nbread\n")
    assert predicted.err == "" and len(predicted.out.splitlines()) == 3
    assert "were empty" in cli("predict", tmp_path / "quiet", stdin="\n\nbread\n").err  # for one command only
    assert cli("predict", tmp_path / "quiet", tmp_path / "missing.csv", "-q").err.startswith("error: ")


class TestLanguage:
    @pytest.mark.parametrize(("texts", "tokens", "noticed"), [
        (["hello world"], [[2, 10, 11, 3]], False),  # five letters per token
        (["hello world"], [[2, 1, 11, 3]], True),  # half is unknown
        (["привет"], [[2, 5, 6, 7, 8, 9, 10, 3]], True),  # a token for each letter
        (["你好世界"], [[2, 5, 6, 7, 8, 3]], False), (["你好世界"], [[2, 5, 1, 1, 8, 3]], True),
        ([""], [[2, 3]], False)])
    def test_is_judged_by_unknown_tokens_and_single_letters(
        self, texts: list[str], tokens: list[list[int]], noticed: bool
    ) -> None:
        found = check_language(texts, [np.array(ids) for ids in tokens], 1, "a.csv")
        assert bool(found) == noticed
        assert all(diagnostic.level == "warning" and "--encoder" in diagnostic.action for diagnostic in found)
