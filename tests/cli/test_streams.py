"""Pipes and standard input give every command the same texts as a file: none is lost or read twice."""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cli_runner import FAST, Ran, runner, write_csv, write_jsonl
from conftest import tiny_texts
from halflabel.classifier import TextClassifier
from halflabel.cli.predict import chunks, rows_in
from halflabel.data.pool import open_pool
from halflabel.data.readers.files import as_files
from halflabel.data.readers.read import read
from halflabel.errors import DataError
from written import NASTY, SETTINGS, UNICODE

FORMATS = ("txt", "jsonl", "csv", "csv.gz", "jsonl.zst", "parquet", "arrow")
LONG = ("bread soup oven " * 15_000)[:225_000]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The temporary copies of streams are removed."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield
    assert not list(folder.iterdir())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Path:
    """A model, trained once for all tests that only predict."""
    folder = tmp_path_factory.mktemp("shared") / "model"
    settings = {"epochs": 1, "epoch_steps": 5, "warmup": 60}
    TextClassifier("ce", tiny_encoder, "frozen", settings=settings).fit(*tiny_texts(8), folder=folder)
    return folder


def saved(folder: Path, kind: str, columns: dict[str, list[str]]) -> Path:
    """Writes columns as a file; plain text has only the first column."""
    file, rows = folder / f"data.{kind}", [dict(zip(columns, row, strict=True))
                                           for row in zip(*columns.values(), strict=True)]
    match kind.partition(".")[0]:
        case "txt":
            file.write_text("".join(f"{text}\n" for text in next(iter(columns.values()))), encoding="utf-8")
        case "jsonl":
            write_jsonl(file, rows)
        case "csv":
            write_csv(file, *columns.values())
        case "parquet":
            pq.write_table(pa.table(columns), file)
        case "arrow":
            table = pa.table(columns)
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
    if kind.endswith(".gz"):
        file.write_bytes(gzip.compress(file.read_bytes()))
    elif kind.endswith(".zst"):
        file.write_bytes(pa.compress(file.read_bytes(), codec="zstd", asbytes=True))
    return file


@contextmanager
def fifo(file: Path | bytes, place: Path) -> Iterator[Path]:
    """A named pipe into which a thread writes the content of a file, once."""
    content = file if isinstance(file, bytes) else file.read_bytes()
    os.mkfifo(place)

    def write() -> None:
        with suppress(BrokenPipeError), open(place, "wb") as pipe:
            pipe.write(content)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield place
    finally:
        with suppress(OSError):  # releases a writer whose pipe was never read
            os.close(os.open(place, os.O_RDONLY | os.O_NONBLOCK))
        thread.join(10)
        place.unlink()


def texts_of(out: str | bytes) -> list[str]:
    lines = (out if isinstance(out, bytes) else out.encode()).split(b"\n")
    return [json.loads(line)["text"] for line in lines if line]


@pytest.mark.parametrize("kind", FORMATS)
class TestFormats:
    def test_predict(self, model: Path, tmp_path: Path, cli: Ran, kind: str) -> None:
        texts = [*tiny_texts(20)[0], "é \u2028 x"]
        file = saved(tmp_path, kind, {"text": texts})
        expected = cli("predict", model, file)
        assert texts_of(expected.out) == texts
        assert cli("predict", model, "/dev/stdin", stdin=file.read_bytes()).out == expected.out
        assert cli("predict", model, stdin=file.read_bytes()).out == expected.out
        with fifo(file, tmp_path / "pipe") as pipe:
            assert cli("predict", model, pipe).out == expected.out
        with fifo(file, tmp_path / f"pipe.{kind}") as pipe, fifo(file, tmp_path / "another") as another:
            assert cli("predict", model, pipe, file, another).out == expected.out * 3

    def test_read_and_open_pool(self, tmp_path: Path, kind: str) -> None:
        texts, labels = tiny_texts(20)
        file = saved(tmp_path, kind, {"text": texts, "label": labels})
        with fifo(file, tmp_path / "pipe") as pipe:
            corpus = read(pipe)
        assert (corpus.texts, corpus.labels) == (texts, read(file).labels)
        with fifo(file, tmp_path / "pipe") as pipe:
            pool = open_pool(pipe)[0].texts
        assert list(pool) == texts
        assert pool.key == open_pool(file)[0].texts.key  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", FORMATS[1:])  # plain text has no labels
