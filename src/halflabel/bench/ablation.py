"""Ablations by name: "bdd-f -unlabelled" is bdd-f without its pool, and so on for the parts of Table 8."""

from __future__ import annotations

from typing import NamedTuple

from halflabel.errors import BadInput


class Family(NamedTuple):
    """What stands in for a method when a part of it is gone."""

    unbalanced: str  # the same with angles as they are
    penalty: str  # the setting that weighs its regularisation
    bare: str  # nothing but labelled texts
    bare_changes: dict[str, float]


# Multi-class "-all" is BERT+CE: its row in Table 8 is that of Table 2. The multi-label row is no row of another table;
# taken is what is left of the method: the angular loss on labelled texts, without penalty and averaged weights.
FAMILIES = {
    "bdd-s": Family("am-s", "lambda2", "ce", {}),
    "bdd-f": Family("am-f", "lambda2", "ce", {}),
    "bdd-ml": Family("am-ml", "lambda3", "am-ml", {"lambda3": 0.0, "ema": 0.0}),
}
PARTS = ("-regularization", "-bdd", "-unlabelled", "-all")


class Resolved(NamedTuple):
    """A method of the registry and the settings to change in it or in its plan."""

    method: str
    changes: dict[str, float]


def resolve(method: str) -> Resolved:
    """What a run's method means; the name of a registered method means itself."""
    name, *parts = method.split()
    if not parts:
        return Resolved(name, {})
    if name not in FAMILIES:
        raise BadInput(f"there is no ablation of '{name}'; there are some of {', '.join(FAMILIES)}")
    if wrong := [part for part in parts if part not in PARTS]:
        raise BadInput(f"'{wrong[0]}' is no part of {name} to leave out; choose one of {', '.join(PARTS)}")
    family = FAMILIES[name]
    if "-all" in parts:
        return Resolved(family.bare, dict(family.bare_changes))
    return Resolved(family.unbalanced if "-bdd" in parts else name,
                    {family.penalty: 0.0} if "-regularization" in parts else {})


def without_pool(method: str) -> bool:
    """Whether the run of a method has to have no unlabelled texts."""
    return not {"-unlabelled", "-all"}.isdisjoint(method.split()[1:])
