"""Cells of untyped (csv) and of typed columns."""

from __future__ import annotations

import pytest

from halflabel.data.labels import label_cells, text_cells
from halflabel.errors import DataError


def untyped(cells: list[str], column: str = "label") -> list:
    return label_cells(cells, typed=False, column=column, where=lambda i: f"t.csv, line {i + 2}")


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["1", "2", "-1", ""], [1, 2, None, None]),
        (["1.0", "nan", "0.0"], [1, None, 0]),
        (["01", "2"], ["01", "2"]),
        (["+1", "2"], ["+1", "2"]),
        (["1" * 30, "2"], ["1" * 30, "2"]),
        (["spam", " ", "NaN", "ham "], ["spam", None, None, "ham"]),
        (["True", "False"], ["True", "False"]),
        (["[URGENT]", "[low]"], ["[URGENT]", "[low]"]),
        (['["a", "b"]', "[]", ""], [("a", "b"), (), None]),
        (["['a']", "[1]"[:0], "['b', 'a']"], [("a",), None, ("b", "a")]),
        (["[1, 2]", "[2]"], [(1, 2), (2,)]),
        (["a;b", "c|d"], ["a;b", "c|d"]),
    ],
)
def test_strings_of_a_csv_column(cells: list[str], labels: list) -> None:
    parsed = untyped(cells)
    assert parsed == labels
    assert [type(label) for label in parsed] == [type(label) for label in labels]


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["a;b", "c", "", "b; a;"], [("a", "b"), ("c",), None, ("b", "a")]),
        (["a|b", "b|b"], [("a", "b"), ("b",)]),
        (["1;2", "3", "-1"], [(1, 2), (3,), None]),
        (["a", "b"], ["a", "b"]),
    ],
)
@pytest.mark.parametrize("column", ["labels", "Tags"])
def test_cells_are_split_in_columns_named_labels_or_tags(
    cells: list[str], labels: list, column: str
) -> None:
    assert untyped(cells, column) == labels


def test_a_duplicate_inside_a_list_counts_once() -> None:
    assert label_cells([["b", "a", "b"]], typed=True, column="label", where=str) == [("b", "a")]


def test_the_row_and_the_column_are_named() -> None:
    with pytest.raises(DataError, match=r"^t.csv, line 4, column 'labels': .*mixes lists and single labels"):
        untyped(["['a']", "", "b"], "labels")


def test_texts_that_are_all_strings_are_unchanged() -> None:
    values = ["a", "", "é"]
    assert text_cells(values, column="text", where=str) is values


def test_numbers_and_nulls_as_texts() -> None:
    assert text_cells([1, 2.5, True, None, float("nan")], column="text", where=str) == [
        "1",
        "2.5",
        "True",
        "",
        "",
    ]
