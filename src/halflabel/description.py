"""What a model folder says of its model, apart from tensors: config.json and decision.json. No torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from halflabel.decision import Decision
from halflabel.disk import write_text
from halflabel.types import BadInput

FORMAT = 1
DECISION = "decision.json"


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model folder."""
    file = folder / "config.json"
    if not file.is_file():
        raise BadInput(f"{folder} holds no halflabel model (there is no {file.name} in it); name a folder that "
                       "`halflabel train --out` wrote.")
    try:
        config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        newer = config["format"] > FORMAT
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{file} is not a halflabel configuration ({error}); train or copy the model again.") from error
    if newer:
        raise BadInput(f"{file} was written by a newer halflabel (format {config['format']}); upgrade halflabel.")
    if not (folder / "model.safetensors").is_file():
        raise BadInput(f"{folder} holds a run that has no model yet; go on with `halflabel train ... --resume`.")
    return config


def write_decision(folder: Path, decision: Decision) -> None:
    """decision.json, as a whole."""
    write_text(folder / DECISION, json.dumps(decision.to_json(), indent=1))


def read_decision(folder: Path, labels: int) -> Decision | None:
    """decision.json of a model folder, if it is there; a run writes it at its end."""
    file = folder / DECISION
    if not file.is_file():
        return None
    try:
        decision = Decision.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{file} is not a decision of halflabel ({error}); train or copy the model again.") from error
    if len(decision.prior) != labels:
        raise BadInput(f"{file} is for {len(decision.prior)} labels, the model has {labels}; copy the model again.")
    return decision
