"""Scoring jobs: shards and manifests that survive kills, damage and mistakes, on every engine."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cli_runner import Ran, runner, write_csv
from conftest import TOPICS, tiny_texts
from halflabel.cli.folders import open_model
from halflabel.data.labels import Classes
from halflabel.data.pool import open_source
from halflabel.data.readers.files import File, as_files
from halflabel.encoders.ngrams import BUCKETS, NgramModel, TfIdf
from halflabel.errors import HalflabelError, MissingExtra, OutputError
from halflabel.integrity import fingerprint
from halflabel.remote import locate
from halflabel.scoring import folder, shards
from halflabel.scoring.shards import ModelSource, Options, job_of, run, tasks
from halflabel.students.student import Student

TEXTS = tiny_texts(40, seed=3)[0]
CUTS = {"a.parquet": slice(0, 50), "b.parquet": slice(50, 90), "c.csv": slice(90, 120)}
SHARD = 16


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two students and three inputs of 50, 40 and 30 texts."""
    place = tmp_path_factory.mktemp("scoring")
    for name, seed in (("model", 0), ("other", 1)):
        rng = np.random.default_rng(seed)
        features = TfIdf("words", np.arange(0, BUCKETS, 7, dtype=np.uint32), np.ones(-(-BUCKETS // 7), np.float32))
        weights = rng.normal(size=(len(features.buckets), len(TOPICS))).astype(np.float16).astype(np.float32)
        linear = NgramModel(features, weights, np.zeros(3, np.float32))
        Student(Classes(tuple(sorted(TOPICS))), "multi-class", linear).save(place / name)
    for name, cut in list(CUTS.items())[:2]:
        table = pa.table({"id": range(len(TEXTS[cut])), "text": TEXTS[cut]})
        parquet.write_table(table, place / name, row_group_size=7)
    write_csv(place / "c.csv", TEXTS[CUTS["c.csv"]])
    return place


@pytest.fixture
def cli(made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    shards.opened.cache_clear()
    return runner(capsys, monkeypatch)


@pytest.fixture
def score(made: Path, cli: Ran) -> Any:
    def score(out: object, *more: object, model: str = "model", inputs: tuple[object, ...] = tuple(CUTS)) -> Any:
        return cli("predict", made / model, *(made / str(name) for name in inputs), "--out", out, "--shard", SHARD,
                   *more)
    return score


def content(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("part-*"))}


def test_shards_are_the_plain_predictions_in_order(made: Path, tmp_path: Path, cli: Ran, score: Any) -> None:
    assert score(tmp_path / "out").code == 0
    assert cli("predict", made / "model", *(made / name for name in CUTS), "--out", tmp_path / "all.jsonl").code == 0
    parts = content(tmp_path / "out")
    assert b"".join(parts.values()) == (tmp_path / "all.jsonl").read_bytes()
    assert list(parts)[:5] == ["part-00000-000000000000.jsonl", "part-00000-000000000016.jsonl",
                               "part-00000-000000000032.jsonl", "part-00000-000000000048.jsonl",
                               "part-00001-000000000000.jsonl"]
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert manifest["texts"] == 120 and [shard["name"] for shard in manifest["shards"]] == list(parts)
    assert manifest["model"] == fingerprint(made / "model") and len(manifest["inputs"]) == 3
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"_manifest.json", *parts}
    again = score(tmp_path / "out", "--resume")
    assert again.code == 0 and "120 of them before" in again.out and content(tmp_path / "out") == parts


def test_all_files_of_a_cascade_are_the_model(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "model", tmp_path / "both")
    shutil.copytree(made / "other", tmp_path / "both" / "teacher")
    alone, both = fingerprint(made / "model"), fingerprint(tmp_path / "both")
    assert both == alone | {f"teacher/{name}": digest for name, digest in fingerprint(made / "other").items()}


def test_a_job_killed_at_any_moment_resumes_to_the_same_shards(tmp_path: Path, score: Any,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tmp_path / "whole"
    assert score(whole, "--format", "parquet").code == 0
    original, kills = folder.OutputFolder.writing, 0

    class Killed(BaseException):
        pass

    for moment in (1, 2, 3, 11, 20):  # a manifest, nine shards and their records, and the manifest again
        for after in (False, True):
            out, count = tmp_path / f"{moment}{after}", 0

            def writing(self: Any, name: str, after: bool = after, moment: int = moment) -> Any:
                nonlocal count
                count += 1
                if count == moment and not after:
                    raise Killed
                written = original(self, name)
                return _then(written, Killed) if count == moment else written

            monkeypatch.setattr(folder.OutputFolder, "writing", writing)
            try:
                score(out, "--format", "parquet")
            except Killed:
                kills += 1
            monkeypatch.setattr(folder.OutputFolder, "writing", original)
            assert score(out, "--format", "parquet", "--resume").code == 0
            assert content(out) == content(whole) and not list(out.glob(".*"))
    assert kills == 10


class _then:  # noqa: N801
    """Raises when the block of another context manager is over."""

    def __init__(self, inner: Any, error: type[BaseException]) -> None:
        self.inner, self.error = inner, error

    def __enter__(self) -> Any:
        return self.inner.__enter__()

    def __exit__(self, *about: Any) -> None:
        self.inner.__exit__(*about)
        raise self.error


def test_another_model_other_texts_and_other_options_are_refused(made: Path, tmp_path: Path, cli: Ran,
                                                                 score: Any) -> None:
    out = tmp_path / "out"
    assert score(out).code == 0
    before = content(out), (out / "_manifest.json").read_bytes()
    other_text = tmp_path / "b.parquet"
    parquet.write_table(pa.table({"text": ["another text"] * 40}), other_text)
    cases = {
        "has shards of another model (student.safetensors differs)": score(out, "--resume", model="other"),
        "of 3 input files, not of 2": score(out, "--resume", inputs=("a.parquet", "b.parquet")),
        "has shards of other texts": score(out, "--resume", inputs=("a.parquet", other_text, "c.csv")),
        "all = False, not True": score(out, "--resume", "--all"),
        "is not empty": score(out),
    }
    for words, done in cases.items():
        assert done.code == 2 and words in done.err and done.lines == 1, done
    assert (content(out), (out / "_manifest.json").read_bytes()) == before
    manifest = json.loads(before[1])
    (out / "_manifest.json").write_text(json.dumps(manifest | {"halflabel": "0.0.9"}))
    assert "pip install halflabel==0.0.9" in score(out, "--resume").err
    (out / "_manifest.json").write_text("{")
    assert "_manifest.json is damaged" in score(out, "--resume").err
    (out / "_manifest.json").unlink()
    assert "contains no job to resume" in score(out, "--resume").err and content(out) == before[0]


def test_an_input_that_was_edited_in_its_middle_is_refused(made: Path, tmp_path: Path, score: Any) -> None:
    file, out = tmp_path / "long.csv", tmp_path / "out"
    file.write_text("text\n" + "".join(f"{'word ' * 20_000}{i}\n" for i in range(3)))
    assert score(out, inputs=(file,)).code == 0
    assert score(out, "--resume", inputs=(file,)).code == 0
    middle = file.stat().st_size // 2
    with open(file, "r+b") as stream:
        stream.seek(middle)
        stream.write(b"X")
    done = score(out, "--resume", inputs=(file,))
    assert done.code == 2 and "has shards of other texts" in done.err and done.lines == 1, done


def test_damaged_and_missing_shards_are_written_again(tmp_path: Path, score: Any) -> None:
    out = tmp_path / "out"
    assert score(out).code == 0
    whole, names = content(out), sorted(content(out))
    (out / names[1]).write_bytes(whole[names[1]][:-9])
    (out / names[6]).unlink()
    done = score(out, "--resume")
    assert done.code == 0 and content(out) == whole
    assert f"{names[1]} is damaged, so it is written again" in done.err and f"{names[6]} is missing" in done.err


def test_mistakes_leave_nothing_behind(made: Path, tmp_path: Path, cli: Ran, score: Any) -> None:
    out = tmp_path / "out"
    parquet.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "empty.parquet")
    for done, words in (
            (score(out, "--text-column", "words"), "words"), (score(out, "--decision", "fixed"), "nothing to decide"),
            (score(out, "--backend", "onnx"), "no backends"), (score(out, model="missing"), "missing"),
            (score(out, inputs=("a.parquet", tmp_path / "empty.parquet")), "no rows"),
            (score(out, inputs=(), model="model"), "standard input is empty"),
            (score("nowhere://x/y"), "is not known"), (score("s3://"), "check the address"),
            (score(out, inputs=("a.parquet", "none-*.csv")), "no file")):
        assert done.code == 2 and words in done.err and done.lines == 1 and not out.exists(), done


def test_parts_of_a_parquet_file(made: Path) -> None:
    source = open_source(File(str(made / "a.parquet")))
    everything = [row for batch in source.rows() for row in batch]
    for part in ((0, 50), (0, 1), (6, 8), (13, 40), (49, 50)):
        assert [row for batch in source.rows(part) for row in batch] == everything[slice(*part)]


S3 = pytest.mark.skipif("AWS_ENDPOINT_URL" not in os.environ,
                        reason="needs a local S3 server with a bucket `halflabel`, named by AWS_ENDPOINT_URL")


@pytest.mark.parametrize("place", ["memory://shop", pytest.param("s3://halflabel", marks=S3)])
def test_remote_inputs_and_outputs(place: str, made: Path, tmp_path: Path, cli: Ran, score: Any,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"{place}/{tmp_path.name}"
    filesystem, base = locate(place)
    for name in CUTS:
        if filesystem.type_name != "s3":
            filesystem.create_dir(f"{base}/in", recursive=True)
        with filesystem.open_output_stream(f"{base}/in/{name}") as stream:
            stream.write((made / name).read_bytes())
    assert score(tmp_path / "whole").code == 0
    arguments = ("predict", made / "model", f"{place}/in/[ab].parquet", f"{place}/in/*.csv", "--out", f"{place}/out",
                 "--shard", SHARD)
    out = folder.OutputFolder(f"{place}/out")
    with out.locked():
        done = cli(*arguments)
        assert done.code == 2 and f"in use by another halflabel process (pid {os.getpid()}" in done.err
    done = cli(*arguments)
    assert done.code == 0 and "120 predictions in 9 shards" in done.out, done
    parts = {name: out.read(name) for name in out.names() if name.startswith("part-")}
    assert parts == content(tmp_path / "whole") and set(out.names()) == {"_manifest.json", *parts}
    out.remove("part-00001-000000000016.jsonl")
    out.write_json(".halflabel.lock", {"host": "elsewhere", "pid": 1, "job": "1", "time": 0.0})  # killed long ago
    assert cli(*arguments).code == 2 and cli(*arguments, "--resume").code == 0
    assert {name: out.read(name) for name in parts} == content(tmp_path / "whole")
    missing = cli("predict", made / "model", f"{place}/in/none.csv", "--out", tmp_path / "no")
    assert missing.code == 2 and missing.lines == 1 and "none.csv" in missing.err
    assert "no file matches" in cli("predict", made / "model", f"{place}/in/*.tsv").err


def test_without_the_extras_the_line_to_install_them(made: Path, tmp_path: Path, score: Any,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    from halflabel import spark

    for name in ("ray", "ray.data", "pyspark"):
        monkeypatch.setitem(sys.modules, name, None)
    done = score(tmp_path / "out", "--engine", "ray")
    assert done.code == 2 and "pip install 'halflabel[ray]'" in done.err and not (tmp_path / "out").exists()
    with pytest.raises(MissingExtra, match=r"pip install 'halflabel\[spark\]'"):
        spark.predict_udf(made / "model")
    with pytest.raises(MissingExtra, match="spark"):
        spark.predict(None, made / "model", made / "a.parquet", tmp_path / "out")


def test_tasks_of_other_engines(made: Path, tmp_path: Path) -> None:
    job = job_of(ModelSource(open_model, made / "model"), as_files([made / name for name in CUTS]),
                 str(tmp_path / "out"), Options(rows=SHARD))
    work = tasks(job)
    assert [tuple(task) for task in work][:4] == [(0, 0, 16), (0, 16, 32), (0, 32, 48), (0, 48, 50)]
    assert [tuple(task) for task in work][-1] == (2, 0, None)
    with pytest.raises(HalflabelError, match="read only once"):
        tasks(job_of(job.source, [File("-")], "out", Options()))
    assert shards.attempt(job, work[0])["shards"][0]["rows"] == 16
    (tmp_path / "bad.csv").write_text("text\nx,y\n")
    bad = job_of(job.source, [File(str(tmp_path / "bad.csv"))], str(tmp_path / "out"), Options())
    with pytest.raises(HalflabelError, match="2 cells where the header has 1"):
        shards.shards_of(shards.attempt(bad, work[-1]._replace(input=0)))

    def forgetful(job: Any) -> Iterator[Any]:
        return (shard for task in work[:1] + work[2:] for shard in shards.run_task(job, task))

    shutil.rmtree(tmp_path / "out")
    with job.out.locked(), pytest.raises(OutputError, match="lacks the shard before part-00000-000000000032"):
        run(job, forgetful, resume=False, notify=print)


class RayHere(ModuleType):
    """Takes the place of the modules `ray` and `ray.data`: its only actor is in this process."""

    class exceptions:  # noqa: N801
        class RayError(Exception):
            pass

    def __init__(self, lost: bool = False) -> None:
        super().__init__("ray")
        self.data, self.lost, self.running = self, lost, False
        self.nodes, self.cluster_resources, self.ActorPoolStrategy = lambda: ["here"], dict, dict
        self.DataContext = SimpleNamespace(get_current=SimpleNamespace)

    def init(self, **_: object) -> None:
        self.running = True

    def shutdown(self) -> None:
        self.running = False

    def from_items(self, items: list[dict[str, str]], **_: object) -> RayHere:
        self.items = items
        return self

    def map_batches(self, actor: Any, *, fn_constructor_args: tuple[Any, ...], **_: object) -> RayHere:
        self.actor = actor(*fn_constructor_args)
        return self

    def iter_rows(self) -> Iterator[dict[str, str]]:
        for item in self.items:
            yield from ({"outcome": outcome} for outcome in self.actor({"task": [item["task"]]})["outcome"])
            if self.lost:
                raise self.exceptions.RayError("an actor was lost\nand more")


def test_what_ray_is_asked_for(tmp_path: Path, score: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "RAY_BACKEND_LOG_LEVEL"):
        monkeypatch.setenv(name, "1")
    losing, ray = RayHere(lost=True), RayHere()
    for name in ("ray", "ray.data"):
        monkeypatch.setitem(sys.modules, name, losing)
    done = score(tmp_path / "out", "--engine", "ray")
    assert done.code == 2 and "Ray could not go on (an actor was lost)" in done.err and not losing.running
    assert len(content(tmp_path / "out")) == 1
    for name in ("ray", "ray.data"):
        monkeypatch.setitem(sys.modules, name, ray)
    assert score(tmp_path / "out", "--engine", "ray", "--resume").code == 0
    assert score(tmp_path / "whole").code == 0 and content(tmp_path / "out") == content(tmp_path / "whole")
    assert len(ray.items) == len(losing.items) - 1 and not ray.running


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `ray`")
@pytest.mark.filterwarnings("ignore")
def test_ray(tmp_path: Path, score: Any) -> None:
    out = tmp_path / "out"
    assert score(tmp_path / "whole").code == 0
    whole = content(tmp_path / "whole")
    assert score(out).code == 0
    for name in list(whole)[1:]:
        (out / name).unlink()
    done = score(out, "--resume", "--engine", "ray")
    assert done.code == 0 and "120 predictions in 9 shards" in done.out and content(out) == whole, done


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="needs the extra `spark`")
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
@pytest.mark.filterwarnings("ignore")
def test_spark(made: Path, tmp_path: Path, score: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    from halflabel import spark

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert score(tmp_path / "whole").code == 0
    whole, out = content(tmp_path / "whole"), tmp_path / "out"
    inputs = [made / name for name in CUTS]
    session = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
               .config("spark.ui.showConsoleProgress", "false").getOrCreate())
    try:
        assert spark.predict(session, made / "model", inputs, out, rows=SHARD) == 120 and content(out) == whole
        (out / next(iter(whole))).unlink()
        assert spark.predict(session, made / "model", inputs, out, rows=SHARD, resume=True) == 120
        assert content(out) == whole
        frame = session.read.parquet(str(made / "a.parquet"))
        rows = frame.withColumn("p", spark.predict_udf(made / "model")("text")).select("text", "p.*").collect()
    finally:
        session.stop()
    expected = {row["text"]: row for line in b"".join(whole.values()).splitlines() for row in [json.loads(line)]}
    assert len(rows) == 50 and all(row.label == expected[row.text]["label"] for row in rows)
    assert all(abs(row.score - expected[row.text]["score"]) < 2e-6 for row in rows)
