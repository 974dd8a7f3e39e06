"""Labels: which values and cells of a table are labels, which mean "not labelled", and which column a label has.

Shapes: N texts, K labels.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halflabel.data.corpus import Label, Partial, TextLabel
from halflabel.errors import DataError, ModelError

TYPE_NAMES = {str: "text", int: "a whole number", bool: "true/false"}
Where = Callable[[int], str]  # the file and position of a row, for messages
SEPARATED_COLUMNS = ("labels", "tags")  # columns whose cells may contain several labels, as in a;b
# numbers as Python prints them: "007" and "+1" are names; 18 digits fit into 64 bits
NUMBER = re.compile(r"(-?[1-9]\d{0,17}|0)(\.\d{1,17})?")


def is_unlabelled(value: Any) -> bool:
    """Whether a value means "not labelled": None, NaN, an empty string or the number -1, also as numpy scalars.

    The string "-1" and numpy's string "nan" are refused: both arise where numpy turned a missing label into text,
    and both could be the name of a class.
    """
    if isinstance(value, str):
        if value.strip() == "-1":
            raise DataError("the label '-1' is text and could mean a class or 'not labelled'; leave it empty (null) "
                            "for a text without label, or rename the class")
        if isinstance(value, np.str_) and value == "nan":
            raise DataError("the label 'nan' is text that numpy made of NaN; use an array with dtype=object")
        return not value.strip()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas.NA, without importing pandas
        return True
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        return False
    return bool(value != value or value == -1)


def parse_label(value: Any) -> TextLabel:
    """A cell or an entry of y as a label: a name, a tuple of distinct names (from a list or set), or None."""
    if isinstance(value, Partial):
        return value
    if isinstance(value, (list, tuple, set, frozenset, np.ndarray)):
        ordered = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        return tuple({(type(name), name): name for name in map(_list_entry, ordered)}.values())
    return None if is_unlabelled(value) else _label_name(value)


def _list_entry(value: Any) -> Label:
    if is_unlabelled(value):
        raise DataError(f"{value!r} inside a list of labels is not a label; remove it from the list")
    return _label_name(value)


def _label_name(value: Any) -> Label:
    """A label as plain Python: text without surrounding whitespace, a whole number or a boolean."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise DataError(f"the label {value!r} contains half of a surrogate pair; fix the character") from None
        return str(value).strip()
    if isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if value.is_integer():
            return int(value)
        raise DataError(f"the label {value!r} is a fraction, and labels are classes, not continuous values; write "
                        "names or whole numbers")
    raise DataError(f"the label is a {type(value).__name__} ({str(value)[:40]}); write it as text, a whole number or a "
                    "list of these")


def names_in(label: TextLabel) -> tuple[Label, ...]:
    """The names of a text's label: one, several or none."""
    if label is None:
        return ()
    return label if isinstance(label, tuple) else (label,)


def first_inconsistency(labels: Iterable[TextLabel]) -> tuple[int, str] | None:
    """The first row whose label differs in type from those before it, and a message; None if all agree."""
    expected: tuple[bool, type | None] | None = None  # whether labels are lists, and the type of their names
    for i, label in enumerate(labels):
        if label is None:
            continue
        is_list = isinstance(label, tuple)
        for kind in dict.fromkeys(map(type, names_in(label))):
            expected = expected if expected and expected[1] else (is_list, kind)
            if expected[1] is not kind:
                other = TYPE_NAMES[expected[1] or str]
                return i, f"the label {label!r} is {TYPE_NAMES[kind]} where another is {other}; use one type for all"
        expected = expected or (is_list, None)
        if expected[0] is not is_list:
            return i, f"the label {label!r} mixes lists and single labels; use lists for all texts or for none"
    return None


