"""Model folders without torch: what all models have in common; the small files config.json, decision.json,
unknown.safetensors, words.safetensors and neighbours.safetensors; and which texts a model was trained on: the labelled
ones are kept, and 8 bytes of hash for each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from halflabel.atomic import replace_file, rust_os_error, write_text
from halflabel.data.columns import text_hashes
from halflabel.data.corpus import Corpus, Partial
from halflabel.data.labels import Classes
from halflabel.encoders.neighbours import NeighbourVote, read_neighbour_vote
from halflabel.encoders.ngrams import NgramModel, read_ngram_model
from halflabel.errors import ModelError
from halflabel.evaluation.confidence import UnknownDetector
from halflabel.evaluation.decisions import Decision
from halflabel.integrity import COPY_OR_RETRAIN, read_json, require, updating_checksum
from halflabel.notices import Notice
from halflabel.types import Progress, Shape, Task

FORMAT, WITHOUT_NEIGHBOURS, WITHOUT_WORDS = 3, 2, 1  # older versions read only models without these votes
DECISION = "decision.json"
UNKNOWN = "unknown.safetensors"
WORDS = "words.safetensors"
NEIGHBOURS = "neighbours.safetensors"
ENTRIES = {"method": str, "task": str, "settings": dict, "classes": list, "shape": dict, "frozen": bool}
OPTIONAL_ENTRIES = {"plan": dict, "run": dict, "compute": dict, "hard_labels": list, "temperature": float}
MAX_SIZE = 10**12  # of any number in a shape
TEXTS = "texts.safetensors"
LABELLED = "labelled.jsonl"


class Model(Protocol):
    """What prediction, evaluation and serving need of a model."""

    @property
    def classes(self) -> Classes: ...
    @property
    def task(self) -> Task: ...
    @property
    def rules(self) -> Decision: ...
    def scores(self, texts: Sequence[str], progress: Progress | None = None) -> Any: ...
    def probabilities(self, texts: Sequence[str], progress: Progress | None = None) -> Any: ...


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model folder, validated."""
    file = folder / "config.json"
    if not file.is_file():
        raise ModelError(f"{folder} contains no halflabel model (no {file.name}); name a folder that "
                         "`halflabel train --out` wrote.")
    config = read_json(file)
    require(config, {"format": int}, file)
    if config["format"] > FORMAT:
        raise ModelError(f"{file} was written by a newer version of halflabel (format {config['format']}); upgrade "
                         "halflabel.")
    if not (folder / "model.safetensors").is_file():
        raise ModelError(f"{folder} contains a run without a model yet; resume it with `halflabel train ... --resume`.")
    require(config, ENTRIES | {name: kind for name, kind in OPTIONAL_ENTRIES.items() if name in config}, file)
    shape, names = config["shape"], [field.name for field in fields(Shape)]
    require(shape, dict.fromkeys(names, int), file)
    if shape.keys() != set(names) or not all(0 <= number <= MAX_SIZE for number in shape.values()):
        raise ModelError(f"{file} has an impossible shape; {COPY_OR_RETRAIN}")
    if len(Classes.from_json(config["classes"], file)) != shape["labels"]:
        raise ModelError(f"{file} names {len(config['classes'])} classes for {shape['labels']} labels; "
                         f"{COPY_OR_RETRAIN}")
    if not 0.0 < config.get("temperature", 1.0) < math.inf:
        raise ModelError(f"{file} has an impossible temperature; {COPY_OR_RETRAIN}")
    return config


def write_decision(folder: Path, decision: Decision) -> None:
    """Replaces decision.json, and its checksum."""
    with updating_checksum(folder, DECISION):
        write_text(folder / DECISION, json.dumps(decision.to_json(), indent=1))


def read_decision(folder: Path, labels: int) -> Decision | None:
    """decision.json of a model folder; None if it does not exist, as in a run that is not finished."""
    file = folder / DECISION
    return decision_from_json(read_json(file), labels, file, COPY_OR_RETRAIN) if file.is_file() else None


def decision_from_json(content: Any, labels: int, file: Path, remedy: str) -> Decision:
    """A decision for so many labels, or an error that names the file."""
    try:
        return Decision.from_json(content, labels)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ModelError(f"{file} has no valid decision for {labels} labels ({error}); {remedy}") from error


def write_unknown(folder: Path, unknown: UnknownDetector) -> None:
    """Writes unknown.safetensors."""
    arrays = {name: getattr(unknown, name) for name in ("means", "held_out", "unknown", "centre")}
    _write_arrays(folder / UNKNOWN, {name: array for name, array in arrays.items() if array is not None})


