"""The figures of a report, by matplotlib: Figs. 1, 2 and 4 of the paper, learning curves, histograms of angles.

Figures are SVG without a background. Their colours become CSS variables of the page, with the light theme's values as
fallback, so that they follow its light and dark theme.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from halflabel.bench.document import Figure, require_extra
from halflabel.bench.results import Cells, Measure, Results, RunResult, SampleSize, supervised
from halflabel.bench.runs import FAMILIES
from halflabel.equations import angle_moments, angles, cosines, prototypes, psi, slopes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, SOFT, RULE, GREY = "#1f2328", "#626a73", "#dcd9d2", "#9aa0a6"
PALETTE = ("#c2452d", "#2f6fb0", "#3c8f5a", "#8a5aa8", "#b8862b", "#4b8f97", "#a0496c", "#6b7280")
RED, BLUE = PALETTE[:2]
VARIABLES = {INK: "--ink", SOFT: "--soft", RULE: "--rule", GREY: "--c8"} | {
    colour: f"--c{i}" for i, colour in enumerate(PALETTE)}
STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "halflabel", "text.parse_math": False, "font.size": 9.0,
    "axes.titlesize": 9.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlecolor": INK,
    "text.color": SOFT, "axes.labelcolor": SOFT, "xtick.color": SOFT, "ytick.color": SOFT, "axes.edgecolor": INK,
    "axes.facecolor": "none", "figure.facecolor": "none", "axes.spines.top": False, "axes.spines.right": False,
    "axes.spines.left": False, "axes.grid": True, "axes.grid.axis": "y", "grid.color": RULE, "axes.axisbelow": True,
    "xtick.major.size": 0.0, "ytick.major.size": 0.0, "legend.frameon": False, "legend.fontsize": 9.0,
    "lines.solid_capstyle": "round"}
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
CURVES = 8  # methods in a figure of learning curves, at most
PANELS = 12  # in one figure, at most
METHOD_COLOURS = {"bdd-f": 0, "bdd-ml": 0, "am-f": 1, "am-ml": 1, "freematch": 2, "lift": 3, "logreg": 4, "am-s": 5,
                  "bdd-s": 6, "ce": 7, "bce": 7}
Panel = Callable[["Axes"], None]  # draws into its axes
LABELLED, UNLABELLED = 5, 120  # texts of each label
DIRECTIONS, DEVIATIONS = (62.0, 118.0), (5.0, 20.0)  # degrees: mean direction of each label, and its deviation
ROUNDS = 10
SEED = 0


def draw(panels: Sequence[Panel], *, alt: str, columns: int = 3, size: tuple[float, float] = (3.6, 2.5),
         legend: Sequence[tuple[str, str]] = ()) -> str:
    """Panels side by side below a legend of (name, colour), as SVG for a page; `size` is that of a panel in inches."""
    require_extra()
    import matplotlib
    from matplotlib.figure import Figure as Canvas
    from matplotlib.patches import Patch

    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the browser has its own fonts
        canvas = Canvas(figsize=(size[0] * columns, size[1] * rows + 0.3 * bool(legend)), layout="constrained")
        axes = canvas.subplots(rows, columns, squeeze=False).flat
        for panel, ax in zip(panels, axes, strict=False):
            panel(ax)
        for ax in list(axes)[len(panels):]:
            ax.remove()
        if legend:
            canvas.legend(handles=[Patch(color=colour, label=name) for name, colour in legend],
                          loc="outside upper left", ncols=min(len(legend), 2 * columns))
        output = io.StringIO()
        canvas.savefig(output, format="svg", metadata=NO_METADATA)
    return embeddable(output.getvalue(), alt)


def embeddable(svg: str, alt: str) -> str:
    """SVG for use inside HTML: no XML header or namespaces, unique ids, colours as CSS variables."""
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    unique = hashlib.blake2b(svg.encode(), digest_size=4).hexdigest()
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>f{unique}-", svg)
    svg = re.sub(r"#[0-9a-f]{6}\b", lambda match: _css_colour(match[0]), svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1).strip()


def _css_colour(colour: str) -> str:
    return f"var({VARIABLES[colour]}, {colour})" if colour in VARIABLES else colour


def dlav_bars(results: Results) -> Iterator[Figure]:
    """Fig. 1: DLAV of AM with few labels and a pool, and with labels for all texts."""
    groups: list[tuple[str, list[float], list[float]]] = []
    for cells in results.blocks.values():
        references, pooled = supervised(cells), [size for size in cells if size.unlabelled]
        for family in FAMILIES.values():
            for name in dict.fromkeys(size.set for size in cells):
                few, full = ([result.line["angles"]["dlav"] for size in sizes if size.set == name
                              for result in cells[size].get(family.without_bdd, [])] for sizes in (pooled, references))
                if few and full:
                    groups.append((f"{name}\n{family.without_bdd}", few, full))
    if not groups:
        return

    def panel(ax: Axes) -> None:
        ax.set_title("DLAV, rad²")
        for i, (_, *both) in enumerate(groups):
            for x, colour, values in zip((i - 0.18, i + 0.18), (RED, BLUE), both, strict=True):
                ax.bar(x, mean(values), width=0.3, color=colour, alpha=0.8)
                ax.plot([x] * len(values), values, "o", color=INK, markersize=2.5)
        ax.set_xticks(range(len(groups)), [name for name, *_ in groups])
        ax.set_xlim(-0.6, len(groups) - 0.4)

    svg = draw([panel], alt="DLAV in semi-supervised and supervised training", size=(max(4.4, 1.3 * len(groups)), 2.6),
               legend=(("few labels and a pool", RED), ("labels for all texts", BLUE)))
    yield Figure(svg, "Fig. 1 of the paper on these runs: average difference of label-angle variances of the test "
                      "texts after training with the AM loss. Bars are means over runs, dots are runs.")


@cache
def margin_bias() -> Figure:
    """Fig. 2, computed: the same in every report."""
    plane, rates = example(), error_rates()

    def panel(name: str) -> Panel:
        def draw_plane(ax: Axes) -> None:
            ax.set_title(f"{name}: {plane.errors(name)} of {2 * UNLABELLED} wrong")
            wrong = (plane.pseudo_labels[name] != plane.y) & ~plane.labelled
            for label, marker in ((0, "o"), (1, "^")):
                for rows, colour in ((~plane.labelled & ~wrong, GREY), (wrong, RED)):
                    ax.plot(*plane.f[rows & (plane.y == label)].T, marker, color=colour, markersize=4,
                            markerfacecolor="none")
                ax.plot(*plane.f[plane.labelled & (plane.y == label)].T, marker, color=INK, markersize=6)
            angle = math.radians(plane.boundary[name])
            end = 1.1 * math.cos(angle), 1.1 * math.sin(angle)
            ax.plot(*zip((0.0, 0.0), end, strict=True), "--", color=BLUE, linewidth=1.6)
            ax.annotate(f"{plane.boundary[name]:.0f}°", end, xytext=(4, -2), textcoords="offset points", color=BLUE)
            ax.set(xlim=(-1.12, 1.12), ylim=(0.0, 1.16), xticks=[], yticks=[])
        return draw_plane

    shares = "; ".join(f"{name} {100 * m:.1f} % ± {100 * s:.1f}" for name, (m, s) in rates.items())
    return Figure(draw([panel("AM"), panel("BDD")], alt="Margin bias in the plane", columns=2, size=(4.4, 2.4)),
                  "Fig. 2 of the paper, computed: two labels whose texts deviate by 5° and by 20°, five labelled texts "
                  f"of each (filled), {ROUNDS} rounds of self-training with the paper's equations. Red texts got the "
                  "wrong pseudo-label; the dashed line is the decision boundary. Plain angles put it halfway between "
                  "the two means, balanced ones nearer to the narrow label. Wrong pseudo-labels over 100 random "
                  f"samples: {shares}.")


def pseudo_label_curves(results: Results) -> Iterator[Figure]:
    """Fig. 4: accuracy of pseudo-labels during training, with and without BDD."""
    panels = []
    for block, cells in results.blocks.items():
        for size, methods in cells.items():
            for bdd, family in FAMILIES.items():
                curves = [[_curve(result) for result in methods.get(name, [])] for name in (bdd, family.without_bdd)]
                if all(any(seeds) for seeds in curves):
                    dev = ", dev" if block.protocol == "dev" else ""
                    form = bdd.removeprefix("bdd-").upper()
                    panels.append(_curve_panel(f"{size.title}\n-{form}, {block.plan}{dev}", curves))
    if panels:
        svg = draw(panels[:PANELS], alt="Accuracy of pseudo-labels during training",
                   legend=(("with BDD", RED), ("without", BLUE)))
        yield Figure(svg, "Fig. 4 of the paper on these runs: accuracy of pseudo-labels (micro F1 for several labels "
                          "per text) at the start of each epoch and at the end. Thin lines are seeds, thick lines "
                          "their means."
                     + (f" The first {PANELS} of {len(panels)} cells." if len(panels) > PANELS else ""))


def _curve(result: RunResult) -> list[tuple[float, float]]:
    """Accuracy by step; with a dev set the end is left out, since it belongs to the best epoch."""
    return result.pseudo_label_curve(with_end=result.run.protocol != "dev")


def _curve_panel(title: str, curves: Sequence[Sequence[list[tuple[float, float]]]]) -> Panel:
    def panel(ax: Axes) -> None:
        ax.set(xlabel="step")
        ax.set_title(title)
        for colour, seeds in zip((RED, BLUE), curves, strict=True):
            known = [dict(curve) for curve in seeds if curve]
            for curve in known:
                ax.plot(list(curve), list(curve.values()), color=colour, linewidth=0.9, alpha=0.35)
            steps = sorted(set.intersection(*map(set, known)))
            ax.plot(steps, [mean(curve[step] for curve in known) for step in steps], color=colour, linewidth=2.0)
    return panel


def learning_curves(results: Results) -> Iterator[Figure]:
    """Micro F1 against the number of labelled texts, where that varies."""
    for block, cells in results.blocks.items():
        measure, names = block.measures[0], _most_frequent_methods(cells)
        panels = []
        for name in dict.fromkeys(size.set for size in cells):
            sizes = sorted((size for size in cells if size.set == name and size.unlabelled),
                           key=lambda size: size.labelled)
            if len({size.labelled for size in sizes}) > 1:
                panels.append(_learning_panel(name, sizes, cells, names, measure))
        if panels:
            svg = draw(panels, alt="Learning curves", legend=[(name, _colour(name, names)) for name in names])
            yield Figure(svg, f"Micro F1 ({measure.rule}) against labelled texts: {block.title}. Dots are runs, lines "
                              "their means.")


def _most_frequent_methods(cells: Cells) -> list[str]:
    """The methods with the most cells, ablations last."""
    counts: dict[str, int] = {}
    for methods in cells.values():
        for name in methods:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: (" -" in name, name not in METHOD_COLOURS, -counts[name], name))[:CURVES]


def _colour(name: str, names: Sequence[str]) -> str:
    """The fixed colour of a method, or one that no other in the figure has."""
    others = [other for other in names if other not in METHOD_COLOURS]
    free = [i for i in range(CURVES) if i not in {METHOD_COLOURS.get(other) for other in names}]
    return PALETTE[METHOD_COLOURS[name] if name in METHOD_COLOURS else free[others.index(name)]]


def _learning_panel(title: str, sizes: Sequence[SampleSize], cells: Cells, names: Sequence[str],
                    measure: Measure) -> Panel:
    def panel(ax: Axes) -> None:
        ax.set_title(title)
        ax.set(xscale="log", xlabel=f"labelled texts{'/class' if sizes[0].per_class else ''}")
        counts = sorted({size.labelled for size in sizes})
        ax.set_xticks(counts, [f"{count:,}" for count in counts])
        ax.set_xticks([], minor=True)
        for name in names:
            scores = [(size.labelled, [result.score(measure) for result in cells[size].get(name, [])])
                      for size in sizes]
            points = [(count, score) for count, values in scores for score in values]
            if points:
                ax.plot(*zip(*points, strict=True), "o", color=_colour(name, names), markersize=2.2)
                means = [(count, mean(values)) for count, values in scores if values]
                ax.plot(*zip(*means, strict=True), color=_colour(name, names), linewidth=1.6)
    return panel


def angle_histograms(results: Results) -> Iterator[Figure]:
    """Angles between test texts and the prototype of their own label, with BDD and without."""
    blocks = results.blocks
    for block, cells in blocks.items():
        if block.protocol == "dev" and block._replace(protocol="none") in blocks:
            continue
        for bdd, (am, *_) in FAMILIES.items():
            size = next((size for size, methods in cells.items()
                         if methods.get(bdd) and methods.get(am) and size.unlabelled), None)
            if size is None:
                continue
            pair = [cells[size][name][0] for name in (bdd, am)]
            reports = [result.line["angles"]["labels"] for result in pair]
            width = pair[0].line["angles"]["bin"]
            bins = 1 + max(len(label["counts"]) for report in reports for label in report.values())
            panels = [_histogram_panel(name, [report[name] for report in reports], width, bins)
                      for name in reports[0] if name in reports[1]]
            svg = draw(panels[:PANELS], alt="Angles of each label", columns=4, size=(2.7, 1.8),
                       legend=((bdd, RED), (am, BLUE)))
            yield Figure(svg, "Angles between test texts and the mean of their own label's texts, in degrees, with "
                              f"mean ± deviation: {size.title}, {block.title}, seed {pair[0].run.seed}.")


def _histogram_panel(name: str, labels: Sequence[dict[str, Any]], width: int, bins: int) -> Panel:
    """The histograms of one label, as shares of its texts, in bars of `width` degrees."""
    def panel(ax: Axes) -> None:
        ax.set_title(name)
        for i, (label, colour) in enumerate(zip(labels, (RED, BLUE), strict=True)):
            total = sum(label["counts"]) or 1
            shares = [count / total for count in label["counts"]] + [0.0] * (bins - len(label["counts"]))
            ax.stairs(shares, [width * k for k in range(bins + 1)], color=colour, linewidth=1.2)
            ax.stairs(shares, [width * k for k in range(bins + 1)], color=colour, alpha=0.18, fill=True)
            ax.text(1.0, 0.98 - 0.13 * i, f"{label['mean']:.0f}° ± {label['deviation']:.0f}", color=colour, ha="right",
                    va="top", transform=ax.transAxes)
        ax.set(xlim=(0.0, width * bins))
        ax.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        ax.locator_params(axis="y", nbins=3)
    return panel


@dataclass(frozen=True)
class PlaneExample:
    """Texts in the plane, their pseudo-labels and the decision boundary, by "AM" and "BDD"."""

    f: np.ndarray  # (N, 2), labelled texts of each label first
    y: np.ndarray  # (N,) true labels
    labelled: np.ndarray  # (N,) whether the label is known
    pseudo_labels: dict[str, np.ndarray]  # (N,)
    boundary: dict[str, float]  # degrees

    def errors(self, angles: str) -> int:
        """Unlabelled texts with a wrong pseudo-label."""
        return int((self.pseudo_labels[angles] != self.y)[~self.labelled].sum())


def example(seed: int = SEED) -> PlaneExample:
    """A random sample of texts, and self-training on it with both kinds of angles."""
    rng = np.random.default_rng([2, seed])
    y = np.repeat([0, 1], LABELLED + UNLABELLED)
    labelled = np.tile(np.arange(LABELLED + UNLABELLED) < LABELLED, 2)
    direction = np.radians(np.array(DIRECTIONS)[y] + rng.normal(size=len(y)) * np.array(DEVIATIONS)[y])
    f = np.stack([np.cos(direction), np.sin(direction)], axis=1) * rng.uniform(0.55, 1.0, len(y))[:, None]
    trained = {name: self_train(torch.from_numpy(f), y, labelled, balanced=name == "BDD") for name in ("AM", "BDD")}
    return PlaneExample(f, y, labelled, {name: labels for name, (labels, _) in trained.items()},
                        {name: boundary for name, (_, boundary) in trained.items()})


def self_train(f: Tensor, y: np.ndarray, labelled: np.ndarray, *, balanced: bool) -> tuple[np.ndarray, float]:
    """Pseudo-labels (N,) after rounds of labelling by the smallest angle, and the decision boundary in degrees."""
    weights, pseudo_labels = torch.from_numpy(np.eye(2)[y]) * torch.from_numpy(labelled)[:, None], y

    def nearest(points: Tensor) -> np.ndarray:
        theta = angles(cosines(points, c))
        return (psi(theta, mu, slopes(var)) if balanced else theta).argmin(dim=1).numpy()

    for _ in range(ROUNDS):
        c = prototypes(f, weights)
        mu, var = angle_moments(angles(cosines(f, c)), weights)
        pseudo_labels = np.where(labelled, y, nearest(f))
        weights = torch.from_numpy(np.eye(2)[pseudo_labels])
    fan = torch.linspace(0.0, torch.pi, 1801, dtype=f.dtype)  # all directions, to find the boundary
    between = (fan > np.radians(DIRECTIONS[0])) & (fan < np.radians(DIRECTIONS[1]))
    first = nearest(torch.stack([fan.cos(), fan.sin()], dim=1))[between.numpy()] == 0
    return pseudo_labels, DIRECTIONS[0] + float(first.mean()) * (DIRECTIONS[1] - DIRECTIONS[0])


def error_rates(samples: int = 100) -> dict[str, tuple[float, float]]:
    """Mean and deviation over random samples of the share of unlabelled texts with a wrong pseudo-label."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on tensors this small, more threads take twenty times as long
    try:
        examples = [example(seed) for seed in range(samples)]
    finally:
        torch.set_num_threads(threads)
    shares = {name: np.array([sample.errors(name) for sample in examples]) / (2 * UNLABELLED) for name in ("AM", "BDD")}
    return {name: (float(share.mean()), float(share.std(ddof=1))) for name, share in shares.items()}
