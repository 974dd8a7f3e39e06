"""Methods that share parts share code."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "halflabel"
RUN = 6


def code_lines(text: str) -> list[tuple[int, str]]:
    """Numbered lines of code, without blank lines and imports."""
    imports = {line for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)
               for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return [(i, line.strip()) for i, line in enumerate(text.splitlines(), 1) if line.strip() and i not in imports]


def runs(text: str) -> list[tuple[int, tuple[str, ...]]]:
    """Every run of six lines of code, with the number of its first line."""
    lines = code_lines(text)
    return [(lines[i][0], tuple(line for _, line in lines[i : i + RUN])) for i in range(len(lines) - RUN + 1)]


def test_no_six_lines_are_repeated_in_methods_nn_and_training() -> None:
    places: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for folder in ("methods", "nn", "training"):
        for file in sorted((SOURCE / folder).glob("*.py")):
            for line, run in runs(file.read_text(encoding="utf-8")):
                places[run].append(f"{folder}/{file.name}:{line}")
    assert [where for where in places.values() if len(where) > 1] == []


def test_the_search_finds_repeated_lines_and_ignores_imports() -> None:
    text = "from a import (\n    b,\n    c,\n)\n" + "".join(f"step({i})\n" for i in range(8))
    assert len(runs(text)) == 3 and runs(text)[0] == (5, tuple(f"step({i})" for i in range(6)))
