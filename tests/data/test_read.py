"""Reading files: formats, columns, labels and cleaning."""

from __future__ import annotations

import io
import math
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halflabel.data.cleaning import clean
from halflabel.data.corpus import Corpus
from halflabel.data.pool import open_pool, open_source
from halflabel.data.readers.files import File
from halflabel.data.readers.read import read
from halflabel.errors import DataError, SettingError
from written import NAMES, SETTINGS, TEXTS, write


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".parquet"])
@SETTINGS
@given(texts=TEXTS, data=st.data())
def test_written_files_are_read_back_unchanged(suffix: str, texts: list[str], data: st.DataObject) -> None:
    labels = data.draw(st.lists(NAMES, min_size=len(texts), max_size=len(texts)))
    with tempfile.TemporaryDirectory() as folder:
        corpus = read(write(folder, suffix, {"text": texts, "label": labels}))
    assert corpus.texts == texts
    assert corpus.labels == labels


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@SETTINGS
@given(texts=TEXTS)
def test_a_single_column_of_texts_is_read_back_unchanged(suffix: str, texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert read(write(folder, suffix, {"text": texts})).texts == texts


WHOLE = st.one_of(st.none(), st.integers(0, 2**60), st.integers(-(2**60), -2))
SETS = st.one_of(st.none(), st.lists(NAMES, unique=True, max_size=3).map(tuple))


@pytest.mark.parametrize(
    "kind", [WHOLE, st.one_of(st.none(), st.booleans()), SETS], ids=["int", "bool", "set"]
)
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
@SETTINGS
@given(data=st.data())
def test_typed_labels_keep_their_type(suffix: str, kind: st.SearchStrategy, data: st.DataObject) -> None:
    labels = data.draw(st.lists(kind, min_size=1, max_size=6))
    with tempfile.TemporaryDirectory() as folder:
        corpus = read(write(folder, suffix, {"text": ["a"] * len(labels), "label": labels}))
    assert corpus.labels == labels
    assert [type(label) for label in corpus.labels] == [type(label) for label in labels]


def test_quoted_newlines_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('\ufefftext,label\r\n"one\r\ntwo, ""three""",x\r\nfour,y\r\n'.encode())
    corpus = read(path)
    assert corpus == Corpus(['one\r\ntwo, "three"', "four"], ["x", "y"], [], str(path))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_detected_by_the_header(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(delimiter.join(["label", "text"]) + "\n" + delimiter.join(["x", "well"]))
    assert read(path) == Corpus(["well"], ["x"], [], str(path))


def test_a_cell_of_three_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "x " * 1_500_000 + ",a\nshort,b\n")
    assert [len(text) for text in read(path).texts] == [3_000_000, 5]


@pytest.mark.parametrize(
    ("content", "texts", "labels"),
    [
        ('{"text": "a", "label": "x"}\n\n{"text": "b"}\n', ["a", "b"], ["x", None]),
        ('[{"text": "a", "label": 1}]', ["a"], [1]),
        ("text;label\na;x\n", ["a"], ["x"]),
        ("just a line\nand, another\n", ["just a line", "and, another"], [None, None]),
    ],
)
def test_the_format_of_standard_input_is_detected_by_content(
    monkeypatch: pytest.MonkeyPatch, content: str, texts: list[str], labels: list
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content.encode())))
    assert read("-") == Corpus(texts, labels, [], "standard input")


def test_parquet_without_its_suffix_and_typed_columns(tmp_path: Path) -> None:
    table = pa.table(
        {"text": pa.array(["a", None, "c"]).dictionary_encode(), "labels": [["x", "y"], [], None]}
    )
    pq.write_table(table, tmp_path / "data")
    corpus = read(tmp_path / "data")
    assert (corpus.texts, corpus.labels, corpus.task) == (
        ["a", "", "c"],
        [("x", "y"), (), None],
        "multi-label",
    )


def test_txt_is_one_text_per_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("text,label\r\n\r\nlast\u2028still".encode())
    assert read(path).texts == ["text,label", "", "last\u2028still"]


def test_json_numbers_become_text_and_half_of_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"text": 5}\n{"text": null}\n{"text": "ab\\ud83d"}\n{"text": "\\ud83d\\ude00"}\n{"x": 1}\n'
    )
    assert read(path).texts == ["5", "", "ab\ufffd", "😀", ""]


@pytest.mark.parametrize(
    ("header", "text", "label"),
    [
        ("Text,LABEL", "Text", "LABEL"),
        ("id,sentence,category", "sentence", "category"),
        ("body,text,target,label", "text", "label"),
        ("title,tags", "title", "tags"),
        (" text, labels ,class", " text", " labels "),
        ("review,score", "review", None),
        ("text,labels,label", "text", "label"),
    ],
)
def test_columns_are_found_by_name(tmp_path: Path, header: str, text: str, label: str | None) -> None:
    path = tmp_path / "a.csv"
    names = header.split(",")
    path.write_text(header + "\n" + ",".join(f"<{name}>" for name in names) + "\n")
    corpus = read(path)
    assert corpus.texts == [f"<{text}>"]
    assert corpus.labels == [f"<{label}>" if label else None]


