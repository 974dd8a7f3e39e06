"""Files that cannot be read, and words of the message about each."""

from __future__ import annotations

import gzip
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def parquet(columns: dict[str, list[Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


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
        ["'I like it', 'pos'", "--no-header --text-column 1 --label-column 2"],
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
        ["line 2", "'x'", "one type"],
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
        ["line 1", "'labels'", "None", "remove it"],
    ),
    ("nested_list.jsonl", b'{"text": "a", "labels": [["x"]]}', ["line 1", "a list"]),
    ("half_pair.jsonl", b'{"text": "a", "label": "\\ud800"}', ["line 1", "surrogate"]),
    ("two_marks.csv", b"text,labels\na,x;y\nb,x|y\n", ["line 3", "';' and by '|'"]),
    ("packed.csv.gz", b"\x1f\x8b\x08\x00", ["not a complete gzip file", "compress it again"]),
    ("sheet.csv", b"PK\x03\x04rest", ["Excel", "CSV"]),
    ("text.xlsx", b"text,label\na,b\n", ["not a complete Excel file", "CSV"]),
    ("old.xls", b"\xd0\xcf\x11\xe0rest", ["old Excel", "save it as .xlsx"]),
    ("no_magic.parquet", b"text,label\na,b\n", ["not a complete Parquet file", "again"]),
    ("torn.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 999)[:-12], ["not a complete gzip file", "compress it again"]),
    ("not_gzip.csv.gz", b"\x1f\x8b" + b"x" * 50, ["not a complete gzip file"]),
    ("torn.csv.zst", b"\x28\xb5\x2f\xfd" + b"\x04" * 9, ["not a complete zstd file"]),
    ("torn.arrow", b"ARROW1\x00\x00" + b"\x00" * 64, ["not a complete Arrow file", "again"]),
    ("stream.arrow", b"\xff\xff\xff\xff\x40\x00\x00\x00" + b"\x01" * 30, ["not a complete Arrow file"]),
    ("spaces.csv", b"text label\nwell said\n", ["'text label'", "--text-column"]),
    ("paper.pdf", b"%PDF-1.7 ...", ["a PDF", "plain text"]),
    ("table.sqlite", b"SQLite format 3\x00rest", ["an SQLite", "CSV"]),
    ("data.pkl", b"\x80\x04\x95\x10\x00", ["a pickle", "never read"]),
    ("tasks.json", b'[{"id": 1, "text": "a", "label": [[0, 1, "x"]], "Comments": []}]', ["record 1", "span"]),
    ("nested.json", b'[{"text": {"body": "a"}}]', ["record 1", "'text'", "a dict", "one string"]),
    ("float_column.parquet", parquet({"text": ["a", "b"], "label": [0.5, 1.5]}), ["row 1", "'label'", "0.5"]),
    ("list_column.parquet", parquet({"text": [["a"], ["b"]]}), ["row 1", "'text'", "a list"]),
    ("no_rows.parquet", parquet({"text": []}), ["no rows"]),
    ("no_text.parquet", parquet({"id": [1, 2]}), ["'id'", "--text-column"]),
    ("bytes.txt", b"fine\n" + bytes(range(128, 160)), ["line 2", "byte 6", "UTF-8"]),
]
