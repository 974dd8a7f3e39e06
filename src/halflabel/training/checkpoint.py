"""Runs on disk: safetensors and JSON, written beside and renamed, never a pickle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from halflabel.atomic import replace_file, rust_os_error, write_folder, write_text
from halflabel.errors import BadInput
from halflabel.integrity import drop_checksums, read_json, require
from halflabel.output_folders import CHECKPOINT, checkpoints

State = dict[str, Tensor]
RESTART = "start the run again with another --out."


def snapshot(module: nn.Module) -> State:
    """A copy of a module's state."""
    return copied(module.state_dict())


def copied(state: State) -> State:
    """The same tensors once more, free of whatever changes them."""
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def on_cpu(state: State) -> State:
    """A copy in the memory of the CPU."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}


def write_tensors(file: Path, tensors: State) -> None:
    """Replaces a safetensors file as a whole."""
    with replace_file(file) as temporary:
        try:
            save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, temporary)
        except SafetensorError as error:
            raise rust_os_error(error) from error


def read_tensors(file: Path) -> State:
    """The tensors of a safetensors file."""
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{file} is not a whole safetensors file ({error}); train or copy it again.") from error


class CheckpointStore(Protocol):
    """Where a run is kept: in a folder, or not at all."""

    def log(self, line: dict[str, Any]) -> None: ...
    def checkpoint(self, step: int, tensors: State, position: dict[str, Any]) -> None: ...
    def latest(self) -> tuple[State, dict[str, Any]] | None: ...
    def model(self, tensors: State) -> None: ...
    def finish(self) -> None: ...


class FolderStore:
    """Keeps a run: its metrics always, its latest checkpoint, its best model so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def log(self, line: dict[str, Any]) -> None:
        with open(self.folder / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def checkpoint(self, step: int, tensors: State, position: dict[str, Any]) -> None:
        """Writes a checkpoint and only then removes the older ones."""
        def fill(folder: Path) -> None:
            write_tensors(folder / "state.safetensors", tensors)
            (folder / "state.json").write_text(json.dumps(position), encoding="utf-8")

        new = self.folder / f"{CHECKPOINT}{step:08d}"
        if not new.exists():
            write_folder(new, fill)
        for old in checkpoints(self.folder):
            if old != new:
                shutil.rmtree(old, ignore_errors=True)

    def latest(self) -> tuple[State, dict[str, Any]] | None:
        """The newest checkpoint, if there is one; lines logged after it are taken back."""
        found = checkpoints(self.folder)
        if not found:
            self._rewind(0)
            return None
        position = read_json(found[-1] / "state.json", RESTART)
        require(position, {"step": int, "discarded_steps": int, "notices": list}, found[-1] / "state.json", RESTART)
        self._rewind(position["step"])
        return read_tensors(found[-1] / "state.safetensors"), position

    def _rewind(self, step: int) -> None:
        file = self.folder / "metrics.jsonl"
        if file.exists():
            lines = [line for line in file.read_text(encoding="utf-8").splitlines() if _before(line, step)]
            write_text(file, "".join(line + "\n" for line in lines))

    def model(self, tensors: State) -> None:
        """The best model so far."""
        drop_checksums(self.folder)
        write_tensors(self.folder / "model.safetensors", tensors)

    def finish(self) -> None:
        """The run is over: its checkpoints are no longer needed."""
        for old in checkpoints(self.folder):
            shutil.rmtree(old, ignore_errors=True)


class NoStore:
    """Keeps nothing on disk: for `fit` without a folder."""

    def log(self, line: dict[str, Any]) -> None:
        """Nothing is written."""

    def checkpoint(self, step: int, tensors: State, position: dict[str, Any]) -> None:
        """Nothing is written."""

    def latest(self) -> None:
        """There is never anything to go on from."""

    def model(self, tensors: State) -> None:
        """Nothing is written."""

    def finish(self) -> None:
        """Nothing is left behind."""


def _before(line: str, step: int) -> bool:
    """Whether a log line is whole and belongs to the steps before `step`."""
    try:
        return bool(json.loads(line)["step"] < step)
    except (ValueError, KeyError):
        return False
