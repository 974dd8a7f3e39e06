"""Opens model folders: trained, exported and distilled models, behind one interface."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from halflabel.cli import console
from halflabel.errors import ModelError, SettingError

if TYPE_CHECKING:
    from halflabel.persistence.interface import Model
    from halflabel.suggestions import Predictor

BACKENDS = ("torch", "compile", "onnx", "onnx-int8")
SAMPLE = 256  # texts on which an export is compared with its model


def open_model(folder: Path, backend: str | None = None, *, consistent: bool = False, device: str | None = None,
               precision: str | None = None) -> Model:
    """The model in a folder, run by a backend on a device; an exported or distilled one needs no torch.

    A `consistent` model encodes few texts in the same precision as many; what it prepares for that pays in a long run.
    """
    from halflabel.students.student import is_student

    if backend is not None and backend not in BACKENDS:
        raise SettingError(f"there is no backend '{backend}'; choose one of {', '.join(BACKENDS)}")
    if is_student(folder):
        check_on_cpu(folder, "is a distilled model", device, precision)
        if backend is not None:
            raise ModelError(f"{folder} is a distilled model, which has no backends; leave out --backend")
        from halflabel.students.cascade import open_student

        return open_student(folder)
    from halflabel.persistence.onnx_model import OnnxModel, is_export

    if is_export(folder):
        if backend not in (None, "onnx", "onnx-int8"):
            raise ModelError(f"{folder} is an exported model, which only ONNX Runtime can run; leave out --backend")
        check_on_cpu(folder, "is an exported model", device, precision)
        return OnnxModel(folder)
    if backend in ("onnx", "onnx-int8"):
        check_on_cpu(folder, f"is run by the backend {backend}", device, precision)
    gc.disable()  # imports create many objects and no garbage; to collect it would be a tenth of the start-up time
    from halflabel.devices import choose_compute
    from halflabel.persistence.model import load

    gc.enable()
    compute = choose_compute(device or "auto", precision or "auto")
    model = replace(load(folder), consistent=consistent)
    console.detail(f"{folder} is a model of {model.method} with {model.facts.get('encoder')}, opened on "
                   f"{compute.to_json()}")
    if backend in (None, "torch"):
        return model.on(compute)
    from halflabel.persistence.onnx_export import with_backend

    return with_backend(model.on(compute) if backend == "compile" else model, str(backend), sample_texts())


def check_on_cpu(folder: Path, why: str, device: str | None, precision: str | None) -> None:
    """Refuses options for a device or precision that a model does not have."""
    if device not in (None, "auto", "cpu") or precision not in (None, "auto"):
        raise SettingError(f"{folder} {why}, which has one precision and runs on the CPU; leave out --device and "
                           "--precision")


def with_vectors(model: Model, folder: Path) -> Predictor:
    """The model itself; an error if it has no vectors of texts, as a distilled one."""
    if not hasattr(model, "vectors"):
        raise ModelError(f"{folder} is a distilled model, which has no vectors of texts; give its teacher")
    return cast("Predictor", model)


def refuse_untrained(folder: Path, done: str) -> None:
    """Refuses a model that was made of a trained one, where only a trained one can be `done`."""
    from halflabel.persistence.onnx_model import is_export
    from halflabel.students.student import is_student

    if is_student(folder) or is_export(folder):
        kind = "a distilled" if is_student(folder) else "an exported"
        raise ModelError(f"{folder} is {kind} model, and only a trained one can be {done}; name the folder that "
                         "`halflabel train --out` wrote")


def sample_texts() -> list[str]:
    """Texts of the sample corpus, to compare an export with its model."""
    from halflabel.data.corpus import sample

    return list(sample("test").texts[:SAMPLE])
