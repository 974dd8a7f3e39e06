"""AG News, Yelp and Yahoo as Zhang, Zhao and LeCun (2015) publish them: csv of class index and fields, no header.

Quotes inside a cell are doubled, and a new line is written as \n. Yelp has a backslash before such quotes as well. In
AG News a bare backslash stands where a line of the agency's text ended, so there "the\new" is "the new".
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from halflabel.bench.corpora.parts import Parts, existing, needed
from halflabel.bench.corpora.store import stored
from halflabel.data.corpus import Label
from halflabel.data.readers.files import File, decode, line_blocks
from halflabel.errors import BadInput

HEADER = "class index"  # the first cell of a header that some copies have


@dataclass(frozen=True)
class Layout:
    """What the cells of a row are: a class index from 1, then fields, of which some are joined to the text."""

    classes: tuple[Label, ...]
    fields: tuple[str, ...]
    text: tuple[int, ...]
    mark: re.Pattern[str] = re.compile(r"\\n")  # what was written for the end of a line
    end: str = "\n"

    def row(self, cells: list[str], place: str) -> tuple[str, str]:
        """Text and class index of a row."""
        if len(cells) != 1 + len(self.fields):
            raise BadInput(f"{place}: {len(cells)} cells where class index, {', '.join(self.fields)} are expected; "
                           "take the csv as it was published")
        if not (cells[0].isdecimal() and 1 <= int(cells[0]) <= len(self.classes)):
            raise BadInput(f"{place}: {cells[0][:40]!r} is no class index from 1 to {len(self.classes)}; take the csv "
                           "as it was published")
        return self.joined([cells[1 + i] for i in self.text]), cells[0]

    def joined(self, cells: Iterable[str]) -> str:
        """The text that fields make, as it was before it was put into csv."""
        return " ".join(filter(None, (self.mark.sub(self.end, cell).replace('\\"', '"').strip() for cell in cells)))

    def label(self, index: str) -> Label:
        return self.classes[int(index) - 1]


LAYOUTS = {
    "ag_news": Layout(("World", "Sports", "Business", "Sci/Tech"), ("title", "description"), (1,), re.compile(r"\\+"),
                      " "),
    "yelp": Layout((1, 2, 3, 4, 5), ("review",), (0,)),
    "yahoo": Layout(("Society & Culture", "Science & Mathematics", "Health", "Education & Reference",
                     "Computers & Internet", "Sports", "Business & Finance", "Entertainment & Music",
                     "Family & Relationships", "Politics & Government"),
                    ("question title", "question content", "best answer"), (0, 1, 2)),
}


def read(name: str, folder: Path) -> Parts | None:
    """train.csv and test.csv; None if a header says that they are of another kind."""
    layout, names = LAYOUTS[name], ("train.csv", "test.csv")
    if not all(file is None or _indexed(file) for file in (existing(folder, one) for one in names)):
        return None
    files = needed(folder, names)
    train, test = (stored(name, [file], partial(rows, file, layout), layout.label, drawn=i == 0)
                   for i, file in enumerate(files))
    return Parts(train, None, test)


def rows(file: File, layout: Layout) -> Iterator[tuple[str, str]]:
    """Texts and class indices, line after line."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        reader = csv.reader(_lines(file), strict=True)
        start = 1
        for cells in reader:
            if cells and not (start == 1 and cells[0].lower() == HEADER):
                yield layout.row(cells, f"{file.name}, line {start}")
            start = reader.line_num + 1
    except csv.Error as error:
        raise BadInput(f"{file.name}, line {start}: not readable as csv ({error}), the file may be cut; unpack it "
                       "again") from None
    finally:
        csv.field_size_limit(before)


def _lines(file: File) -> Iterator[str]:
    first = 1
    for block in line_blocks(file):
        yield from io.StringIO(decode(block, file.name, first=first), newline="\n")
        first += block.count(b"\n")


def _indexed(file: File) -> bool:
    """Whether the first cell is a class index, or a header that says so."""
    start = decode(file.head[: file.head.find(b"\n") + 1] or file.head, file.name).lstrip().lstrip('"')
    return start.lower().startswith(HEADER) or start[:1].isdecimal()
