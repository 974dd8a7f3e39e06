"""Label identity: which values are labels, which mean "not labelled", and which column each label has.

Shape legend: N texts, K labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halflabel.data.corpus import Label, Partial
from halflabel.errors import BadInput

KINDS = {str: "text", int: "whole number", bool: "true/false"}
MARKED = "leave it empty (null) for a text without label, or rename the class"
Labels = list[Label | tuple[Label, ...] | None]


def unlabelled(value: Any) -> bool:
    """Whether a value means "not labelled": None, NaN, an empty string or the number -1, also of numpy.

    The string "-1" is refused, and so is numpy's string "nan": both come from lists in which numpy turned the
    mark for "not labelled" into text, and could also be the name of a class.
    """
    if isinstance(value, str):
        if value.strip() == "-1":
            raise BadInput(f"the label '-1' is text and could mean a class or 'not labelled'; {MARKED}")
        if isinstance(value, np.str_) and value == "nan":
            raise BadInput("the label 'nan' is text, made by numpy from NaN; use an array with dtype=object")
        return not value.strip()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas.NA, without needing pandas
        return True
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        return False
    return bool(value != value or value == -1)


def label_of(value: Any) -> Label | tuple[Label, ...] | None:
    """A cell or an entry of y as a label: a name, a tuple of names (from a list), or None."""
    if isinstance(value, Partial):
        return value
    if isinstance(value, (list, tuple, set, frozenset, np.ndarray)):
        return tuple({(type(name), name): name for name in map(_member, _ordered(value))}.values())
    return None if unlabelled(value) else _label_name(value)


def _ordered(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=repr) if isinstance(values, (set, frozenset)) else list(values)


def _member(value: Any) -> Label:
    if unlabelled(value):
        raise BadInput(f"{value!r} inside a list of labels is no label; take it out")
    return _label_name(value)


def _label_name(value: Any) -> Label:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise BadInput(f"the label {value!r} holds half a surrogate pair; mend the character") from None
        return str(value)
    if isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if value.is_integer():
            return int(value)
        raise BadInput(f"the label {value!r} is a fraction; write labels as names or whole numbers")
    kind = type(value).__name__
    remedy = "write it as text, a whole number or a list of these"
    raise BadInput(f"the label is a {kind} ({str(value)[:40]}); {remedy}")


def _as_tuple(label: Label | tuple[Label, ...]) -> tuple[Label, ...]:
    return label if isinstance(label, tuple) else (label,)


def uneven(labels: Iterable[Label | tuple[Label, ...] | None]) -> tuple[int, str] | None:
    """The first position at which the kind of label changes, with what is wrong; None if there is none."""
    first: tuple[bool, type | None] | None = None
    for i, label in enumerate(labels):
        if label is None:
            continue
        several = isinstance(label, tuple)
        for kind in dict.fromkeys(type(name) for name in _as_tuple(label)):
            first = first if first and first[1] else (several, kind)
            if first[1] is not kind:
                there, here = KINDS[first[1] or str], KINDS[kind]
                return i, f"the label {label!r} is {here} where others are {there}; use one kind for all"
        first = first or (several, None)
        if first[0] is not several:
            return i, f"the label {label!r} mixes lists and single labels; use lists for all or for none"
    return None


@dataclass(frozen=True)
class Classes:
    """The labels in the order of their columns: numbers by size, text by code point."""

    names: tuple[Label, ...]

    @classmethod
    def of(cls, labels: Iterable[Label | tuple[Label, ...] | None]) -> Classes:
        """The classes that occur; None is passed over, and fewer than two classes are refused."""
        known = [label for label in labels if label is not None]
        wrong = uneven(known)
        if wrong:
            raise BadInput(wrong[1])
        found = {name for label in known for name in _as_tuple(label)}
        if not found:
            raise BadInput("there is no label at all; give some texts of at least two labels")
        if len(found) == 1:
            raise BadInput(f"there is only one label, {found.pop()!r}: give texts of at least two")
        return cls(tuple(sorted(found)))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _columns(self) -> dict[tuple[type, Label], int]:
        # by type as well, since Python holds 1 == True and would give one for the other
        return {(type(name), name): k for k, name in enumerate(self.names)}

    def index(self, label: Label, *, row: int | None = None, source: str = "memory") -> int:
        """The column of a label; `row` (from 1) and `source` serve the sentence about an unknown one."""
        plain = label.item() if isinstance(label, np.generic) else label
        column = self._columns.get((type(plain), plain))
        if column is None:
            place = "" if row is None else f"{source}, text {row}: "
            known = ", ".join(repr(name) for name in self.names[:10]) + (", ..." if len(self) > 10 else "")
            raise BadInput(f"{place}the label {plain!r} is unknown{self._hint(plain)}; known are {known}")
        return column

    def extended(self, labels: Iterable[Label | tuple[Label, ...] | None], *, source: str = "memory") -> Classes:
        """These classes and, after them, those that only `labels` have.

        A label that only its kind keeps from being a known one is refused; so are labels of which none is known.
        """
        rows: dict[tuple[type, Label], int] = {}  # the first that has a label
        for row, label in enumerate(labels, 1):
            for name in () if label is None else _as_tuple(label):
                rows.setdefault((type(name), name), row)
        new = [known for known in rows if known not in self._columns]
        for known in new:
            if self._hint(known[1]) or len(new) == len(rows):
                self.index(known[1], row=rows[known], source=source)
        return Classes(self.names + tuple(sorted((name for _, name in new), key=str)))

    def _hint(self, label: Label) -> str:
        twin = next((name for name in self.names if str(name) == str(label)), None)
        if twin is None:
            return ""
        kinds = f"it is {KINDS[type(label)]}, the known {twin!r} is {KINDS[type(twin)]}"
        return f" ({kinds}: use jsonl to keep kinds)"

    def matrix(
        self, labels: Sequence[Label | tuple[Label, ...] | None], *, source: str = "memory"
    ) -> NDArray[np.float32]:
        """One-hot (single labels) or multi-hot (tuples) targets, (N, K); NaN where a `Partial` leaves it open."""
        y = np.zeros((len(labels), len(self)), dtype=np.float32)
        for i, label in enumerate(labels):
            assert label is not None, "only labelled texts have targets"
            for name in _as_tuple(label):
                y[i, self.index(name, row=i + 1, source=source)] = 1.0
            for name in label.unknown if isinstance(label, Partial) else ():
                y[i, self.index(name, row=i + 1, source=source)] = np.nan
        return y

    def names_of(self, chosen: NDArray[Any] | Sequence[int]) -> list[Label] | list[tuple[Label, ...]]:
        """Names of columns: (N,) indices give one name each, an (N, K) 0/1 matrix a tuple of names each."""
        array = np.asarray(chosen)
        if array.ndim == 2:
            return [tuple(self.names[k] for k in np.flatnonzero(row > 0.5)) for row in array]
        return [self.names[int(k)] for k in array]

    def to_json(self) -> list[Label]:
        """The names as JSON keeps them: text, numbers and true/false stay what they are."""
        return list(self.names)

    @classmethod
    def from_json(cls, names: Any, source: object) -> Classes:
        """What `to_json` gave, in the same order; anything else is refused in the name of its source."""
        found = cls(tuple(names) if isinstance(names, list) else ())
        if not len(found) or any(type(name) not in KINDS for name in names) or len(found._columns) < len(found):
            raise BadInput(f"{source} does not list its classes as different names (text, whole numbers or true/false)"
                           "; copy or train the model again.")
        return found


def is_matrix(y: Any) -> bool:
    """Whether y is a matrix of numbers, dense or sparse, or a data frame of them; lists of lists are label sets."""
    if getattr(y, "ndim", 0) != 2:
        return False
    return hasattr(y, "tocsr") or hasattr(y, "columns") or np.asarray(y).dtype.kind in "biuf"


def from_matrix(y: Any, name: str) -> tuple[Labels, Classes]:
    """Label tuples of the rows, and the labels of the columns: 0 to K - 1, or what a data frame calls them.

    1 is yes and 0 is no; NaN and -1 leave it open, and a row that leaves everything open is not labelled at all.
    """
    columns = getattr(y, "columns", None)
    classes = Classes(tuple(range(y.shape[1])) if columns is None else tuple(_column_label(c, name) for c in columns))
    if len(set(classes.names)) != len(classes) or len(classes) < 2:
        raise BadInput(f"{name}: a label matrix needs at least two columns, each with a name of its own.")
    if hasattr(y, "tocsr"):
        return [label for i in range(y.shape[0]) for label in _matrix_rows(y[[i]].toarray(), classes, name, i)], classes
    try:
        dense = y.to_numpy(dtype=np.float64, na_value=np.nan) if columns is not None else np.asarray(y, np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"{name}: the label matrix holds something that is no number; use 0, 1 and NaN.") from None
    return _matrix_rows(dense, classes, name, 0), classes


def to_matrix(chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """0 and 1, (N, K)."""
    return chosen.astype(np.int64)


def _column_label(value: Any, name: str) -> Label:
    label = label_of(value)
    if label is None or isinstance(label, tuple):
        raise BadInput(f"{name}: a column of the label matrix is called {value!r}, which is no label; rename it.")
    return label


def _matrix_rows(dense: NDArray[Any], classes: Classes, name: str, first: int) -> Labels:
    open_ = np.isnan(dense) | (dense == -1)
    wrong = ~(open_ | (dense == 0) | (dense == 1))
    if wrong.any():
        i, k = (int(place) for place in np.argwhere(wrong)[0])
        raise BadInput(f"{name}: row {first + i + 1}, column {k + 1} of the label matrix is {dense[i, k]:g}; "
                       "use 1 for yes, 0 for no, and NaN or -1 for unknown.")
    found: Labels = []
    for values, unknown in zip(dense, open_, strict=True):
        names = tuple(classes.names[k] for k in np.flatnonzero(values == 1))
        if unknown.all():
            found.append(None)
        elif unknown.any():
            found.append(Partial(names, (classes.names[k] for k in np.flatnonzero(unknown))))
        else:
            found.append(names)
    return found
