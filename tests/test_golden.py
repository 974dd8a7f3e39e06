"""Twenty steps of every method give the numbers that they always gave."""

from __future__ import annotations

import json

import pytest
from golden import FILE, PLANS, differences, numbered_encoder, numbers

from halflabel.methods.registry import METHODS

GOLDEN = json.loads(FILE.read_text(encoding="utf-8"))
pytestmark = pytest.mark.no_cover  # other tests run the same lines
TOLERANCE = {"loss": 1e-4, "accepted": 1e-6, "probabilities": 1e-4}


@pytest.fixture(scope="session")
def encoder(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return numbered_encoder(tiny_encoder, tmp_path_factory.mktemp("numbered"))


def test_every_method_has_golden_numbers() -> None:
    assert sorted(GOLDEN) == sorted(f"{method} {plan}" for method in METHODS for plan in PLANS)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("method", sorted(METHODS))
def test_numbers_are_as_they_were(method: str, plan: str, encoder: str) -> None:
    found = differences(numbers(method, plan, encoder), GOLDEN[f"{method} {plan}"])
    assert {name: largest for name, largest in found.items() if largest > TOLERANCE[name]} == {}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(("method", "change"), [
    ("bdd-f", {"m": 0.301}), ("bdd-s", {"memory": 0.11}), ("bdd-ml", {"lambda3": 0.01}),
    ("freematch", {"momentum": 0.998}),
    ("ce", {"ema": 0.97}), ("vat", {"eps": 1.02}), ("lift", {"power": 4.1}),
    ("am-s", {"head_rate": 1.01e-3}),
])
def test_the_tolerance_catches_a_small_change(method: str, plan: str, change: dict[str, float], encoder: str) -> None:
    found = differences(numbers(method, plan, encoder, **change), GOLDEN[f"{method} {plan}"])
    assert any(largest > TOLERANCE[name] for name, largest in found.items())
