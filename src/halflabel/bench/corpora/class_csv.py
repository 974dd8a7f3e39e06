"""AG News, Yelp and Yahoo as published by Zhang, Zhao and LeCun (2015): CSV of class index and fields, no header.

Quotes inside a cell are doubled, and a line break is written as \\n. Yelp also escapes such quotes by a backslash. In
AG News a bare backslash stands for a line break of the agency's text, so there "the\\new" is "the new".
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

from halflabel.bench.corpora.parts import CorpusParts, cached_corpus, find_file, require_files
from halflabel.data.corpus import Label
from halflabel.data.readers.files import File, decode, line_blocks
from halflabel.errors import DataError

FILES = ("train.csv", "test.csv")
HEADER = "class index"  # the first cell of a header that some copies have


@dataclass(frozen=True)
class CsvLayout:
    """The cells of a row: a class index from 1, then fields, some of which are joined to the text."""

    classes: tuple[Label, ...]
    fields: tuple[str, ...]
    text_fields: tuple[int, ...]
    escaped_break: re.Pattern[str] = re.compile(r"\\n")
    line_break: str = "\n"

    def parse(self, cells: list[str], where: str) -> tuple[str, str]:
        """Text and class index of a row."""
        if len(cells) != 1 + len(self.fields):
            raise DataError(f"{where}: {len(cells)} cells where class index, {', '.join(self.fields)} are expected; "
                            "use the CSV as published")
        if not (cells[0].isdecimal() and 1 <= int(cells[0]) <= len(self.classes)):
            raise DataError(f"{where}: {cells[0][:40]!r} is not a class index from 1 to {len(self.classes)}; use the "
                            "CSV as published")
        return self.join([cells[1 + i] for i in self.text_fields]), cells[0]

    def join(self, cells: Iterable[str]) -> str:
        """The text of some fields, unescaped."""
        plain = (self.escaped_break.sub(self.line_break, cell).replace('\\"', '"').strip() for cell in cells)
        return " ".join(filter(None, plain))

    def label(self, index: str) -> Label:
        return self.classes[int(index) - 1]


LAYOUTS = {
    "ag_news": CsvLayout(("World", "Sports", "Business", "Sci/Tech"), ("title", "description"), (1,),
                         re.compile(r"\\+"), " "),
    "yelp": CsvLayout((1, 2, 3, 4, 5), ("review",), (0,)),
    "yahoo": CsvLayout(("Society & Culture", "Science & Mathematics", "Health", "Education & Reference",
                        "Computers & Internet", "Sports", "Business & Finance", "Entertainment & Music",
                        "Family & Relationships", "Politics & Government"),
                       ("question title", "question content", "best answer"), (0, 1, 2)),
}


def read_class_csv(name: str, folder: Path) -> CorpusParts | None:
    """train.csv and test.csv; None if their headers are not those of the published files."""
    layout = LAYOUTS[name]
    if not all(_starts_with_class_index(file) for file in (find_file(folder, title) for title in FILES) if file):
        return None
    train, test = (cached_corpus(name, [file], partial(parse_rows, file, layout), layout.label, sampled=i == 0)
                   for i, file in enumerate(require_files(folder, FILES)))
    return CorpusParts(train, None, test)


def parse_rows(file: File, layout: CsvLayout) -> Iterator[tuple[str, str]]:
    """Texts and class indices, row by row."""
    limit = csv.field_size_limit(sys.maxsize)
    try:
        reader = csv.reader(_lines(file), strict=True)
        line = 1
        for cells in reader:
            if cells and not (line == 1 and cells[0].lower() == HEADER):
                yield layout.parse(cells, f"{file.name}, line {line}")
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{file.name}, line {line}: invalid CSV ({error}), the file may be truncated; unpack it "
                        "again") from None
    finally:
        csv.field_size_limit(limit)


def _lines(file: File) -> Iterator[str]:
    first = 1
    for block in line_blocks(file):
        yield from io.StringIO(decode(block, file.name, first=first), newline="\n")
        first += block.count(b"\n")


def _starts_with_class_index(file: File) -> bool:
    """Whether the first cell is a class index, or the header of one."""
    start = decode(file.head[: file.head.find(b"\n") + 1] or file.head, file.name).lstrip().lstrip('"')
    return start.lower().startswith(HEADER) or start[:1].isdecimal()
