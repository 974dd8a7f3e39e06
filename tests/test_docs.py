"""Numbers in the documentation come from the committed results, and its examples run."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from cli_runner import runner
from conftest import tiny_texts

ROOT = Path(__file__).parent.parent


def test_tables_agree_with_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    monkeypatch.setattr("halflabel.bench.figures.draw", lambda *_, **__: "")  # figures are not compared
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "benchmarks" / "tables.py"), run_name="__main__")
    assert not end.value.code, end.value.code


def test_the_python_example_runs(tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.S)
    assert code
    monkeypatch.chdir(tmp_path)
    texts, labels = tiny_texts(3)
    names = {"texts": texts, "labels": labels, "pool": tiny_texts(4, seed=1)[0], "new_texts": ["goal match"]}
    exec(code[1].replace("random_state=0", f"encoder={tiny_encoder!r}, plan='frozen', random_state=0"), names)
    assert names["clf"].predict(["bread soup oven"]).shape == (1,)


def test_the_readme_names_every_method() -> None:
    from halflabel.methods.registry import METHODS

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in METHODS if f"`{name}`" not in readme] == []


def test_the_methods_page_is_generated_from_the_registry(capsys: pytest.CaptureFixture[str],
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    done = runner(capsys, monkeypatch)("methods", "--markdown")
    assert (ROOT / "docs" / "methods.md").read_text(encoding="utf-8") == done.out, \
        "stale: run halflabel methods --markdown > docs/methods.md"


def test_public_names_are_sorted_and_exist() -> None:
    import halflabel

    assert halflabel.__all__ == sorted(halflabel.__all__)
    assert all(getattr(halflabel, name) is not None for name in halflabel.__all__)
