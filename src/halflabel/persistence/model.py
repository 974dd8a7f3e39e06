"""A trained model: predictions, saving and loading; and the folder of a training run: its settings, the fingerprint of
its texts, and its files.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halflabel.atomic import not_written, write_folder, write_text
from halflabel.data.corpus import Corpus, columns_of
from halflabel.data.labels import Classes
from halflabel.devices import Compute, check_finite, fits, shapes_only
from halflabel.encoders.inference import encode, texts_at_once
from halflabel.encoders.loading import restore_encoder
from halflabel.encoders.neighbours import NeighbourVote
from halflabel.encoders.ngrams import NgramModel
from halflabel.encoders.text_encoder import Backend, TextEncoder
from halflabel.errors import ModelError, OutputError, SettingError
from halflabel.evaluation.confidence import UnknownDetector, softmax
from halflabel.evaluation.decisions import Decision, finite
from halflabel.integrity import (
    CHECKSUMS,
    COPY_OR_RETRAIN,
    drop_checksums,
    read_json,
    refuse_code,
    require,
    verify,
    write_checksums,
)
from halflabel.methods.registry import Method, find
from halflabel.nn.network import Network, Output, PrecomputedVectors
from halflabel.output_folders import filled
from halflabel.persistence.model_folder import (
    FORMAT,
    WITHOUT_NEIGHBOURS,
    WITHOUT_WORDS,
    read_config,
    read_decision,
    read_neighbours,
    read_unknown,
    read_words,
    write_decision,
    write_neighbours,
    write_unknown,
    write_words,
)
from halflabel.settings import Settings
from halflabel.training.checkpoint import RESTART, FolderStore, State, read_tensors, write_tensors
from halflabel.training.objective import Objective
from halflabel.types import Plan, Progress, Shape, Task

CHUNK = 65_536  # texts whose vectors are in memory at a time, at most
CONFIG_ENTRIES = ("format", "method", "settings", "task", "classes", "shape", "frozen")  # all others are facts


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """Encoder, network and label names; `facts` records how the model was trained."""

    encoder: TextEncoder
    network: Network
    classes: Classes
    method: str
    settings: dict[str, Any]
    shape: Shape
    facts: dict[str, Any] = field(default_factory=dict)
    decision: Decision | None = None  # of multi-label models
    unknown: UnknownDetector | None = None  # of multi-class models, if they were trained on labelled texts
    words: NgramModel | None = None  # whose logits are added to the network's scores
    neighbours: NeighbourVote | None = None  # whose logits are added as well; only beside words
    backend: Backend = "torch"
    consistent: bool = False  # encode few texts in the same precision as many

    @property
    def task(self) -> Task:
        return find(self.method).task

    def scores(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """cos(psi) or logits of each label, (N, K); never NaN or infinite."""
        return finite(self.raw_scores(texts, progress))

    def raw_scores(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """The same unchecked: a run that diverges continues, and keeps its best model so far."""
        none = np.empty((0, self.shape.labels), dtype=np.float32)
        return np.concatenate([none, *(output.scores.cpu().numpy() for output in self._outputs(texts, progress))])

    def _outputs(self, texts: Sequence[str], progress: Progress | None) -> Iterator[Output]:
        """The network's outputs, of as many texts at a time as fit into memory."""
        size = texts_at_once(self.shape.width, CHUNK)
        # Thresholds need fp32: in bf16, vectors differ by up to 0.004 with the other texts of a batch, in fp32 by 1e-6.
        # Many texts take 1.6 times as long by it, few no longer. The most probable of several classes hardly changes.
        dtype = self.encoder.precision or (torch.float32 if self.task == "multi-label" else None)
        for start in range(0, len(texts), size):
            tick = (lambda done, _, at=start: progress(at + done, len(texts))) if progress else None
            h = encode(self.encoder, texts[start : start + size], tick, backend=self.backend, dtype=dtype,
                       consistent=self.consistent)
            yield self.classify(h, texts[start : start + size])

    def vectors(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """Vectors of the encoder, (N, H)."""
        return encode(self.encoder, texts, progress, backend=self.backend)

    def classify(self, h: np.ndarray, texts: Sequence[str]) -> Output:
        """The network's output for vectors (N, H), with the votes of words and neighbours added to its scores."""
        with torch.inference_mode():
            output = self.network.eval().classify(torch.from_numpy(h).to(self._device))
            votes = [] if self.words is None else [self.words.logits(texts)]
            votes += [] if self.neighbours is None else [self.neighbours.logits(h)]
            return output._replace(scores=sum((torch.from_numpy(vote).to(self._device) for vote in votes),
                                              output.scores))

    def probabilities(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """p(k | x), (N, K); rows sum to one for multi-class models, labels are independent for multi-label ones."""
        return self.probabilities_of(self.scores(texts, progress))

    def probabilities_of(self, scores: np.ndarray) -> np.ndarray:
        """p(k | x), (N, K), from scores (N, K)."""
        if self.task == "multi-label":
            return self.rules.probabilities(scores)
        return self._calibrated(scores)

    def with_distances(self, texts: Sequence[str], progress: Progress | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities (N, K), and how far each text is from the nearest class, (N,)."""
        scores, distances = self.scores_with_distances(texts, progress)
        return self.probabilities_of(scores), distances

    def as_if_new(self) -> TrainedModel:
        """The model for texts of its pool, whose own labels have no part in the vote of neighbours then."""
        return self if self.neighbours is None else replace(
            self, neighbours=replace(self.neighbours, skips_itself=True))

    def with_vectors(self, texts: Sequence[str], progress: Progress | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities (N, K), and vectors of the encoder, (N, H)."""
        parts = [(finite(output.scores.cpu().numpy()), output.h.cpu().numpy())
                 for output in self._outputs(texts, progress)]
        scores, h = (np.concatenate(part) for part in zip(*parts, strict=True))
        return self.probabilities_of(scores), h

    def scores_with_distances(self, texts: Sequence[str], progress: Progress | None = None
                              ) -> tuple[np.ndarray, np.ndarray]:
        """Scores (N, K), and how far each text is from the nearest class, (N,)."""
        detector = self.detector
        parts = [(finite(output.scores.cpu().numpy()), detector.distances(output.f.cpu().numpy()))
                 for output in self._outputs(texts, progress)]
        none = np.empty((0, self.shape.labels), dtype=np.float32), np.empty(0)
        scores, distances = zip(none, *parts, strict=True)
        return np.concatenate(scores), np.concatenate(distances)

    def _calibrated(self, scores: np.ndarray) -> np.ndarray:
        p = softmax(scores, self.temperature) if len(scores) else scores.astype(np.float64)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    @property
    def temperature(self) -> float:
        """What scores are divided by to become probabilities; labels do not depend on it."""
        return float(self.facts.get("temperature", 1.0))

    @property
    def detector(self) -> UnknownDetector:
        """What tells texts of no class, or an error if the model has none."""
        if self.task == "multi-label":
            raise SettingError(f"{self.method} gives several labels per text, or none, so unknown texts are not looked "
                               "for; leave out --unknown.")
        if self.unknown is None:
            raise ModelError("This model does not know how far texts are from its classes, since it was trained by an "
                             "older version, on words alone or without labels; train it again to recognise unknown "
                             "texts.")
        return self.unknown

    @property
    def rules(self) -> Decision:
        """The decision, or an error if the model has none: only finished multi-label models do."""
        if self.decision is None and self.task == "multi-class":
            raise SettingError(f"{self.method} predicts one label per text, so there is nothing to decide; leave out "
                               "the decision.")
        if self.decision is None:
            raise ModelError("This run is not finished, so its model has no decision rules yet; resume it with "
                             "`halflabel train ... --resume`.")
        return self.decision

    def on(self, compute: Compute) -> TrainedModel:
        """The model itself, moved to a device."""
        self.encoder.on(compute)
        self.network.to(compute.device)
        return self

    def save(self, folder: Path) -> None:
        """Writes a new model folder."""
        if folder.exists():
            raise OutputError(f"{folder} exists already; choose another folder or remove it first.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_folder(folder, self._fill)

    def _fill(self, folder: Path) -> None:
        write_config(folder, self.encoder, self.config())
        if self.frozen:
            write_tensors(folder / "encoder.safetensors", dict(self.encoder.state_dict()))
        write_tensors(folder / "model.safetensors", dict(self.network.state_dict()))
        self.write_fitted_parts(folder)
        write_checksums(folder)

    def write_fitted_parts(self, folder: Path) -> None:
        """Writes what is fitted after the last step, as far as the model has it: decision, class means, votes."""
        if self.decision is not None:
            write_decision(folder, self.decision)
        if self.unknown is not None:
            write_unknown(folder, self.unknown)
        if self.words is not None:
            write_words(folder, self.words)
        if self.neighbours is not None:
            write_neighbours(folder, self.neighbours)

    def config(self) -> dict[str, Any]:
        """The content of config.json: everything that is not a tensor."""
        version = (WITHOUT_WORDS if self.words is None else WITHOUT_NEIGHBOURS if self.neighbours is None else FORMAT)
        return {"format": version, "method": self.method, "settings": self.settings, "task": self.task,
                "classes": self.classes.to_json(), "shape": asdict(self.shape), "frozen": self.frozen} | self.facts

    @property
    def frozen(self) -> bool:
        """Whether the encoder was not trained, so that the network takes its vectors as inputs."""
        return isinstance(self.network.encoder, PrecomputedVectors)

    @property
    def _device(self) -> torch.device:
        return next(self.network.head.parameters()).device


def write_config(folder: Path, encoder: TextEncoder, config: dict[str, Any]) -> None:
    """Writes config.json, and the encoder's configuration and tokenizer into a subfolder."""
    (folder / "encoder").mkdir(exist_ok=True)
    try:
        encoder.save(folder / "encoder")
    except OSError as error:
        raise not_written(folder / "encoder", error) from error
    write_text(folder / "config.json", json.dumps(config, indent=1, ensure_ascii=False))


def load(folder: str | Path) -> TrainedModel:
    """Reads a model that `save` or a training run wrote; a damaged one, or one with code, is refused."""
    folder = Path(folder)
    config = read_config(folder)
    verify(folder)
    refuse_code(folder)
    tensors = _read_finite(folder / "model.safetensors")
    inside = {name.removeprefix("encoder."): t for name, t in tensors.items() if name.startswith("encoder.")}
    method, shape, settings = find(config["method"]), Shape(**config["shape"]), config["settings"]
    if unknown := settings.keys() - method.defaults.keys():
        raise ModelError(f"{folder / 'config.json'} has a setting '{unknown.pop()}' that {method.name} does not have; "
                         f"{COPY_OR_RETRAIN}")
    encoder = restore_encoder(folder / "encoder", inside or _read_finite(folder / "encoder.safetensors"))
    network = _empty_network(method, shape, settings, PrecomputedVectors() if config["frozen"] else encoder)
    if network is None or encoder.width != shape.width or not fits(network, tensors):
        raise ModelError(f"The weights in {folder} do not fit its config.json; {COPY_OR_RETRAIN}")
    network.load_state_dict(tensors, assign=True)
    facts = {name: value for name, value in config.items() if name not in CONFIG_ENTRIES}
    classes = Classes.from_json(config["classes"], folder / "config.json")
    return TrainedModel(encoder, network.eval(), classes, method.name, settings, shape, facts,
                        read_decision(folder, shape.labels), read_unknown(folder, shape.labels),
                        read_words(folder, shape.labels) if config["format"] > WITHOUT_WORDS else None,
                        read_neighbours(folder, (shape.width, shape.labels)) if config["format"] > WITHOUT_NEIGHBOURS
                        else None)


def _read_finite(file: Path) -> State:
    tensors = read_tensors(file)
    check_finite(tensors, file)
    return tensors


def _empty_network(method: Method, shape: Shape, settings: dict[str, Any],
                   encoder: TextEncoder | PrecomputedVectors) -> Network | None:
    """The network of a method without values; None if its sizes are impossible."""
    try:
        with shapes_only():
            parts = method(shape, **settings)
    except (RuntimeError, TypeError, OverflowError):
        return None
    return Objective(encoder, parts).network


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
    """Writes the results of a finished run: fitted parts, config.json with its `run` entry, and last the checksums."""
    drop_checksums(folder)
    model.write_fitted_parts(folder)
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