def test_check(tmp_path: Path, cli: Ran, kind: str) -> None:
    texts, labels = tiny_texts(5)
    file = saved(tmp_path, kind, {"text": texts, "label": labels})
    plain = json.loads(cli("check", file, "--no-tokens", "--json").out)
    with fifo(file, tmp_path / "pipe") as pipe, fifo(file, tmp_path / "pool") as pool:
        both = json.loads(cli("check", pipe, "--unlabelled", pool, "--no-tokens", "--json").out)
    assert both["labels"] == plain["labels"] and (both["labelled"], both["unlabelled"]) == (15, 15)
    stdin = json.loads(cli("check", "-", "--no-tokens", "--json", stdin=file.read_bytes()).out)
    assert stdin["labels"] == plain["labels"]


class TestCommands:
    """Every command reads pipes and standard input like files, in this process, since a start costs seconds."""

    def test_train(self, tmp_path: Path, tiny_encoder: str, cli: Ran) -> None:
        texts, labels = tiny_texts(6)
        labelled = saved(tmp_path, "csv", {"text": texts, "label": labels})
        pool = saved(tmp_path, "jsonl", {"text": tiny_texts(20, seed=1)[0]})
        dev = saved(tmp_path, "parquet", dict(zip(("text", "label"), tiny_texts(5, seed=2), strict=True)))
        arguments = ("--encoder", tiny_encoder, "--method", "bdd-s", "--json", *FAST)
        plain = cli("train", labelled, "--unlabelled", pool, "--dev", dev, "--out", tmp_path / "a", *arguments)
        with fifo(labelled, tmp_path / "labelled") as first, fifo(dev, tmp_path / "dev") as second:
            piped = cli("train", first, "--unlabelled", "/dev/stdin", "--dev", second, "--out", tmp_path / "b",
                        *arguments, stdin=pool.read_bytes())
        result, expected = json.loads(piped.out), json.loads(plain.out)
        assert (result["n_labelled"], result["n_unlabelled"]) == (18, 60)
        assert result["dev"] == pytest.approx(expected["dev"])
        fingerprints = [json.loads((tmp_path / name / "run.json").read_text())["texts"] for name in "ab"]
        assert fingerprints[0] == fingerprints[1]

    def test_evaluate(self, model: Path, tmp_path: Path, cli: Ran) -> None:
        texts, labels = tiny_texts(6, seed=3)
        file = saved(tmp_path, "csv.gz", {"text": texts, "label": labels})
        plain = json.loads(cli("evaluate", model, file, "--json").out)
        assert plain["n"] == 18
        assert json.loads(cli("evaluate", model, "/dev/stdin", "--json", stdin=file.read_bytes()).out) == plain
        with fifo(file, tmp_path / "pipe") as pipe:
            assert json.loads(cli("evaluate", model, pipe, "--json").out) == plain

    @pytest.mark.parametrize("command", [
        lambda file, out: ("split", file, "--labelled", "2/class", "--test", "0.2", "--out", out),
        lambda file, out: ("augment", file, "--out", out.with_suffix(".jsonl"))], ids=["split", "augment"])
    def test_split_and_augment(self, tmp_path: Path, cli: Ran, command: Callable[..., tuple[object, ...]]) -> None:
        texts, labels = tiny_texts(10)
        file = saved(tmp_path, "jsonl", {"text": texts, "label": labels})
        assert cli(*command(file, tmp_path / "plain")).code == 0
        assert cli(*command("/dev/stdin", tmp_path / "stdin"), stdin=file.read_bytes()).code == 0
        with fifo(file, tmp_path / "pipe") as pipe:
            assert cli(*command(pipe, tmp_path / "fifo")).code == 0

        def written(name: str) -> dict[str, bytes]:
            parts = [*(tmp_path / name).glob("*.jsonl"), *tmp_path.glob(f"{name}.jsonl")]
            return {part.name.removeprefix(name): part.read_bytes() for part in parts}

        assert sum(content.count(b"\n") for content in written("plain").values()) == 30
        assert written("plain") == written("stdin") == written("fifo")

    def test_export_to(self, model: Path, tmp_path: Path, cli: Ran) -> None:
        file = saved(tmp_path, "txt", {"text": tiny_texts(10)[0]})
        with fifo(file, tmp_path / "pipe") as pipe:
            assert cli("export-to", "csv", model, pipe, "--out", tmp_path / "a.csv").code == 0
        assert cli("export-to", "csv", model, "-", "--out", tmp_path / "b.csv", stdin=file.read_bytes()).code == 0
        assert cli("export-to", "csv", model, file, "--out", tmp_path / "c.csv").code == 0
        a, b, c = ((tmp_path / name).read_bytes() for name in ("a.csv", "b.csv", "c.csv"))
        assert a == b == c and a.count(b"\n") == 31

    def test_process_substitution(self, model: Path, tmp_path: Path, cli: Ran) -> None:
        file = saved(tmp_path, "csv", {"text": tiny_texts(20)[0]})
        readable, writable = os.pipe()
        with open(writable, "wb") as pipe:
            pipe.write(file.read_bytes())  # fits into the buffer of the pipe
        assert texts_of(cli("predict", model, f"/dev/fd/{readable}").out) == tiny_texts(20)[0]
        os.close(readable)


