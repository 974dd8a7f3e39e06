"""Whatever a folder holds, a trained model or an exported one, as something that answers."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from halflabel.data.labels import Classes
from halflabel.errors import BadInput
from halflabel.evaluation.decisions import Decision
from halflabel.types import Progress, Task

BACKENDS = ("torch", "compile", "onnx", "onnx-int8")


class Model(Protocol):
    """What predicting and measuring need."""

    @property
    def classes(self) -> Classes: ...
    @property
    def task(self) -> Task: ...
    @property
    def rules(self) -> Decision: ...
    def scores(self, texts: Sequence[str], progress: Progress | None = None) -> Any: ...
    def probabilities(self, texts: Sequence[str], progress: Progress | None = None) -> Any: ...


def open_model(folder: Path, backend: str | None) -> Model:
    """The model in a folder, behind the backend that was asked for; an exported one needs no torch."""
    from halflabel.persistence.onnx_model import OnnxModel, is_export

    if backend is not None and backend not in BACKENDS:
        raise BadInput(f"there is no backend '{backend}'; choose one of {', '.join(BACKENDS)}")
    if is_export(folder):
        if backend not in (None, "onnx", "onnx-int8"):
            raise BadInput(f"{folder} is an exported model, which only ONNX Runtime can run; leave out --backend")
        return OnnxModel(folder)
    gc.disable()  # imports make many objects and no garbage; to look for some is a tenth of the wait
    from halflabel.persistence.model import load

    gc.enable()
    fitted = load(folder)
    if backend in (None, "torch"):
        return fitted
    from halflabel.cli.export import compared
    from halflabel.persistence.onnx_export import with_backend

    return with_backend(fitted, str(backend), compared(None, None))
