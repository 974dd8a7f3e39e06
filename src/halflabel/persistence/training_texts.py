"""Which texts a model was trained on: a run folder keeps the labelled ones, and 8 bytes of hash for each. No torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from halflabel.atomic import replace_file, rust_os_error, write_text
from halflabel.data.columns import text_hashes
from halflabel.data.corpus import Corpus, Partial
from halflabel.data.readers.read import read
from halflabel.errors import ModelError
from halflabel.notices import Notice

FILE = "texts.safetensors"
LABELLED = "labelled.jsonl"


def write_text_hashes(folder: Path, labelled: Corpus, pool: Corpus) -> None:
    """Writes 8 bytes for each training text."""
    folder.mkdir(parents=True, exist_ok=True)
    hashes = {"labelled": text_hashes(labelled.texts), "unlabelled": text_hashes(pool.texts)}
    with replace_file(folder / FILE) as temporary:
        try:
            save_file(hashes, temporary)
        except SafetensorError as error:
            raise rust_os_error(error) from error


def read_text_hashes(folder: Path) -> dict[str, np.ndarray]:
    """Hashes of the `labelled` and `unlabelled` training texts of the model in a folder; empty if it has none."""
    if not (folder / FILE).is_file():
        return {"labelled": np.empty(0, np.uint64), "unlabelled": np.empty(0, np.uint64)}
    try:
        return dict(load_file(folder / FILE))
    except SafetensorError as error:
        raise ModelError(f"{folder / FILE} is damaged ({error}); copy the model again, or remove the file.") from None


def keep_labelled(folder: Path, labelled: Corpus) -> None:
    """Writes the labelled texts, for later updates; not if some labels of a text are unknown, which JSON cannot say."""
    if not any(isinstance(label, Partial) for label in labelled.labels):
        write_text(folder / LABELLED, "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in
                                              zip(labelled.texts, labelled.labels, strict=True)))


def kept_labelled(folder: Path) -> Corpus | None:
    """The labelled texts of the model in a folder; None if it does not have them."""
    file = folder / LABELLED
    return read(file) if file.is_file() and file.stat().st_size else None


def training_text_notices(folder: Path, corpus: Corpus) -> list[Notice]:
    """Notices about texts of the corpus that the model in the folder was trained on, as far as it has hashes."""
    trained, hashes = read_text_hashes(folder), text_hashes(corpus.texts)
    labelled = np.isin(hashes, trained["labelled"])
    unlabelled = np.isin(hashes, trained["unlabelled"]) & ~labelled
    return [Notice(f"{count} of the {len(corpus)} texts in {corpus.source} were {role} training texts of this model, "
                   "so its metrics may be too high; evaluate on other texts")
            for role, count in (("labelled", labelled.sum()), ("unlabelled", unlabelled.sum())) if count]
