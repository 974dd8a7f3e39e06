"""Figures are computed: the margin bias by the paper's equations, plots by plain arithmetic."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from halflabel.bench.margin import DIRECTIONS, LABELLED, SPREADS, UNLABELLED, error_rates, example
from halflabel.bench.svg import Panel, drawing, limits, ticks


def test_balanced_angles_move_the_border_towards_the_narrow_label() -> None:
    found = example()
    narrow, wide = DIRECTIONS
    assert SPREADS[0] < SPREADS[1] and narrow < found.border["BDD"] < found.border["AM"] < wide
    assert found.errors("BDD") < found.errors("AM")
    assert found.labelled.sum() == 2 * LABELLED and len(found.y) == 2 * (LABELLED + UNLABELLED)
    assert all((said == found.y)[found.labelled].all() for said in found.said.values())


def test_over_draws_balanced_angles_err_less() -> None:
    rates = error_rates(20)
    assert rates["BDD"][0] < 0.5 * rates["AM"][0]


def test_errors_are_those_beyond_the_border() -> None:
    found = example()
    turn = np.degrees(np.arctan2(found.f[:, 1], found.f[:, 0]))
    beyond = ((turn > found.border["AM"]) != (found.y == 1)) & ~found.labelled
    assert abs(int(beyond.sum()) - found.errors("AM")) <= 1


@pytest.mark.parametrize(("low", "high", "wanted"), [
    (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0.41, 0.58, [0.45, 0.5, 0.55]), (2.0, 2.0, [2.0]),
    (300, 1300, [400, 600, 800, 1000, 1200])])
def test_ticks_are_round(low: float, high: float, wanted: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(wanted)


def test_a_point_lies_where_it_should() -> None:
    panel = Panel("p", (0.0, 10.0), (1.0, 2.0), width=100.0, height=50.0)
    corners = [panel.at(0.0, 1.0), panel.at(10.0, 2.0), panel.at(5.0, 1.5)]
    assert corners == [(0.0, 50.0), (100.0, 0.0), (50.0, 25.0)]
    assert limits([1.0, 3.0], pad=0.5) == (0.0, 4.0) and limits([2.0], zero=True)[0] == 0.0


def test_a_drawing_is_xml_with_names_escaped() -> None:
    panel = Panel("a < b & c", (0.0, 1.0), (0.0, 1.0), x_name="x", y_name="y")
    panel.line([(0.0, 0.0), (1.0, 1.0)], 0)
    panel.bar(0.5, 0.1, 0.7, 1, tip="<7>")
    panel.dot(0.2, 0.3, 2, hollow=True)
    panel.triangle(0.2, 0.3, 2)
    panel.text(0.1, 0.1, "<&>", colour=3)
    tree = ElementTree.fromstring(drawing([panel] * 5, legend=[("<one>", 0)] * 30, alt='"quoted" <alt>'))
    assert tree.get("aria-label") == '"quoted" <alt>' and len(tree.findall(".//rect")) == 5 + 30
    assert {text.text for text in tree.iter("text")} >= {"a < b & c", "<one>", "<&>"}
