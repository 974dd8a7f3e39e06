"""What each training text was taken to be is found again, wherever the text lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from halflabel.data.pool import open_pool
from halflabel.intake import as_objects, traced
from halflabel.sequences import chosen, joined
from halflabel.types import Corpus


def test_labels_are_traced_through_joined_and_chosen_texts(tmp_path: Path) -> None:
    (tmp_path / "pool.txt").write_text("\n".join(f"text {i}" for i in range(20)))
    stored = open_pool([tmp_path / "pool.txt"])[0].texts
    labelled = Corpus(["text 3", "known"], ["a", "b"])
    pool = joined(["new"], chosen(stored, [9, 7, 5]), chosen(stored, [0, 1, 2]))
    everything = joined(["known", "new"], stored, chosen(stored, [7, 4, 3, 0, 9]))
    taken, found, steps = np.array([0, 1, 3, 5]), as_objects(["x", "b", "a", "c"]), np.array([8, 4, 2, 6])
    audit = traced(everything, labelled, Corpus(pool, [None] * 7), taken, found, steps)
    expected = {"known": ("b", 0), "text 3": ("a", 0), "new": ("x", 8), "text 9": ("b", 4), "text 5": ("a", 2),
                "text 1": ("c", 6)}
    assert list(zip(audit.labels, audit.steps, strict=True)) == [expected.get(text, (None, -1)) for text in everything]
    assert len(audit.rows) == 8  # nothing is held of texts without a label


def test_nothing_was_taken() -> None:
    audit = traced(["a", "b"], Corpus(["a"], [("x", "y")]), Corpus(["b"], [None]), np.empty(0, np.int64),
                   as_objects([]), np.empty(0, np.int64))
    assert audit.labels.tolist() == [("x", "y"), None] and audit.steps.tolist() == [0, -1]
