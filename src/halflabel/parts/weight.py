"""How much the unlabelled loss counts, as a function of progress in [0, 1]."""

from __future__ import annotations

from collections.abc import Callable

Weight = Callable[[float], float]


def ramp(lambda1: float) -> Weight:
    """Grows linearly over the whole run (Sec. III-C: ramped up over [0, 1])."""
    return lambda progress: lambda1 * progress


def constant(lambda1: float) -> Weight:
    """The same from beginning to end."""
    return lambda progress: lambda1
