"""Cells of a column as texts or labels."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Any

from halflabel.data.corpus import TextLabel
from halflabel.data.labels import first_inconsistency, parse_label
from halflabel.errors import DataError

Where = Callable[[int], str]  # the file and position of a row, for messages
SEPARATED_COLUMNS = ("labels", "tags")  # columns whose cells may contain several labels, as in a;b
# numbers as Python prints them: "007" and "+1" are names; 18 digits fit into 64 bits
NUMBER = re.compile(r"(-?[1-9]\d{0,17}|0)(\.\d{1,17})?")


def text_cells(values: list[Any], *, column: str, where: Where) -> list[str]:
    """Texts of a column: null becomes "", numbers become text, half of a surrogate pair becomes U+FFFD."""
    if not all(type(value) is str for value in values):
        values = [_text(value, i, column, where) for i, value in enumerate(values)]
    try:
        "".join(values).encode("utf-8")
    except UnicodeEncodeError:
        return [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in values]
    return values


def _text(value: Any, i: int, column: str, where: Where) -> str:
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return ""
    if isinstance(value, (bool, int, float)):
        return str(value)
    raise DataError(f"{where(i)}, column {column!r}: the text is a {type(value).__name__}; write it as one string")


def label_cells(values: list[Any], *, typed: bool, column: str, where: Where) -> list[TextLabel]:
    """Labels of a column; the rules are those of `read`."""
    labels: list[TextLabel] = []
    for i, value in enumerate(values if typed else _parse_strings(values, column, where)):
        try:
            labels.append(parse_label(value))
        except DataError as error:
            raise DataError(f"{where(i)}, column {column!r}: {error}") from None
    if inconsistency := first_inconsistency(labels):
        raise DataError(f"{where(inconsistency[0])}, column {column!r}: {inconsistency[1]}")
    return labels


def _parse_strings(cells: list[str], column: str, where: Where) -> list[Any]:
    """The values of string cells: lists, several labels with a separator, whole numbers, or names."""
    values: list[Any] = [None if cell.strip() in ("", "nan", "NaN") else cell for cell in cells]
    lists = [_list(value) if value else None for value in values]
    if any(items is not None for items in lists):
        return [value if items is None else items for value, items in zip(values, lists, strict=True)]
    separator = _separator(values, column, where)
    if separator:
        rows = [None if value is None else [name.strip() for name in value.split(separator) if name.strip()]
                for value in values]
        names = iter(_numbers([name for row in rows for name in row or ()]))
        rows = [None if row is None else [next(names) for _ in row] for row in rows]
        return [None if row == [-1] else row for row in rows]
    names = iter(_numbers([value for value in values if value is not None]))
    return [None if value is None else next(names) for value in values]


def _list(cell: str) -> list[Any] | None:
    cell = cell.strip()
    if not (cell.startswith("[") and cell.endswith("]")):
        return None
    try:
        return list(json.loads(cell))
    except (ValueError, RecursionError):
        pass
    try:
        return list(ast.literal_eval(cell))  # pandas writes lists as Python prints them: ['a', 'b']
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _separator(values: list[str | None], column: str, where: Where) -> str:
    """The separator of several labels in a cell; none unless the name of the column is plural."""
    if column.strip().lower() not in SEPARATED_COLUMNS:
        return ""
    separator = ""
    for i, value in enumerate(values):
        for mark in ";|":
            if value and mark in value and mark != separator:
                if separator:
                    raise DataError(f"{where(i)}, column {column!r}: labels are separated by ';' and by '|'; use one "
                                    "of them")
                separator = mark
    return separator


def _numbers(cells: list[str]) -> list[Any]:
    """The cells as numbers if all of them are numbers, otherwise unchanged."""
    if not all(NUMBER.fullmatch(cell.strip()) for cell in cells):
        return list(cells)
    return [float(cell) if "." in cell else int(cell) for cell in cells]
