"""A document of headings, paragraphs, tables and figures, as one HTML file (by a Jinja2 template) and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.util import find_spec

from halflabel.errors import MissingExtra

EXTRA = ("jinja2", "matplotlib")


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2
    id: str = ""


@dataclass(frozen=True)
class Paragraph:
    """Text in which `code` and **strong** are marked up."""

    text: str


@dataclass(frozen=True)
class TableCell:
    """A cell: its text, a smaller text below, and the id that it links to."""

    text: str
    below: str = ""
    strong: bool = False
    link: str = ""
    mark: str = ""  # colours the cell: good, bad or warn


@dataclass(frozen=True)
class DataTable:
    head: Sequence[str]
    rows: Sequence[Sequence[TableCell | str]]
    text_columns: int = 1  # first columns that hold text; the others hold numbers

    @property
    def cells(self) -> list[list[TableCell]]:
        return [[cell if isinstance(cell, TableCell) else TableCell(cell) for cell in row] for row in self.rows]


@dataclass(frozen=True)
class Figure:
    svg: str
    caption: str


@dataclass(frozen=True)
class Quote:
    """A text, part by part; a part is marked by a number from -1, against the label, to 1, for it."""

    parts: Sequence[tuple[str, float]]
    above: str
    below: str = ""


@dataclass(frozen=True)
class Details:
    """Elements that are folded under a summary."""

    summary: str
    elements: Sequence[Element]
    id: str = ""


Element = Heading | Paragraph | DataTable | Figure | Quote | Details


@dataclass
class Document:
    title: str
    lead: str
    elements: list[Element] = field(default_factory=list)

    def html(self) -> str:
        """One self-contained file."""
        require_extra()
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup

        environment = Environment(loader=PackageLoader("halflabel.bench", ""), autoescape=True, trim_blocks=True,
                                  lstrip_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True)
        environment.filters["inline"] = lambda text: Markup(inline(text))
        environment.tests["kind"] = lambda element, name: type(element).__name__ == name
        contents = [element for element in self.elements if isinstance(element, Heading) and element.id]
        return environment.get_template("report.html.j2").render(document=self, contents=contents)

    def markdown(self) -> str:
        """The same without figures, whose numbers are in the tables."""
        parts = [f"# {self.title}", self.lead, *map(to_markdown, self.elements)]
        return "\n\n".join(part for part in parts if part) + "\n"


def require_extra() -> None:
    """An error with the remedy if the libraries of the report are not installed; imports none of them."""
    if missing := [name for name in EXTRA if find_spec(name) is None]:
        raise MissingExtra(f"the report needs {' and '.join(missing)}; pip install 'halflabel[report]'")


def inline(text: str) -> str:
    """Escaped HTML, with `code` and **strong** marked up."""
    html = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", html)


def to_markdown(element: Element) -> str:
    match element:
        case Heading():
            return f"{'#' * element.level} {element.text}"
        case Paragraph():
            return element.text
        case Figure():
            return f"*Figure, in the HTML report:* {element.caption}"
        case Quote():
            return "\n>\n".join(f"> {part}" for part in (
                element.above, " ".join("".join(text for text, _ in element.parts).split()), element.below) if part)
        case Details():
            return "\n\n".join([f"**{element.summary}**", *map(to_markdown, element.elements)])
        case DataTable():
            rules = ["---"] * element.text_columns + ["---:"] * (len(element.head) - element.text_columns)
            rows = [[_cell_markdown(cell) for cell in row] for row in element.cells]
            return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in row) + " |"
                             for row in (element.head, rules, *rows))


def _cell_markdown(cell: TableCell) -> str:
    text = f"**{cell.text}**" if cell.strong else cell.text
    return f"{text}; {cell.below}" if cell.below else text