def _write_arrays(file: Path, arrays: dict[str, np.ndarray]) -> None:
    with replace_file(file) as temporary:
        try:
            save_file(arrays, temporary)
        except SafetensorError as error:
            raise rust_os_error(error) from error


def read_unknown(folder: Path, labels: int) -> UnknownDetector | None:
    """unknown.safetensors of a model folder; None if it does not exist."""
    file = folder / UNKNOWN
    if not file.is_file():
        return None
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{file} is not a whole safetensors file ({error}); {COPY_OR_RETRAIN}") from error
    means, held_out = tensors.get("means", np.empty(0)), tensors.get("held_out", np.empty(0))
    unknown, centre = tensors.get("unknown"), tensors.get("centre")
    fits = (means.ndim, held_out.ndim) == (2, 1) and len(means) == labels and (unknown is None) == (centre is None)
    if fits and unknown is not None and centre is not None:
        fits = unknown.ndim == 2 and len(unknown) > 0 and centre.shape == unknown.shape[1:] == means.shape[1:]
    if not fits or not all(np.isfinite(array).all() for array in tensors.values()):
        raise ModelError(f"{file} does not fit {labels} classes; {COPY_OR_RETRAIN}")
    return UnknownDetector(means, held_out, unknown, centre)


def write_words(folder: Path, words: NgramModel) -> None:
    """Writes words.safetensors."""
    _write_arrays(folder / WORDS, words.tensors())


def read_words(folder: Path, labels: int, remedy: str = COPY_OR_RETRAIN) -> NgramModel:
    """words.safetensors of a model folder."""
    return read_ngram_model(folder / WORDS, "words", labels, remedy)


def write_neighbours(folder: Path, neighbours: NeighbourVote) -> None:
    """Writes neighbours.safetensors."""
    _write_arrays(folder / NEIGHBOURS, neighbours.tensors())


def read_neighbours(folder: Path, shape: tuple[int, int], remedy: str = COPY_OR_RETRAIN) -> NeighbourVote:
    """neighbours.safetensors of a model folder, for vectors of that width and so many labels."""
    return read_neighbour_vote(folder / NEIGHBOURS, shape, remedy)


def write_text_hashes(folder: Path, labelled: Corpus, pool: Corpus) -> None:
    """Writes 8 bytes for each training text."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_arrays(folder / TEXTS, {"labelled": text_hashes(labelled.texts), "unlabelled": text_hashes(pool.texts)})


def read_text_hashes(folder: Path) -> dict[str, np.ndarray]:
    """Hashes of the `labelled` and `unlabelled` training texts of the model in a folder; empty if it has none."""
    if not (folder / TEXTS).is_file():
        return {"labelled": np.empty(0, np.uint64), "unlabelled": np.empty(0, np.uint64)}
    try:
        return dict(load_file(folder / TEXTS))
    except SafetensorError as error:
        raise ModelError(f"{folder / TEXTS} is damaged ({error}); copy the model again, or remove the file.") from None


def keep_labelled(folder: Path, labelled: Corpus) -> None:
    """Writes the labelled texts, for later updates; not if some labels of a text are unknown, which JSON cannot say."""
    if not any(isinstance(label, Partial) for label in labelled.labels):
        write_text(folder / LABELLED, "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in
                                              zip(labelled.texts, labelled.labels, strict=True)))


def kept_labelled(folder: Path) -> Corpus | None:
    """The labelled texts of the model in a folder; None if it does not have them."""
    from halflabel.data.readers.read import read

    file = folder / LABELLED
    return read(file) if file.is_file() and file.stat().st_size else None


def kept_texts(folder: Path) -> list[str]:
    """The same without their labels; none if the folder does not have them."""
    kept = kept_labelled(folder)
    return [] if kept is None else list(kept.texts)


def training_text_notices(folder: Path, corpus: Corpus) -> list[Notice]:
    """Notices about texts of the corpus that the model in the folder was trained on, as far as it has hashes."""
    trained, hashes = read_text_hashes(folder), text_hashes(corpus.texts)
    labelled = np.isin(hashes, trained["labelled"])
    unlabelled = np.isin(hashes, trained["unlabelled"]) & ~labelled
    return [Notice(f"{count} of the {len(corpus)} texts in {corpus.source} were {role} training texts of this model, "
                   "so its metrics may be too high; evaluate on other texts")
            for role, count in (("labelled", labelled.sum()), ("unlabelled", unlabelled.sum())) if count]
