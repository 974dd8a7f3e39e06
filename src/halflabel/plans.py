"""The plans: training schedules for a GPU as in the paper, for a laptop, and for frozen vectors."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from halflabel.errors import SettingError
from halflabel.types import Plan

INFINITE = float("inf")
POOL_LIMIT = 50_000  # pool texts that a method trains on, at most, if it keeps its whole pool in memory

PLANS: dict[str, Plan] = {
    # Sec. IV-A: 50 epochs of 1000 steps, 4 + 8 texts, AdamW at 1e-5 and 1e-3, EMA 0.999, 256 tokens.
    "paper": Plan(
        name="paper", frozen=False, encoder="bert-base-uncased", epochs=50, epoch_steps=1000, passes=INFINITE,
        warmup=0, labelled_batch=4, unlabelled_batch=8, encoder_rate=1e-5, head_rate=1e-3, schedule="constant",
        ema=0.999, weight_decay=0.0, clip=INFINITE, dropout=True, embeddings=True, token_drop=0.0, max_tokens=256,
        survey=10_000, minutes=INFINITE,
    ),
    "laptop": Plan(
        name="laptop", frozen=False, encoder="minilm", epochs=4, epoch_steps=50, passes=INFINITE,
        warmup=50, labelled_batch=8, unlabelled_batch=24, encoder_rate=5e-5, head_rate=1e-3, schedule="linear",
        ema=0.98, weight_decay=0.01, clip=1.0, dropout=False, embeddings=False, token_drop=0.15, max_tokens=256,
        step_tokens=128, survey=1000, minutes=15.0,
    ),
    # Half of the entries of a vector are dropped in training, as dropout does inside a fine-tuned encoder.
    "frozen": Plan(
        name="frozen", frozen=True, encoder="minilm", epochs=10, epoch_steps=100, passes=INFINITE,
        warmup=300, labelled_batch=16, unlabelled_batch=64, encoder_rate=0.0, head_rate=1e-3, schedule="constant",
        ema=0.99, weight_decay=0.0, clip=INFINITE, dropout=True, embeddings=True, token_drop=0.5, max_tokens=256,
        survey=50_000, minutes=INFINITE,
    ),
}

_LIMITS: dict[str, tuple[float, float]] = {
    "epochs": (0, 1e6), "epoch_steps": (1, 1e9), "warmup": (0, 1e9), "labelled_batch": (1, 1e6),
    "unlabelled_batch": (1, 1e6), "warmup_batch": (0, 1e6), "encoder_rate": (0.0, 1.0), "head_rate": (0.0, 1.0),
    "ema": (0.0, 0.999999),
    "passes": (1e-3, float("inf")), "weight_decay": (0.0, 1.0), "clip": (1e-6, float("inf")), "token_drop": (0.0, 0.9),
    "max_tokens": (4, 1e6), "step_tokens": (0, 1e6), "survey": (1, 1e12), "minutes": (1e-3, float("inf")),
    "frozen_layers": (0, 1e3),
}
CHOICES: dict[str, tuple[str, ...]] = {"schedule": ("constant", "linear"), "guard": ("on", "off")}
# Ours: on frozen vectors a head overfits a hundred texts unless most of their entries are dropped.
MULTILABEL: dict[str, dict[str, Any]] = {
    "frozen": {"epochs": 10, "epoch_steps": 60, "warmup": 300, "head_rate": 5e-3, "token_drop": 0.7},
    "laptop": {"epochs": 4, "epoch_steps": 60, "warmup": 100, "survey": 2000},
}
# Sec. IV-A: five epochs of warm-up in batches of 8; CAP labels the whole pool.
SEMI_SUPERVISED_MULTILABEL = MULTILABEL | {"paper": {"warmup": 5000, "warmup_batch": 8, "survey": 1_000_000_000}}


def plan_named(name: str, **changes: Any) -> Plan:
    """The plan of that name, with some of its fields changed."""
    if name not in PLANS:
        raise SettingError(f"There is no plan '{name}'; choose one of {', '.join(PLANS)}.")
    for key, value in changes.items():
        _check(key, value)
    return replace(PLANS[name], **changes)


def adjustable() -> list[str]:
    """Names of the fields that `--set` may change."""
    return [f.name for f in fields(Plan) if f.name in _LIMITS or f.name in CHOICES]


def _check(key: str, value: Any) -> None:
    if choices := CHOICES.get(key):
        if value not in choices:
            raise SettingError(f"{key}={value} is not known; give {' or '.join(choices)}.")
        return
    low, high = _LIMITS[key]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    whole = isinstance(getattr(PLANS["paper"], key), int) or (key == "frozen_layers" and number and value > 1)
    if not number or not low <= value <= high or (whole and value != int(value)):
        kind = "whole number" if whole else "number"
        raise SettingError(f"{key}={value} is out of range; give a {kind} from {low:g} to {high:g}.")
