"""Methods by name: a method is a function whose signature is its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from halflabel.errors import BadInput
from halflabel.training.objective import SelfTraining
from halflabel.types import Plan, Shape, Task

# What a hyper-parameter may be, by name: the same letter means the same thing in every method.
RANGES: dict[str, tuple[float, float]] = {
    "s": (1e-6, 1e3), "m": (0.0, 2.0), "T": (1e-3, 1.0), "memory": (0.0, 0.999999), "momentum": (0.0, 0.999999),
    "lambda1": (0.0, 1e6), "lambda2": (0.0, 1e6), "shrink": (0.0, 1e6),
    "lambda3": (0.0, 1e6), "tau": (1e-6, 1e6),
    "power": (1.0, 1e3), "cutoff": (0.0, 1.0), "sigmas": (1e-3, 1e3), "eps": (0.0, 1e6), "xi": (1e-9, 1e6),
    "alpha": (0.0, 1e6), "share": (0.0, 1e3), "smooth": (1e-9, 1e6), "rounds": (0, 1e6), "still": (0.0, 1.0),
    "vocabulary": (1, 1e7), "states": (2, 1e5), "embedding": (1, 1e5), "reading": (0.0, 1.0), "patience": (1, 1e6),
    "C": (1e-9, 1e9), "threshold": (0.0, 0.999999), "relax": (1e-6, 0.999999), "neighbours": (1, 1e6),
    "gamma": (1e-9, 1e6), "tau2": (0.0, 1e3), "tau3": (0.0, 1e3), "apart": (0.0, 1.0), "beta": (0.0, 0.999999),
    "gamma_neg": (0.0, 1e3), "gamma_pos": (0.0, 1e3), "shift": (0.0, 0.999999), "positives": (0.0, 1.0),
    "negatives": (0.0, 1.0), "distance": (0.0, 1e6), "after": (0.0, 1.0), "relation": (0.0, 1e6),
}
# The words that a setting may be.
CHOICES: dict[str, tuple[str, ...]] = {
    "anneal": ("linear", "exp", "log", "none"), "count_unused": ("yes", "no"), "kernel": ("knn", "rbf"),
    "follow": ("paper", "code"), "views": ("same", "strong"),
    "answer": ("adjusted", "plain"),
}
Words = Literal["", "counts", "tf-idf"]


@dataclass(frozen=True)
class Method:
    """A registered method."""

    name: str
    task: Task
    paper: str
    build: Callable[..., SelfTraining]
    plans: Mapping[str, Mapping[str, Any]]  # what the method changes in a plan
    bag_of_words: Words = ""  # trains on bags of words, as counts or tf-idf, instead of an encoder's vectors
    depths: int = 1  # layers of the encoder whose states it uses
    needs_full_encoder: bool = False  # uses word embeddings or several layers, so that none of these can be frozen
    no_steps: bool = False  # is fitted in closed form, without training steps
    labelled_as_pool: bool = False  # without a pool, the labelled texts take its place
    subsamples_pool: bool = False  # keeps its whole pool in memory, and so takes a sample of a large one
    multilabel_method: str = ""  # its version for several labels per text

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.build) or "").splitlines()[0]

    @property
    def defaults(self) -> dict[str, Any]:
        """Hyper-parameters with the paper's values, from the signature."""
        parameters = inspect.signature(self.build).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}

    @property
    def runs_on(self) -> str:
        """What it trains on, under which plans."""
        if self.bag_of_words:
            return "bags of words, without an encoder"
        return "frozen vectors under every plan" if self.no_steps else "frozen vectors or a fine-tuned encoder"

    @property
    def file(self) -> str:
        """The method's file, relative to the package's parent."""
        path = Path(inspect.getfile(self.build))
        return "/".join(path.parts[path.parts.index("halflabel", -3) :])

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuses a value that is out of its range."""
        for name, value in settings.items():
            check(self.name, name, value, self.defaults[name])

    def adapt_plan(self, plan: Plan) -> Plan:
        """The plan without what the method lacks: bags of words have no vectors to freeze, closed forms no steps."""
        if plan.frozen_layers and (plan.frozen or self.bag_of_words or self.needs_full_encoder):
            reason = (f"{self.name} trains on bags of words, which have none" if self.bag_of_words else
                      "the plan frozen trains no layer" if plan.frozen else
                      f"{self.name} needs the whole encoder")
            raise BadInput(f"frozen_layers={plan.frozen_layers} cannot be followed: {reason}; leave it out.")
        if self.no_steps:
            plan = replace(plan, frozen=True, epochs=0, warmup=0)
        if self.bag_of_words and plan.frozen:
            plan = replace(plan, frozen=False, token_drop=0.0)
        return plan

    def __call__(self, shape: Shape, **settings: Any) -> SelfTraining:
        self.check(settings)
        return self.build(shape, **settings)


METHODS: dict[str, Method] = {}


def method(name: str, *, task: Task, paper: str, plans: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
           bag_of_words: Words = "", depths: int = 1, needs_full_encoder: bool = False, no_steps: bool = False,
           labelled_as_pool: bool = False, subsamples_pool: bool = False, multilabel_method: str = "") -> Callable[..., Any]:
    """Registers a function as a method."""
    def register(build: Callable[..., SelfTraining]) -> Callable[..., SelfTraining]:
        METHODS[name] = Method(name, task, paper, build, plans, bag_of_words, depths, needs_full_encoder or depths > 1,
                               no_steps, labelled_as_pool, subsamples_pool or no_steps, multilabel_method)
        return build
    return register


def find(name: str) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise BadInput(f"There is no method '{name}'; choose one of {', '.join(sorted(METHODS))}.")
    return METHODS[name]


def check(method_name: str, name: str, value: Any, default: Any) -> None:
    """Refuses a word that is not among the choices, or a number that is out of its range."""
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise BadInput(f"{name}={value} is not a choice of {method_name}; give one of {', '.join(CHOICES[name])}.")
        return
    low, high = RANGES[name]
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
    whole = isinstance(default, int)
    if not number or (whole and value != int(value)):
        kind = "whole number" if whole else "number"
        raise BadInput(f"{name}={value} is out of range for {method_name}; give a {kind} from {low:g} to {high:g}.")
