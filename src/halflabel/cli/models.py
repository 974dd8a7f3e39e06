"""Opens model folders: trained models and exported ones, behind one interface."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from halflabel.errors import ModelError, SettingError
from halflabel.suggestions import Predictor
from halflabel.types import Progress

BACKENDS = ("torch", "compile", "onnx", "onnx-int8")
SAMPLE = 256  # texts on which an export is compared with its model


class Model(Predictor, Protocol):
    """What the commands need of a model."""

    def scores(self, texts: Sequence[str], progress: Progress | None = None) -> Any: ...


def open_model(folder: Path, backend: str | None = None) -> Model:
    """The model in a folder, run by a backend; an exported model needs no torch."""
    from halflabel.persistence.onnx_model import OnnxModel, is_export

    if backend is not None and backend not in BACKENDS:
        raise SettingError(f"there is no backend '{backend}'; choose one of {', '.join(BACKENDS)}")
    if is_export(folder):
        if backend not in (None, "onnx", "onnx-int8"):
            raise ModelError(f"{folder} is an exported model, which only ONNX Runtime can run; leave out --backend")
        return OnnxModel(folder)
    gc.disable()  # imports create many objects and no garbage; to collect it would be a tenth of the start-up time
    from halflabel.persistence.model import load

    gc.enable()
    model = load(folder)
    if backend in (None, "torch"):
        return model
    from halflabel.persistence.onnx_export import with_backend

    return with_backend(model, str(backend), sample_texts())


def sample_texts() -> list[str]:
    """Texts of the sample corpus, to compare an export with its model."""
    from halflabel.data.corpus import sample

    return list(sample("test").texts[:SAMPLE])
