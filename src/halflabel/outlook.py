"""What to expect of a model: its accuracy by held-out labels, how pool and names were used, and what would help most.

Shapes: N labelled texts, K classes, H encoder width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from halflabel.arrays import Mask
from halflabel.class_names import words_of_label
from halflabel.encoders.catalogue import MINILM
from halflabel.evaluation.confidence import wilson_interval
from halflabel.label_errors import held_out_labels, micro_f1

MAX_SIZE = 20_000  # labelled texts times classes that classifiers are fitted to again, so that it takes no second
MIN_HELD_OUT = 4  # texts from which accuracy is estimated
RESAMPLES = 300
MANY = 10  # labels per class from which class names add little
MAX_CLASSES = 3  # that are named
TWO_THIRDS = " from encoders that learned two thirds of the labels; with all of them it should be higher"


class HeldOutLabels(NamedTuple):
    """Labels of texts, and what classifiers predict that were fitted without them."""

    y: Mask  # (N, K)
    predicted: Mask  # (N, K)

    @classmethod
    def of(cls, vectors: Callable[[], np.ndarray], y: np.ndarray, *, several: bool, seed: int) -> HeldOutLabels | None:
        """By logistic regression on vectors (N, H) with labels (N, K); None if there are too few labels or too many."""
        known = y > 0
        if y.size > MAX_SIZE or np.isnan(y).any() or known.any(axis=0).sum() < 2:
            return None
        predicted, counted = held_out_labels(vectors(), known, several=several, seed=seed)
        return cls(known[counted], predicted[counted]) if counted.sum() >= MIN_HELD_OUT else None

    def recall(self) -> np.ndarray:
        """The share of each class that is recognised, drawn towards that of all where there are few texts, (K,)."""
        correct, texts = (self.y & self.predicted).sum(axis=0), self.y.sum(axis=0)
        return np.asarray((correct + self.all) / (texts + 1))

    @property
    def all(self) -> float:
        return float((self.y & self.predicted).sum() / max(1, self.y.sum()))


def expected_quality(held_out: HeldOutLabels | None, start: Mapping[str, Any], *, several: bool,
                     seed: int) -> dict[str, Any] | None:
    """Accuracy, or micro F1 for several labels, with an interval of 95 %; by the method's own start if that has one."""
    texts, correct = start.get("held_out", 0), start.get("held_out_correct", 0)
    if several or texts < MIN_HELD_OUT:
        if held_out is None:
            return None
        texts, correct = len(held_out.y), int((held_out.y & held_out.predicted).sum())
    if not several:
        value, (low, high) = correct / texts, wilson_interval(correct, texts)
    else:
        assert held_out is not None
        rng, value = np.random.default_rng(seed), micro_f1(*held_out)
        samples = (rng.integers(0, texts, texts) for _ in range(RESAMPLES))
        low, high = np.quantile([micro_f1(held_out.y[rows], held_out.predicted[rows]) for rows in samples],
                                [0.025, 0.975]).tolist()
    return {"measure": "micro F1" if several else "accuracy", "value": round(value, 4), "low": round(low, 4),
            "high": round(high, 4), "held_out": texts}


def most_helpful(classes: Sequence[object], counts: np.ndarray, held_out: HeldOutLabels | None, *,
                 could_use_names: bool, tried_labels: bool, encoder: str) -> str:
    """The one thing that would help most, in words; `counts` (K,) are the labelled texts of each class.

    `tried_labels` says that the labels themselves were tried as names.
    """
    if not counts.sum():
        return "a few labels for each class: halflabel label"
    if could_use_names and np.median(counts) < MANY:
        words = not tried_labels and all(words_of_label(str(name)) for name in classes)
        return "class names: --names " + ("labels" if words else "FILE, with what each label means in words")
    if (rare := np.flatnonzero(counts < 2)).size:
        return f"more labels for {listed(classes, rare)}, with one text or none"
    if held_out is not None:
        recall = held_out.recall()
        if (weak := np.flatnonzero(recall < held_out.all - 0.1)).size:
            weak = weak[np.argsort(recall[weak], kind="stable")]
            texts, correct = held_out.y.sum(axis=0)[weak[0]], (held_out.y & held_out.predicted).sum(axis=0)[weak[0]]
            return (f"more labels for {listed(classes, weak)}: {correct} of {texts} held-out texts of "
                    f"{classes[int(weak[0])]!r} were recognised")
    if encoder == MINILM:
        return "a stronger encoder, such as gte-small: halflabel encoders"
    return "more labels, of texts that it is unsure of: halflabel suggest"


def listed(classes: Sequence[object], columns: np.ndarray) -> str:
    """Some classes by name."""
    more = f" and {len(columns) - MAX_CLASSES} more" if len(columns) > MAX_CLASSES else ""
    return ", ".join(repr(classes[int(k)]) for k in columns[:MAX_CLASSES]) + more


def in_words(config: Mapping[str, Any]) -> dict[str, str]:
    """The facts of a model's config.json as lines: what was trusted, what to expect, what would help."""
    start, outlook = config.get("start", {}), config.get("outlook")
    if outlook is None:  # of an older model, or of a run that is not finished
        return {}
    shown = {"uses_words": "words of the pool"} | ({"uses_names": "class names"} if outlook["names_given"] else {})
    by_contrast = bool(start.get("contrast"))  # then clusters are not used, whatever the labels say of them
    parts = ["contrast of labelled texts"] if by_contrast else []
    parts += [f"clusters of the pool {start['trust']:.0%}"] if "trust" in start and not by_contrast else []
    parts += [f"{name} {'used' if start[key] else 'not used'}" for key, name in shown.items() if key in start]
    if slopes := start.get("name_slopes"):  # of several labels per text, each of which has its own
        parts[-1] += f" for {sum(slope > 0 for slope in slopes)} of {len(slopes)} labels"
    rows = {"trusted": ", ".join(parts)} if parts else {}
    if expected := outlook["expected"]:
        rows["expected"] = (f"{expected['measure']} {expected['value']:.2f} ({expected['low']:.2f} to "
                            f"{expected['high']:.2f}), by {expected['held_out']:,} labelled texts that were held out"
                            + TWO_THIRDS * by_contrast)
    elif config["run"]["dev"] is None:
        rows["expected"] = "not estimated; --dev FILE, with labelled texts, measures it"
    return rows | {"would help": outlook["would_help"]}
