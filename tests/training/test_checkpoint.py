"""Checkpoints and files are complete or absent."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from halflabel.atomic import write_folder, write_text
from halflabel.errors import HalflabelError
from halflabel.training.checkpoint import FolderStore, NoStore, read_tensors, write_tensors

TENSORS = {"a": torch.arange(4.0), "b": torch.tensor(3)}


def test_tensors_come_back_equal(tmp_path: Path) -> None:
    write_tensors(tmp_path / "t.safetensors", TENSORS)
    again = read_tensors(tmp_path / "t.safetensors")
    assert all(torch.equal(again[name], TENSORS[name]) for name in TENSORS)
    assert [f.name for f in tmp_path.iterdir()] == ["t.safetensors"]


def test_a_folder_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise OSError(28, "No space left on device")

    with pytest.raises(HalflabelError, match="No space left on device"):
        write_folder(tmp_path / "model", fill)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "f.json", "old")

    def full(self: Path, *args: object, **kwargs: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(HalflabelError, match=r"f\.json"):
        write_text(tmp_path / "f.json", "new")
    assert (tmp_path / "f.json").read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_the_newest_checkpoint_is_found_and_the_older_removed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    for step in (5, 10):
        store.checkpoint(step, {"x": torch.tensor(float(step))}, {"step": step, "discarded_steps": 0, "notices": []})
    latest = store.latest()
    assert latest is not None and latest[1]["step"] == 10 and float(latest[0]["x"]) == 10.0
    assert [f.name for f in tmp_path.glob("checkpoint-*")] == ["checkpoint-00000010"]
    store.finish()
    assert store.latest() is None


def test_lines_logged_after_the_checkpoint_are_removed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    for step in (0, 5, 10, 15):
        store.log({"step": step})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 1')  # cut off by the kill
    store.checkpoint(10, TENSORS, {"step": 10, "discarded_steps": 0, "notices": []})
    store.latest()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 0}\n{"step": 5}\n'


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x10\x00\x00")
    with pytest.raises(HalflabelError, match="model.safetensors"):
        read_tensors(tmp_path / "model.safetensors")


def test_no_store_keeps_nothing() -> None:
    store = NoStore()
    store.log({"step": 1})
    store.checkpoint(1, TENSORS, {"step": 1})
    assert store.latest() is None


def test_a_checkpoint_of_an_older_version_is_refused(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.checkpoint(3, TENSORS, {"step": 3, "undone": 0})
    with pytest.raises(HalflabelError, match="state.json .*start the run again"):
        store.latest()
