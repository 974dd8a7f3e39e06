"""Metrics of multi-class and multi-label predictions.

To add a multi-label metric, add a function to `TEXT_METRICS` if it is a mean over texts, or to `COUNT_METRICS` if it
follows from how often each label is true, predicted and both; `halflabel evaluate --json` then reports it. Those of
multi-class predictions are the entries of `multi_class`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.bool_]
Scores = NDArray[np.floating]
CHUNK = 8192  # texts at a time


def multi_class(truth: np.ndarray, predicted: np.ndarray, names: Sequence[object]) -> dict[str, Any]:
    """Accuracy, micro and macro F1 over all K labels, and a table of the labels; the arguments are columns (N,)."""
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


def exact_match(truth: Matrix, predicted: Matrix, scores: Scores) -> float:
    """The share of texts of which all labels are right."""
    return float((truth == predicted).all(axis=1).mean())


def ranking_loss(truth: Matrix, predicted: Matrix, scores: Scores) -> float:
    """The share of pairs of a true and a false label that are ranked the wrong way; 0 for texts without such pairs."""
    from sklearn.metrics import label_ranking_loss

    return float(label_ranking_loss(truth, scores))


def lrap(truth: Matrix, predicted: Matrix, scores: Scores) -> float:
    """Label ranking average precision; 1 for texts with no label.

    By hand, since that of scikit-learn loops over texts in Python and takes ten times as long.
    """
    from scipy.stats import rankdata

    ranks = rankdata(-scores, "max", axis=1)
    ranks_among_true = rankdata(np.where(truth, -scores, np.inf), "max", axis=1)
    precision = np.where(truth, ranks_among_true / ranks, 0.0).sum(axis=1)
    return float(np.where(truth.any(axis=1), precision / np.maximum(truth.sum(axis=1), 1), 1.0).mean())


def coverage(truth: Matrix, predicted: Matrix, scores: Scores) -> float:
    """How far one has to go down the ranking to find all true labels; 0 for texts with no label."""
    from sklearn.metrics import coverage_error

    return float(coverage_error(truth, scores))


class Counts(NamedTuple):
    """In how many texts each label is predicted, is true, and is both, (K,) each."""

    predicted: NDArray[np.int64]
    true: NDArray[np.int64]
    correct: NDArray[np.int64]

    @property
    def f1(self) -> NDArray[np.float64]:
        """F1 of each label, (K,); 0 for one that is neither true nor predicted."""
        return _ratio(2 * self.correct, self.predicted + self.true)


# Means over texts: functions of truth, predictions and scores, (N, K) each.
TEXT_METRICS: dict[str, Callable[[Matrix, Matrix, Scores], float]] = {
    "ranking_loss": ranking_loss, "lrap": lrap, "coverage": coverage, "accuracy": exact_match,
}
COUNT_METRICS: dict[str, Callable[[Counts], float]] = {
    "micro_f1": lambda counts: float(_ratio(2 * counts.correct.sum(), counts.predicted.sum() + counts.true.sum())),
    "macro_f1": lambda counts: float(counts.f1.mean()),
}


class Tally:
    """Sums over texts from which all multi-label metrics follow; memory does not grow with N."""

    def __init__(self, labels: int) -> None:
        self.counts = Counts(*(np.zeros(labels, dtype=np.int64) for _ in Counts._fields))
        self.sums = dict.fromkeys(TEXT_METRICS, 0.0)
        self.n = self.empty = 0  # texts, and those without a predicted label

    def add(self, truth: Matrix, predicted: Matrix, scores: Scores) -> None:
        """Adds texts; all three are (N, K)."""
        for start in range(0, len(truth), CHUNK):
            t, p = truth[start : start + CHUNK].astype(bool), predicted[start : start + CHUNK].astype(bool)
            for count, matrix in zip(self.counts, (p, t, p & t), strict=True):
                count += matrix.sum(axis=0)
            # labels unknown to the model have a score of -inf, and those of a diverged run are NaN
            s = np.nan_to_num(scores[start : start + CHUNK])
            for name, metric in TEXT_METRICS.items():
                self.sums[name] += len(t) * metric(t, p, s)
            self.n += len(t)
            self.empty += int((~p.any(axis=1)).sum())

    def figures(self, names: Sequence[object]) -> dict[str, Any]:
        """All metrics, and a table of the labels."""
        counts, means = self.counts, {name: total / max(1, self.n) for name, total in self.sums.items()}
        precision, recall, f1 = _ratio(counts.correct, counts.predicted), _ratio(counts.correct, counts.true), counts.f1
        per_label = {str(name): {"precision": float(precision[k]), "recall": float(recall[k]), "f1": float(f1[k]),
                                 "n": int(counts.true[k]), "predicted": int(counts.predicted[k])}
                     for k, name in enumerate(names)}
        return ({"n": self.n} | {name: metric(counts) for name, metric in COUNT_METRICS.items()} | means
                | {"empty": self.empty, "per_label": per_label})


def multi_label(truth: Matrix, predicted: Matrix, scores: Scores, names: Sequence[object]) -> dict[str, Any]:
    """All multi-label metrics of texts; truth, predicted and scores are (N, K)."""
    tally = Tally(len(names))
    tally.add(truth, predicted, scores)
    return tally.figures(names)


def _ratio(part: Any, whole: Any) -> NDArray[np.float64]:
    """part / whole, 0 where whole is 0."""
    return np.asarray(np.divide(part, np.maximum(whole, 1), dtype=np.float64))


def variance_difference(variances: np.ndarray) -> float:
    """Mean absolute difference of label-angle variances over all pairs of labels (Fig. 1)."""
    differences = np.abs(variances[:, None] - variances[None, :])
    pairs = len(variances) * (len(variances) - 1)
    return float(differences.sum() / pairs) if pairs else 0.0


def effective_classes(shares: np.ndarray) -> float:
    """exp of the entropy of class shares: K if they are equal, 1 if all texts have the same label."""
    p = shares[shares > 0] / shares.sum() if shares.sum() else np.ones(1)
    return float(np.exp(-(p * np.log(p)).sum()))


def collapsed(shares: np.ndarray, reference: np.ndarray, threshold: float = 0.5) -> bool:
    """Whether there are fewer effective classes, beyond the first, than that share of those in the reference."""
    return effective_classes(shares) - 1.0 < threshold * (effective_classes(reference) - 1.0)
