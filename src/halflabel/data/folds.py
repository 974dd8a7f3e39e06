"""Cross-validation where some rows have no label: they help to train in every fold and are scored in none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from halflabel.data.labels import label_of
from halflabel.data.split import iterative
from halflabel.types import BadInput


class LabelledFolds:
    """A scikit-learn splitter: labelled rows are held out in turn, rows without a label are always in train.

    Folds are stratified by class, iterative-stratified where texts have several labels. For `cross_val_score`,
    `GridSearchCV` and their like: `cross_val_score(clf, texts, labels, cv=LabelledFolds(5))`.
    """

    def __init__(self, n_splits: int = 5, *, random_state: int = 0) -> None:
        if n_splits < 2:
            raise BadInput(f"n_splits={n_splits} holds nothing out; give 2 or more")
        self.n_splits, self.random_state = n_splits, random_state

    def split(self, X: Sequence[str], y: Sequence[Any], groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows to train on and rows to score, a pair for each fold."""
        labels = [label_of(value) for value in y]
        known = [i for i, label in enumerate(labels) if label is not None]
        if len(known) < self.n_splits:
            raise BadInput(f"{len(known)} labelled texts cannot be held out in {self.n_splits} folds; label more, or "
                           "ask for fewer folds")
        order = [known[i] for i in np.random.default_rng(self.random_state).permutation(len(known))]
        sizes = [len(part) for part in np.array_split(order, self.n_splits)]
        for held in iterative([labels[i] for i in order], sizes, order):
            out = np.sort(held)
            yield np.setdiff1d(np.arange(len(labels)), out), out

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """How many folds there are."""
        return self.n_splits
