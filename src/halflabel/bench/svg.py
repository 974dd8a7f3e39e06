"""Plots as inline SVG: no script, no network. Colours are variables of the page, so that they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

Points = Sequence[tuple[float, float]]
LEFT, RIGHT, TOP, BOTTOM = 46.0, 12.0, 26.0, 38.0  # room around a panel for its axes and title


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high, some `about` of them."""
    if not high > low:
        return [low]
    raw = (high - low) / max(1, about)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def limits(values: Sequence[float], *, pad: float = 0.06, zero: bool = False) -> tuple[float, float]:
    """A range that holds all values with some air."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    low = min(low, 0.0) if zero else low
    air = pad * ((high - low) or abs(high) or 1.0)
    return low - (0.0 if zero else air), high + air


@dataclass
class Panel:
    """One pair of axes, `width` by `height` without its margins."""

    title: str
    x: tuple[float, float]
    y: tuple[float, float]
    width: float = 280.0
    height: float = 180.0
    x_name: str = ""
    y_name: str = ""
    x_ticks: Sequence[tuple[float, str]] | None = None
    y_ticks: Sequence[tuple[float, str]] | None = None
    parts: list[str] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point of the data lies."""
        (a, b), (c, d) = self.x, self.y
        return (x - a) / ((b - a) or 1.0) * self.width, self.height - (y - c) / ((d - c) or 1.0) * self.height

    def line(self, points: Points, colour: int, *, width: float = 2.0, faint: bool = False, dash: str = "") -> None:
        path = " ".join(f"{'L' if i else 'M'}{_p(*self.at(*point))}" for i, point in enumerate(points))
        style = ' opacity="0.3"' if faint else ""
        style += f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<path d="{path}" fill="none" class="s{colour}" stroke-width="{width}" '
                          f'stroke-linejoin="round"{style}/>')

    def area(self, points: Points, colour: int, *, opacity: float = 0.25) -> None:
        path = " ".join(f"{'L' if i else 'M'}{_p(*self.at(*point))}" for i, point in enumerate(points))
        self.parts.append(f'<path d="{path} Z" class="f{colour}" opacity="{opacity}"/>')

    def dot(self, x: float, y: float, colour: int, *, radius: float = 3.0, hollow: bool = False, tip: str = "") -> None:
        cx, cy = self.at(x, y)
        look = f'class="s{colour}" fill="none" stroke-width="1.2"' if hollow else f'class="f{colour}"'
        said = f"<title>{escape(tip)}</title>" if tip else ""
        self.parts.append(f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="{radius}" {look}>{said}</circle>')

    def triangle(self, x: float, y: float, colour: int, *, radius: float = 3.4, hollow: bool = False) -> None:
        cx, cy = self.at(x, y)
        corners = [(cx, cy - radius), (cx - radius, cy + 0.8 * radius), (cx + radius, cy + 0.8 * radius)]
        look = f'class="s{colour}" fill="none" stroke-width="1.2"' if hollow else f'class="f{colour}"'
        self.parts.append(f'<polygon points="{" ".join(_p(*corner) for corner in corners)}" {look}/>')

    def bar(self, x: float, half: float, y: float, colour: int, *, tip: str = "") -> None:
        """From zero to y, `half` to either side of x."""
        (left, top), (right, bottom) = self.at(x - half, max(y, 0.0)), self.at(x + half, min(y, 0.0))
        self.parts.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
                          f'height="{max(bottom - top, 0.5):.1f}" class="f{colour}" opacity="0.8">'
                          f"<title>{escape(tip)}</title></rect>")

    def text(self, x: float, y: float, said: str, *, colour: int | None = None, anchor: str = "start",
             dx: float = 0.0, dy: float = 0.0) -> None:
        px, py = self.at(x, y)
        look = "t" if colour is None else f"f{colour}"
        self.parts.append(f'<text x="{px + dx:.1f}" y="{py + dy:.1f}" text-anchor="{anchor}" class="{look}">'
                          f"{escape(said)}</text>")

    def axes(self) -> str:
        """Grid, ticks and names."""
        found = [f'<text x="0" y="-10" class="head">{escape(self.title)}</text>']
        marks_y = self.y_ticks if self.y_ticks is not None else [(v, f"{v:g}") for v in ticks(*self.y, 4)]
        for value, said in marks_y:
            y = self.at(self.x[0], value)[1]
            found.append(f'<line x1="0" x2="{self.width}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
                         f'<text x="-6" y="{y + 3.5:.1f}" text-anchor="end" class="t">{escape(said)}</text>')
        for value, said in self.x_ticks if self.x_ticks is not None else [(v, f"{v:g}") for v in ticks(*self.x)]:
            x = self.at(value, self.y[0])[0]
            found.append(f'<text x="{x:.1f}" y="{self.height + 15}" text-anchor="middle" class="t">'
                         f"{escape(said)}</text>")
        found.append(f'<line x1="0" x2="{self.width}" y1="{self.height}" y2="{self.height}" class="axis"/>')
        if self.x_name:
            found.append(f'<text x="{self.width / 2}" y="{self.height + 31}" text-anchor="middle" class="t">'
                         f"{escape(self.x_name)}</text>")
        if self.y_name:
            found.append(f'<text x="{self.width}" y="-10" text-anchor="end" class="t">{escape(self.y_name)}</text>')
        return "".join(found)


def drawing(panels: Sequence[Panel], *, columns: int = 3, legend: Sequence[tuple[str, int]] = (), alt: str) -> str:
    """Panels of one size side by side below a legend, as one picture."""
    columns = max(1, min(columns, len(panels)))
    wide, high = (max(getattr(panel, size) for panel in panels) for size in ("width", "height"))
    cell_w, cell_h = wide + LEFT + RIGHT, high + TOP + BOTTOM
    keys, used, line = [], 0.0, 0
    for name, colour in legend:
        room = 34 + 6.6 * len(name)
        if used and used + room > columns * cell_w:
            used, line = 0.0, line + 1
        keys.append(f'<g transform="translate({used + 8:.0f},{12 + 18 * line})">'
                    f'<rect width="14" height="4" y="-2" rx="2" class="f{colour}"/>'
                    f'<text x="20" y="4" class="t">{escape(name)}</text></g>')
        used += room
    top = 18.0 * (line + 1) + 6 if legend else 0.0
    body = "".join(
        f'<g transform="translate({LEFT + (i % columns) * cell_w:.0f},{top + TOP + i // columns * cell_h:.0f})">'
        f"{panel.axes()}{''.join(panel.parts)}</g>" for i, panel in enumerate(panels))
    width, height = columns * cell_w, top + math.ceil(len(panels) / columns) * cell_h
    return (f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" aria-label="{escape(alt)}">'
            f"{''.join(keys)}{body}</svg>")


def _p(x: float, y: float) -> str:
    return f"{x:.1f},{y:.1f}"
