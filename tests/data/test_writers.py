"""What the writers write, the readers read back unchanged."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halflabel.data.corpus import Corpus
from halflabel.data.readers.annotation_tools import annotation_writer
from halflabel.data.readers.formats import open_writer, text_writer, write
from halflabel.data.readers.read import read
from halflabel.errors import HalflabelError
from written import NAMES, SETTINGS, TEXTS

LABELS = st.one_of(st.none(), NAMES)
SETS = st.one_of(st.none(), st.lists(NAMES, unique=True, max_size=3).map(tuple))


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("labels", [LABELS, SETS], ids=["one", "several"])
@SETTINGS
@given(texts=TEXTS, data=st.data())
def test_a_corpus_is_read_back_unchanged(kind: str, labels: Any, texts: list[str], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(labels, min_size=len(texts), max_size=len(texts)))
    views = data.draw(st.lists(st.sampled_from(["a view", "ein\nanderer", '"x"']), min_size=len(texts),
                               max_size=len(texts)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{kind}"
        write(Corpus(texts, chosen, [(view,) for view in views]), path)
        corpus = read(path)
    assert (corpus.texts, corpus.labels, corpus.views) == (texts, chosen, [(view,) for view in views])


def test_rows_are_flushed_as_they_are_written() -> None:
    stream = io.StringIO()
    put = text_writer(stream, "jsonl")
    put([{"text": "a", "label": "x"}])
    assert json.loads(stream.getvalue()) == {"text": "a", "label": "x"}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_file_is_complete_or_absent(tmp_path: Path, kind: str) -> None:
    class Stop(Exception):
        pass

    def broken() -> None:
        with open_writer(tmp_path / f"a.{kind}", kind) as put:
            put([{"text": "a"}])
            raise Stop

    with pytest.raises(Stop):
        broken()
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(HalflabelError, match="could not be written"):
        write(Corpus(["a"], [None]), tmp_path / "no" / "a.csv")


@pytest.mark.parametrize("tool", ["label-studio", "doccano", "prodigy", "csv"])
def test_annotation_tools_get_the_other_columns(tmp_path: Path, tool: str) -> None:
    with annotation_writer(tmp_path / "out", tool, ["food", "sport"]) as put:
        put([{"text": "a match", "label": "sport", "score": 0.9, "id": 7}])
    content = (tmp_path / "out").read_text(encoding="utf-8")
    if tool == "csv":
        assert content == "text,label,score,id\na match,sport,0.9,7\n"
        return
    row = json.loads(content)[0] if tool == "label-studio" else json.loads(content)
    assert {"label-studio": row.get("data"), "doccano": row, "prodigy": row.get("meta")}[tool]["id"] == 7
