"""Names of ablations stand for what the paper takes away."""

from __future__ import annotations

import pytest

from halflabel.bench.ablation import resolve, without_pool
from halflabel.errors import BadInput
from halflabel.methods.bdd import BalancedAngles, Entropy
from halflabel.methods.registry import find
from halflabel.nn.network import Angles
from halflabel.types import Shape

SHAPE = Shape(labels=4, width=16, labelled=8, unlabelled=20)


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
def test_a_name_stands_for_a_method_and_changes(method: str, name: str, changes: dict[str, float]) -> None:
    assert resolve(method) == (name, changes)


def test_what_is_resolved_lacks_the_part() -> None:
    bare = find(resolve("bdd-f -bdd").method)(SHAPE)
    assert isinstance(bare.angles, Angles) and isinstance(bare.penalty, Entropy)
    name, changes = resolve("bdd-f -regularization")
    loose = find(name)(SHAPE, **changes)
    assert isinstance(loose.angles, BalancedAngles) and loose.penalty.lambda2 == 0.0


def test_two_ablations_have_no_pool() -> None:
    names = ("bdd-f", "bdd-f -bdd", "bdd-f -regularization", "bdd-f -unlabelled", "bdd-ml -all", "ce")
    assert [name for name in names if without_pool(name)] == ["bdd-f -unlabelled", "bdd-ml -all"]


def test_other_names_are_refused() -> None:
    with pytest.raises(BadInput, match="no ablation of 'uda'; there are some of bdd-s, bdd-f, bdd-ml"):
        resolve("uda -bdd")
    with pytest.raises(BadInput, match="'-margin' is no part of bdd-f to leave out; choose one of -regularization"):
        resolve("bdd-f -margin")
