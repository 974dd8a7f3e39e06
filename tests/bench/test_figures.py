"""Figures: the margin bias follows the paper's equations, and SVG is fit to stand in a page of either theme."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from halflabel.bench import document, figures
from halflabel.bench.figures import DEVIATIONS, DIRECTIONS, LABELLED, UNLABELLED, error_rates, example
from halflabel.errors import MissingExtra


def test_balanced_angles_move_the_boundary_towards_the_narrow_label() -> None:
    plane = example()
    narrow, wide = DIRECTIONS
    assert DEVIATIONS[0] < DEVIATIONS[1] and narrow < plane.boundary["BDD"] < plane.boundary["AM"] < wide
    assert plane.errors("BDD") < plane.errors("AM")
    assert plane.labelled.sum() == 2 * LABELLED and len(plane.y) == 2 * (LABELLED + UNLABELLED)
    assert all((labels == plane.y)[plane.labelled].all() for labels in plane.pseudo_labels.values())


def test_balanced_angles_err_less_over_random_samples() -> None:
    rates = error_rates(20)
    assert rates["BDD"][0] < 0.5 * rates["AM"][0]


def test_errors_are_those_beyond_the_boundary() -> None:
    plane = example()
    direction = np.degrees(np.arctan2(plane.f[:, 1], plane.f[:, 0]))
    beyond = ((direction > plane.boundary["AM"]) != (plane.y == 1)) & ~plane.labelled
    assert abs(int(beyond.sum()) - plane.errors("AM")) <= 1


def panel(ax: Any) -> None:
    ax.set_title("a < b & $c$ 語")
    ax.plot([0, 1], [0, 1], color=figures.RED)
    ax.plot([0.5], [0.5], "o", color=figures.BLUE)


def test_svg_for_a_page() -> None:
    svg = figures.draw([panel] * 5, alt='"quoted" <alt>', legend=[("<one>", figures.RED), ("two", figures.BLUE)])
    tree = ElementTree.fromstring(svg)
    assert tree.tag == "svg" and tree.get("role") == "img" and tree.get("aria-label") == '"quoted" <alt>'
    texts = [text.text for text in tree.iter("text")]
    assert texts.count("a < b & $c$ 語") == 5 and "<one>" in texts  # text stays text, and is not parsed as mathematics
    assert "http" not in svg and "<metadata" not in svg


def test_colours_follow_the_theme_of_the_page() -> None:
    svg = figures.draw([panel], alt="")
    assert f"stroke: var(--c0, {figures.RED})" in svg and f"var(--ink, {figures.INK})" in svg
    fixed = set(re.findall(r"(?<!, )#[0-9a-f]{6}\b", svg))
    assert fixed == set() and "background" not in svg
    css = files("halflabel.bench").joinpath("report.css").read_text(encoding="utf-8")
    light, _, dark = css.partition("prefers-color-scheme: dark")
    assert all(f"{name}:" in light and f"{name}:" in dark for name in figures.VARIABLES.values())


def test_ids_are_unique_among_figures_and_references_resolve() -> None:
    one, again = (figures.draw([panel], alt="one") for _ in range(2))
    wide = figures.draw([panel, panel], alt="wide")
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (one, wide)]
    assert not ids[0] & ids[1]
    for svg, known in zip((one, wide), ids, strict=True):
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) <= known
    assert one == again


def test_a_missing_extra_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "find_spec", lambda name: None if name == "matplotlib" else object())
    with pytest.raises(MissingExtra, match=r"^the report needs matplotlib; pip install 'halflabel\[report\]'$"):
        figures.draw([panel], alt="")
    with pytest.raises(MissingExtra):
        document.Document("title", "lead").html()
