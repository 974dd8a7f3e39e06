"""Targets of training: pseudo-labels for unlabelled texts, from the model's own probabilities; and what labelled texts
tell about each label: its frequency, its weight, and whether it can be learnt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel import equations as eq
from halflabel.errors import SettingError
from halflabel.notices import Notice
from halflabel.types import Shape

COLUMNS = 8  # labels that are sorted together: indices take 64 bits, so all at once would need twice the table
REASONS = {
    "never": "no labelled text has it",
    "always": "every labelled text has it",
    "once": "only one labelled text has it",
}
BALANCED = "balanced"  # class weights that make all classes count alike
MAX_NAMES = 10  # of labels in a notice


class Target(NamedTuple):
    """Targets y (N, K) and their weight: (N,) of each text, or (N, K) a mask of the labels that are known."""

    y: Tensor
    weight: Tensor

    @property
    def weighted(self) -> Tensor:
        """y times its weight, (N, K)."""
        return self.y * (self.weight if self.weight.dim() == 2 else self.weight[:, None])

    @property
    def accepted(self) -> Tensor:
        """Texts with a positive weight, (N,)."""
        return (self.weight if self.weight.dim() == 1 else self.weight.amax(dim=1)) > 0


class PseudoLabeller(nn.Module):
    """Turns probabilities into targets; its state is part of the checkpoint."""

    uses_pool = True
    gives_labels = True  # if not, only a warm-up can give the reference by which a collapse is detected
    trains_on_epoch_sample = False  # whether an epoch trains only on the rows that its statistics were computed on

    def set_labelled(self, y: Tensor) -> None:
        """Once, before training: the labels of the labelled texts (N_l, K), NaN where unknown."""

    def label(self, p: Tensor) -> Target:
        """Targets for probabilities (N, K); changes no state."""
        raise AssertionError("every pseudo-labeller defines its targets")

    def update(self, p: Tensor) -> None:
        """At each step, before `label`: updates running statistics by the batch's probabilities (N, K)."""

    def update_epoch(self, rows: Tensor, p: Tensor, f: Tensor, y: Tensor) -> None:
        """At the start of an epoch: probabilities (M, K) of the epoch's sample of the pool, rows (M,).

        f (N_l + M, D) are features, those of the labelled texts first; their labels are y (N_l, K).
        """

    def forward(self, rows: Tensor, predict: Callable[[], Tensor]) -> Target:
        """Targets of a step's rows; `predict` runs the network on them and returns probabilities."""
        p = predict()
        self.update(p)
        return self.label(p)


class NoPool(PseudoLabeller):
    """Unlabelled texts are not used."""

    uses_pool = False

    def label(self, p: Tensor) -> Target:
        return Target(p, p.new_zeros(len(p)))


class NoLabels(PseudoLabeller):
    """Unlabelled texts take part in a step, but get no labels."""

    gives_labels = False

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.labels = shape.labels

    def label(self, p: Tensor) -> Target:
        return Target(p, p.new_zeros(len(p)))

    def forward(self, rows: Tensor, predict: Callable[[], Tensor]) -> Target:
        y = torch.zeros(len(rows), self.labels, device=rows.device)
        return Target(y, y.new_zeros(len(rows)))


class Sharpen(PseudoLabeller):
    """Soft labels at temperature T (Eq. 9), of weight 1 where the confidence exceeds the cutoff."""

    def __init__(self, T: float, cutoff: float = 0.0) -> None:
        super().__init__()
        self.T, self.cutoff = T, cutoff

    def label(self, p: Tensor) -> Target:
        return Target(eq.sharpen(p, self.T), (p.amax(dim=1) > self.cutoff).to(p.dtype))