class TestProcesses:
    """Commands as a shell starts them."""

    def test_a_non_blocking_pipe_is_answered_while_more_is_to_come(self, model: Path) -> None:
        readable, writable = os.pipe()
        os.set_blocking(readable, False)
        process = subprocess.Popen([sys.executable, "-m", "halflabel", "predict", str(model)], stdin=readable,
                                   stdout=subprocess.PIPE, text=True)
        os.close(readable)
        assert process.stdout
        lines = [f"{i} {LONG}" for i in range(50)]
        with open(writable, "wb", buffering=0) as pipe:
            for text in ("bread", "goal", "loan"):
                pipe.write(f"{text}\n".encode())
                assert json.loads(process.stdout.readline())["text"] == text
            thread = threading.Thread(target=lambda: [pipe.write(f"{line}\n".encode()) for line in lines])
            thread.start()
            assert [json.loads(process.stdout.readline())["text"] for _ in lines] == lines
            thread.join(10)
        assert process.communicate(timeout=60)[0] == "" and process.returncode == 0

    def test_a_closed_standard_input(self, model: Path) -> None:
        command = f"exec '{sys.executable}' -m halflabel predict '{model}' <&-"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "standard input is closed" in done.stderr


@pytest.mark.parametrize("name", ["pipe", "/dev/stdin", "-"])
def test_long_lines_of_every_stream(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{i} {LONG}" for i in range(30)]
    content = "".join(f"{line}\n" for line in lines).encode()
    with ExitStack() as stack:
        if name == "pipe":
            name = str(stack.enter_context(fifo(content, tmp_path / name)))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))  # type: ignore[arg-type]
        assert [row["text"] for row in rows_in(as_files([name]), None) if row is not None] == lines


def test_lines_of_a_named_pipe_arrive_while_more_are_to_come(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open(os.open(tmp_path / "pipe", os.O_RDWR), "wb", buffering=0) as pipe:  # does not wait for a reader
        pipe.write(b"bread\n")
        received = chunks(rows_in(as_files([tmp_path / "pipe"]), None))
        assert next(received) == [{"text": "bread"}]
        for text in ("goal", "loan"):
            pipe.write(f"{text}\n".encode())
            assert next(received) == [{"text": text}]
    assert list(received) == []


def test_a_stream_named_twice_is_refused(model: Path, tmp_path: Path, cli: Ran) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "other name").symlink_to(tmp_path / "pipe")
    pipe, other = tmp_path / "pipe", tmp_path / "other name"
    for arguments in (("predict", model, "-", "/dev/stdin"), ("predict", model, pipe, other),
                      ("train", pipe, "--unlabelled", other, "--out", tmp_path / "run"),
                      ("train", "-", "--dev", "/dev/stdin", "--out", tmp_path / "run"),
                      ("check", pipe, "--dev", pipe),
                      ("split", pipe, pipe, "--labelled", "2", "--out", tmp_path / "s")):
        done = cli(*arguments, stdin="bread\n")
        assert done.code == 2 and "can be read only once" in done.err + done.out, arguments
    with pytest.raises(DataError, match="can be read only once"):
        open_pool([pipe, other])


