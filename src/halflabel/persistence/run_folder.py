"""What a run is kept under: its settings, the fingerprint of its texts, and the files of its folder."""

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
from halflabel.errors import BadInput, OutputError
from halflabel.integrity import drop_checksums, read_json, require, write_checksums
from halflabel.output_folders import filled
from halflabel.persistence.model import TrainedModel, write_description
from halflabel.persistence.model_folder import write_decision
from halflabel.settings import Settings
from halflabel.training.checkpoint import AGAIN, write_tensors
from halflabel.types import Plan


class RunFinished(OutputError):
    """There is nothing left to resume."""


def open_run(folder: Path, settings: Settings, texts: str, resume: bool) -> dict[str, Any] | None:
    """run.json of the run to resume; None for a new one."""
    file = folder / "run.json"
    if not resume:
        if filled(folder):
            raise BadInput(f"{folder} is not empty; choose another --out, or resume it with --resume.")
        return None
    if not file.is_file():
        raise BadInput(f"{folder} holds no run to resume (there is no run.json in it); leave out --resume.")
    run = read_json(file, AGAIN)
    require(run, {"settings": dict, "texts": str, "plan": dict}, file, AGAIN)
    if run["settings"] != json.loads(json.dumps(settings.to_json())) or run["texts"] != texts:
        raise BadInput(f"{folder} holds a run with other texts or settings; give the same ones, or choose another "
                       "--out.")
    if "run" in read_json(folder / "config.json", AGAIN):
        raise RunFinished(f"The run in {folder} is finished; there is nothing to resume.")
    return run


def prepare_folder(folder: Path, model: TrainedModel, plan: Plan, settings: Settings) -> None:
    """Writes what does not change during a run; run.json last, so that its presence means the rest is there."""
    folder.mkdir(parents=True, exist_ok=True)
    write_description(folder, model.encoder, model.description())
    if plan.frozen:
        write_tensors(folder / "encoder.safetensors", dict(model.encoder.state_dict()))
    run = {"settings": settings.to_json(), "plan": plan.to_json(), "texts": model.facts["texts"]["fingerprint"]}
    write_text(folder / "run.json", json.dumps(run, indent=1))


def close_folder(folder: Path, model: TrainedModel) -> None:
    """Writes what the end of a run adds: config.json, which says that it is finished, and last the checksums."""
    drop_checksums(folder)
    if model.decision is not None:
        write_decision(folder, model.decision)
    write_text(folder / "config.json", json.dumps(model.description(), indent=1, ensure_ascii=False))
    write_checksums(folder)


def fingerprint(labelled: Corpus, pool: Corpus, columns: Classes | None = None) -> str:
    """A hash of all texts, labels and views, in order, and of the labels if they were fixed beforehand."""
    digest = hashlib.blake2b(repr(columns.names).encode() if columns else b"", digest_size=16)
    for corpus in (labelled, pool):
        digest.update(f"{len(corpus)}\n".encode())
        views = columns_of(corpus.views) if corpus.views else []
        for row in zip(corpus.labels, corpus.texts, *views, strict=True):
            digest.update(f"{row!r}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """What the run ran on."""
    import transformers

    return {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__,
            "transformers": transformers.__version__, "machine": platform.machine()}
