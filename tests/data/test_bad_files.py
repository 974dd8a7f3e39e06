"""Each bad file gives one sentence that names the file, the place and the remedy."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halflabel.data.files import File
from halflabel.data.read import read
from halflabel.types import BadInput

CASES = [
    ("empty.csv", b"", ["is empty"]),
    ("blank.jsonl", b"\n \n", ["is empty"]),
    ("header_only.csv", b"text,label\n", ["no rows", "at least one text"]),
    ("none.json", b"[]", ["no rows"]),
    ("latin1.csv", "text,label\nfine,a\ncafé,b\n".encode("latin-1"), ["line 3", "byte 22", "0xe9", "UTF-8"]),
    ("latin1_bom.txt", b"\xef\xbb\xbfab\n\xe9", ["line 2", "byte 7", "save it as UTF-8"]),
    ("utf16.csv", "text,label\na,b\n".encode("utf-16"), ["UTF-16", "save it as UTF-8"]),
    ("long.csv", b"text,label\na,b\nc,d,e\n", ["line 3", "3 cells", "header has 2", "quotes"]),
    ("short.csv", b'text,label\n"a\nb",x\n\nc\n', ["line 5", "1 cells", "header has 2"]),
    ("short.tsv", b"text\tlabel\na\n", ["line 2", "1 cells"]),
    ("open_quote.csv", b'text,label\na,b\nc,"d\ne,f\n', ["line 3", "never closed"]),
    ("open_quote_first.csv", b'text,label\n"a,b\nc,d\n', ["line 2"]),
    (
        "no_header.csv",
        b"I like it,pos\nI do not,neg\n",
        ["'I like it', 'pos'", "--text-column", "text,label"],
    ),
    ("no_text.jsonl", b'{"a": 1, "b": 2}\n', ["'a', 'b'", "--text-column"]),
    ("two_texts.csv", b"body,title,label\na,b,c\n", ["'body', 'title'", "--text-column"]),
    ("twice.csv", b"text,text\na,b\n", ["'text', 'text'", "--text-column"]),
    ("two_labels.csv", b"text,category,target\na,b,c\n", ["'category', 'target'", "--label-column"]),
    ("label_and_labels.csv", b"text,Label,labels\na,b,c\n", ["'Label', 'labels'", "--label-column"]),
    ("torn.jsonl", b'{"text": "a"}\n{"text": "b', ["line 2", "not valid JSON", "one whole object per line"]),
    ("comma.json", b'[{"text": "a"},\n{"text": "b"},]', ["line 2", "column", "not valid JSON"]),
    ("strings.jsonl", b'{"text": "a"}\n"b"\n', ["line 2", "a str, not an object"]),
    ("strings.json", b'["a", "b"]', ["record 1", "a str, not an object"]),
    ("columns.json", b'{"text": {"0": "a", "1": "b"}}', ["line 1", "'text'", "the text is a dict"]),
    ("deep.jsonl", b"[" * 200_000, ["line 1", "JSON"]),
    ("list_text.jsonl", b'{"text": "a"}\n\n{"text": ["b"]}', ["line 3", "'text'", "a list", "one string"]),
    ("minus.jsonl", b'{"text": "a", "label": "-1"}', ["line 1", "'label'", "'-1'", "rename"]),
    ("minus.csv", b"text,label\na,x\nb,-1\n", ["line 3", "'label'", "'-1'", "leave it empty"]),
    ("minus_tags.csv", b"text,tags\na,x;y\nb,-1\n", ["line 3", "'tags'", "'-1'"]),
    ("floats.csv", b"text,label\na,1\nb,0.5\n", ["line 3", "'label'", "0.5", "fraction"]),
    ("floats.jsonl", b'{"text": "a", "label": 0.25}', ["line 1", "0.25"]),
    ("dict.jsonl", b'{"text": "a", "label": {"x": 1}}', ["line 1", "'label'", "a dict"]),
    (
        "mixed_kinds.jsonl",
        b'{"text": "a", "label": 1}\n{"text": "b", "label": "x"}',
        ["line 2", "'x'", "one kind"],
    ),
    (
        "mixed_bool.jsonl",
        b'{"text": "a", "label": 1}\n{"text": "b", "label": true}',
        ["line 2", "true/false"],
    ),
    (
        "mixed_lists.jsonl",
        b'{"text": "a", "label": "x"}\n{"text": "b", "label": ["x"]}',
        ["line 2", "mixes lists"],
    ),
    ("mixed_lists.csv", b'text,label\na,"[""x""]"\nb,y\n', ["line 3", "'y'", "mixes lists"]),
    (
        "null_in_list.jsonl",
        b'{"text": "a", "labels": ["x", null]}',
        ["line 1", "'labels'", "None", "take it out"],
    ),
    ("nested_list.jsonl", b'{"text": "a", "labels": [["x"]]}', ["line 1", "a list"]),
    ("half_pair.jsonl", b'{"text": "a", "label": "\\ud800"}', ["line 1", "surrogate"]),
    ("two_marks.csv", b"text,labels\na,x;y\nb,x|y\n", ["line 3", "';' and by '|'"]),
    ("packed.csv.gz", b"\x1f\x8b\x08\x00", ["not a whole gzip file", "pack it again"]),
    ("sheet.csv", b"PK\x03\x04rest", ["Excel", "CSV"]),
    ("no_magic.parquet", b"text,label\na,b\n", ["not a whole Parquet file", "again"]),
]


@pytest.mark.parametrize(("name", "content", "said"), CASES, ids=[case[0] for case in CASES])
def test_a_bad_file_is_named_with_place_and_remedy(
    tmp_path: Path, name: str, content: bytes, said: list[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read(path)
    sentence = str(caught.value)
    assert sentence.startswith(str(path))
    assert [part for part in said if part not in sentence] == [], sentence
    assert "\n" not in sentence


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"gone.csv does not exist; check the path"):
        read(tmp_path / "gone.csv")
    with pytest.raises(BadInput, match="is a folder; give one file"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("error", "said"), [(PermissionError(13, "no"), "chmod"), (OSError(5, "broken"), "broken")]
)
def test_a_file_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, error: OSError, said: str) -> None:
    def refuse(self: File) -> bytes:
        raise error

    monkeypatch.setattr(File, "_opened", refuse)
    with pytest.raises(BadInput, match=rf"secret.csv .*{said}"):
        read("secret.csv")


@pytest.mark.parametrize("flag", ["text", "label"])
def test_a_flag_for_a_column_that_is_not_there(tmp_path: Path, flag: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,b\n")
    said = rf"a.csv has no column 'mood'; its columns are 'text', 'label'.*--{flag}-column"
    with pytest.raises(BadInput, match=said):
        read(path, **{flag: "mood"})


def test_a_flag_for_a_txt_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\n")
    with pytest.raises(BadInput, match="no column 'label'"):
        read(path, label="label")


@pytest.mark.parametrize("keep", [0.5, 0.98])
def test_a_truncated_parquet_file(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text {i}" for i in range(500)]}), path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(BadInput, match=r"a\.parquet is not a whole Parquet file"):
        read(path)


def test_a_parquet_file_with_a_damaged_middle(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text {i}" * 20 for i in range(500)]}), path)
    data = bytearray(path.read_bytes())
    data[4:1000] = b"\xff" * 996
    path.write_bytes(bytes(data))
    with pytest.raises(BadInput, match=r"a\.parquet, column 'text': damaged"):
        read(path)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array(["x", "-1"]), "row 2, column 'label': the label '-1'"),
        (pa.array([0.5, 1.0]), "row 1, column 'label': the label 0.5"),
        (pa.array([1, 2], pa.timestamp("s")), "row 1, column 'label': the label is a datetime"),
    ],
)
def test_parquet_labels_that_are_refused_by_row(tmp_path: Path, column: pa.Array, said: str) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "label": column}), path)
    with pytest.raises(BadInput, match=said):
        read(path)


def test_standard_input_is_named_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b'{"text": "a"}\n{oops')))
    with pytest.raises(BadInput, match=r"^standard input, line 2: not valid JSON"):
        read("-")


PIECES = [
    b"text",
    b"label",
    b"labels",
    b'"',
    b"\n",
    b",",
    b";",
    b"\t",
    b"-1",
    b"NaN",
    b"[",
    b"]",
    b"{",
    b"}",
    b":",
    b"1e999",
]
PIECES += [
    b"\x00",
    b"\xff",
    b"0.5",
    b'["a"]',
    b"null",
    b'{"text": "a", "label": 1}\n',
    b"text,label\na,b\n",
    b"PAR1",
]
SUFFIXES = st.sampled_from([".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt", ""])


@settings(
    max_examples=300,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(suffix=SUFFIXES, content=st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join))
def test_whatever_is_in_a_file_it_is_read_or_refused_in_one_sentence(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    path = tmp_path / f"any{suffix}"
    path.write_bytes(content)
    sentence = f"{path} was read"
    try:
        read(path)
    except BadInput as error:
        sentence = str(error)
    assert sentence.startswith(str(path))
    assert "\n" not in sentence
