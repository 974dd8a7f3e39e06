"""Models without computation, to test how they are served, and a server in a thread."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from halflabel.data.labels import Classes
from halflabel.evaluation.decisions import Decision
from halflabel.serve.server import Gate, address_of, bind, make_server
from halflabel.types import Progress, Task

LABELS = ("food", "money", "sport")


class NumberModel:
    """Scores (n, 0, -n) for a text with the number n in it, so that each text has its own answer."""

    classes = Classes(LABELS)

    def __init__(self, task: Task = "multi-class", seconds: float = 0.0) -> None:
        self.task: Task = task
        self.seconds = seconds  # that a batch takes
        self.batches: list[int] = []  # texts in each

    @property
    def rules(self) -> Decision:
        return Decision.fit(np.zeros((4, 3)), np.full(3, 0.3), source="nothing", logits=True, slope=1.0, chosen="fixed")

    def scores(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        self.batches.append(len(texts))
        time.sleep(self.seconds)
        if any("broken" in text for text in texts):
            raise ValueError("the weights are damaged")
        n = np.array([float((re.findall(r"\d+", text) or ["1"])[0]) for text in texts])
        return np.stack([n, 0 * n, -n], axis=1)

    def scores_with_distances(self, texts: Sequence[str], progress: Progress | None = None) -> Any:
        """A text with the number n is n / 100 away from all classes."""
        scores = self.scores(texts, progress)
        return scores, scores[:, 0] / 100

    def probabilities(self, texts: Sequence[str], progress: Progress | None = None) -> Any:
        return self.probabilities_of(self.scores(texts, progress))

    def probabilities_of(self, scores: np.ndarray) -> Any:
        if self.task == "multi-label":
            return self.rules.probabilities(scores)
        e = np.exp(scores / 100)
        return e / e.sum(axis=1, keepdims=True)


def probability(n: float) -> float:
    """The probability of the first label of the text with that number."""
    e = np.exp(np.array([n, 0, -n]) / 100)
    return float(e[0] / e.sum())


@contextmanager
def listening(app: Gate) -> Iterator[str]:
    """The URL of a server in a thread."""
    with bind("127.0.0.1", 0) as bound:
        bound.listen()
        server = make_server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield address_of(bound)
        finally:
            server.should_exit = True
            thread.join()