def test_shards_and_the_same_format_of_a_stream(model: Path, tmp_path: Path, cli: Ran) -> None:
    texts = tiny_texts(5)[0]
    file = saved(tmp_path, "csv", {"text": texts})
    with fifo(file, tmp_path / "pipe") as pipe:
        done = cli("predict", model, pipe, "--format", "same")
    assert done.out == cli("predict", model, file, "--format", "same").out and done.out.startswith("text,label,score")
    arguments = ("predict", model, tmp_path / "pipe", "--out", tmp_path / "out", "--shard", "4")
    with fifo(file, tmp_path / "pipe"):
        assert cli(*arguments).code == 0
    (tmp_path / "out" / "part-00000-000000000012.jsonl").unlink()
    with fifo(file, tmp_path / "pipe"):
        assert cli(*arguments, "--resume").code == 0
    assert list(read(str(tmp_path / "out" / "part-*.jsonl")).texts) == texts


def test_pipes_that_are_written_one_after_the_other(tmp_path: Path) -> None:
    content = b"".join(b"line %d\n" % i for i in range(50_000))
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        os.mkfifo(place)

    def write() -> None:
        for place in places:
            place.write_bytes(content)

    threading.Thread(target=write, daemon=True).start()
    assert sum(row is not None for row in rows_in(as_files(places), None)) == 100_000


def test_a_socket(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"text,label\nbread,x\ngoal,y\n")
        theirs.shutdown(socket.SHUT_WR)
        assert read(f"/dev/fd/{ours.fileno()}").texts == ["bread", "goal"]


def test_a_stream_that_does_not_fit_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no device that is always full")
    monkeypatch.setattr(tempfile, "mkstemp", lambda **_: (os.open(full, os.O_WRONLY), str(tmp_path / "never")))
    with (fifo(b"a line\n" * 100_000, tmp_path / "pipe") as pipe,
          pytest.raises(DataError, match="does not fit into .*No space left on device.*TMPDIR")):
        read(pipe)


def count_texts(*sources: object) -> int:
    return sum(map(len, chunks(rows_in(as_files(sources), None))))


ENDS = st.sampled_from(["\n", "\r\n", "\r", "\n\n", ""])


@pytest.mark.parametrize("name", ["data.txt", "data"])
@SETTINGS
@example(parts=[("\ufeff", "")])  # a byte-order mark is no text
@given(parts=st.lists(st.tuples(st.one_of(UNICODE, st.lists(NASTY).map("".join)), ENDS), min_size=1, max_size=9))
def test_as_many_texts_come_out_of_streams_as_of_files(name: str, parts: list[tuple[str, str]]) -> None:
    content = "".join(text + end for text, end in parts).encode()
    lines = io.StringIO(content.decode("utf-8-sig"), newline=None).read().split("\n")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        file = Path(folder) / name
        file.write_bytes(content)

        def stdin() -> int:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))  # type: ignore[arg-type]
            return count_texts("-")

        def pipe() -> int:
            with fifo(content, Path(folder) / f"pipe-{name}") as place:
                return count_texts(place)

        counts = []
        for count in (lambda: count_texts(file), pipe, stdin):
            try:
                counts.append(count())
            except DataError:  # never in silence
                counts.append(-1)
    if content.decode("utf-8-sig").strip() and name == "data.txt":
        assert counts[0] == len(lines) - (not lines[-1])
        assert counts[1] == counts[0] and counts[2] in (counts[0], -1)
    else:  # an ending that says nothing leaves the format to the content, which is one
        assert len(set(counts)) == 1
