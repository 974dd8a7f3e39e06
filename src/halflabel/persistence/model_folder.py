"""The small files of a model folder: config.json, decision.json and unknown.safetensors. No torch."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from halflabel.atomic import replace_file, write_text
from halflabel.data.labels import Classes
from halflabel.errors import ModelError
from halflabel.evaluation.confidence import UnknownDetector
from halflabel.evaluation.decisions import Decision
from halflabel.integrity import COPY_OR_RETRAIN, read_json, require, updating_checksum
from halflabel.types import Shape

FORMAT = 1
DECISION = "decision.json"
UNKNOWN = "unknown.safetensors"
ENTRIES = {"method": str, "task": str, "settings": dict, "classes": list, "shape": dict, "frozen": bool}
OPTIONAL_ENTRIES = {"plan": dict, "run": dict, "compute": dict, "hard_labels": list, "temperature": float}
MAX_SIZE = 10**12  # of any number in a shape


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model folder, validated."""
    file = folder / "config.json"
    if not file.is_file():
        raise ModelError(f"{folder} contains no halflabel model (no {file.name}); name a folder that "
                         "`halflabel train --out` wrote.")
    config = read_json(file)
    require(config, {"format": int}, file)
    if config["format"] > FORMAT:
        raise ModelError(f"{file} was written by a newer version of halflabel (format {config['format']}); upgrade "
                         "halflabel.")
    if not (folder / "model.safetensors").is_file():
        raise ModelError(f"{folder} contains a run without a model yet; resume it with `halflabel train ... --resume`.")
    require(config, ENTRIES | {name: kind for name, kind in OPTIONAL_ENTRIES.items() if name in config}, file)
    shape, names = config["shape"], [field.name for field in fields(Shape)]
    require(shape, dict.fromkeys(names, int), file)
    if shape.keys() != set(names) or not all(0 <= number <= MAX_SIZE for number in shape.values()):
        raise ModelError(f"{file} has an impossible shape; {COPY_OR_RETRAIN}")
    if len(Classes.from_json(config["classes"], file)) != shape["labels"]:
        raise ModelError(f"{file} names {len(config['classes'])} classes for {shape['labels']} labels; "
                         f"{COPY_OR_RETRAIN}")
    if not 0.0 < config.get("temperature", 1.0) < math.inf:
        raise ModelError(f"{file} has an impossible temperature; {COPY_OR_RETRAIN}")
    return config


def write_decision(folder: Path, decision: Decision) -> None:
    """Replaces decision.json, and its checksum."""
    with updating_checksum(folder, DECISION):
        write_text(folder / DECISION, json.dumps(decision.to_json(), indent=1))


def read_decision(folder: Path, labels: int) -> Decision | None:
    """decision.json of a model folder; None if it does not exist, as in a run that is not finished."""
    file = folder / DECISION
    return decision_from_json(read_json(file), labels, file, COPY_OR_RETRAIN) if file.is_file() else None


def decision_from_json(content: Any, labels: int, file: Path, remedy: str) -> Decision:
    """A decision for so many labels, or an error that names the file."""
    try:
        return Decision.from_json(content, labels)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ModelError(f"{file} has no valid decision for {labels} labels ({error}); {remedy}") from error


def write_unknown(folder: Path, unknown: UnknownDetector) -> None:
    """Writes unknown.safetensors."""
    with replace_file(folder / UNKNOWN) as temporary:
        save_file({"means": unknown.means, "held_out": unknown.held_out}, temporary)
        temporary.chmod(0o644)  # safetensors makes files for their owner alone


def read_unknown(folder: Path, labels: int) -> UnknownDetector | None:
    """unknown.safetensors of a model folder; None if it does not exist."""
    file = folder / UNKNOWN
    if not file.is_file():
        return None
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{file} is not a whole safetensors file ({error}); {COPY_OR_RETRAIN}") from error
    means, held_out = tensors.get("means", np.empty(0)), tensors.get("held_out", np.empty(0))
    if (means.ndim, held_out.ndim) != (2, 1) or len(means) != labels or not (
            np.isfinite(means).all() and np.isfinite(held_out).all()):
        raise ModelError(f"{file} does not fit {labels} classes; {COPY_OR_RETRAIN}")
    return UnknownDetector(means, held_out)
