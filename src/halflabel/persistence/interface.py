"""What trained and exported models have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from halflabel.data.labels import Classes
from halflabel.evaluation.decisions import Decision
from halflabel.types import Progress, Task


class Model(Protocol):
    """What prediction, evaluation and serving need of a model."""

    @property
    def classes(self) -> Classes: ...
    @property
    def task(self) -> Task: ...
    @property
    def rules(self) -> Decision: ...
    def scores(self, texts: Sequence[str], progress: Progress | None = None) -> Any: ...
    def probabilities(self, texts: Sequence[str], progress: Progress | None = None) -> Any: ...
