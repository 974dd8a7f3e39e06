"""The settings of a run, chosen once and checked before anything is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from halflabel.data.corpus import Corpus
from halflabel.encoders.catalogue import is_auto, names_in
from halflabel.errors import SettingError, WrongTask
from halflabel.methods import METHODS, find
from halflabel.methods.registry import Method
from halflabel.nn.pseudo_labels import BALANCED
from halflabel.plans import adjustable, plan_named
from halflabel.types import MAX_SEED, Plan, Shape, Task

DEFAULT_METHODS: dict[Task, str] = {"multi-class": "lift", "multi-label": "lift-ml"}
UNLABELLED_METHOD = "lift"  # for class names and a pool alone
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
    class_weight: str | dict[str, float] | None = None  # BALANCED, or weights by the label as a string

    def to_json(self) -> dict[str, Any]:
        return {"method": self.method, "plan": self.plan.to_json(), "encoder": self.encoder, "seed": self.seed,
                "hyper": self.hyper} | ({"names": self.names} if self.names else {}) | (
                    {"class_weight": self.class_weight} if self.class_weight else {})

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Settings:
        """The inverse of `to_json`."""
        return cls(**{**fields, "plan": Plan.from_json(fields["plan"])})


def choose_task(labelled: Corpus, method: str | None, *, several: bool = False) -> Task:
    """The kind of the labels; where there are none, several if the user says so or names a method for several."""
    if not len(labelled):
        return "multi-label" if several or (method and find(method).task == "multi-label") else "multi-class"
    if several and labelled.task == "multi-class":
        raise WrongTask("the labels are one label for each text, but several are asked for; give each text a list of "
                        "labels, or leave out --several.")
    return labelled.task


def choose_settings(task: Task, *, labelled: bool = True, method: str | None = None, encoder: str | None = None,
                    plan: str = "laptop", minutes: float | None = None, changes: dict[str, Any] | None = None,
                    seed: int = 0, names: dict[str, list[str]] | None = None,
                    label_names: dict[str, list[str]] | None = None,
                    class_weight: str | Mapping[Any, float] | None = None) -> Settings:
    """Method, plan and hyper-parameters for labels of that kind; `changes` are single values by name.

    `labelled` says whether there are labelled texts. `label_names` are the labels as words: a method that checks names
    by the labels uses them if there are no `names`.
    """
    if not 0 <= seed <= MAX_SEED:
        raise SettingError(f"the seed {seed} is out of range; give a whole number from 0 to {MAX_SEED}.")
    chosen = find(method or (DEFAULT_METHODS[task] if labelled else UNLABELLED_METHOD))
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
        raise SettingError(f"the method {chosen.name} does not use class names; choose lift, or leave out the names.")
    encoder = WORDS if chosen.bag_of_words else encoder or adapted.encoder
    if len(names_in(encoder)) > 1 and not (adapted.frozen or chosen.uses_teachers or is_auto(encoder)):
        raise SettingError(f"the method {chosen.name} fine-tunes one encoder; name one, or use the plan frozen, which "
                           "joins the vectors of several.")
    weights = check_class_weight(class_weight, chosen, hyper)
    names = names or (label_names if chosen.uses_names else None)
    return Settings(chosen.name, adapted, encoder, seed, hyper, names or {}, weights)


def check_class_weight(weights: str | Mapping[Any, float] | None, method: Method,
                       hyper: dict[str, Any]) -> str | dict[str, float] | None:
    """Class weights as `Settings` holds them; refused if they are none, or if the method would not use them."""
    if weights is None or weights == {}:
        return None
    if method.task == "multi-label":
        raise SettingError("class weights are for one label per text; leave them out where texts have several.")
    parts = method(Shape(labels=2, width=8, labelled=2, unlabelled=2), **hyper)
    if (parts.start is not None or parts.custom_step is not None) and not method.weighs_classes:
        raise SettingError(f"the method {method.name} does not take class weights, since not all of it is trained by a "
                           "weighted loss; choose another, such as bdd-f or ce, or leave them out.")
    if isinstance(weights, str):
        if weights != BALANCED:
            raise SettingError(f"'{weights}' is no class weight; give '{BALANCED}', or a number for each label.")
        return weights
    for label, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, Real) or not 0.0 < weight < math.inf:
            raise SettingError(f"the class weight of '{label}' is {weight!r}; give a number above 0.")
    return {str(label): float(weight) for label, weight in weights.items()}
