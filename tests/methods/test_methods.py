"""The registry, and methods made of the paper's parts and values."""

from __future__ import annotations

from pathlib import Path

import pytest

from halflabel import TextClassifier
from halflabel.errors import SettingError
from halflabel.methods import METHODS, find
from halflabel.methods.baselines import bce
from halflabel.methods.bdd import (
    BalancedAngles,
    CosineHead,
    Entropy,
    LowRank,
    am_f,
    am_ml,
    bdd_f,
    bdd_ml,
    bdd_s,
)
from halflabel.methods.registry import Range, method
from halflabel.nn.losses import cross_entropy
from halflabel.nn.network import Angles, Linear
from halflabel.nn.pseudo_labels import ClassAware, SelfAdaptive, Sharpen
from halflabel.training.objective import SelfTraining
from halflabel.types import Shape

ROOT = Path(__file__).parent.parent.parent
SHAPE = Shape(labels=4, width=16, labelled=8, unlabelled=20)


def test_the_papers_values_are_the_defaults() -> None:
    s = {"s": 1.0, "m": 0.01, "T": 0.5, "lambda1": 1.0, "lambda2": 1.0}
    f = {"s": 20.0, "m": 0.3, "lambda1": 1.0, "lambda2": 0.001, "momentum": 0.999}
    assert find("bdd-s").defaults == s | {"memory": 0.1} and find("am-s").defaults == s
    assert find("bdd-f").defaults == f | {"memory": 0.1} and find("am-f").defaults == f
    assert find("ce").defaults == {}


def test_the_papers_values_for_several_labels() -> None:
    values = {"s": 20.0, "m": 0.3, "lambda1": 1.0, "lambda3": 0.001, "tau": 0.01}
    assert find("am-ml").defaults == values and find("bdd-ml").defaults == values | {"memory": 0.001}
    plan = TextClassifier("bdd-ml", plan="paper").chosen_settings("multi-label").plan
    assert (plan.warmup, plan.warmup_batch, plan.labelled_batch, plan.unlabelled_batch) == (5000, 8, 4, 8)
    assert (plan.epochs, plan.epoch_steps, plan.ema) == (50, 1000, 0.999) and plan.survey >= 1_000_000
    assert TextClassifier("bce", plan="paper").chosen_settings("multi-label").plan.labelled_batch == 8


def test_multi_label_methods_differ_in_their_angles_only() -> None:
    bdd, am, plain = bdd_ml(SHAPE), am_ml(SHAPE), bce(SHAPE)
    assert isinstance(bdd.angles, BalancedAngles) and isinstance(am.angles, Angles)
    assert all(isinstance(each.pseudo_labels, ClassAware) and isinstance(each.penalty, LowRank) for each in (bdd, am))
    assert bdd.averaged_teacher and am.averaged_teacher and not bdd.strong_views
    assert isinstance(plain.head, Linear) and plain.logits and not plain.uses_pool


def test_s_and_f_differ_in_their_parts() -> None:
    s, f = bdd_s(SHAPE), bdd_f(SHAPE)
    assert isinstance(s.pseudo_labels, Sharpen) and isinstance(f.pseudo_labels, SelfAdaptive)
    assert not s.strong_views and f.strong_views
    assert [s.weight(x) for x in (0.0, 1.0)] == [0.0, 1.0] and [f.weight(x) for x in (0.0, 1.0)] == [1.0, 1.0]


def test_am_is_bdd_without_balanced_angles() -> None:
    assert isinstance(bdd_f(SHAPE).angles, BalancedAngles) and isinstance(am_f(SHAPE).angles, Angles)
    assert isinstance(am_f(SHAPE).penalty, Entropy) and isinstance(am_f(SHAPE).head, CosineHead)


def test_classifier_has_128_units_and_no_bias_in_its_last_layer() -> None:
    head = bdd_f(SHAPE).head
    assert tuple(head.weight.shape) == (4, 128) and tuple(head.hidden.weight.shape) == (128, 16)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_describes_itself(name: str) -> None:
    entry = find(name)
    assert entry.name == name and entry.summary.endswith(".") and len(entry.summary) < 120
    assert (ROOT / "src" / entry.file).is_file() and entry.paper


