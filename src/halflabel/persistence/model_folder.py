"""What a model folder says of its model, apart from tensors: config.json and decision.json. No torch."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from halflabel.atomic import write_text
from halflabel.data.labels import Classes
from halflabel.errors import BadInput
from halflabel.evaluation.decisions import Decision
from halflabel.integrity import AGAIN, read_json, replacing, require
from halflabel.types import Shape

FORMAT = 1
DECISION = "decision.json"
ENTRIES = {"method": str, "task": str, "settings": dict, "classes": list, "shape": dict, "frozen": bool}
FACTS = {"plan": dict, "run": dict, "hard_labels": list}  # entries that not every model has
MOST = 10**12  # of anything that a shape counts


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model folder."""
    file = folder / "config.json"
    if not file.is_file():
        raise BadInput(f"{folder} holds no halflabel model (there is no {file.name} in it); name a folder that "
                       "`halflabel train --out` wrote.")
    config = read_json(file)
    require(config, {"format": int}, file)
    if config["format"] > FORMAT:
        raise BadInput(f"{file} was written by a newer halflabel (format {config['format']}); upgrade halflabel.")
    if not (folder / "model.safetensors").is_file():
        raise BadInput(f"{folder} holds a run that has no model yet; go on with `halflabel train ... --resume`.")
    require(config, ENTRIES | {name: kind for name, kind in FACTS.items() if name in config}, file)
    shape, names = config["shape"], [field.name for field in fields(Shape)]
    require(shape, dict.fromkeys(names, int), file)
    if shape.keys() != set(names) or not all(0 <= number <= MOST for number in shape.values()):
        raise BadInput(f"{file} has a shape that no model has; {AGAIN}")
    if len(Classes.from_json(config["classes"], file)) != shape["labels"]:
        raise BadInput(f"{file} names {len(config['classes'])} classes for {shape['labels']} labels; {AGAIN}")
    return config


def write_decision(folder: Path, decision: Decision) -> None:
    """decision.json, as a whole."""
    with replacing(folder, DECISION):
        write_text(folder / DECISION, json.dumps(decision.to_json(), indent=1))


def read_decision(folder: Path, labels: int) -> Decision | None:
    """decision.json of a model folder, if it is there; a run writes it at its end."""
    file = folder / DECISION
    if not file.is_file():
        return None
    found = read_json(file)
    try:
        return Decision.from_json(found, labels)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BadInput(f"{file} is not a decision of halflabel for {labels} labels ({error}); {AGAIN}") from error
