"""The examples of docs/extend.md work as they stand, each in at most two files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli_runner import forked

PAGE = (Path(__file__).parent.parent / "docs" / "extend.md").read_text(encoding="utf-8")
SECTIONS = {part.splitlines()[0]: re.findall(r"```python\n(.*?)```", part, flags=re.DOTALL)
            for part in PAGE.split("\n## ")[1:]}
SETUP = """
import sys
from pathlib import Path

import torch

from conftest import tiny_texts

torch.set_num_threads(1)
encoder, folder = sys.argv[1], Path(sys.argv[2])
texts, labels = tiny_texts(4)
pool, _ = tiny_texts(6, seed=1)
"""


def test_every_kind_of_extension_has_an_example() -> None:
    assert list(SECTIONS) == ["A method", "A file format", "A metric", "An encoder", "A decision rule",
                              "A corpus for the benchmark"]


@pytest.mark.parametrize("name", SECTIONS)
def test_an_example_names_one_file_and_checks_what_it_adds(name: str) -> None:
    files = [block.splitlines()[0] for block in SECTIONS[name] if block.startswith("# src/halflabel/")]
    assert len(files) == 1 and any("assert " in block for block in SECTIONS[name])


def test_all_examples_run(tiny_encoder: str, tmp_path: Path) -> None:
    """In one process of its own, since they register what other tests must not see."""
    blocks = [block for section in SECTIONS.values() for block in section]
    code = "\n".join([SETUP, *blocks, "print('all examples ran')"])
    done = forked(tiny_encoder, tmp_path, code=code)
    assert done.out.strip() == "all examples ran", done.err[-2000:]
