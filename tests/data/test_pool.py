"""A pool on disk contains the distinct texts of its files and is accessed without loading it into memory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli_runner import Forked
from halflabel.data.cleaning import clean, drop_labelled
from halflabel.data.columns import TextColumn, matching_rows
from halflabel.data.corpus import Concat, Corpus, Subset, Zipped, columns_of, concat, map_parts, prefetch, subset
from halflabel.data.pool import RowHashes, open_pool, open_source
from halflabel.data.readers import files
from halflabel.data.readers.read import read
from halflabel.errors import DataError
from written import SETTINGS, TEXTS, write


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".parquet"])
@SETTINGS
@given(texts=TEXTS)
def test_a_pool_equals_reading_and_cleaning(suffix: str, texts: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = write(folder, suffix, {"text": texts, "id": list(range(len(texts)))})
        pool, notices = open_pool([path], folder=Path(folder) / "pools")
        expected, expected_notices = clean(read(path), role="unlabelled")
        assert list(pool.texts) == [pool.texts[i] for i in range(len(pool))] == list(expected.texts)
        assert notices == expected_notices


@pytest.mark.parametrize("block", [64, 1 << 22])
@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.csv", "a.parquet", "a.arrow", "a.jsonl.gz", "a.csv.zst"])
def test_files_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, name: str) -> None:
    monkeypatch.setattr(files, "BLOCK", block)
    monkeypatch.setattr("halflabel.data.readers.files.line_blocks.__defaults__", (block,))
    texts = [f"text number {i} é" for i in range(200)]
    data = {"txt": "\n".join(texts), "csv": "text\n" + "\n".join(texts),
            "jsonl": "".join(json.dumps({"text": text}) + "\n" for text in texts)}
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.table({"text": texts}), path, row_group_size=7)
    elif name.endswith("arrow"):
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.schema([("text", pa.string())])) as out:
            out.write_table(pa.table({"text": texts}), max_chunksize=7)
    else:
        compression = {"gz": "gzip", "zst": "zstd"}.get(name.rsplit(".")[-1])
        with pa.output_stream(str(path), compression=compression) as sink:
            sink.write(data[name.split(".")[1]].encode())
    assert list(open_pool([path])[0].texts) == texts == list(read(path).texts)


def test_python_parses_what_arrow_cannot(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = ['{"text": 5}', "", '{"text": "ab\\ud83d"}', '{"text": "2020-01-01", "x": NaN}', '{"x": 1}',
             '{"text": "\\u2003"}']
    path.write_text("\n".join(lines))
    pool, notices = open_pool([path])
    assert list(pool.texts) == ["5", "ab\ufffd", "2020-01-01"]
    assert notices == [f"2 empty texts in {path} were left out"]


def test_a_bad_line_late_in_a_file_is_named_and_no_file_remains(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n' * 5000 + '{"text": "torn\n')
    with pytest.raises(DataError, match=r"a\.jsonl, line 5001: not valid JSON"):
        open_pool([path], folder=tmp_path / "pools")
    assert list((tmp_path / "pools").iterdir()) == []


def test_the_same_content_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("one\ntwo\n")
    first = open_pool([tmp_path / "a.txt"])[0]
    monkeypatch.setattr("halflabel.data.pool._build", None)
    again = open_pool([tmp_path / "b.txt"])[0]
    assert again.texts.key == first.texts.key and again.source.endswith("b.txt")
    (tmp_path / "b.txt").write_text("one\nthree\n")
    with pytest.raises(TypeError):
        open_pool([tmp_path / "b.txt"])


def test_processes_that_build_the_same_pool_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"text {i % 2500}" for i in range(50_000)))
    code = ("import sys; from pathlib import Path; from halflabel.data.pool import open_pool; "
            "print(len(open_pool([sys.argv[1]], folder=Path(sys.argv[2]))[0]))")
    running = [Forked(path, tmp_path / "pools", code=code) for _ in range(2)]
    assert [process.wait().out.strip() for process in running] == ["2500"] * 2
    assert len(list((tmp_path / "pools").iterdir())) == 1


def test_views_are_read_and_an_empty_view_is_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "aug_0": "b", "aug_1": null}\n{"text": " "}\n{"text": "c", "aug_0": " "}\n')
    pool = open_pool([path])[0]
    assert list(pool.views) == [("b", "a"), ("c", "c")]
    assert [list(column) for column in columns_of(pool.take([1]).views)] == [["c"], ["c"]]


def test_globs_corpora_and_several_files_make_one_pool(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"part-{i}.txt").write_text(f"text {i}\nshared\n")
    pool, notices = open_pool([Corpus(["own", "text 1"], [None] * 2, source="memory"), str(tmp_path / "part-*.txt")])
    assert list(pool.texts) == ["own", "text 1", "text 0", "shared", "text 2"]
    assert notices[0].startswith("3 duplicate texts in memory, ")
    with pytest.raises(DataError, match="no file matches"):
        open_pool([str(tmp_path / "other-*.txt")])


@pytest.fixture
def texts(tmp_path: Path) -> TextColumn:
    (tmp_path / "pool.txt").write_text("\n".join(f"text {i}" for i in range(100)))
    column = open_pool([tmp_path / "pool.txt"])[0].texts
    assert isinstance(column, TextColumn)
    return column


def test_rows_slices_and_an_index_out_of_range(texts: TextColumn) -> None:
    assert (texts[3], texts[-1], texts[np.int64(5)]) == ("text 3", "text 99", "text 5")
    assert texts[98:] == ["text 98", "text 99"]
    with pytest.raises(IndexError):
        texts[100]


def test_rows_on_systems_without_pread(texts: TextColumn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pread")
    assert [texts[i] for i in (99, 0, 42)] == ["text 99", "text 0", "text 42"]


def test_a_pool_that_was_removed_while_in_use(texts: TextColumn) -> None:
    texts.files[0].unlink()
    with pytest.raises(DataError, match="run the command again"):
        texts[3]


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="resident memory is known only on Linux")
def test_reading_rows_leaves_no_pages_resident(tmp_path: Path) -> None:
    (tmp_path / "pool.txt").write_text("\n".join(f"{i} {'word ' * 200}" for i in range(20_000)))
    texts = open_pool([tmp_path / "pool.txt"])[0].texts

    def resident() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssFile"))

    texts[0]
    before = resident()
    for i in np.random.default_rng(0).integers(0, 20_000, 4_000).tolist():
        assert texts[i].startswith(f"{i} word")
    assert len(texts.matching(["nowhere"])) == 0 and sum(1 for _ in texts) == 20_000
    assert resident() - before < 2_000  # of 20,000 kB


def test_an_open_pool_uses_no_memory_per_text(tmp_path: Path) -> None:
    import tracemalloc

    (tmp_path / "pool.txt").write_text("\n".join(map(str, range(100_000))))
    file = open_pool([tmp_path / "pool.txt"])[0].texts.files[0]  # type: ignore[attr-defined]
    tracemalloc.start()
    column = TextColumn(file, "again")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert column[99_999] == "99999" and peak < 50_000


def test_subsets_and_concatenations_are_lazy(texts: TextColumn) -> None:
    selected = subset(texts, [5, 7, 9])
    assert isinstance(selected, Subset) and list(subset(selected, [2, 0])) == ["text 9", "text 5"]
    both = concat(["a", "b"], texts)
    assert isinstance(both, Concat) and (both[1], both[2], len(both)) == ("b", "text 0", 102)
    assert list(subset(both, [0, 2, 101])) == ["a", "text 0", "text 99"]
    assert list(subset(both, [101, 0])) == ["text 99", "a"]
    assert concat(["a"], ["b"]) == ["a", "b"] and concat([], texts) is texts
    lengths = map_parts(both, lambda part: [len(text) for text in part])
    assert list(lengths)[:3] == [1, 1, 6]
    assert list(Zipped([["a", "b"], ["c", "d"]])) == [("a", "c"), ("b", "d")]


def test_matching_rows(texts: TextColumn) -> None:
    wanted = {"text 5", "b", "nowhere"}
    assert matching_rows(texts, wanted).tolist() == [5]
    assert matching_rows(concat(["a", "b"], texts), wanted).tolist() == [1, 7]
    assert matching_rows(subset(texts, [9, 5]), wanted).tolist() == [1]


def test_texts_on_disk_and_in_memory_are_cleaned_together(texts: TextColumn) -> None:
    pool = Corpus(["text 3", " ", "new", "new"], [None] * 4) + Corpus(texts, [None] * 100)
    kept, _ = clean(pool, role="unlabelled")
    assert list(kept.texts) == ["text 3", "new", *(f"text {i}" for i in range(100) if i != 3)]
    assert len(drop_labelled(kept, Corpus(["text 7", "new"], ["a", "b"]))) == 99


def test_prefetch_passes_on_items_and_errors() -> None:
    def numbers() -> object:
        yield from range(10)
        raise DataError("enough")

    items: list[int] = []
    with pytest.raises(DataError, match="enough"):
        items.extend(prefetch(numbers()))
    assert items == list(range(10))
    assert next(prefetch(iter(range(10**6)))) == 0


def test_a_damaged_pool_is_reported_with_its_remedy(texts: TextColumn) -> None:
    file = texts.files[0]
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match="halflabel cache --clear"):
        TextColumn(file, "again")


@settings(deadline=None, database=None)
@given(st.lists(st.lists(st.integers(-100, 100))))
def test_rows_with_a_hash_seen_before_are_duplicates(batches: list[list[int]]) -> None:
    import tempfile

    numbers = [number for batch in batches for number in batch]
    with tempfile.TemporaryDirectory() as folder, RowHashes(Path(folder)) as seen:
        for batch in batches:
            seen.add(np.array(batch, dtype=np.int64))
        assert seen.rows == len(numbers)
        assert seen.duplicates().tolist() == [i for i, number in enumerate(numbers) if number in numbers[:i]]


def test_an_annotation_without_a_label_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "studio.csv"
    file.write_text('text,topic,annotator,annotation_id,lead_time\n"a text","{""choices"": [""x""]}",1,1,1.0\n'
                    '"another","{}",1,2,1.0\n', encoding="utf-8")
    (block,) = open_source(files.as_files([str(file)])[0]).rows()
    assert [row["text"] for row in block] == ["a text", "another"]