class SelfAdaptive(PseudoLabeller):
    """Hard labels where the confidence reaches FreeMatch's self-adaptive threshold of the class."""

    def __init__(self, shape: Shape, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("confidence", torch.tensor(1.0 / shape.labels))
        self.register_buffer("marginal", torch.full((shape.labels,), 1.0 / shape.labels))

    confidence: Tensor
    marginal: Tensor

    @torch.no_grad()
    def update(self, p: Tensor) -> None:
        """Moving averages of the confidence and of the class marginal."""
        self.confidence.lerp_(p.amax(dim=1).mean(), 1.0 - self.momentum)
        self.marginal.lerp_(p.mean(dim=0), 1.0 - self.momentum)

    def thresholds(self) -> Tensor:
        """tau(k) = tau p~(k) / max p~, (K,)."""
        return self.confidence * self.marginal / self.marginal.max()

    def label(self, p: Tensor) -> Target:
        confidence, label = p.max(dim=1)
        return Target(one_hot(p), (confidence >= self.thresholds()[label]).to(p.dtype))


def one_hot(p: Tensor) -> Tensor:
    """One-hot labels of the most probable classes, (N, K)."""
    return functional.one_hot(p.argmax(dim=1), p.shape[1]).to(p.dtype)


class FixedThreshold(PseudoLabeller):
    """Hard labels where the confidence reaches a fixed cutoff (FixMatch)."""

    def __init__(self, cutoff: float) -> None:
        super().__init__()
        self.cutoff = cutoff

    def label(self, p: Tensor) -> Target:
        return Target(one_hot(p), (p.amax(dim=1) >= self.cutoff).to(p.dtype))


class ClassAware(PseudoLabeller):
    """Class-distribution-aware pseudo-labels (Eq. 12): each label goes to the texts that score it highest.

    Their number follows the labelled frequencies. Labels are kept in a table until the next epoch. A label that no
    labelled text has goes to none. Of the positives and of the negatives of a label only the most confident shares
    `positives` and `negatives` count; the others are masked.
    """

    trains_on_epoch_sample = True

    def __init__(self, shape: Shape, positives: float = 1.0, negatives: float = 1.0) -> None:
        super().__init__()
        self.positives, self.negatives = positives, negatives
        self.unmasked = min(positives, negatives) == 1.0
        self.register_buffer("prior", torch.zeros(shape.labels))
        self.register_buffer("table", torch.zeros(shape.unlabelled, shape.labels, dtype=torch.bool))
        masked = 0 if self.unmasked else shape.unlabelled
        self.register_buffer("mask", torch.zeros(masked, shape.labels, dtype=torch.bool))

    prior: Tensor
    table: Tensor
    mask: Tensor

    def set_labelled(self, y: Tensor) -> None:
        self.prior.copy_(label_frequencies(y))

    def label(self, p: Tensor) -> Target:
        counts = eq.cap_counts(self.prior, len(p))
        y = _top_counts(p, counts)
        if self.unmasked:
            return Target(y, p.new_ones(len(p)))
        confident = eq.cap_counts(self.positives * self.prior, len(p)).minimum(counts)
        uncertain = len(p) - ((len(p) - counts) * self.negatives + 0.5).floor().long()
        return Target(y, _top_counts(p, confident) + 1.0 - _top_counts(p, uncertain))

    @torch.no_grad()
    def update_epoch(self, rows: Tensor, p: Tensor, f: Tensor, y: Tensor) -> None:
        """Labels the rows (M,) by the teacher's probabilities p (M, K)."""
        target = self.label(p.to(self.prior.device))
        self.table[rows] = target.y.bool()
        if not self.unmasked:
            self.mask[rows] = target.weight.bool()

    def forward(self, rows: Tensor, predict: Callable[[], Tensor]) -> Target:
        y = self.table[rows].to(self.prior.dtype)
        return Target(y, y.new_ones(len(y)) if self.unmasked else self.mask[rows].to(y.dtype))


def _top_counts(p: Tensor, counts: Tensor) -> Tensor:
    """Eq. 12 for all labels, a few columns of p (N, K) at a time, (N, K)."""
    y = torch.empty_like(p)
    for start in range(0, p.shape[1], COLUMNS):
        part = slice(start, start + COLUMNS)
        y[:, part] = eq.cap_labels(p[:, part], counts[part])
    return y


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
