"""The corpora that runs are drawn from: the paper's six as they were published, and anything that people have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from halflabel.bench.corpora.parts import Parts, compared
from halflabel.bench.corpora.sources import SOURCES, missing, place_of
from halflabel.bench.corpora.user_corpora import named, own

__all__ = ["SOURCES", "Parts", "load"]


def load(name: str, folder: Any) -> Parts:
    """Train, dev (if it brings one) and test part of a corpus.

    One of the six is read from its published files, or from files named train, dev and test, or from a Hugging Face
    dataset (a folder, or a mapping of datasets); counts that are not the paper's become a notice. Any other name
    stands for a corpus of the user's: a folder or mapping of such parts, or one file, of which a part is held out.
    """
    path = Path(folder) if isinstance(folder, (str, Path)) else None
    if name not in SOURCES:
        return own(name, folder)
    parts = None
    if path is not None and (place := place_of(name, path)) is not None:
        parts = SOURCES[name].read(name, place)
    if parts is None and path is not None and not (path.is_file() or named(path) or (path / "state.json").is_file()):
        raise missing(name, path)
    return compared(name, parts or own(name, folder))
