"""The figures of a report: the paper's Figs. 1, 2 and 4 on these runs, learning curves, and histograms of angles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from statistics import mean
from typing import Any

from halflabel.bench.claims import PLAIN
from halflabel.bench.document import Figure
from halflabel.bench.margin import ROUNDS, UNLABELLED, error_rates, example
from halflabel.bench.results import Cells, Column, Results, Row, supervised
from halflabel.bench.svg import Panel, drawing, limits, ticks

BDD, AM, RED, GREY, INK = 0, 1, 0, 8, 9
CURVES = 8  # methods in one picture, at most
COLOURS = {"bdd-f": 0, "bdd-ml": 0, "am-f": 1, "am-ml": 1, "freematch": 2, "lift": 3, "logreg": 4, "am-s": 5,
           "bdd-s": 6, "ce": 7, "bce": 7}


def spread_of_angles(results: Results) -> Iterator[Figure]:
    """Fig. 1: DLAV of AM with few labels and a pool, and with labels for all texts."""
    found: list[tuple[str, list[float], list[float]]] = []
    for cells in results.blocks.values():
        for plain in PLAIN.values():
            reference, pooled = supervised(cells), [column for column in cells if column.unlabelled]
            for name in dict.fromkeys(column.set for column in cells):
                few, full = ([row.result["angles"]["dlav"] for column in columns if column.set == name
                              for row in cells[column].get(plain, [])] for columns in (pooled, reference))
                if few and full:
                    found.append((f"{name}, {plain}", few, full))
    if not found:
        return
    top = limits([value for _, few, full in found for value in (*few, *full)], zero=True)
    panel = Panel("DLAV, rad²", (-0.6, len(found) - 0.4), top, width=max(330.0, 150.0 * len(found)),
                  x_ticks=[(i, name) for i, (name, *_) in enumerate(found)])
    for i, (_, *both) in enumerate(found):
        for side, colour, values in zip((-0.18, 0.18), (RED, AM), both, strict=True):
            panel.bar(i + side, 0.15, mean(values), colour, tip=f"{mean(values):.4f}, {len(values)} runs")
            for value in values:
                panel.dot(i + side, value, INK, radius=2.0, tip=f"{value:.4f}")
    yield Figure(drawing([panel], legend=(("few labels and a pool", RED), ("labels for all texts", AM)),
                         alt="DLAV in semi-supervised and supervised training"),
                 "Fig. 1 of the paper on these runs: average difference of label-angle variances of the test texts "
                 "after training with the AM loss. Bars are means over runs, dots are runs.")


@cache
def margin_bias() -> Figure:
    """Fig. 2, computed: the same in every report."""
    found, rates = example(), error_rates()
    panels = []
    for way in ("AM", "BDD"):
        panel = Panel(f"{way}: {found.errors(way)} of {2 * UNLABELLED} wrong", (-1.12, 1.12), (0.0, 1.12), width=330.0,
                      height=165.0, x_ticks=[], y_ticks=[])
        wrong = (found.said[way] != found.y) & ~found.labelled
        for (x, y), label, known, bad in zip(found.f.tolist(), found.y, found.labelled, wrong, strict=True):
            (panel.dot if label == 0 else panel.triangle)(x, y, INK if known else RED if bad else GREY,
                                                          hollow=not known, radius=4.2 if known else 2.8)
        turn = math.radians(found.border[way])
        panel.line([(0.0, 0.0), (1.1 * math.cos(turn), 1.1 * math.sin(turn))], AM, dash="5 4")
        panel.text(1.1 * math.cos(turn), 1.1 * math.sin(turn), f"{found.border[way]:.0f}°", colour=AM, dx=4, dy=4)
        panels.append(panel)
    shares = "; ".join(f"{way} {100 * m:.1f} % ± {100 * s:.1f}" for way, (m, s) in rates.items())
    return Figure(drawing(panels, columns=2, alt="Margin bias in the plane"),
                  "Fig. 2 of the paper, computed: two labels whose texts stray by 5° and by 20°, five labelled texts "
                  f"of each (filled), {ROUNDS} rounds of self-training with the paper's equations. Red texts got the "
                  "wrong label; the dashed line is where labels change. Angles alone put it halfway between the two "
                  f"means, balanced ones nearer to the narrow label. Wrong labels over 100 draws: {shares}.")


def pseudo_labels(results: Results) -> Iterator[Figure]:
    """Fig. 4: how right pseudo-labels are while training goes on, with and without BDD."""
    panels = []
    for block, cells in results.blocks.items():
        for column, some in cells.items():
            for bdd, am in PLAIN.items():
                curves = [[curve(row) for row in some.get(name, [])] for name in (bdd, am)]
                if all(any(one) for one in curves):
                    panels.append(over_training(f"{column.title}, -{bdd.removeprefix('bdd-').upper()}, {block.plan}"
                                                f"{', dev' if block.protocol == 'dev' else ''}", curves))
    if panels:
        legend = (("with BDD", BDD), ("without", AM))
        yield Figure(drawing(panels[:12], legend=legend, alt="Pseudo-labels over training"),
                     "Fig. 4 of the paper on these runs: accuracy of pseudo-labels (micro F1 where texts have several) "
                     "at the start of each epoch and at the end. Thin lines are seeds, thick ones their means."
                     + (f" The first 12 of {len(panels)} cells." if len(panels) > 12 else ""))


def curve(row: Row) -> list[tuple[float, float]]:
    """(step, how right) of a run; with a dev set, its end is a look back at the epoch that was best."""
    lines = [line for line in row.epochs if not (line.get("end") and row.run.protocol == "dev")]
    return [(float(line["step"]), float(value)) for line in lines
            if (value := line.get("pseudo_accuracy", line.get("pseudo_f1"))) is not None]


def over_training(title: str, curves: Sequence[Sequence[list[tuple[float, float]]]]) -> Panel:
    """Curves of two methods, those of the second in the second colour."""
    points = [point for some in curves for one in some for point in one]
    panel = Panel(title, limits([x for x, _ in points], pad=0.02), limits([y for _, y in points]), x_name="step")
    for colour, some in enumerate(curves):
        for one in some:
            panel.line(one, colour, width=1.0, faint=True)
        steps = sorted(set.intersection(*({x for x, _ in one} for one in some if one)))
        means = [(x, mean(dict(one)[x] for one in some if one)) for x in steps]
        panel.line(means, colour, width=2.4)
    return panel


def learning_curves(results: Results) -> Iterator[Figure]:
    """Micro F1 against the number of labelled texts, where that varies."""
    for block, cells in results.blocks.items():
        metric, rule = block.measures[0]
        panels, names = [], most_run(cells)
        for name in dict.fromkeys(column.set for column in cells):
            columns = [column for column in cells if column.set == name and column.unlabelled]
            if len({column.labelled for column in columns}) > 1:
                panels.append(against_labels(name, columns, cells, names, metric, rule))
        if panels:
            shown = [(one, colour_of(one, names)) for one in names]
            yield Figure(drawing(panels, legend=shown, alt="Learning curves"),
                         f"Micro F1 ({rule}) against labelled texts: {block.title}. Dots are runs, lines their means.")


def most_run(cells: Cells) -> list[str]:
    """The methods with the most cells, ablations last."""
    counts: dict[str, int] = {}
    for some in cells.values():
        for name in some:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: (" -" in name, name not in COLOURS, -counts[name], name))[:CURVES]


def colour_of(name: str, names: Sequence[str]) -> int:
    """The colour that a method always has, or one that nobody in the picture has."""
    others = [one for one in names if one not in COLOURS]
    free = [colour for colour in range(CURVES) if colour not in {COLOURS.get(one) for one in names}]
    return COLOURS[name] if name in COLOURS else free[others.index(name)]


def against_labels(title: str, columns: Sequence[Column], cells: Cells, names: Sequence[str], metric: str,
                   rule: str) -> Panel:
    """One set; counts are on a logarithmic scale."""
    counts = sorted({column.labelled for column in columns})
    unit = "/class" if columns[0].per_class else ""
    values = [row.figure(metric, rule) for column in columns for name in names for row in cells[column].get(name, [])]
    panel = Panel(title, limits([math.log(count) for count in counts]), limits(values), x_name=f"labelled texts{unit}",
                  x_ticks=[(math.log(count), f"{count:,}") for count in counts])
    for name in names:
        colour, means = colour_of(name, names), []
        for column in sorted(columns, key=lambda one: one.labelled):
            found = [row.figure(metric, rule) for row in cells[column].get(name, [])]
            if found:
                means.append((math.log(column.labelled), mean(found)))
            for value in found:
                panel.dot(math.log(column.labelled), value, colour, radius=1.8, tip=f"{name} {value:.3f}")
        panel.line(means, colour)
    return panel


def angle_histograms(results: Results) -> Iterator[Figure]:
    """Angles between test texts and the prototype of their own label, with BDD and without."""
    blocks = results.blocks
    for block, cells in blocks.items():
        if block.protocol == "dev" and block._replace(protocol="none") in blocks:
            continue
        for bdd, am in PLAIN.items():
            columns = [one for one, some in cells.items() if some.get(bdd) and some.get(am) and one.unlabelled]
            if not columns:
                continue
            column = columns[0]
            one, other = cells[column][bdd][0], cells[column][am][0]
            angles, others = one.result["angles"]["labels"], other.result["angles"]["labels"]
            last = max(len(found["counts"]) for side in (angles, others) for found in side.values()) + 1
            panels = [one_label(name, (angles[name], others[name]), one.result["angles"]["bin"], last)
                      for name in angles if name in others]
            yield Figure(drawing(panels[:12], columns=4, legend=((bdd, BDD), (am, AM)), alt="Angles of each label"),
                         f"Angles between test texts and the mean of their own label's texts, in degrees: "
                         f"{column.title}, {block.title}, seed {one.run.seed}. Mean ± deviation stand in each picture.")


def one_label(name: str, both: Sequence[dict[str, Any]], width: int, last: int) -> Panel:
    """The histogram of one label, as shares of its texts, in `last` bars of `width` degrees."""
    shares = [[count / (sum(found["counts"]) or 1.0) for count in found["counts"]] for found in both]
    top = limits([share for some in shares for share in some], zero=True)
    panel = Panel(name, (0.0, float(last * width)), (0.0, top[1] * 1.1), width=190.0, height=110.0,
                  y_ticks=[(value, f"{value:.0%}") for value in ticks(0.0, top[1], 2)])
    for colour, (some, found) in enumerate(zip(shares, both, strict=True)):
        outline = [(0.0, 0.0)]
        for i, share in enumerate([*some, 0.0]):
            outline += [(float(i * width), share), (float((i + 1) * width), share)]
        panel.area([*outline, (outline[-1][0], 0.0)], colour, opacity=0.18)
        panel.line(outline, colour, width=1.3)
        panel.text(last * width, top[1] * 1.1, f"{found['mean']:.0f}° ± {found['deviation']:.0f}", colour=colour,
                   anchor="end", dy=9 + 13 * colour)
    return panel
