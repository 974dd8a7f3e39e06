"""Methods that share parts share code."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "halflabel"
RUN = 6


def runs(lines: list[str]) -> list[tuple[int, tuple[str, ...]]]:
    """Every run of lines that say something, with the number of its first line."""
    said = [(i, line.strip()) for i, line in enumerate(lines, 1)
            if line.strip() and not line.startswith(("import", "from"))]
    return [(said[i][0], tuple(line for _, line in said[i : i + RUN])) for i in range(len(said) - RUN + 1)]


def test_no_run_of_six_lines_stands_twice_in_methods_and_parts() -> None:
    places: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for folder in ("methods", "parts"):
        for file in sorted((SOURCE / folder).glob("*.py")):
            for line, run in runs(file.read_text(encoding="utf-8").splitlines()):
                places[run].append(f"{folder}/{file.name}:{line}")
    assert [where for where in places.values() if len(where) > 1] == []


def test_the_search_finds_a_run_that_stands_twice() -> None:
    lines = [f"step {i}" for i in range(8)]
    assert len(runs(lines)) == 3 and runs(lines)[0][1] == tuple(lines[:6])
