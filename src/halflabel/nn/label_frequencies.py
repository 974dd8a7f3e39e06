"""Frequencies of the labels in the labelled texts, class weights, and labels that are too rare or frequent to learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from halflabel.errors import SettingError
from halflabel.notices import Notice

REASONS = {
    "never": "no labelled text has it",
    "always": "every labelled text has it",
    "once": "only one labelled text has it",
}
BALANCED = "balanced"  # class weights that make all classes count alike
MAX_NAMES = 10  # of labels in a notice


def label_frequencies(y: Tensor) -> Tensor:
    """The share of labelled texts that have each label, (K,) from y (N_l, K); NaN entries do not count."""
    known = ~y.isnan()
    return y.nan_to_num().sum(dim=0) / known.sum(dim=0).clamp_min(1)


def unlearnable_labels(y: Tensor, names: Sequence[Any]) -> list[dict[str, Any]]:
    """The labels that can hardly be learnt from labelled texts y (N_l, K), each with the reason."""
    positives, totals = y.nan_to_num().sum(dim=0).tolist(), (~y.isnan()).sum(dim=0).tolist()
    labels = []
    for name, positive, total in zip(names, positives, totals, strict=True):
        kind = "never" if positive == 0 else "always" if positive == total else "once" if positive == 1 else ""
        if kind:
            labels.append({"label": name, "why": REASONS[kind]})
    return labels


def unlearnable_notices(labels: Sequence[dict[str, Any]]) -> list[Notice]:
    """A notice for each reason, with the names of its labels."""
    notices = []
    for why in REASONS.values():
        if names := [str(entry["label"]) for entry in labels if entry["why"] == why]:
            more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
            notices.append(Notice(f"{len(names)} label{'s' * (len(names) > 1)} can hardly be learnt, since {why}: "
                                  f"{', '.join(names[:MAX_NAMES])}{more}"))
    return notices


def class_weights(choice: str | Mapping[str, float], y: Tensor, names: Sequence[Any]) -> Tensor:
    """The weight of each class, (K,), for one-hot labels y (N_l, K).

    BALANCED weighs a class by N_l / (K * texts of the class), as scikit-learn does; classes that a mapping leaves out
    have weight 1.
    """
    if choice == BALANCED:
        counts = y.sum(dim=0)
        return len(y) / (len(counts) * counts.clamp_min(1.0))
    assert not isinstance(choice, str), "the only word is balanced"
    labels = [str(name) for name in names]
    if unknown := [label for label in choice if label not in labels]:
        raise SettingError(f"there is a class weight for '{unknown[0]}', which no labelled text has; the labels "
                           f"are {', '.join(labels[:12])}.")
    return torch.tensor([choice.get(label, 1.0) for label in labels], dtype=y.dtype)
