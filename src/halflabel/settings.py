"""The settings of a run, chosen once and checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from halflabel.encoders.catalogue import is_auto, names_in
from halflabel.errors import SettingError, WrongTask
from halflabel.methods import METHODS, find
from halflabel.plans import adjustable, plan_named
from halflabel.types import MAX_SEED, Plan, Task

DEFAULT_METHODS: dict[Task, str] = {"multi-class": "lift", "multi-label": "bdd-ml"}
KINDS: dict[Task, str] = {"multi-class": "one label for each text", "multi-label": "sets of labels"}
WORDS = "words"  # takes the place of an encoder's name for methods on bags of words


@dataclass(frozen=True)
class Settings:
    """All choices of a run that are not texts."""

    method: str
    plan: Plan
    encoder: str
    seed: int
    hyper: dict[str, Any]  # hyper-parameters that differ from the method's defaults
    names: dict[str, list[str]] = field(default_factory=dict)  # phrases for labels, by the label as a string

    def to_json(self) -> dict[str, Any]:
        return {"method": self.method, "plan": self.plan.to_json(), "encoder": self.encoder, "seed": self.seed,
                "hyper": self.hyper} | ({"names": self.names} if self.names else {})

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Settings:
        """The inverse of `to_json`."""
        return cls(**{**fields, "plan": Plan.from_json(fields["plan"])})


def choose_settings(task: Task, *, method: str | None = None, encoder: str | None = None, plan: str = "laptop",
                    minutes: float | None = None, changes: dict[str, Any] | None = None, seed: int = 0,
                    names: dict[str, list[str]] | None = None,
                    label_names: dict[str, list[str]] | None = None) -> Settings:
    """Method, plan and hyper-parameters for labels of that kind; `changes` are single values by name.

    `label_names` are the labels as words: a method that checks names by the labels uses them if there are no `names`.
    """
    if not 0 <= seed <= MAX_SEED:
        raise SettingError(f"the seed {seed} is out of range; give a whole number from 0 to {MAX_SEED}.")
    chosen = find(method or DEFAULT_METHODS[task])
    if task == "multi-label" and chosen.multilabel_method:
        chosen = find(chosen.multilabel_method)
    if chosen.task != task:
        fitting = ", ".join(sorted(other.name for other in METHODS.values() if other.task == task))
        raise WrongTask(f"the labels are {KINDS[task]}, but the method {chosen.name} is for {KINDS[chosen.task]}; "
                        f"choose one of {fitting}.")
    rest = dict(changes or {})
    known = [*chosen.defaults, *([] if chosen.no_steps else adjustable())]
    if unknown := [key for key in rest if key not in known]:
        raise SettingError(f"'{unknown[0]}' is no setting of {chosen.name}; it has {', '.join(known)}.")
    hyper = {key: rest.pop(key) for key in list(rest) if key in chosen.defaults}
    chosen.check(hyper)
    if minutes is not None:
        rest["minutes"] = minutes
    adapted = chosen.adapt_plan(plan_named(plan, **{**chosen.plans.get(plan, {}), **rest}))
    if names and not chosen.takes_names:
        remedy = "choose lift, or leave out the names" if task == "multi-class" else "leave out the names"
        raise SettingError(f"the method {chosen.name} does not use class names; {remedy}.")
    encoder = WORDS if chosen.bag_of_words else encoder or adapted.encoder
    if len(names_in(encoder)) > 1 and not (adapted.frozen or chosen.uses_teachers or is_auto(encoder)):
        raise SettingError(f"the method {chosen.name} fine-tunes one encoder; name one, or use the plan frozen, which "
                           "joins the vectors of several.")
    return Settings(chosen.name, adapted, encoder, seed, hyper, names or (chosen.uses_names and label_names) or {})
