"""Inputs of the classifier: any container of texts is accepted, and pseudo-labels are traced back to the texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from halflabel.data.corpus import Corpus, concat, subset
from halflabel.data.pool import open_pool
from halflabel.data.readers.read import read
from halflabel.errors import DataError
from halflabel.validation import (
    align_truth,
    as_labels,
    as_objects,
    as_pool,
    as_texts,
    as_views,
    texts_and_labels,
    trace_labels,
)

TEXTS = ["one", "two", "three"]


class Dataset:
    """The part of the interface of a Hugging Face dataset that is used."""

    column_names = ("text", "label")

    def __getitem__(self, name: str) -> list[str]:
        return {"text": TEXTS, "label": ["x", "y", "z"]}[name]


def pandas(make: Callable[[Any], Any]) -> Any:
    return make(pytest.importorskip("pandas"))


def polars(make: Callable[[Any], Any]) -> Any:
    return make(pytest.importorskip("polars"))


@pytest.mark.parametrize("make", [
    lambda: tuple(TEXTS), lambda: (text for text in TEXTS), lambda: dict.fromkeys(TEXTS).keys(), Dataset,
    lambda: np.array(TEXTS), lambda: np.array(TEXTS, object), lambda: np.array(TEXTS)[:, None],
    lambda: pa.array(TEXTS), lambda: pa.chunked_array([TEXTS[:1], TEXTS[1:]]),
    lambda: pa.table({"n": [1, 2, 3], "text": TEXTS}), lambda: pa.record_batch({"any": TEXTS}),
    lambda: pandas(lambda pd: pd.DataFrame({"n": [1, 2, 3], "Text": TEXTS}, index=[5, 5, 0])),
    lambda: pandas(lambda pd: pd.DataFrame({"id": TEXTS, "review": TEXTS})),
    lambda: pandas(lambda pd: pd.DataFrame({"title": ["x", "y", "z"], "text": TEXTS})),
    lambda: pandas(lambda pd: pd.DataFrame(TEXTS)), lambda: pandas(lambda pd: pd.DataFrame({"any": TEXTS})),
    lambda: pandas(lambda pd: pd.Series(TEXTS, index=["columns", "shape", "column_names"])),
    lambda: pandas(lambda pd: pd.Series(TEXTS, index=[7, 7, 7], dtype="string")),
    lambda: pandas(lambda pd: pd.Series(TEXTS, dtype="category")), lambda: pandas(lambda pd: pd.Index(TEXTS)),
    lambda: polars(lambda pl: pl.DataFrame({"n": [1, 2, 3], "text": TEXTS})),
    lambda: polars(lambda pl: pl.Series(TEXTS)),
])
def test_any_container_of_texts_is_accepted(make: Callable[[], Any]) -> None:
    assert as_texts(make(), "the texts") == TEXTS


@pytest.mark.parametrize(("make", "said"), [
    (lambda: "one text", "one str was given .* give a list of texts"), (lambda: b"one", "one bytes was given"),
    (lambda: np.array("one"), "one ndarray was given"), (lambda: 5, "one int was given"),
    (lambda: {"text": TEXTS}, r"a dict was given .*data\['text'\]"),
    (lambda: Corpus(TEXTS, [None] * 3), "a Corpus was given .*corpus.texts"),
    (lambda: np.array([TEXTS, TEXTS]), r"shape \(2, 3\) .*array\[:, 0\]"),
    (lambda: pa.table({"a": TEXTS, "b": TEXTS}), r"columns 'a', 'b' of the Table .*frame\['column'\]"),
    (lambda: pandas(lambda pd: pd.DataFrame({"title": TEXTS, "body": TEXTS})), "columns 'title', 'body' of"),
    (lambda: pandas(lambda pd: pd.DataFrame([TEXTS])), "columns '0', '1', '2' of the DataFrame"),
    (lambda: pandas(lambda pd: pd.DataFrame([["a", "b"]], columns=["text", "text"])), "columns 'text', 'text'"),
    (lambda: polars(lambda pl: pl.DataFrame({"a": TEXTS, "b": TEXTS})), "columns 'a', 'b' of the DataFrame"),
    (lambda: ["one", None], "text 2 is None"), (lambda: np.array(["one", np.nan], object), "text 2 is nan"),
    (lambda: pandas(lambda pd: pd.Series(["one", pd.NA], dtype="string")), "text 2 is <NA>"),
    (lambda: pa.array(["one", None]), "text 2 is None"), (lambda: [["one"], ["two"]], r"text 1 is \['one'\] \(list\)"),
])
def test_other_inputs_are_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(DataError, match=f"^the texts: .*{said}"):
        as_texts(make(), "the texts")


def test_views_are_rows_of_a_frame_or_of_a_list() -> None:
    rows = [("a", "b"), ("c", "d"), ("e", "f")]
    columns = {"aug_1": ["b", "d", "f"], "aug_0": ["a", "c", "e"]}
    assert as_views(pa.table({"text": TEXTS} | columns)) == as_views(np.array(rows)) == as_views(iter(rows)) == rows
    assert as_pool(TEXTS, pandas(lambda pd: pd.DataFrame(rows))).views == rows


@pytest.mark.parametrize(("views", "said"), [
    (["a", "b", "c"], "views of text 1: one str"), ("abc", "a str was given"), ({"aug_0": TEXTS}, "a dict was given"),
    ([("a",), ("b", "c"), ("d",)], "text 2 has 2 views and text 1 has 1"),
    ([("a",)], "3 unlabelled texts and views of 1")])
def test_views_that_are_refused(views: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        as_pool(TEXTS, views)


def test_labels_in_arrow_columns_and_in_pairs() -> None:
    assert as_labels(pa.chunked_array([["x"], [None]]), "y") == ["x", None]
    assert align_truth(pa.array(["x", "y", "z"]), TEXTS, Corpus(TEXTS[::-1], [None] * 3)) == ["z", "y", "x"]
    with pytest.raises(DataError, match="truth: there are 3 unlabelled texts and 1 labels"):
        align_truth(["x"], TEXTS, Corpus(TEXTS, [None] * 3))
    with pytest.raises(DataError, match=r"dev: a Table was given; give a pair .*\(X, y\)"):
        texts_and_labels(pa.table({"text": TEXTS}), "dev")


def test_a_pool_of_one_frame_or_of_several(tmp_path: Path) -> None:
    frame, single = pa.table({"text": TEXTS, "n": [1, 2, 3]}), pa.table({"any": ["four"]})
    (tmp_path / "pool.txt").write_text("five\n")
    assert list(open_pool(frame)[0].texts) == TEXTS
    assert list(open_pool(str(tmp_path / "pool.txt"))[0].texts) == ["five"]
    assert list(open_pool([frame, single, tmp_path / "pool.txt"])[0].texts) == [*TEXTS, "four", "five"]
    assert list(read([single, frame]).texts) == ["four", *TEXTS]
    with pytest.raises(DataError, match="columns 'a', 'b'"):
        open_pool(pa.table({"a": TEXTS, "b": TEXTS}))


def test_labels_are_traced_through_concatenations_and_subsets(tmp_path: Path) -> None:
    (tmp_path / "pool.txt").write_text("\n".join(f"text {i}" for i in range(20)))
    stored = open_pool([tmp_path / "pool.txt"])[0].texts
    labelled = Corpus(["text 3", "known"], ["a", "b"])
    pool = concat(["new"], subset(stored, [9, 7, 5]), subset(stored, [0, 1, 2]))
    everything = concat(["known", "new"], stored, subset(stored, [7, 4, 3, 0, 9]))
    rows, labels, steps = np.array([0, 1, 3, 5]), as_objects(["x", "b", "a", "c"]), np.array([8, 4, 2, 6])
    trace = trace_labels(everything, labelled, Corpus(pool, [None] * 7), rows, labels, steps)
    expected = {"known": ("b", 0), "text 3": ("a", 0), "new": ("x", 8), "text 9": ("b", 4), "text 5": ("a", 2),
                "text 1": ("c", 6)}
    assert list(zip(trace.labels, trace.steps, strict=True)) == [expected.get(text, (None, -1)) for text in everything]
    assert len(trace.rows) == 8  # texts without a label use no memory


def test_no_pseudo_labels() -> None:
    trace = trace_labels(["a", "b"], Corpus(["a"], [("x", "y")]), Corpus(["b"], [None]), np.empty(0, np.int64),
                         as_objects([]), np.empty(0, np.int64))
    assert trace.labels.tolist() == [("x", "y"), None] and trace.steps.tolist() == [0, -1]
