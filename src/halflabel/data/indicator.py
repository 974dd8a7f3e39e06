"""Label matrices, as scikit-learn knows them: one row for each text, one column for each label.

Shape legend: N texts, K labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from halflabel.data.labels import Classes, label_of
from halflabel.types import BadInput, Label, Partial

Labels = list[Label | tuple[Label, ...] | None]


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
    classes = Classes(tuple(range(y.shape[1])) if columns is None else tuple(_column(c, name) for c in columns))
    if len(set(classes.names)) != len(classes) or len(classes) < 2:
        raise BadInput(f"{name}: a label matrix needs at least two columns, each with a name of its own.")
    if hasattr(y, "tocsr"):
        return [label for i in range(y.shape[0]) for label in _rows(y[[i]].toarray(), classes, name, i)], classes
    try:
        dense = y.to_numpy(dtype=np.float64, na_value=np.nan) if columns is not None else np.asarray(y, np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"{name}: the label matrix holds something that is no number; use 0, 1 and NaN.") from None
    return _rows(dense, classes, name, 0), classes


def to_matrix(chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """0 and 1, (N, K)."""
    return chosen.astype(np.int64)


def _column(value: Any, name: str) -> Label:
    label = label_of(value)
    if label is None or isinstance(label, tuple):
        raise BadInput(f"{name}: a column of the label matrix is called {value!r}, which is no label; rename it.")
    return label


def _rows(dense: NDArray[Any], classes: Classes, name: str, first: int) -> Labels:
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
