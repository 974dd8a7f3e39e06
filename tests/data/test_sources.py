"""Reading folders, frames, datasets and exports of annotation tools."""

from __future__ import annotations

import csv
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halflabel.data.pool import open_pool, open_source
from halflabel.data.readers.annotation_tools import doccano, label_studio, prodigy
from halflabel.data.readers.files import File
from halflabel.data.readers.read import read
from halflabel.errors import DataError, MissingExtra
from written import NAMES, SETTINGS, TEXTS


def task(text: str, *choices: list[str] | None, **more: Any) -> dict[str, Any]:
    """A task of Label Studio with an annotation for each list of choices; None is one that was skipped."""
    given = [{"id": i, "was_cancelled": one is None, "completed_by": 1, "result": [] if one is None else [
        {"from_name": "sentiment", "to_name": "text", "type": "choices", "value": {"choices": one}}]}
        for i, one in enumerate(choices)]
    return {"id": 1, "data": {"text": text}, "annotations": given, "predictions": [], **more}


def saved(folder: Path, name: str, value: Any) -> Path:
    path = folder / name
    lines = "".join(json.dumps(one) + "\n" for one in value) if name.endswith("l") else json.dumps(value)
    path.write_text(lines, encoding="utf-8")
    return path


class TestLabelStudio:
    def test_json(self, tmp_path: Path) -> None:
        hint = label_studio({"text": "d", "label": "good", "score": 0.9})
        path = saved(tmp_path, "a.json", [task("a", ["good"]), task("b", ["bad"], ["good"]), task("c", None), hint])
        corpus = read(path)
        assert corpus.texts == ["a", "b", "b", "c", "d"]
        assert corpus.labels == ["good", "bad", "good", None, None]

    def test_several_choices_are_several_labels(self, tmp_path: Path) -> None:
        path = saved(tmp_path, "a.json", [task("a", ["x", "y"]), task("b", ["x"]), task("c", []), task("d")])
        assert read(path).labels == [("x", "y"), ("x",), (), None]

    def test_two_questions_are_refused(self, tmp_path: Path) -> None:
        one = task("a", ["x"])
        one["annotations"][0]["result"].append({"from_name": "tone", "type": "choices", "value": {"choices": ["y"]}})
        with pytest.raises(DataError, match="several questions \\('sentiment', 'tone'\\)"):
            read(saved(tmp_path, "a.json", [one]))

    def test_json_min(self, tmp_path: Path) -> None:
        own = {"id": 1, "annotator": 1, "annotation_id": 2, "created_at": "", "updated_at": "", "lead_time": 1.5}
        path = saved(tmp_path, "a.json", [{"text": "a", "mood": "x", **own}, {"text": "b", **own},
                                          {"text": "c", "mood": {"choices": ["x", "y"]}, **own}])
        assert read(path).labels == [("x",), None, ("x", "y")]
        path = saved(tmp_path, "b.json", [{"text": "a", "mood": "x", "tone": "y", **own}])
        assert read(path).labels == [None] and read(path, label="tone").labels == ["y"]

    def test_csv(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        names = ["annotation_id", "annotator", "created_at", "id", "lead_time", "mood", "text", "updated_at",
                 "was_cancelled"]
        with open(path, "w", newline="") as stream:
            lines = csv.writer(stream, quoting=csv.QUOTE_NONNUMERIC)
            lines.writerow(names)
            lines.writerow([1, "1", "", 1, 2.5, "x", "a", "", "False"])
            lines.writerow([2, "1", "", 2, 2.5, "y", "b", "", "True"])
            lines.writerow([3, "1", "", 3, 2.5, '{"choices": ["x", "y"]}', "c", "", "False"])
        assert read(path).labels == [("x",), None, ("x", "y")]


class TestDoccano:
    def test_single_labels(self, tmp_path: Path) -> None:
        rows = [{"id": 1, "text": "a", "label": ["x"], "Comments": []},
                {"id": 2, "text": "b", "label": [], "Comments": ["?"]}]
        assert read(saved(tmp_path, "a.jsonl", rows)).labels == ["x", None]

    def test_several_labels(self, tmp_path: Path) -> None:
        rows = [{"id": 1, "text": "a", "label": ["x", "y"], "Comments": []},
                {"id": 2, "text": "b", "label": [], "Comments": []}]
        assert read(saved(tmp_path, "a.jsonl", rows)).labels == [("x", "y"), None]

    def test_spans_are_refused(self, tmp_path: Path) -> None:
        rows = [{"id": 1, "text": "a", "label": [[0, 1, "x"]], "Comments": []}]
        with pytest.raises(DataError, match="line 1: the label is a span"):
            read(saved(tmp_path, "a.jsonl", rows))


class TestProdigy:
    def test_one_label_accepted_or_rejected(self, tmp_path: Path) -> None:
        rows = [{"text": text, "label": "x", "answer": answer, "_input_hash": 1}
                for text, answer in (("a", "accept"), ("b", "reject"), ("c", "ignore"))]
        assert read(saved(tmp_path, "a.jsonl", rows)).labels == ["x", "not x", None]
        rows.append({"text": "d", "label": "y", "answer": "accept"})
        assert read(saved(tmp_path, "a.jsonl", rows)).labels == ["x", None, None, "y"]

    def test_choices(self, tmp_path: Path) -> None:
        options = [{"id": "x", "text": "X"}, {"id": "y", "text": "Y"}]
        rows = [{"text": "a", "options": options, "accept": ["x"], "answer": "accept"},
                {"text": "b", "options": options, "accept": [], "answer": "accept"},
                {"text": "c", "options": options, "accept": ["y"], "answer": "reject"}]
        assert read(saved(tmp_path, "a.jsonl", rows)).labels == ["x", None, None]
        rows.append({"text": "d", "options": options, "accept": ["x", "y"], "answer": "accept"})
        assert read(saved(tmp_path, "a.jsonl", rows)).labels == [("x",), (), None, ("x", "y")]


def answered(tool: str, rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """The export of a tool after a person accepted every suggestion."""
    if tool == "label-studio":
        tasks = [label_studio(row) for row in rows]
        return [{"id": i, **one, "annotations": [{"was_cancelled": False, "result": one["predictions"][0]["result"]}]}
                for i, one in enumerate(tasks)]
    if tool == "doccano":
        return [{"id": i, **doccano(row), "Comments": []} for i, row in enumerate(rows)]
    return [prodigy(row, names) | {"answer": "accept"} for row in rows]


@pytest.mark.parametrize("tool", ["label-studio", "doccano", "prodigy"])
@SETTINGS
@given(texts=TEXTS, data=st.data())
def test_accepted_suggestions_are_read_back(tool: str, texts: list[str], data: st.DataObject) -> None:
    import tempfile

    labels = data.draw(st.lists(NAMES, min_size=len(texts), max_size=len(texts)))
    rows = [{"text": text, "label": label, "score": 0.5} for text, label in zip(texts, labels, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        name = "a.json" if tool == "label-studio" else "a.jsonl"
        corpus = read(saved(Path(folder), name, answered(tool, rows, sorted(set(labels)))))
    assert (corpus.texts, corpus.labels) == (texts, labels)


def test_a_folder_with_a_subfolder_for_each_label(tmp_path: Path) -> None:
    for place, text in (("pos/1.txt", "good\nfilm"), ("neg/1.txt", "bad"), ("unsup/1.txt", "?"), ("pos/.hidden", "no")):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(text)
    corpus = read(tmp_path)
    assert dict(zip(corpus.texts, corpus.labels, strict=True)) == {"good\nfilm": "pos", "bad": "neg", "?": None}
    (tmp_path / "neg" / "1.txt").write_bytes(b"\xe9")
    with pytest.raises(DataError, match=r"neg/1\.txt, line 1: byte 1"):
        read(tmp_path)


def test_arrow_tables_and_pandas_frames() -> None:
    table = pa.table({"text": ["a", "b", None], "label": ["x", None, "y"]})
    assert (read(table).texts, read(table).labels) == (["a", "b", ""], ["x", None, "y"])
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", "b"], "label": [1.0, float("nan")]})
    assert read(frame).labels == [1, None]


def test_hugging_face_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["n", "p"])})
    dataset = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, -1, 0]}, features=features)
    assert read(dataset).labels == ["p", None, "n"] and read(dataset.select([2])).texts == ["c"]
    dataset.save_to_disk(tmp_path / "set")
    assert read(tmp_path / "set").labels == ["p", None, "n"]
    datasets.DatasetDict({"train": dataset}).save_to_disk(tmp_path / "sets")
    with pytest.raises(DataError, match="several datasets"):
        read(tmp_path / "sets")


