"""What the labelled texts alone say of each label: how often it occurs, and whether it can be learnt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from halflabel.notices import Notice

REASONS = {
    "never": "no labelled text has it",
    "always": "every labelled text has it",
    "once": "only one labelled text has it",
}
SHOWN = 10  # names in a sentence


def label_frequencies(y: Tensor) -> Tensor:
    """Share of the labelled texts that have each label, (K,) from y (N_l, K); NaN entries do not count."""
    known = ~y.isnan()
    return y.nan_to_num().sum(dim=0) / known.sum(dim=0).clamp_min(1)


def unlearnable_labels(y: Tensor, names: Sequence[Any]) -> list[dict[str, Any]]:
    """The labels that labelled texts y (N_l, K) say too little about, each with the reason."""
    have, known = y.nan_to_num().sum(dim=0).tolist(), (~y.isnan()).sum(dim=0).tolist()
    found = []
    for name, positive, asked in zip(names, have, known, strict=True):
        kind = "never" if positive == 0 else "always" if positive == asked else "once" if positive == 1 else ""
        if kind:
            found.append({"label": name, "why": REASONS[kind]})
    return found


def unlearnable_notices(found: Sequence[dict[str, Any]]) -> list[Notice]:
    """A notice for each reason, with the names of its labels."""
    groups = {why: [str(entry["label"]) for entry in found if entry["why"] == why] for why in REASONS.values()}
    return [Notice(f"{len(names)} label{'s' * (len(names) > 1)} can hardly be learnt, since {why}: {_listed(names)}")
            for why, names in groups.items() if names]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
