"""A trained model: what a folder holds and how it answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halflabel.atomic import write_folder, write_text
from halflabel.data.labels import Classes
from halflabel.encoders.bag_of_words import BagOfWords, restore_bag_of_words
from halflabel.encoders.encoder import Encoder
from halflabel.encoders.inference import Backend, encode, texts_at_once
from halflabel.encoders.loading import restore_encoder
from halflabel.encoders.shapes import check_finite, fits, shapes_only
from halflabel.equations import probabilities
from halflabel.errors import BadInput
from halflabel.evaluation.decisions import Decision, finite
from halflabel.integrity import AGAIN, refuse_code, verify, write_checksums
from halflabel.methods.registry import Method, find
from halflabel.nn.network import Network, Output, PrecomputedVectors
from halflabel.persistence.model_folder import FORMAT, read_config, read_decision, write_decision
from halflabel.training.checkpoint import State, read_tensors, write_tensors
from halflabel.training.objective import Objective
from halflabel.types import Progress, Shape, Task

CHUNK = 65_536  # texts whose vectors are in memory at a time, at most


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """Encoder, network and the names of the labels; `facts` says how it came to be."""

    encoder: Encoder | BagOfWords
    network: Network
    classes: Classes
    method: str
    settings: dict[str, Any]
    shape: Shape
    facts: dict[str, Any] = field(default_factory=dict)
    decision: Decision | None = None  # for texts with several labels
    backend: Backend = "torch"  # what encodes

    @property
    def task(self) -> Task:
        return find(self.method).task

    def scores(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """cos(psi) or logits of each label, (N, K), all of them finite."""
        return finite(self.raw_scores(texts, progress))

    def raw_scores(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """The same, whatever they are: a run that diverges goes on, and keeps the best model that it had."""
        parts = [np.empty((0, self.shape.labels), dtype=np.float32)]
        size = texts_at_once(self.shape.width, CHUNK)
        for start in range(0, len(texts), size):
            tick = (lambda done, _, at=start: progress(at + done, len(texts))) if progress else None
            h = encode(self.encoder, texts[start : start + size], tick, backend=self.backend)
            parts.append(self.classify(h).scores.cpu().numpy())
        return np.concatenate(parts)

    def classify(self, h: np.ndarray) -> Output:
        """What the network says of texts that are encoded already, (N, H)."""
        with torch.inference_mode():
            return self.network.eval().classify(torch.from_numpy(h).to(self._device))

    def probabilities(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """p(k | x), (N, K); rows sum to one, or where texts have several labels each label is by itself."""
        if self.task == "multi-label":
            return self.rules.probabilities(self.scores(texts, progress))
        p = probabilities(torch.from_numpy(self.scores(texts, progress)).double()).numpy()
        return np.asarray(p / p.sum(axis=1, keepdims=True)) if len(p) else np.asarray(p)

    @property
    def rules(self) -> Decision:
        """The decision, which only models for several labels have, and only once they are trained."""
        if self.decision is None:
            raise BadInput(f"{self.method} gives one label for each text, so there is nothing to decide."
                           if self.task == "multi-class" else "This run is not finished, so its model cannot decide "
                           "which labels a text gets; go on with `halflabel train ... --resume`.")
        return self.decision

    def save(self, folder: Path) -> None:
        """Writes the folder as a whole; one that exists is refused."""
        if folder.exists():
            raise BadInput(f"{folder} exists already; choose another folder or remove it first.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_folder(folder, self._fill)

    def _fill(self, folder: Path) -> None:
        write_description(folder, self.encoder, self.description())
        if isinstance(self.network.encoder, PrecomputedVectors):
            write_tensors(folder / "encoder.safetensors", dict(self.encoder.state_dict()))
        write_tensors(folder / "model.safetensors", dict(self.network.state_dict()))
        if self.decision is not None:
            write_decision(folder, self.decision)
        write_checksums(folder)

    def description(self) -> dict[str, Any]:
        """config.json: all that is not a tensor."""
        return {"format": FORMAT, "method": self.method, "settings": self.settings, "task": self.task,
                "classes": self.classes.to_json(), "shape": asdict(self.shape),
                "frozen": isinstance(self.network.encoder, PrecomputedVectors)} | self.facts

    @property
    def _device(self) -> torch.device:
        return next(self.network.head.parameters()).device


def write_description(folder: Path, encoder: Encoder | BagOfWords, description: dict[str, Any]) -> None:
    """config.json, and the encoder's configuration and tokenizer in a folder of their own."""
    (folder / "encoder").mkdir(exist_ok=True)
    encoder.save(folder / "encoder")
    write_text(folder / "config.json", json.dumps(description, indent=1, ensure_ascii=False))


def load(folder: str | Path) -> TrainedModel:
    """Reads a model that `save` or a training run wrote; one that is damaged, or that brings code, is refused."""
    folder = Path(folder)
    config = read_config(folder)
    verify(folder)
    refuse_code(folder)
    tensors = _finite(folder / "model.safetensors")
    inside = {name.removeprefix("encoder."): t for name, t in tensors.items() if name.startswith("encoder.")}
    method, shape, settings = find(config["method"]), Shape(**config["shape"]), config["settings"]
    if unknown := settings.keys() - method.defaults.keys():
        raise BadInput(f"{folder / 'config.json'} has a setting '{unknown.pop()}' that is not one of {method.name}; "
                       f"{AGAIN}")
    restore = restore_bag_of_words if method.bag_of_words else restore_encoder
    encoder = restore(folder / "encoder", inside or _finite(folder / "encoder.safetensors"))
    network = _network(method, shape, settings, PrecomputedVectors() if config["frozen"] else encoder)
    if network is None or encoder.width != shape.width or not fits(network, tensors):
        raise BadInput(f"The weights in {folder} do not fit its config.json; {AGAIN}")
    network.load_state_dict(tensors, assign=True)
    facts = {k: v for k, v in config.items() if k not in _OWN}
    return TrainedModel(encoder, network.eval(), Classes.from_json(config["classes"], folder / "config.json"), method.name,
                  settings, shape, facts, read_decision(folder, shape.labels))


_OWN = ("format", "method", "settings", "task", "classes", "shape", "frozen")


def _finite(file: Path) -> State:
    tensors = read_tensors(file)
    check_finite(tensors, file)
    return tensors


def _network(method: Method, shape: Shape, settings: dict[str, Any], encoder: Encoder | BagOfWords | PrecomputedVectors) -> Network | None:
    """The network of a method that still has no numbers; None if no tensors could be so large."""
    try:
        with shapes_only():
            recipe = method(shape, **settings)
    except (RuntimeError, TypeError, OverflowError):
        return None
    return Objective(encoder, recipe).network
