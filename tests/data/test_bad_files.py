"""Each bad file is reported in one sentence that names the file, the position and the remedy."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bad_cases import CASES
from cli_runner import runner
from halflabel.data.pool import open_pool, open_source
from halflabel.data.readers.files import File
from halflabel.data.readers.read import read
from halflabel.errors import DataError


@pytest.mark.parametrize(("name", "content", "words"), CASES, ids=[case[0] for case in CASES])
def test_a_bad_file_is_reported_with_position_and_remedy(
    tmp_path: Path, name: str, content: bytes, words: list[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read(path)
    sentence = str(caught.value)
    assert sentence.startswith(str(path))
    assert [word for word in words if word not in sentence] == [], sentence
    assert "\n" not in sentence


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone.csv does not exist; check the path"):
        read(tmp_path / "gone.csv")
    with pytest.raises(DataError, match="is a folder; give one file inside it"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("error", "said"), [(PermissionError(13, "no"), "chmod"), (OSError(5, "broken"), "broken")]
)
def test_a_file_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, said: str
) -> None:
    (tmp_path / "secret.csv").write_text("text\na\n")

    def refuse(self: File, raw: object) -> bytes:
        raise error

    monkeypatch.setattr(File, "_decompressed", refuse)
    with pytest.raises(DataError, match=rf"secret.csv .*{said}"):
        read(tmp_path / "secret.csv")


@pytest.mark.parametrize("flag", ["text", "label"])
def test_a_named_column_that_does_not_exist(tmp_path: Path, flag: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,b\n")
    said = rf"a.csv has no column 'mood'; its columns are 'text', 'label'.*--{flag}-column"
    with pytest.raises(DataError, match=said):
        read(path, **{flag: "mood"})


def test_a_named_column_of_a_txt_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\n")
    with pytest.raises(DataError, match="no column 'label'"):
        read(path, label="label")


@pytest.mark.parametrize("keep", [0.5, 0.98])
def test_a_truncated_parquet_file(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text {i}" for i in range(500)]}), path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(DataError, match=r"a\.parquet is not a complete Parquet file"):
        read(path)


def test_a_parquet_file_with_a_damaged_middle(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text {i}" * 20 for i in range(500)]}), path)
    data = bytearray(path.read_bytes())
    data[4:1000] = b"\xff" * 996
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"a\.parquet, column 'text': damaged"):
        read(path)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array(["x", "-1"]), "row 2, column 'label': the label '-1'"),
        (pa.array([0.5, 1.0]), "row 1, column 'label': the label 0.5"),
        (pa.array([1, 2], pa.timestamp("s")), "row 1, column 'label': the label is a datetime"),
    ],
)
def test_parquet_labels_are_refused_by_row(tmp_path: Path, column: pa.Array, said: str) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "label": column}), path)
    with pytest.raises(DataError, match=said):
        read(path)


@pytest.mark.parametrize("place", [20, 40, 200])
def test_a_damaged_gzip(tmp_path: Path, place: int) -> None:
    path = tmp_path / "a.txt.gz"
    data = bytearray(gzip.compress(" ".join(map(str, range(5000))).encode()))
    data[place : place + 10] = bytes(255 - byte for byte in data[place : place + 10])
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"a\.txt\.gz is not a complete gzip file \(.*\); copy or compress it again"):
        read(path)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_concatenated_compressed_files_are_one_file(tmp_path: Path, codec: str) -> None:
    parts = [pa.compress(f"{name}\n".encode(), codec=codec, asbytes=True) for name in "abc"]
    (tmp_path / "a.txt.compressed").write_bytes(b"".join(parts))
    assert read(tmp_path / "a.txt.compressed").texts == ["a", "b", "c"]


def test_standard_input_is_named_in_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b'{"text": "a"}\n{oops')))
    with pytest.raises(DataError, match=r"^standard input, line 2: not valid JSON"):
        read("-")


PIECES = [
    b"text", b"label", b"labels", b'"', b"\n", b",", b";", b"\t", b"-1", b"NaN", b"[", b"]", b"{", b"}", b":", b"1e999",
    b"\x00", b"\xff", b"0.5", b'["a"]', b"null", b'{"text": "a", "label": 1}\n', b"text,label\na,b\n", b"PAR1",
]
SUFFIXES = st.sampled_from([".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt", ""])


@settings(max_examples=300, deadline=None, database=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(suffix=SUFFIXES, content=st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join))
def test_any_content_is_read_or_refused_in_one_sentence(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    path = tmp_path / f"any{suffix}"
    path.write_bytes(content)
    sentence = f"{path} was read"
    try:
        read(path)
    except DataError as error:
        sentence = str(error)
    assert sentence.startswith(str(path))
    assert "\n" not in sentence


BAD_LABELS = ("two_labels", "label_and_labels", "minus", "floats", "dict", "mixed", "null_in_list", "nested_list",
                 "half_pair", "two_marks", "float_column", "twice")


@pytest.mark.parametrize(("name", "content", "words"), CASES, ids=[case[0] for case in CASES])
def test_a_bad_file_ends_the_command_with_2_and_leaves_no_files(
    tmp_path: Path, name: str, content: bytes, words: list[str], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cli = runner(capsys, monkeypatch)
    path, good = tmp_path / name, tmp_path / "good.csv"
    path.write_bytes(content)
    good.write_text("text,label\none,a\ntwo,b\n")
    out = tmp_path / "deep" / "run"
    runs = [("train", path, "--out", out), ("split", path, "--labelled", "1", "--out", out),
            ("augment", path, "--out", tmp_path / "views.csv")]
    if not name.startswith(BAD_LABELS):  # labels of a pool are ignored
        runs.append(("train", good, "--unlabelled", path, "--out", out))
    for arguments in runs:
        done = cli(*arguments)
        assert (done.code, done.lines, done.out) == (2, 1, ""), done
        assert path.name in done.err and (arguments[1] == good or all(word in done.err for word in words)), done.err
    left = {entry.name for entry in tmp_path.rglob("*") if entry.is_file()}
    assert left == {name, "good.csv"}


def test_a_folder_without_files_ends_the_command_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = runner(capsys, monkeypatch)
    done = cli("train", tmp_path, "--out", tmp_path / "run")
    assert done.code == 2 and "is a folder" in done.err and done.lines == 1


class TestBombs:
    @pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz", "a.txt.gz", "a"])
    def test_a_gzip_bomb_is_refused_before_it_fills_the_memory(self, tmp_path: Path, name: str,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("halflabel.data.readers.files.MIN_BOMB", 1 << 20)
        (tmp_path / name).write_bytes(gzip.compress(b" " * (1 << 21)) * 3)
        with pytest.raises(DataError, match=rf"{name} decompresses to more than 100 times its size.*without compress"):
            read(tmp_path / name)

    def test_a_bomb_is_refused_by_what_was_read_of_it_and_not_only_at_the_size_that_the_whole_may_have(
            self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("halflabel.data.readers.files.MIN_BOMB", 1 << 20)
        (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"text\n" * (1 << 18)) * 100)
        received: list[int] = []
        with pytest.raises(DataError, match="more than 100 times its size"):
            received.extend(map(len, File(str(tmp_path / "a.txt.gz")).blocks(1 << 16)))
        assert sum(received) < 5 << 20 < 100 * (tmp_path / "a.txt.gz").stat().st_size

    def test_a_small_file_may_compress_well(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"the same text\n" * 100_000))
        assert len(read(tmp_path / "a.txt.gz")) == 100_000

    def test_a_parquet_file_of_too_many_rows_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pq.write_table(pa.table({"text": pa.nulls(500_000, pa.string())}), tmp_path / "a.parquet")
        assert len(read(tmp_path / "a.parquet")) == 500_000
        monkeypatch.setattr("halflabel.data.readers.files.MIN_BOMB", 1000)
        with pytest.raises(DataError, match="a.parquet decompresses to more than 100 times"):
            read(tmp_path / "a.parquet")


@pytest.mark.parametrize("work", [
    read, lambda file: open_pool([str(file)], folder=file.parent / "pools"),
    lambda file: list(open_source(File(str(file))).rows())], ids=["read", "pool", "rows"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_lack_of_memory_is_one_sentence_and_leaves_nothing(tmp_path: Path, name: str, work: Callable[[Path], object],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    (tmp_path / name).write_text('{"text": "one"}\n')
    for place in ("records.split_lines", "records._parse_lines"):
        monkeypatch.setattr(f"halflabel.data.readers.{place}", no_memory)
    with pytest.raises(DataError, match=rf"{name} is too large for the memory of this machine; split it into smaller"):
        work(tmp_path / name)
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == [name]


@pytest.mark.parametrize("offset", [1 << 27, -5])
def test_an_arrow_file_with_wrong_offsets_is_refused(tmp_path: Path, offset: int) -> None:
    offsets = pa.array([0, 1, offset, 3], pa.int32()).buffers()[1]
    wrong = pa.StringArray.from_buffers(3, offsets, pa.py_buffer(b"abc"))
    batch = pa.record_batch([wrong], names=["text"])
    with pa.ipc.new_file(tmp_path / "a.arrow", batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(DataError, match=r"a.arrow is not a complete Arrow file .*copy or write it again"):
        read(tmp_path / "a.arrow")
