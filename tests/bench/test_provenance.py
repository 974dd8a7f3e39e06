"""The commit of the code, if it runs from a checkout."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import halflabel
from halflabel.bench.execute import code_version


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package in a folder of its own, which takes the place of halflabel's."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.setattr(halflabel, "__file__", str(folder / "__init__.py"))
    code_version.cache_clear()
    yield folder
    code_version.cache_clear()


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    return subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True,
                          text=True).stdout.strip()


def test_a_checkout_has_a_commit_and_a_state(package: Path) -> None:
    git(package, "init", "-q")
    git(package, "add", "__init__.py")
    git(package, "commit", "-qm", "first")
    commit = git(package, "rev-parse", "HEAD")
    assert code_version() == {"commit": commit, "clean": True}
    (package / "__init__.py").write_text("changed = True\n", encoding="utf-8")
    code_version.cache_clear()
    assert code_version() == {"commit": commit, "clean": False}


def test_an_installed_package_has_none(package: Path) -> None:
    assert code_version() is None
    git(package, "init", "-q")  # in a checkout, but not part of it
    (package / "other").touch()
    git(package, "add", "other")
    git(package, "commit", "-qm", "other")
    code_version.cache_clear()
    assert code_version() is None
