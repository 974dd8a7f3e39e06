"""Excel workbooks (.xlsx), by openpyxl.

A workbook is a zip of XML, so its size is checked before anything is parsed. openpyxl reads row by row; faster readers
allocate the rectangle up to the last cell, which a small file can make larger than any memory.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, time
from itertools import islice
from typing import Any

from halflabel.data.columns import arrow_strings
from halflabel.data.readers.files import BLOCK, ZIP_MAGIC, File, first_line
from halflabel.data.readers.formats import Format, ReadOptions, Row, SourceTable, numbered, register_format
from halflabel.errors import DataError, MissingExtra

HEAD_ROWS = 1024
WORKBOOK, DOCTYPE = "xl/workbook.xml", b"<!DOCTYPE"


def read(file: File, options: ReadOptions) -> SourceTable:
    """All rows of a sheet that are not empty, their cells as the strings that a csv file would have."""
    return _table(file, None)


def head(file: File, options: ReadOptions) -> SourceTable:
    """The first rows."""
    return _table(file, HEAD_ROWS)


def stream(file: File, options: ReadOptions, columns: list[str]) -> Iterator[list[Any]]:
    """Columns of the whole sheet."""
    table = read(file, options)
    yield [arrow_strings(table.column(name)) for name in columns]


def rows(file: File, options: ReadOptions) -> Iterator[tuple[list[Row], Callable[[int], str]]]:
    """All columns of the whole sheet."""
    table = read(file, options)
    names = list(dict.fromkeys(table.names))
    cells = zip(*(table.column(name) for name in names), strict=True)
    yield [dict(zip(names, row, strict=True)) for row in cells], table.position


def _table(file: File, limit: int | None) -> SourceTable:
    with _opened(file) as sheet:
        numbered_rows = ((number, [_text(cell) for cell in row]) for number, row
                         in enumerate(sheet.iter_rows(values_only=True), 1) if any(cell is not None for cell in row))
        records = list(islice(numbered_rows, limit))
    width = max((len(cells) for _, cells in records), default=0)
    names = numbered(width)
    if file.header and records:
        names = [*records[0][1], *[""] * (width - len(records[0][1]))]
        records = records[1:]

    def column(name: str) -> list[str]:
        index = names.index(name)
        return [cells[index] if index < len(cells) else "" for _, cells in records]

    return SourceTable(names, len(records), column, lambda i: f"row {records[i][0]}", typed=False)


@contextmanager
def _opened(file: File) -> Iterator[Any]:
    """The sheet that is to be read; whatever is wrong with the workbook becomes a DataError."""
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise MissingExtra(f"{file.name} is an Excel file and openpyxl is not installed; pip install "
                           "'halflabel[excel]', or export it as CSV") from None
    try:
        source = io.BytesIO(file.content) if file.compression else file.stored()
        with source, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and validation rules, which do not matter here
            _check(file, source)
            book = load_workbook(source, read_only=True, data_only=True)
            yield _sheet(file, book)
            book.close()
    except (DataError, MemoryError):
        raise
    except Exception as error:  # openpyxl raises whatever a damaged workbook leads to
        raise DataError(f"{file.name} is not a complete Excel file ({first_line(error) or type(error).__name__}); save "
                        "it again, or export it as CSV") from None


def _check(file: File, source: Any) -> None:
    """Reads all parts once, so that size, checksums and the absence of entities are known before XML is parsed."""
    stored, size = source.seek(0, io.SEEK_END), 0
    with zipfile.ZipFile(source) as archive:
        if WORKBOOK not in archive.namelist():
            raise DataError(f"{file.name} is a zip file without an Excel workbook; unpack it")
        for part in archive.namelist():
            end = b""  # of the block before, since the word may be divided
            with archive.open(part) as stream:
                for block in iter(lambda stream=stream: stream.read(BLOCK), b""):  # type: ignore[misc]
                    size += len(block)
                    file.check_size(size, stored, "export it as CSV")
                    if DOCTYPE in end + block:
                        raise DataError(f"{file.name} has XML entities, as no Excel file has; export it as CSV")
                    end = block[-len(DOCTYPE) :]
    source.seek(0)


def _sheet(file: File, book: Any) -> Any:
    sheets = {sheet.title: sheet for sheet in book.worksheets}
    name = file.sheet or next(iter(sheets), "")
    if name not in sheets:
        raise DataError(f"{file.name} has no sheet {name!r}; its sheets are {', '.join(map(repr, sheets))}: name one "
                        "with --sheet")
    sheets[name].reset_dimensions()  # rows end at their last cell, whatever the file says about its size
    return sheets[name]


def _text(cell: Any) -> str:
    """A cell as Excel exports it to csv: 3.0 is 3, and dates are written in the order of ISO 8601."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime):
        return str(cell.date() if cell.time() == time() else cell)
    return str(cell)


register_format(Format("excel", (".xlsx", ".xlsm"), read, stream=stream, rows=rows, head=head, magic=(ZIP_MAGIC,),
                       written_as="csv"))
