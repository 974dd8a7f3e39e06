"""The registry of methods: a method is a function whose keyword-only parameters are its hyper-parameters."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from halflabel.errors import SettingError
from halflabel.nn.network import HiddenHead
from halflabel.training.objective import SelfTraining
from halflabel.types import Plan, Shape, Task


@dataclass(frozen=True)
class Range:
    """Finite numbers from `low` to `high`."""

    refusal: ClassVar[str] = "is out of range for"
    low: float = -math.inf
    high: float = math.inf

    def allows(self, value: Any, *, whole: bool) -> bool:
        """Whether a value is such a number; with `whole`, such an integer."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        return number and self.low <= value <= self.high and not (whole and value != int(value))

    def description(self, *, whole: bool) -> str:
        kind = "a whole number" if whole else "a number"
        return f"{kind} from {self.low:g} to {self.high:g}" if self != Range() else f"{kind} that is finite"


@dataclass(frozen=True)
class Choice:
    """One of several words."""

    refusal: ClassVar[str] = "is not a choice of"
    words: tuple[str, ...]

    def allows(self, value: Any, *, whole: bool) -> bool:
        return value in self.words

    def description(self, *, whole: bool) -> str:
        return f"one of {', '.join(self.words)}"


Limits = Range | Choice

# Hyper-parameters that several methods share; a method declares its own with `limits=`.
SHARED_LIMITS: dict[str, Limits] = {
    "s": Range(1e-6, 1e3), "m": Range(0.0, 2.0), "T": Range(1e-3, 1.0), "C": Range(1e-9, 1e9),
    "memory": Range(0.0, 0.999999), "momentum": Range(0.0, 0.999999), "cutoff": Range(0.0, 1.0),
    "lambda1": Range(0.0, 1e6), "lambda2": Range(0.0, 1e6), "lambda3": Range(0.0, 1e6), "tau": Range(1e-6, 1e6),
    "gamma_neg": Range(0.0, 1e3), "gamma_pos": Range(0.0, 1e3), "shift": Range(0.0, 0.999999),
    "rounds": Range(0, 1e6), "vocabulary": Range(1, 1e7),
    "follow": Choice(("paper", "code")), "views": Choice(("same", "strong")),
}
BagOfWordsWeights = Literal["", "counts", "tf-idf"]


@dataclass(frozen=True)
class Method:
    """A registered method."""

    name: str
    task: Task
    paper: str
    build: Callable[..., SelfTraining]
    plans: Mapping[str, Mapping[str, Any]]  # fields of a plan that the method changes, by the name of the plan
    limits: Mapping[str, Limits]  # of hyper-parameters; those of SHARED_LIMITS need none
    bag_of_words: BagOfWordsWeights = ""  # trains on bags of words instead of an encoder's vectors
    depths: int = 1  # layers of the encoder whose hidden states it uses
    needs_full_encoder: bool = False  # uses word embeddings or several layers, so that no layer can be frozen
    no_steps: bool = False  # is fitted in closed form, without training steps
    labelled_as_pool: bool = False  # without a pool, the labelled texts take its place
    subsamples_pool: bool = False  # keeps its whole pool in memory, and so takes a sample of a large one
    multilabel_method: str = ""  # its version for several labels per text
    uses_names: bool = False  # its start uses class names beside labels and pool, and needs no labels then
    uses_teachers: bool = False  # its start learns from further encoders than the one that is fine-tuned
    weighs_classes: bool = False  # its start uses class weights

    def __call__(self, shape: Shape, **settings: Any) -> SelfTraining:
        self.check(settings)
        return self.build(shape, **settings)

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.build) or "").splitlines()[0]

    @property
    def defaults(self) -> dict[str, Any]:
        """The hyper-parameters and their default values."""
        parameters = inspect.signature(self.build).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}

    @property
    def runs_on(self) -> str:
        """What it can be trained on."""
        if self.bag_of_words:
            return "bags of words, without an encoder"
        return "frozen vectors under every plan" if self.no_steps else "frozen vectors or a fine-tuned encoder"

    @property
    def takes_names(self) -> bool:
        """Whether class names can be given: its start uses them, or its head starts from them."""
        return self.uses_names or isinstance(self.build(Shape(labels=2, width=8, labelled=2, unlabelled=2)).head,
                                             HiddenHead)

    @property
    def file(self) -> str:
        """The method's file, relative to the parent of the package."""
        path = Path(inspect.getfile(self.build))
        return "/".join(path.parts[path.parts.index("halflabel", -3) :])

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raises SettingError for a value outside its limits."""
        defaults, limits = self.defaults, {**SHARED_LIMITS, **self.limits}
        for name, value in settings.items():
            allowed, whole = limits.get(name, Range()), isinstance(defaults[name], int)
            if not allowed.allows(value, whole=whole):
                raise SettingError(f"{name}={value} {allowed.refusal} {self.name}; "
                                   f"give {allowed.description(whole=whole)}.")

    def adapt_plan(self, plan: Plan) -> Plan:
        """The plan without what does not apply: bags of words have no vectors to freeze, closed forms no steps."""
        if plan.frozen_layers and (plan.frozen or self.bag_of_words or self.needs_full_encoder):
            reason = (f"{self.name} trains on bags of words, which have no layers" if self.bag_of_words else
                      "the plan frozen trains no layer" if plan.frozen else
                      f"{self.name} needs the whole encoder")
            raise SettingError(f"frozen_layers={plan.frozen_layers:g} does not apply: {reason}; leave it out.")
        if self.no_steps:
            plan = replace(plan, frozen=True, epochs=0, warmup=0)
        if self.bag_of_words and plan.frozen:
            plan = replace(plan, frozen=False, token_drop=0.0)
        return plan


METHODS: dict[str, Method] = {}


def method(name: str, *, task: Task, paper: str, plans: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
           limits: Mapping[str, Limits] = MappingProxyType({}), bag_of_words: BagOfWordsWeights = "", depths: int = 1,
           needs_full_encoder: bool = False, no_steps: bool = False, labelled_as_pool: bool = False,
           subsamples_pool: bool = False, multilabel_method: str = "",
           uses_names: bool = False, uses_teachers: bool = False, weighs_classes: bool = False) -> Callable[..., Any]:
    """Registers a function as a method; the arguments are the fields of `Method`."""
    def register(build: Callable[..., SelfTraining]) -> Callable[..., SelfTraining]:
        METHODS[name] = Method(
            name, task, paper, build, plans, limits, bag_of_words, depths, needs_full_encoder or depths > 1, no_steps,
            labelled_as_pool, subsamples_pool or no_steps, multilabel_method, uses_names, uses_teachers,
            weighs_classes)
        return build
    return register


def find(name: str) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise SettingError(f"There is no method '{name}'; choose one of {', '.join(sorted(METHODS))}.")
    return METHODS[name]
