"""Cells of a text or label column become texts and labels."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Any

from halflabel.data.corpus import Label
from halflabel.data.labels import label_of, uneven
from halflabel.errors import BadInput

Where = Callable[[int], str]
SPLIT_NAMES = ("labels", "tags")
# as Python would print it: "007" and "+1" are names, not numbers; 18 digits fit into 64 bits
NUMBER = re.compile(r"(-?[1-9]\d{0,17}|0)(\.\d{1,17})?")


def text_cells(values: list[Any], *, column: str, where: Where) -> list[str]:
    """Texts of a column: null becomes "", numbers become text, half a surrogate pair becomes U+FFFD."""
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
    kind = type(value).__name__
    raise BadInput(f"{where(i)}, column {column!r}: the text is a {kind}; write it as one string")


def label_cells(
    values: list[Any], *, typed: bool, column: str, where: Where
) -> list[Label | tuple[Label, ...] | None]:
    """Labels of a column; see `read` for the rules."""
    found = []
    for i, value in enumerate(values if typed else _untyped(values, column, where)):
        try:
            found.append(label_of(value))
        except BadInput as error:
            raise BadInput(f"{where(i)}, column {column!r}: {error}") from None
    wrong = uneven(found)
    if wrong:
        raise BadInput(f"{where(wrong[0])}, column {column!r}: {wrong[1]}")
    return found


def _untyped(cells: list[str], column: str, where: Where) -> list[Any]:
    """What strings of a csv stand for: lists, several labels in a cell, whole numbers, or just names."""
    values: list[Any] = [None if cell.strip() in ("", "nan", "NaN") else cell for cell in cells]
    lists = [_list(value) if value else None for value in values]
    if any(found is not None for found in lists):
        return [value if found is None else found for value, found in zip(values, lists, strict=True)]
    mark = _mark(values, column, where)
    if mark:
        parts = [_parts(value, mark) for value in values]
        numbers = iter(_numbers([part for some in parts for part in some or ()]))
        rows = [None if some is None else [next(numbers) for _ in some] for some in parts]
        return [None if row == [-1] else row for row in rows]
    numbers = iter(_numbers([value for value in values if value is not None]))
    return [None if value is None else next(numbers) for value in values]


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


def _mark(values: list[str | None], column: str, where: Where) -> str:
    if column.strip().lower() not in SPLIT_NAMES:
        return ""
    seen = ""
    for i, value in enumerate(values):
        for mark in ";|":
            if value and mark in value and mark != seen:
                if seen:
                    parted = "labels are parted by ';' and by '|'; use one of them"
                    raise BadInput(f"{where(i)}, column {column!r}: {parted}")
                seen = mark
    return seen


def _parts(value: str | None, mark: str) -> list[str] | None:
    return None if value is None else [part.strip() for part in value.split(mark) if part.strip()]


def _numbers(cells: list[str]) -> list[Any]:
    """The cells as numbers if every one is a number, else as they are."""
    if not all(NUMBER.fullmatch(cell.strip()) for cell in cells):
        return list(cells)
    return [float(cell) if "." in cell else int(cell) for cell in cells]
