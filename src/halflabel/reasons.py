"""Which words moved a prediction: each is left out in turn, and the change of the label's probability is its reason."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import NamedTuple

import numpy as np

from halflabel.persistence.model_folder import Model

WORD = re.compile(r"\w+(?:['’-]\w+)*")
SPANS = 48  # parts of a text that are left out in turn, at most; in a longer text a part is several words


class Reason(NamedTuple):
    """A part of a text, and by how much it raises the probability of the label."""

    start: int
    end: int
    change: float


class Explanation(NamedTuple):
    """The reasons of one prediction, in the order of the text, and a check of the strongest ones."""

    column: int  # of the label
    probability: float
    reasons: list[Reason]
    without: float  # its probability without the strongest parts

    def strongest(self, number: int) -> list[Reason]:
        """The parts that raise the probability most."""
        return strongest(self.reasons, number)


def explain_prediction(model: Model, text: str, column: int | None = None, *, check: int = 3) -> Explanation:
    """The reasons for a label, by default the most probable one; `check` parts are deleted together as a test."""
    steps = explanation_steps(text, column, check=check)
    texts = next(steps)
    while True:
        try:
            texts = steps.send(np.asarray(model.probabilities(texts)))
        except StopIteration as end:
            explanation: Explanation = end.value
            return explanation


def explanation_steps(text: str, column: int | None = None, *, check: int = 3
                      ) -> Generator[list[str], np.ndarray, Explanation]:
    """The same for any source of probabilities: yields texts, and is sent their probabilities (N, K)."""
    parts = spans(text)
    p = yield [text, *(without(text, [part]) for part in parts)]
    column = int(p[0].argmax()) if column is None else column
    reasons = [Reason(*part, float(p[0, column] - changed)) for part, changed in zip(parts, p[1:, column], strict=True)]
    rest = yield [without(text, [(reason.start, reason.end) for reason in strongest(reasons, check)])]
    return Explanation(column, float(p[0, column]), reasons, float(rest[0, column]))


def strongest(reasons: list[Reason], number: int) -> list[Reason]:
    """The parts that raise the probability most, the strongest first."""
    return sorted((reason for reason in reasons if reason.change > 0), key=lambda reason: -reason.change)[:number]


def spans(text: str) -> list[tuple[int, int]]:
    """The words of a text, or as many consecutive ones together that there are at most SPANS parts."""
    words = [match.span() for match in WORD.finditer(text)]
    size = -(-len(words) // SPANS) or 1
    groups = [words[i : i + size] for i in range(0, len(words), size)]
    return [(group[0][0], group[-1][1]) for group in groups]


def without(text: str, parts: list[tuple[int, int]]) -> str:
    """The text with some of its parts deleted."""
    for start, end in sorted(parts, reverse=True):
        text = text[:start] + text[end:]
    return " ".join(text.split())
