"""Metrics for one label and for several, in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.bool_]
CHUNK = 8192  # texts at a time


def multi_class(truth: np.ndarray, predicted: np.ndarray, names: Sequence[object]) -> dict[str, Any]:
    """Micro and macro F1 over all K labels, and per label; truth and predicted are columns (N,)."""
    from sklearn.metrics import precision_recall_fscore_support

    columns = np.arange(len(names))
    precision, recall, f1, support = precision_recall_fscore_support(
        truth, predicted, labels=columns, zero_division=0.0)
    per_label = {
        str(name): {"precision": float(precision[k]), "recall": float(recall[k]), "f1": float(f1[k]),
                    "n": int(support[k])}
        for k, name in enumerate(names)
    }
    accuracy = float(np.mean(truth == predicted)) if len(truth) else 0.0
    return {"n": len(truth), "accuracy": accuracy, "micro_f1": accuracy, "macro_f1": float(np.mean(f1)),
            "per_label": per_label}


def variance_difference(variances: np.ndarray) -> float:
    """Average difference of label-angle variances over all pairs of labels (Fig. 1)."""
    gaps = np.abs(variances[:, None] - variances[None, :])
    pairs = len(variances) * (len(variances) - 1)
    return float(gaps.sum() / pairs) if pairs else 0.0


def effective_classes(shares: np.ndarray) -> float:
    """exp of the entropy of class shares: K when even, 1 when all texts have one label."""
    p = shares[shares > 0] / shares.sum() if shares.sum() else np.ones(1)
    return float(np.exp(-(p * np.log(p)).sum()))


def collapsed(shares: np.ndarray, reference: np.ndarray, left: float = 0.5) -> bool:
    """Whether less than a part of the classes (beyond the first) in the reference is `left`."""
    return effective_classes(shares) - 1.0 < left * (effective_classes(reference) - 1.0)


class Tally:
    """Sums over texts from which all figures follow; memory does not grow with N."""

    def __init__(self, labels: int) -> None:
        self.both, self.said, self.true = (np.zeros(labels, dtype=np.int64) for _ in range(3))
        self.n = self.empty = self.exact = 0
        self.ranks = np.zeros(3)  # ranking loss, LRAP, coverage

    def add(self, truth: Matrix, predicted: Matrix, scores: NDArray[np.floating]) -> None:
        """Counts texts in; all three are (N, K)."""
        for start in range(0, len(truth), CHUNK):
            t, p = truth[start : start + CHUNK].astype(bool), predicted[start : start + CHUNK].astype(bool)
            self.both += (t & p).sum(axis=0)
            self.said += p.sum(axis=0)
            self.true += t.sum(axis=0)
            self.n += len(t)
            self.empty += int((~p.any(axis=1)).sum())
            self.exact += int((t == p).all(axis=1).sum())
            self.ranks += ranks(t, scores[start : start + CHUNK])

    def figures(self, names: Sequence[object]) -> dict[str, Any]:
        """Micro and macro F1 over all K labels, the ranking figures, and a table of the labels."""
        share = 1.0 / max(1, self.n)
        precision, recall = _share(self.both, self.said), _share(self.both, self.true)
        f1 = _share(2 * self.both, self.said + self.true)
        loss, lrap, coverage = (self.ranks * share).tolist()
        per_label = {str(name): {"precision": float(precision[k]), "recall": float(recall[k]), "f1": float(f1[k]),
                                 "n": int(self.true[k]), "predicted": int(self.said[k])}
                     for k, name in enumerate(names)}
        return {"n": self.n, "micro_f1": float(_share(2 * self.both.sum(), self.said.sum() + self.true.sum())),
                "macro_f1": float(f1.mean()), "ranking_loss": loss, "lrap": lrap, "coverage": coverage,
                "accuracy": self.exact * share, "empty": self.empty, "per_label": per_label}


def multi_label(truth: Matrix, predicted: Matrix, scores: NDArray[np.floating],
                names: Sequence[object]) -> dict[str, Any]:
    """All figures of texts at once; all three are (N, K)."""
    tally = Tally(len(names))
    tally.add(truth, predicted, scores)
    return tally.figures(names)


def ranks(truth: Matrix, scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Sums over texts of ranking loss, LRAP and coverage, (3,)."""
    order = np.argsort(-scores, axis=1)
    falling, true = np.take_along_axis(scores, order, axis=1), np.take_along_axis(truth, order, axis=1)
    labels = truth.shape[1]
    last = np.ones(truth.shape, dtype=bool)
    last[:, :-1] = falling[:, 1:] != falling[:, :-1]
    # the place of a label is that of the last one with its score: going back, the nearest end of a run of equals
    ends = np.where(last, np.arange(labels, dtype=np.int32), labels)
    ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    above = np.take_along_axis(np.cumsum(true, axis=1, dtype=np.int32), ends, axis=1)  # true labels up to there
    place = ends + 1
    have = true.sum(axis=1)
    some = (have > 0) & (have < labels)
    precision = np.where(true, above / place, 0.0).sum(axis=1)
    wrong = np.where(true, place - above, 0).sum(axis=1)
    loss = wrong[some] / (have[some] * (labels - have[some]))
    lrap = (precision[some] / have[some]).sum() + (~some).sum()
    return np.array([loss.sum(), lrap, np.where(true, place, 0).max(axis=1).sum()], dtype=np.float64)


def _share(part: Any, whole: Any) -> NDArray[np.float64]:
    """part / whole, 0 where there is nothing."""
    return np.asarray(np.divide(part, np.maximum(whole, 1), dtype=np.float64))
