"""What a run is kept under: its settings, the fingerprint of its texts, and the files of its folder."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halflabel.data.labels import Classes
from halflabel.description import write_decision
from halflabel.disk import write_text
from halflabel.fitted import Fitted, write_description
from halflabel.integrity import drop_checksums, read_json, require, write_checksums
from halflabel.outputs import filled
from halflabel.sequences import columns_of
from halflabel.train.checkpoint import AGAIN, write_tensors
from halflabel.types import BadInput, Corpus, Plan


@dataclass(frozen=True)
class Settings:
    """All choices of a run that are not texts."""

    method: str
    plan: Plan
    encoder: str
    seed: int
    hyper: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"method": self.method, "plan": self.plan.to_json(), "encoder": self.encoder, "seed": self.seed,
                "hyper": self.hyper}


def open_run(folder: Path, settings: Settings, texts: str, resume: bool) -> dict[str, Any] | None:
    """What an earlier run in this folder was; None when a new one begins."""
    file = folder / "run.json"
    if not resume:
        if filled(folder):
            raise BadInput(f"{folder} is not empty; choose another --out, or go on with --resume.")
        return None
    if not file.is_file():
        raise BadInput(f"{folder} holds no run to go on with (there is no run.json in it); leave out --resume.")
    run = read_json(file, AGAIN)
    require(run, {"settings": dict, "texts": str, "plan": dict}, file, AGAIN)
    if run["settings"] != json.loads(json.dumps(settings.to_json())) or run["texts"] != texts:
        raise BadInput(f"{folder} holds a run with other texts or settings; give the same ones, or choose another "
                       "--out.")
    return run


def prepare_folder(folder: Path, model: Fitted, plan: Plan, settings: Settings) -> None:
    """Writes what does not change during a run; run.json last, so that its presence means the rest is there."""
    folder.mkdir(parents=True, exist_ok=True)
    write_description(folder, model.encoder, model.description())
    if plan.frozen:
        write_tensors(folder / "encoder.safetensors", dict(model.encoder.state_dict()))
    run = {"settings": settings.to_json(), "plan": plan.to_json(), "texts": model.facts["texts"]["fingerprint"]}
    write_text(folder / "run.json", json.dumps(run, indent=1))


def close_folder(folder: Path, model: Fitted) -> None:
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