def test_polars_frames() -> None:
    polars = pytest.importorskip("polars")
    assert read(polars.DataFrame({"text": ["a"], "label": [["x", "y"]]})).labels == [("x", "y")]


def test_other_objects_are_refused() -> None:
    with pytest.raises(DataError, match="the int cannot be read"):
        read(5)


def test_several_files_and_globs(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\na,x\n")
    (tmp_path / "b.jsonl").write_text('{"text": "b", "label": "y"}\n')
    corpus = read([tmp_path / "a.csv", tmp_path / "*.jsonl"])
    assert (corpus.texts, corpus.labels) == (["a", "b"], ["x", "y"])
    assert read(str(tmp_path / "*.csv")).texts == ["a"]


@pytest.mark.parametrize("value", [pa.array(["a", None]).dictionary_encode(), pa.array(["a", None], pa.string_view()),
                                   pa.array([1, None])])
def test_arrow_streams_of_any_text_type(tmp_path: Path, value: pa.Array) -> None:
    from halflabel.data.pool import open_pool

    path = tmp_path / "a.arrow"
    table = pa.table({"text": value})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    assert list(read(path).texts)[1] == "" and len(open_pool([path])[0]) == 1


def test_a_cell_of_ten_megabytes_in_every_format(tmp_path: Path) -> None:
    from halflabel.data.corpus import Corpus
    from halflabel.data.pool import open_pool
    from halflabel.data.readers.formats import write

    long = "x " * 5_000_000
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        write(Corpus([long, "short"], ["a", "b"]), tmp_path / name)
        assert [len(text) for text in read(tmp_path / name).texts] == [10_000_000, 5]
        assert [len(text) for text in open_pool([tmp_path / name])[0].texts] == [10_000_000, 5]


def workbook(path: Path, **sheets: list[list[Any]]) -> Path:
    """An Excel workbook with these rows in its sheets."""
    from openpyxl import Workbook

    book = Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


class TestExcel:
    def test_columns_are_found_as_in_csv_and_whole_numbers_are_labels_without_a_point(self, tmp_path: Path) -> None:
        path = workbook(tmp_path / "a.xlsx", Data=[
            ["id", "text", "label"], [1, "one", 3.0], [2, "two", None], [], [3, None, 4], [4, 2026, 3]])
        corpus = read(path)
        assert corpus.texts == ["one", "two", "", "2026"] and corpus.labels == [3, None, 4, 3]
        several = workbook(tmp_path / "b.xlsx", Data=[["text", "labels"], ["one", "x;y"], ["two", '["x"]']])
        assert read(several, label="text", text="labels").texts == ["x;y", '["x"]']

    def test_the_first_sheet_or_the_named_one_with_and_without_a_header(self, tmp_path: Path) -> None:
        path = workbook(tmp_path / "a.xlsx", First=[["text"], ["one"]], Second=[["two", True], ["three", False]])
        assert read(path).texts == ["one"]
        corpus = read(path, sheet="Second", header=False, text="1", label="2")
        assert corpus.texts == ["two", "three"] and corpus.labels == ["TRUE", "FALSE"]
        with pytest.raises(DataError, match="no sheet 'Third'; its sheets are 'First', 'Second': name one with"):
            read(path, sheet="Third")

    def test_pools_and_predictions_keep_what_they_keep_of_csv(self, tmp_path: Path) -> None:
        path = workbook(tmp_path / "a.xlsx", Data=[["text", "id"], ["one", 1], ["two", 2], ["one", 3]])
        assert list(open_pool([path], folder=tmp_path / "pools")[0].texts) == ["one", "two"]
        rows = [row for batch in open_source(File(str(path))).rows() for row in batch]
        assert rows[1] == {"id": "2", "text": "two"}

    def test_what_is_wrong_is_one_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = workbook(tmp_path / "a.xlsx", Data=[["text", "label"], ["one", 1.5]])
        with pytest.raises(DataError, match=r"a.xlsx, row 2, column 'label'"):
            read(path)
        (tmp_path / "cut.xlsx").write_bytes(path.read_bytes()[:-900])
        with pytest.raises(DataError, match=r"cut.xlsx is not a complete Excel file .*; save it again, or export"):
            read(tmp_path / "cut.xlsx")
        with zipfile.ZipFile(tmp_path / "b.xlsx", "w") as archive:
            archive.writestr("notes.txt", "one")
        with pytest.raises(DataError, match="b.xlsx is a zip file without an Excel workbook; unpack it"):
            read(tmp_path / "b.xlsx")
        monkeypatch.setitem(sys.modules, "openpyxl", None)
        with pytest.raises(MissingExtra, match=r"pip install 'halflabel\[excel\]'"):
            read(path)

    def test_bombs_are_refused_before_they_are_parsed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("halflabel.data.readers.files.MIN_BOMB", 1 << 20)
        monkeypatch.setattr("halflabel.data.readers.excel.BLOCK", 24)  # bytes, which divide the third DOCTYPE
        monkeypatch.setattr("openpyxl.load_workbook", lambda *_, **__: pytest.fail("it was parsed"))
        for content, words in [
                (b" " * (1 << 22), "more than 100 times its size, as no texts do; export it as CSV"),
                (b"<!DOCTYPE a [<!ENTITY", "XML entities"),
                (b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY", "XML entities")]:
            with zipfile.ZipFile(tmp_path / "a.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("xl/workbook.xml", content)
            with pytest.raises(DataError, match=words):
                read(tmp_path / "a.xlsx")

    def test_a_cell_far_away_costs_nothing(self, tmp_path: Path) -> None:
        from openpyxl import Workbook

        book = Workbook()
        for place, value in {"A1": "text", "A2": "one", "XFD9000": "far"}.items():
            book.active[place] = value
        book.save(tmp_path / "a.xlsx")
        assert read(tmp_path / "a.xlsx").texts == ["one", ""]
