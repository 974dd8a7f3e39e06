"""House rules that a machine can check."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "halflabel"
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {file: ast.parse(file.read_text(encoding="utf-8")) for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_every_file_is_named_after_its_idea_and_says_it(file: Path) -> None:
    assert file.stem not in ("utils", "helpers", "common", "misc", "base")
    assert ast.get_docstring(TREES[file])


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(file.relative_to(SOURCE)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_random_numbers_come_from_named_streams() -> None:
    """Training draws from `randomness.generator`: two purposes never share their numbers."""
    rooms = ("training", "methods", "nn", "encoders", "fitting.py", "after_training.py")
    assert [str(file.relative_to(SOURCE)) for file in FILES if str(file.relative_to(SOURCE)).startswith(rooms)
            and "default_rng(" in file.read_text(encoding="utf-8")] == []


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, halflabel; print([m for m in ('torch', 'sklearn', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_pickle_is_ever_read() -> None:
    words = ("import pickle", "import joblib", "torch.load", "torch.save", "allow_pickle=True")
    assert [(f.name, word) for f in FILES for word in words if word in f.read_text(encoding="utf-8")] == []
