"""Corpora of the user: files and folders in any format, Hugging Face datasets, one file that is split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halflabel.bench.corpora import load
from halflabel.errors import DataError, HalflabelError


def dataset(folder: Path, **columns: list[Any]) -> Path:
    """What `Dataset.save_to_disk` writes."""
    folder.mkdir(parents=True)
    table, name = pa.table(columns), "data-00000-of-00001.arrow"
    with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    return folder


def test_a_folder_of_files_of_different_kinds(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\nred,a\nblue,b\n")
    (tmp_path / "valid.tsv").write_text("text\tlabel\ngreen\ta\n")
    (tmp_path / "test.jsonl").write_text('{"text": "grey", "label": "b"}\n')
    (tmp_path / ".hidden").write_text("")
    parts = load("mine", tmp_path)
    assert parts.train.texts == ["red", "blue"] and parts.test.labels == ["b"] and parts.notices == ()
    assert parts.dev is not None and parts.dev.texts == ["green"]


def test_several_labels_and_files_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for i in range(2):
        pq.write_table(pa.table({"text": [f"t{i}"], "labels": [["a", "b"][: i + 1]]}),
                       tmp_path / "data" / f"train-{i:05d}-of-00002.parquet")
    pq.write_table(pa.table({"text": ["z"], "labels": [["b"]]}), tmp_path / "data" / "test-00000-of-00001.parquet")
    parts = load("mine", tmp_path)
    assert parts.train.texts == ["t0", "t1"] and parts.train.labels == [("a",), ("a", "b")] and parts.dev is None


def test_a_folder_with_folders_of_labels(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for label in ("pos", "neg"):
            (tmp_path / part / label).mkdir(parents=True)
            (tmp_path / part / label / "1.txt").write_text(f"{part} {label}")
    assert sorted(load("mine", tmp_path).test.texts) == ["test neg", "test pos"]


def test_a_dataset_dict_on_disk_stands_for_one_of_the_six(tmp_path: Path) -> None:
    dataset(tmp_path / "train", text=["so\\nso", 'a \\"b\\"'], label=[0, 4])
    dataset(tmp_path / "test", text=["fine"], label=[3])
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    parts = load("yelp", tmp_path)
    assert parts.train.texts == ["so\nso", 'a "b"'] and parts.train.labels == [0, 4]
    assert "2 training texts (the paper: 650,000)" in parts.notices[0]


def test_yahoo_of_the_hub_has_three_columns_of_text() -> None:
    rows = {"id": [0], "topic": [4], "question_title": ["why?"], "question_content": [""], "best_answer": ["so\\nthen"]}
    parts = load("yahoo", {"train": pa.table(rows), "test": pa.table(rows)})
    assert parts.train.texts == ["why? so\nthen"] and parts.train.labels == [4]
    plain = pa.table({"text": ["why? so"], "label": ["Sports"]})
    assert load("yahoo", {"train": plain, "test": plain}).test.texts == ["why? so"]


@pytest.mark.parametrize("several", [False, True])
def test_one_file_is_split_in_the_same_way_each_time(tmp_path: Path, several: bool) -> None:
    lines = [{"text": f"text {i}", "label": [f"c{i % 3}"] if several else f"c{i % 3}"} for i in range(30)]
    file = tmp_path / "all.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    parts, again = load("mine", file), load("mine", str(file))
    assert (len(parts.train), len(parts.test)) == (24, 6) and set(parts.test.texts) == set(again.test.texts)
    assert {*parts.train.texts, *parts.test.texts} == {f"text {i}" for i in range(30)}
    assert all(label in (f"c{int(text.split()[1]) % 3}", (f"c{int(text.split()[1]) % 3}",))
               for text, label in zip(parts.train.texts, parts.train.labels, strict=True))
    assert "6 of its texts are held out as test set" in parts.notices[0]


def test_a_single_dataset_is_split_too(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "one", text=[f"t{i}" for i in range(20)], label=["World", "Sports"] * 10)
    parts = load("ag_news", folder)
    assert (len(parts.train), len(parts.test)) == (16, 4) and len(parts.notices) == 2


@pytest.mark.parametrize(("files", "words"), [
    ({"train.csv": "text,label\na,b\n"}, "has no test part (found: train); add one, for example test.csv"),
    ({"test.csv": "text,label\na,b\n"}, "has no train part (found: test)"),
    ({"train.csv": "text,label\na,b\n", "test.csv": "text,label\na,b\nc,\n"},
     "test.csv, text 2 has no label; label every text of the test part"),
    ({"train.csv": "text,label\na,b\n", "train.txt": "a\n", "test.csv": "text,label\na,b\n"},
     "train.csv and train.txt could both be the train part; remove one"),
    ({"notes.md": "hello"}, "is a folder; give one file inside it"),
])
def test_bad_folders(tmp_path: Path, files: dict[str, str], words: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(HalflabelError) as error:
        load("mine", tmp_path)
    assert words in str(error.value)


def test_what_has_no_parts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HalflabelError, match="does not exist; check the path"):
        load("mine", tmp_path / "nowhere")
    (tmp_path / "few.csv").write_text("text,label\na,x\nb,y\n")
    with pytest.raises(DataError, match="has 2 texts, too few to hold out a test set"):
        load("mine", tmp_path / "few.csv")
    with pytest.raises(DataError, match="the mapping has no train part \\(found: none\\)"):
        load("mine", {})
