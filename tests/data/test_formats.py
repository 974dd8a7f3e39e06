"""A file format is one module of the readers package: detected, read, streamed and written without another edit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_runner import runner
from halflabel.data import readers
from halflabel.data.corpus import Corpus
from halflabel.data.pool import open_pool
from halflabel.data.readers import formats
from halflabel.data.readers.files import File
from halflabel.data.readers.formats import write
from halflabel.data.readers.read import read, read_options
from halflabel.errors import OutputError

PARAGRAPHS = '''"""Paragraphs: texts separated by blank lines, after a first line ==paragraphs==."""

from halflabel.data.columns import arrow_strings
from halflabel.data.readers.formats import Format, from_records, register_format


def read(file, options):
    texts = file.text().removeprefix("==paragraphs==").strip().split("\\n\\n")
    return from_records([{"text": text} for text in texts], lambda i: f"paragraph {i + 1}")


def stream(file, options, columns):
    yield [arrow_strings(read(file, options).column(name)) for name in columns]


def writer(stream):
    stream.write("==paragraphs==\\n")
    return lambda rows: stream.writelines(row["text"] + "\\n\\n" for row in rows)


register_format(Format("par", (".par",), read, stream=stream, text_writer=writer,
                       confidence=lambda text, options: float(text.startswith("==paragraphs=="))))
'''


@pytest.fixture
def paragraphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package of readers with one more module in it."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "paragraphs.py").write_text(PARAGRAPHS)
    monkeypatch.setattr(formats, "_registered", dict(formats.formats()))
    monkeypatch.setattr(readers, "__path__", [*readers.__path__, str(tmp_path / "more")])
    formats._import_readers.cache_clear()
    yield
    del sys.modules["halflabel.data.readers.paragraphs"]


@pytest.mark.usefixtures("paragraphs")
@pytest.mark.parametrize("name", ["a.par", "unknown"])
def test_a_format_in_one_module(tmp_path: Path, name: str) -> None:
    texts = ["one\ntwo", "three"]
    write(Corpus(texts, [None, None]), tmp_path / "a.par")
    (tmp_path / "a.par").rename(tmp_path / name)
    assert read(tmp_path / name).texts == texts
    assert list(open_pool(tmp_path / name)[0].texts) == texts
    assert formats.output_format(File(str(tmp_path / name)), read_options()) == "par"


@pytest.mark.usefixtures("paragraphs")
def test_commands_know_a_new_format(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("bread\nsoup\n")
    done = runner(capsys, monkeypatch)("augment", tmp_path / "a.txt", "--out", tmp_path / "views.par")
    assert done.code == 0 and read(tmp_path / "views.par").texts == ["bread", "soup"]


@pytest.mark.parametrize(("name", "content", "expected"), [
    ("a.csv", b"text\na\n", "csv"), ("a.tab", b"text\na\n", "tsv"), ("a.json", b"[]", "jsonl"),
    ("a.ndjson", b"{}", "jsonl"), ("a.txt", b"a", "jsonl"), ("noname", b"text\tlabel\na\tb\n", "csv"),
    ("noname", b'{"text": "a"}', "jsonl"), ("noname", b"a\n", "jsonl"), ("a.feather", b"ARROW1", "parquet"),
    ("a.csv", b"PAR1", "parquet")])
def test_predictions_are_written_in_the_format_of_the_file(tmp_path: Path, name: str, content: bytes,
                                                            expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert formats.output_format(File(str(tmp_path / name)), read_options()) == expected


def test_formats_that_can_be_written(tmp_path: Path) -> None:
    assert formats.output_formats() == ["csv", "jsonl", "parquet", "tsv"]
    with pytest.raises(OutputError, match=r"a\.xml names no format; use one of csv, jsonl, parquet, tsv"):
        write(Corpus(["a"], [None]), tmp_path / "a.xml")