def test_unknown_names_and_values_out_of_range_are_refused() -> None:
    with pytest.raises(SettingError, match="bdd-f, bdd-ml, bdd-s"):
        find("nope")
    with pytest.raises(SettingError, match="T=0 is out of range for bdd-s"):
        find("bdd-s")(SHAPE, T=0)
    with pytest.raises(SettingError, match="anneal=often is not a choice of uda; give one of linear, exp, log, none"):
        find("uda")(SHAPE, anneal="often")
    with pytest.raises(SettingError, match="rounds=2.5 is out of range for nb-em; give a whole number from 0"):
        find("nb-em")(SHAPE, rounds=2.5)


def test_a_new_method_declares_its_limits_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.methods.registry.METHODS", {})

    @method("new", task="multi-class", paper="-", limits={"width": Range(1, 64)})
    def new(shape: Shape, *, width: int = 8, offset: float = 0.5, s: float = 1.0) -> SelfTraining:
        """A method."""
        return SelfTraining(head=Linear(shape, width=width), loss=cross_entropy)

    assert find("new")(SHAPE, width=4, offset=-1e9).head.hidden.out_features == 4
    for changes, message in (({"width": 65}, "width=65 is out of range for new; give a whole number from 1 to 64"),
                             ({"offset": float("nan")}, "offset=nan is out of range for new; give .* finite"),
                             ({"offset": "far"}, "offset=far is out of range"), ({"offset": True}, "offset=True is"),
                             ({"s": 0.0}, "s=0.0 is out of range for new; give a number from 1e-06 to 1000")):
        with pytest.raises(SettingError, match=message):
            find("new").check(changes)


def test_the_defaults_of_the_baselines() -> None:
    wanted = {
        "vat": {"eps": 5.0, "alpha": 1.0, "xi": 0.1}, "uda": {"anneal": "linear", "T": 1.0, "cutoff": 0.0},
        "freematch": {"momentum": 0.999, "lambda2": 0.001}, "fixmatch": {"cutoff": 0.95}, "nb-em": {"smooth": 1.0},
        "softmatch": {"momentum": 0.999, "sigmas": 2.0}, "vampire": {"states": 81, "embedding": 50, "patience": 5},
        "metaexpert": {"cutoff": 0.95, "tau2": 2.0, "tau3": 4.0, "beta": 0.99},
        "metaexpert-ml": {"gamma_neg": 4.0, "gamma_pos": 0.0, "shift": 0.05, "tau2": 2.0, "tau3": 4.0, "beta": 0.99},
        "asl": {"gamma_neg": 4.0, "gamma_pos": 0.0, "shift": 0.05, "follow": "paper"},
        "cap": {"gamma_neg": 4.0, "gamma_pos": 0.0, "shift": 0.05, "positives": 1.0, "negatives": 1.0},
        "sdrl": {"distance": 1.0, "relation": 0.2, "lambda1": 1e-5},
    }
    assert {name: {key: find(name).defaults[key] for key in values} for name, values in wanted.items()} == wanted


def test_the_paper_plans_of_the_baselines_for_several_labels() -> None:
    plans = {name: TextClassifier(name, plan="paper").chosen_settings("multi-label").plan
             for name in ("asl", "cap", "sdrl", "metaexpert-ml")}
    assert {name: (plan.warmup, plan.warmup_batch, plan.labelled_batch, plan.ema) for name, plan in plans.items()} == {
        "asl": (0, 0, 8, 0.9997), "cap": (5000, 8, 4, 0.9997), "sdrl": (1000, 0, 4, 0.999),
        "metaexpert-ml": (5000, 8, 4, 0.999)}


def test_without_a_pool_uda_is_cross_entropy_on_all_labelled_texts() -> None:
    assert find("uda")(SHAPE).reduction is not None
    assert find("uda")(Shape(labels=4, width=16, labelled=8, unlabelled=0)).reduction is None
