"""A run is known by its content."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from halflabel.bench.runs import Run
from halflabel.errors import BadInput

RUN = Run("sample", "bdd-f", "frozen", 10, True, 800, 0, "none", (("m", 0.3), ("s", 20.0)))


def test_the_key_is_that_of_the_content() -> None:
    assert replace(RUN, settings=(("s", 20), ("m", 0.3))).key == RUN.key
    others = [replace(RUN, seed=1), replace(RUN, protocol="dev"), replace(RUN, settings=()), replace(RUN, encoder="x")]
    assert len({RUN.key, *(other.key for other in others)}) == 5


def test_a_run_survives_json() -> None:
    again = Run.from_json(json.loads(json.dumps(RUN.to_json())))
    assert again == RUN and again.key == RUN.key and hash(again) == hash(RUN)


@pytest.mark.parametrize(("change", "said"), [
    ({"plan": "long"}, "plan 'long' is not known; choose one of frozen, laptop, paper"),
    ({"protocol": "both"}, "protocol 'both' is not known"),
    ({"labelled": 0}, "labelled=0 is out of range; give a whole number from 1"),
    ({"seed": -1}, "seed=-1 is out of range"),
    ({"unlabelled": 2.5}, "unlabelled=2.5 is out of range"),
    ({"settings": {"m": "much"}}, "the setting 'm' is no number"),
    ({"sed": 3}, "a run has no field 'sed'"),
])
def test_what_cannot_be_meant_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Run.from_json(RUN.to_json() | change)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(BadInput, match="a run lacks the field 'method'"):
        Run.from_json({"set": "sample"})
