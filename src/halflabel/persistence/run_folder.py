"""The folder of a training run: its settings, the fingerprint of its texts, and its files."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halflabel.atomic import write_text
from halflabel.data.corpus import Corpus
from halflabel.data.labels import Classes
from halflabel.data.sequences import columns_of
from halflabel.errors import OutputError, SettingError
from halflabel.integrity import CHECKSUMS, drop_checksums, read_json, require, write_checksums
from halflabel.output_folders import filled
from halflabel.persistence.model import TrainedModel, write_config
from halflabel.persistence.model_folder import write_decision, write_unknown
from halflabel.settings import Settings
from halflabel.training.checkpoint import RESTART, FolderStore, write_tensors
from halflabel.types import Plan


class RunFinished(OutputError):
    """A finished run cannot be resumed."""


def open_run(folder: Path, settings: Settings, texts: str, resume: bool, processes: int = 1) -> dict[str, Any] | None:
    """run.json of the run to resume; None for a new one."""
    file = folder / "run.json"
    if not resume:
        if filled(folder):
            raise OutputError(f"{folder} is not empty; choose another --out, or resume its run with --resume.")
        return None
    if not file.is_file():
        raise OutputError(f"{folder} contains no run to resume (no run.json); leave out --resume.")
    run = read_json(file, RESTART)
    require(run, {"settings": dict, "texts": str, "plan": dict}, file, RESTART)
    if run["settings"] != json.loads(json.dumps(settings.to_json())) or run["texts"] != texts:
        raise SettingError(f"{folder} contains a run with other texts or settings; give the same ones, or choose "
                           "another --out.")
    if (before := run.get("processes", 1)) != processes:
        raise SettingError(f"the run in {folder} was started by {before} process{'es' * (before > 1)}, this command by "
                           f"{processes}; resume it with as many, or choose another --out.")
    if "run" in read_json(folder / "config.json", RESTART):
        _complete(folder)
        raise RunFinished(f"The run in {folder} is finished; there is nothing to resume.")
    return run


def _complete(folder: Path) -> None:
    """Does what is left to do if a run was killed after it had written config.json."""
    if not (folder / CHECKSUMS).exists():
        write_checksums(folder)
    FolderStore(folder).finish()


def prepare_folder(folder: Path, model: TrainedModel, plan: Plan, settings: Settings) -> None:
    """Writes the files that do not change during a run; run.json last, so that it marks a complete folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, model.encoder, model.config())
    if plan.frozen:
        write_tensors(folder / "encoder.safetensors", dict(model.encoder.state_dict()))
    run = {"settings": settings.to_json(), "plan": plan.to_json(), "texts": model.facts["texts"]["fingerprint"],
           "processes": model.facts["compute"]["processes"]}
    write_text(folder / "run.json", json.dumps(run, indent=1))


def close_folder(folder: Path, model: TrainedModel) -> None:
    """Writes the results of a finished run: the decision, config.json with its `run` entry, and last the checksums."""
    drop_checksums(folder)
    if model.decision is not None:
        write_decision(folder, model.decision)
    if model.unknown is not None:
        write_unknown(folder, model.unknown)
    write_text(folder / "config.json", json.dumps(model.config(), indent=1, ensure_ascii=False))
    write_checksums(folder)


def names_of_run(folder: Path) -> dict[str, list[str]]:
    """The class names that a run was given; none if the folder has no run.json."""
    file = folder / "run.json"
    names: dict[str, list[str]] = read_json(file)["settings"].get("names", {}) if file.is_file() else {}
    return names


def fingerprint(labelled: Corpus, pool: Corpus, classes: Classes | None = None) -> str:
    """A hash of all texts, labels and views in order, and of the label names if they were fixed beforehand."""
    digest = hashlib.blake2b(repr(classes.names).encode() if classes else b"", digest_size=16)
    for corpus in (labelled, pool):
        digest.update(f"{len(corpus)}\n".encode())
        views = columns_of(corpus.views) if corpus.views else []
        for row in zip(corpus.labels, corpus.texts, *views, strict=True):
            digest.update(f"{row!r}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Versions of Python and libraries, and the machine type."""
    import transformers

    return {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__,
            "transformers": transformers.__version__, "machine": platform.machine()}
