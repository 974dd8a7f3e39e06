"""Labels keep their type and their column."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halflabel.data.labels import Classes, is_unlabelled, parse_label
from halflabel.errors import DataError


class NAType:
    """Has the type name of pandas.NA."""


@pytest.mark.parametrize("value", [None, float("nan"), np.nan, np.float32("nan"), -1, -1.0, np.int64(-1),
                                   np.float64(-1), "", " ", NAType()])
def test_values_that_mean_not_labelled(value: object) -> None:
    assert is_unlabelled(value) is True
    assert parse_label(value) is None


@pytest.mark.parametrize(
    "value", [0, 1, True, False, "a", "nan", "None", np.str_("a"), np.int8(3), np.bool_(True), []]
)
def test_labels_are_not_unlabelled(value: object) -> None:
    assert is_unlabelled(value) is False


@pytest.mark.parametrize("value", ["-1", " -1", np.array(["a", -1])[1], np.array(["a", np.nan])[1]])
def test_missing_labels_that_became_text_are_refused(value: str) -> None:
    with pytest.raises(DataError, match="is text"):
        is_unlabelled(value)


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (np.int64(3), 3), (np.str_("a"), "a"), (np.bool_(True), True), (2.0, 2), (np.float32(4), 4),
        (["b", "a"], ("b", "a")), (np.array([1, 2]), (1, 2)), ({"b", "a"}, ("a", "b")), ((), ()),
    ],
)  # fmt: skip
def test_values_become_plain_labels(value: object, label: object) -> None:
    parsed = parse_label(value)
    assert parsed == label
    assert type(parsed) is type(label)


@pytest.mark.parametrize(("value", "label"), [
    (" sport\n", "sport"), (np.str_("sport\u00a0"), "sport"), (["a ", "a", " b"], ("a", "b")), ("a b ", "a b")])
def test_whitespace_around_a_label_is_removed(value: object, label: object) -> None:
    assert parse_label(value) == label


@pytest.mark.parametrize(
    "value", [0.5, float("inf"), {"a": 1}, b"a", [["a"]], [None], [-1], ["-1"], object()]
)
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(DataError):
        parse_label(value)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([10, 9, None, 2, 10], (2, 9, 10)),
        (["b", "B", "10", "9", None], ("10", "9", "B", "b")),
        ([True, False, True], (False, True)),
        ([("x", "a"), (), None, ("b",)], ("a", "b", "x")),
    ],
)
def test_names_are_sorted(labels: list, names: tuple) -> None:
    assert Classes.of(labels).names == names


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["spam", "spam", None], "only one class, 'spam'; label texts of at least two"),
        ([None], "no label at all"),
        ([()], "no label at all"),
        ([1, "a"], "'a' is text where another is a whole number"),
        ([1, True], "true/false"),
        ([("a", 1)], "use one type"),
        (["a", ("b",)], "mixes lists"),
    ],
)
def test_labels_that_make_no_classes(labels: list, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Classes.of(labels)


def test_one_hot_and_multi_hot() -> None:
    classes = Classes(("a", "b", "c"))
    assert classes.matrix(["b", "a"]).tolist() == [[0, 1, 0], [1, 0, 0]]
    many = classes.matrix([("c", "a"), ()])
    assert many.dtype == np.float32
    assert many.tolist() == [[1, 0, 1], [0, 0, 0]]
    assert classes.names_of(many) == [("a", "c"), ()]
    assert classes.names_of(np.array([2, 0])) == ["c", "a"]
    assert classes.index(np.str_("c")) == 2


def test_a_text_without_label_has_no_targets() -> None:
    with pytest.raises(AssertionError, match="only labelled texts"):
        Classes((0, 1)).matrix([0, None])


def test_an_unknown_label_is_named_with_its_row_and_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"^dev.csv, text 2: the label 'z' is unknown; the known labels are 'a', 'b'$"):
        Classes(("a", "b")).matrix(["a", "z"], source="dev.csv")
    with pytest.raises(DataError, match=r"0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \.\.\.$"):
        Classes(tuple(range(20))).index(77)


@pytest.mark.parametrize(("names", "label"), [(("1", "2"), 1), ((0, 1), "1"), ((0, 1), True)])
def test_types_are_never_confused(names: tuple, label: object) -> None:
    with pytest.raises(DataError, match="is unknown"):
        Classes(names).index(label)


def test_the_same_name_of_another_type_gets_a_hint() -> None:
    with pytest.raises(DataError, match="it is a whole number, the known '1' is text"):
        Classes(("1", "2")).index(1)


NAMES = st.one_of(
    st.lists(st.integers(), min_size=2, unique=True),
    st.lists(st.text(), min_size=2, unique=True),
    st.just([False, True]),
)


@settings(max_examples=100, deadline=None, database=None)
@given(names=NAMES, seed=st.integers(0, 99))
def test_any_order_gives_the_same_classes_through_json(names: list, seed: int) -> None:
    shuffled = random.Random(seed).sample(names, len(names))
    classes = Classes.of(shuffled)
    again = Classes.from_json(json.loads(json.dumps(classes.to_json())), "config.json")
    assert again == classes == Classes.of(names)
    assert [type(name) for name in again.names] == [type(name) for name in classes.names]
    assert classes.names_of(classes.matrix(shuffled).argmax(1)) == shuffled


def test_classes_are_extended_by_new_labels() -> None:
    classes = Classes(("a", "b"))
    assert classes.extended([("b", "z"), None, ("y",), ()]).names == ("a", "b", "y", "z")
    assert classes.extended([(), ()]).names == classes.extended(["a"]).names == ("a", "b")
    assert Classes((1, 2)).extended([2, 3]).names == (1, 2, 3)
    with pytest.raises(DataError, match="t.csv, text 2: the label 'y' is unknown"):
        classes.extended([None, "y", "z"], source="t.csv")
    with pytest.raises(DataError, match=r"text 2: the label '1' is unknown \(it is text, the known 1 is a whole"):
        Classes((1, 2)).extended([2, "1"])