@dataclass(frozen=True)
class Classes:
    """The labels in the order of their columns: numbers by size, text by code point."""

    names: tuple[Label, ...]

    @classmethod
    def of(cls, labels: Iterable[TextLabel]) -> Classes:
        """The labels that occur, at least two."""
        known = [label for label in labels if label is not None]
        if inconsistency := first_inconsistency(known):
            raise DataError(inconsistency[1])
        names = {name for label in known for name in names_in(label)}
        if not names:
            raise DataError("there is no label at all; label some texts of at least two classes")
        if len(names) == 1:
            raise DataError(f"there is only one class, {names.pop()!r}; label texts of at least two classes")
        return cls(tuple(sorted(names)))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _columns(self) -> dict[tuple[type, Label], int]:
        # by type as well, since 1 == True in Python
        return {(type(name), name): k for k, name in enumerate(self.names)}

    def index(self, label: Label, *, row: int | None = None, source: str = "memory") -> int:
        """The column of a label; `row` (from 1) and `source` appear in the error about an unknown one."""
        plain = label.item() if isinstance(label, np.generic) else label
        column = self._columns.get((type(plain), plain))
        if column is None:
            position = "" if row is None else f"{source}, text {row}: "
            known = ", ".join(repr(name) for name in self.names[:10]) + (", ..." if len(self) > 10 else "")
            raise DataError(f"{position}the label {plain!r} is unknown{self._type_hint(plain)}; the known labels are "
                            f"{known}")
        return column

    def extended(self, labels: Iterable[TextLabel], *, source: str = "memory") -> Classes:
        """These classes, followed by those that only `labels` contain.

        A label that differs from a known one only in its type is refused, and so are labels of which none is known.
        """
        rows: dict[tuple[type, Label], int] = {}  # of the first text with each label
        for row, label in enumerate(labels, 1):
            for name in names_in(label):
                rows.setdefault((type(name), name), row)
        new = [typed for typed in rows if typed not in self._columns]
        for typed in new:
            if self._type_hint(typed[1]) or len(new) == len(rows):
                self.index(typed[1], row=rows[typed], source=source)
        return Classes(self.names + tuple(sorted((name for _, name in new), key=str)))

    def _type_hint(self, label: Label) -> str:
        twin = next((name for name in self.names if str(name) == str(label)), None)
        if twin is None:
            return ""
        return (f" (it is {TYPE_NAMES[type(label)]}, the known {twin!r} is {TYPE_NAMES[type(twin)]}: use jsonl, which "
                "keeps types)")

    def matrix(self, labels: Sequence[TextLabel], *, source: str = "memory") -> NDArray[np.float32]:
        """One-hot (single labels) or multi-hot (tuples) targets, (N, K); NaN where a `Partial` says unknown."""
        y = np.zeros((len(labels), len(self)), dtype=np.float32)
        for i, label in enumerate(labels):
            assert label is not None, "only labelled texts have targets"
            for name in names_in(label):
                y[i, self.index(name, row=i + 1, source=source)] = 1.0
            for name in label.unknown if isinstance(label, Partial) else ():
                y[i, self.index(name, row=i + 1, source=source)] = np.nan
        return y

    def names_of(self, chosen: NDArray[Any] | Sequence[int]) -> list[Label] | list[tuple[Label, ...]]:
        """Names of columns: one for each of (N,) indices, a tuple for each row of an (N, K) 0/1 matrix."""
        array = np.asarray(chosen)
        if array.ndim == 2:
            return [tuple(self.names[k] for k in np.flatnonzero(row > 0.5)) for row in array]
        return [self.names[int(k)] for k in array]

    def to_json(self) -> list[Label]:
        """The names; JSON keeps text, numbers and booleans apart."""
        return list(self.names)

    @classmethod
    def from_json(cls, names: Any, source: object) -> Classes:
        """The inverse of `to_json`; `source` is the file that an error names."""
        classes = cls(tuple(names) if isinstance(names, list) else ())
        if (not len(classes) or any(type(name) not in TYPE_NAMES for name in names)
                or len(classes._columns) < len(classes)):
            raise ModelError(f"{source} does not list its classes as distinct names (text, whole numbers or "
                             "true/false); copy the model folder again, or train the model again.")
        return classes


def is_matrix(y: Any) -> bool:
    """Whether y is a matrix of numbers, dense or sparse, or a data frame of them; lists of lists are label sets."""
    if getattr(y, "ndim", 0) != 2:
        return False
    return hasattr(y, "tocsr") or hasattr(y, "columns") or np.asarray(y).dtype.kind in "biuf"


def from_matrix(y: Any, name: str) -> tuple[list[TextLabel], Classes]:
    """Labels of the rows as tuples, and the classes of the columns: 0 to K - 1, or the columns of a data frame.

    1 means yes and 0 no; NaN and -1 mean unknown, and a row in which all are unknown is not labelled.
    """
    columns = getattr(y, "columns", None)
    classes = Classes(tuple(range(y.shape[1])) if columns is None else tuple(_column_label(c, name) for c in columns))
    if len(set(classes.names)) != len(classes) or len(classes) < 2:
        raise DataError(f"{name}: a label matrix needs at least two columns with different names.")
    if hasattr(y, "tocsr"):
        return [label for i in range(y.shape[0]) for label in _row_labels(y[[i]].toarray(), classes, name, i)], classes
    try:
        dense = y.to_numpy(dtype=np.float64, na_value=np.nan) if columns is not None else np.asarray(y, np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{name}: the label matrix contains values that are not numbers; use 0, 1 and NaN.") from None
    return _row_labels(dense, classes, name, 0), classes


def to_matrix(chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """0 and 1, (N, K)."""
    return chosen.astype(np.int64)


def _column_label(value: Any, name: str) -> Label:
    label = parse_label(value)
    if label is None or isinstance(label, tuple):
        raise DataError(f"{name}: {value!r}, a column of the label matrix, is not a label; rename the column.")
    return label


def _row_labels(dense: NDArray[Any], classes: Classes, name: str, first: int) -> list[TextLabel]:
    unknown = np.isnan(dense) | (dense == -1)
    wrong = ~(unknown | (dense == 0) | (dense == 1))
    if wrong.any():
        i, k = (int(index) for index in np.argwhere(wrong)[0])
        raise DataError(f"{name}: row {first + i + 1}, column {k + 1} of the label matrix is {dense[i, k]:g}; "
                        "use 1 for yes, 0 for no, and NaN or -1 for unknown.")
    labels: list[TextLabel] = []
    for row, row_unknown in zip(dense, unknown, strict=True):
        names = tuple(classes.names[k] for k in np.flatnonzero(row == 1))
        if row_unknown.all():
            labels.append(None)
        elif row_unknown.any():
            labels.append(Partial(names, (classes.names[k] for k in np.flatnonzero(row_unknown))))
        else:
            labels.append(names)
    return labels


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
