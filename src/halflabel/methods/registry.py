"""Methods by name: a method is a function whose signature is its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from halflabel.train.objective import SelfTraining
from halflabel.types import BadInput, Shape, Task

# What a hyper-parameter may be, by name: the same letter means the same thing in every method.
RANGES: dict[str, tuple[float, float]] = {
    "s": (1e-6, 1e3), "m": (0.0, 2.0), "T": (1e-3, 1.0), "memory": (0.0, 0.999999), "momentum": (0.0, 0.999999),
    "lambda1": (0.0, 1e6), "lambda2": (0.0, 1e6), "shrink": (0.0, 1e6),
    "lambda3": (0.0, 1e6), "tau": (1e-6, 1e6), "power": (1.0, 1e3),
}


@dataclass(frozen=True)
class Method:
    """A registered method."""

    name: str
    task: Task
    paper: str
    build: Callable[..., SelfTraining]
    plans: Mapping[str, Mapping[str, Any]]  # what the method changes in a plan

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.build) or "").splitlines()[0]

    @property
    def defaults(self) -> dict[str, Any]:
        """Hyper-parameters with the paper's values, from the signature."""
        parameters = inspect.signature(self.build).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}

    def __call__(self, shape: Shape, **settings: Any) -> SelfTraining:
        for name, value in settings.items():
            check(self.name, name, value)
        return self.build(shape, **settings)


METHODS: dict[str, Method] = {}


def method(name: str, *, task: Task, paper: str,
           plans: Mapping[str, Mapping[str, Any]] = MappingProxyType({})) -> Callable[..., Any]:
    """Registers a function as a method."""
    def register(build: Callable[..., SelfTraining]) -> Callable[..., SelfTraining]:
        METHODS[name] = Method(name, task, paper, build, plans)
        return build
    return register


def find(name: str) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise BadInput(f"There is no method '{name}'; choose one of {', '.join(sorted(METHODS))}.")
    return METHODS[name]


def check(method_name: str, name: str, value: Any) -> None:
    """Refuses a value that is out of its range."""
    low, high = RANGES[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise BadInput(f"{name}={value} is out of range for {method_name}; give a number from {low:g} to {high:g}.")
