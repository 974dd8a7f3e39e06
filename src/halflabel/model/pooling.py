"""How the states of a text's tokens become one vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from halflabel.integrity import AGAIN, read_json, require
from halflabel.model.schedule import padded_width
from halflabel.types import BadInput

POOLINGS = ("mean", "cls", "max")
DEEPEST, LONGEST = 100, 10**6  # layers and tokens that are pooled, at most


def pool(states: Tensor, mask: Tensor, how: str) -> Tensor:
    """Pools (N, T, H) to (N, H); padding never counts."""
    if how == "cls":
        return states[:, 0]
    real = mask[:, :, None].to(states.dtype)
    if how == "max":
        return states.masked_fill(real == 0, -torch.inf).amax(dim=1)
    return (states * real).sum(dim=1) / real.sum(dim=1).clamp_min(1.0)


def trimmed(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rectangles as wide as the longest text in them, to the next multiple of 8."""
    width = padded_width(int(mask.sum(dim=1).max()), mask.shape[1])
    return ids[:, :width], mask[:, :width]


def check_pooling(settings: dict[str, Any], file: Path) -> None:
    """Refuses a pooling.json that no encoder wrote."""
    require(settings, {"pooling": str, "max_tokens": int, "depths": int}, file)
    if settings.keys() != {"pooling", "max_tokens", "depths"} or settings["pooling"] not in POOLINGS or not (
            0 < settings["depths"] <= DEEPEST and 0 < settings["max_tokens"] <= LONGEST):
        raise BadInput(f"{file} asks for a pooling that is not known; {AGAIN}")


def pooling_of(source: str) -> str:
    """The pooling that a sentence-transformers model asks for; masked mean elsewhere."""
    from transformers.utils import cached_file

    file = cached_file(source, "1_Pooling/config.json", _raise_exceptions_for_missing_entries=False,
                       _raise_exceptions_for_connection_errors=False, local_files_only=Path(source).is_dir())
    if file is None:
        return "mean"
    settings = read_json(Path(file), "copy the encoder again.")
    if "pooling_mode" in settings:
        wanted = [settings["pooling_mode"]]
    else:
        names = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens"}
        wanted = [how for how, key in names.items() if settings.get(key)]
    if len(wanted) != 1 or wanted[0] not in POOLINGS:
        raise BadInput(f"{file} asks for a pooling that is not one of {', '.join(POOLINGS)}; use another encoder.")
    return str(wanted[0])
