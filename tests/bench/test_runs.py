"""A run is identified by its content; ablations by name stand for registered methods."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from halflabel.bench.runs import Run, resolve, without_pool
from halflabel.errors import SettingError
from halflabel.methods.bdd import BalancedAngles, Entropy
from halflabel.methods.registry import find
from halflabel.nn.network import Angles
from halflabel.types import Shape

SHAPE = Shape(labels=4, width=16, labelled=8, unlabelled=20)
RUN = Run("sample", "bdd-f", "frozen", 10, True, 800, 0, "none", (("m", 0.3), ("s", 20.0)))


def test_the_key_depends_on_the_content_alone() -> None:
    assert replace(RUN, settings=(("s", 20), ("m", 0.3))).key == RUN.key
    others = [replace(RUN, seed=1), replace(RUN, protocol="dev"), replace(RUN, settings=()), replace(RUN, encoder="x")]
    assert len({RUN.key, *(other.key for other in others)}) == 5


def test_a_run_survives_json() -> None:
    again = Run.from_json(json.loads(json.dumps(RUN.to_json())))
    assert again == RUN and again.key == RUN.key and hash(again) == hash(RUN)


@pytest.mark.parametrize(("change", "message"), [
    ({"plan": "long"}, "unknown plan 'long'; choose one of frozen, laptop, paper"),
    ({"protocol": "both"}, "unknown protocol 'both'"),
    ({"labelled": 0}, "labelled=0 is out of range; give a whole number from 1"),
    ({"seed": -1}, "seed=-1 is out of range"),
    ({"unlabelled": 2.5}, "unlabelled=2.5 is out of range"),
    ({"settings": {"m": "much"}}, "the setting 'm' is not a number"),
    ({"settings": {"guard": 0}}, "the setting 'guard' is not one of on, off"),
    ({"sed": 3}, "a run has no field 'sed'"),
])
def test_invalid_fields_are_an_error(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Run.from_json(RUN.to_json() | change)


def test_settings_are_numbers_or_words() -> None:
    run = Run.from_json(RUN.to_json() | {"settings": {"guard": "off", "epochs": 2.0, "m": 0.25}})
    assert run.changes == "epochs=2 guard=off m=0.25" and Run.from_json(run.to_json()) == run


def test_a_missing_field_is_named() -> None:
    with pytest.raises(SettingError, match="a run lacks the field 'method'"):
        Run.from_json({"set": "sample"})


@pytest.mark.parametrize(("method", "name", "changes"), [
    ("lift", "lift", {}),
    ("bdd-s", "bdd-s", {}),
    ("bdd-s -regularization", "bdd-s", {"lambda2": 0.0}),
    ("bdd-ml -regularization", "bdd-ml", {"lambda3": 0.0}),
    ("bdd-f -bdd", "am-f", {}),
    ("bdd-ml -bdd", "am-ml", {}),
    ("bdd-f -unlabelled", "bdd-f", {}),
    ("bdd-f -bdd -regularization", "am-f", {"lambda2": 0.0}),
    ("bdd-f -all", "ce", {}),
    ("bdd-ml -all", "am-ml", {"lambda3": 0.0, "ema": 0.0}),
])
def test_an_ablation_is_a_method_with_changed_settings(method: str, name: str, changes: dict[str, float]) -> None:
    assert resolve(method) == (name, changes)


def test_a_resolved_ablation_lacks_its_part() -> None:
    bare = find(resolve("bdd-f -bdd").method)(SHAPE)
    assert isinstance(bare.angles, Angles) and isinstance(bare.penalty, Entropy)
    name, changes = resolve("bdd-f -regularization")
    loose = find(name)(SHAPE, **changes)
    assert isinstance(loose.angles, BalancedAngles) and loose.penalty.lambda2 == 0.0


def test_two_ablations_remove_the_pool() -> None:
    names = ("bdd-f", "bdd-f -bdd", "bdd-f -regularization", "bdd-f -unlabelled", "bdd-ml -all", "ce")
    assert [name for name in names if without_pool(name)] == ["bdd-f -unlabelled", "bdd-ml -all"]


def test_unknown_ablations_are_an_error() -> None:
    with pytest.raises(SettingError, match="no ablation of 'uda'; there are ablations of bdd-s, bdd-f, bdd-ml"):
        resolve("uda -bdd")
    with pytest.raises(SettingError, match="'-margin' is not an ablation of bdd-f; choose one of -regularization"):
        resolve("bdd-f -margin")
