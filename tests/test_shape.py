"""House rules that a machine can check."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "halflabel"
FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_file_is_a_drawer_for_odds_and_ends(file: Path) -> None:
    assert file.stem not in ("utils", "helpers", "common", "misc", "base")
    assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, halflabel; print([m for m in ('torch', 'sklearn', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_pickle_is_ever_read() -> None:
    words = ("import pickle", "import joblib", "torch.load", "torch.save", "allow_pickle=True")
    assert [(f.name, word) for f in FILES for word in words if word in f.read_text(encoding="utf-8")] == []
