"""How good it is: F1, pseudo-label accuracy and the spread of label-angle variances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


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