def test_named_columns_override_usual_names(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label,note,mood\na,b,c,d\n")
    assert read(path, text="note", label="Mood") == Corpus(["c"], ["d"], [], str(path))


def test_views_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "aug_10": "k", "aug_0": "b"}\n{"text": "c", "aug_0": "d"}\n')
    assert read(path).views == [("b", "k"), ("d", "c")]


def test_clean_drops_empty_and_duplicate_texts() -> None:
    corpus = Corpus(["a", " ", "b", "a", "", "b"], ["x", "x", None, "x", None, "y"], source="t.csv")
    kept, notices = clean(corpus, role="labelled")
    assert (kept.texts, kept.labels) == (["a", "b"], ["x", "y"])
    assert notices == ["2 empty texts in t.csv were left out", "2 duplicate texts in t.csv were left out"]


def test_clean_drops_conflicts_and_names_the_first() -> None:
    kept, notices = clean(
        Corpus(["a", "b", "a", "c", "c"], [1, 2, 3, (1, 2), (2, 1)], source="t"), role="labelled"
    )
    assert kept.texts == ["b", "c"]
    assert "2 texts in t were left out because the same text has different labels" in notices[1]
    assert "text 1, 'a'" in notices[1]


def test_clean_of_a_pool_keeps_first_occurrences_with_their_views() -> None:
    corpus = Corpus(["b", "a", "b"], [None] * 3, [("1",), ("2",), ("3",)], "pool")
    kept, notices = clean(corpus, role="unlabelled")
    assert (kept.texts, kept.views) == (["b", "a"], [("1",), ("2",)])
    assert notices == ["1 duplicate text in pool was left out"]


def test_clean_of_a_test_set_keeps_duplicates_without_a_notice() -> None:
    corpus = Corpus(["a", "a"], ["x", "y"])
    assert clean(corpus, role="test") == (corpus, [])
    assert clean(Corpus(["a"], [None]), role="unlabelled") == (Corpus(["a"], [None]), [])


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_pandas_style_floats_with_nan_are_whole_numbers(tmp_path: Path, suffix: str) -> None:
    values = ["1.0", "", "2.0", "-1.0"] if suffix == ".csv" else [1.0, math.nan, 2.0, -1.0]
    assert read(write(tmp_path, suffix, {"text": list("abcd"), "label": values})).labels == [1, None, 2, None]


def test_the_same_column_for_both_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.csv: the column 'text' is named for both"):
        read(write(tmp_path, ".csv", {"text": ["a"]}), label="text")


@pytest.mark.parametrize(("name", "content"), [
    ("a.csv", "text,label\na,sport\nb,sport \n"), ("a.jsonl", '{"text": "a", "label": "sport"}\n'
                                                             '{"text": "b", "label": " sport"}\n')])
def test_whitespace_around_labels_makes_no_new_class(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert read(tmp_path / name).labels == ["sport", "sport"]


def test_files_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("text,label\nça va,été\n".encode("cp1252"))
    corpus = read(tmp_path / "a.csv", encoding="cp1252")
    assert list(corpus.texts) == ["ça va"] and list(corpus.labels) == ["été"]
    pool, _ = open_pool([tmp_path / "a.csv"], encoding="cp1252")
    assert list(pool.texts) == ["ça va"]
    with pytest.raises(DataError, match="not UTF-8"):  # it holds for the call alone
        read(tmp_path / "a.csv")
    with pytest.raises(SettingError, match="the encoding 'klingon' is not known"):
        read(tmp_path / "a.csv", encoding="klingon")


@pytest.mark.parametrize(("name", "content"), [
    ("a.csv", '"one, or more",x,7\n"two",y,8\n'), ("a.tsv", "one, or more\tx\t7\ntwo\ty\t8\n"),
    ("a.csv", "one, or more;x;7\ntwo;y;8\n"), ("a", "one, or more|x|7\ntwo|y|8\n")])
def test_without_a_header_columns_are_numbers(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    corpus = read(tmp_path / name, header=False, text="1", label="2")
    assert corpus.texts == ["one, or more", "two"] and corpus.labels == ["x", "y"]
    rows = next(iter(open_source(File(str(tmp_path / name), header=False), "1").rows()))
    assert rows == [{"text": "one, or more", "2": "x", "3": "7"}, {"text": "two", "2": "y", "3": "8"}]


def test_numbers_of_columns_and_a_missing_header_are_explained(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("one,x\ntwo,y\nthree\n")
    with pytest.raises(DataError, match="line 3: 1 cells where the first line has 2"):
        read(tmp_path / "a.csv", header=False, text="1")
    (tmp_path / "a.csv").write_text("one,x\ntwo,1.5\n")
    with pytest.raises(DataError, match=r"no column '1'; .* or add --no-header if its first line is data"):
        read(tmp_path / "a.csv", text="1")
    with pytest.raises(DataError, match="such as --text-column 1 --label-column 2"):
        read(tmp_path / "a.csv", header=False)
    pools = tmp_path / "pools"
    assert list(open_pool([tmp_path / "a.csv"], text="1", header=False, folder=pools)[0].texts) == ["one", "two"]
    assert list(open_pool([tmp_path / "a.csv"], text="one", folder=pools)[0].texts) == ["two"]
