"""A document of headings, paragraphs, tables and figures, as one HTML file and as markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2
    id: str = ""


@dataclass(frozen=True)
class Text:
    """A paragraph; `code` and **strong** are understood."""

    text: str


@dataclass(frozen=True)
class Cell:
    """A cell of a table: what it says, what it says below that, and where it leads."""

    text: str
    below: str = ""
    strong: bool = False
    link: str = ""
    mark: str = ""  # colours the cell: good, bad or warn


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    words: int = 1  # first columns that hold words; the others hold figures


@dataclass(frozen=True)
class Figure:
    svg: str
    caption: str


@dataclass(frozen=True)
class Details:
    """What is folded away until somebody asks."""

    summary: str
    blocks: Sequence[Block]
    id: str = ""


Block = Heading | Text | Table | Figure | Details


@dataclass
class Document:
    title: str
    lead: str
    blocks: list[Block] = field(default_factory=list)

    def html(self) -> str:
        """One file with nothing outside of it."""
        style = files("halflabel.bench").joinpath("report.css").read_text(encoding="utf-8")
        contents = "".join(f'<a href="#{one.id}">{escape(one.text)}</a>' for one in self.blocks
                           if isinstance(one, Heading) and one.level == 2 and one.id)
        body = "".join(to_html(block) for block in self.blocks)
        return ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
                '<meta name="viewport" content="width=device-width, initial-scale=1">'
                f"<title>{escape(self.title)}</title><style>\n{style}</style></head>\n<body><main><header>"
                f"<h1>{escape(self.title)}</h1><p>{inline(self.lead)}</p><nav>{contents}</nav></header>\n"
                f"{body}</main></body></html>\n")

    def markdown(self) -> str:
        """The same without figures: their numbers stand in tables."""
        parts = [f"# {self.title}", self.lead, *(to_markdown(block) for block in self.blocks)]
        return "\n\n".join(part for part in parts if part) + "\n"


def inline(text: str) -> str:
    """Escaped, with `code` and **strong**."""
    found = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", found)


def to_html(block: Block) -> str:
    if isinstance(block, Heading):
        at = f' id="{block.id}"' if block.id else ""
        return f"<h{block.level}{at}>{inline(block.text)}</h{block.level}>\n"
    if isinstance(block, Text):
        return f"<p>{inline(block.text)}</p>\n"
    if isinstance(block, Figure):
        return f"<figure>{block.svg}<figcaption>{inline(block.caption)}</figcaption></figure>\n"
    if isinstance(block, Details):
        at = f' id="{block.id}"' if block.id else ""
        inside = "".join(to_html(one) for one in block.blocks)
        return f"<details{at}><summary>{inline(block.summary)}</summary>{inside}</details>\n"
    head = "".join(f'<th{_kind(i, block.words)}>{inline(name)}</th>' for i, name in enumerate(block.head))
    rows = "".join(f"<tr>{''.join(_td(_cell(cell), i, block.words) for i, cell in enumerate(row))}</tr>\n"
                   for row in block.rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n'


def to_markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.text}"
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Figure):
        return f"*Figure, in the HTML report:* {block.caption}"
    if isinstance(block, Details):
        return "\n\n".join([f"**{block.summary}**", *(to_markdown(one) for one in block.blocks)])
    lines = [_line(block.head), _line(["---"] * block.words + ["---:"] * (len(block.head) - block.words))]
    return "\n".join([*lines, *(_line([_said(_cell(cell)) for cell in row]) for row in block.rows)])


def _said(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.strong else cell.text
    return f"{text}; {cell.below}" if cell.below else text


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cell(cell: Cell | str) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)


def _kind(i: int, words: int) -> str:
    return "" if i < words else ' class="n"'


def _td(cell: Cell, i: int, words: int) -> str:
    said = inline(cell.text)
    said = f"<strong>{said}</strong>" if cell.strong else said
    said = f'<a href="#{cell.link}">{said}</a>' if cell.link else said
    below = f"<small>{inline(cell.below)}</small>" if cell.below else ""
    classes = " ".join(name for name in ("n" if i >= words else "w", cell.mark) if name)
    return f'<td class="{classes}">{said}{below}</td>'
