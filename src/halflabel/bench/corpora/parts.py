"""The parts of a corpus, and whether they are what the paper describes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from halflabel.bench.paper import statistics
from halflabel.data.corpus import Corpus
from halflabel.data.readers.files import File
from halflabel.errors import BadInput

Reader = Callable[[str, Path], "Parts | None"]  # of a corpus by its name, in a folder; None: files of another kind

PUBLIC = {"yahoo": 1_400_000}  # training texts of the published file where the paper counts others


@dataclass(frozen=True)
class Parts:
    """Texts to draw from, texts to choose an epoch by if the corpus brings some, and texts to measure on."""

    train: Corpus
    dev: Corpus | None
    test: Corpus
    notices: tuple[str, ...] = ()  # what is worth knowing: counts that are not the paper's


def existing(folder: Path, name: str) -> File | None:
    """A file of the folder, perhaps packed by gzip."""
    paths = (folder / f"{name}{packing}" for packing in ("", ".gz"))
    return next((File(str(path)) for path in paths if path.is_file()), None)


def needed(folder: Path, names: Sequence[str]) -> list[File]:
    """The files of these names, all of which have to be there."""
    found = [existing(folder, name) for name in names]
    if missing := [name for name, file in zip(names, found, strict=True) if file is None]:
        raise BadInput(f"{folder} lacks {', '.join(missing)}; put {'it' if len(missing) == 1 else 'them'} beside the "
                       "files that are there")
    return [file for file in found if file is not None]


def compared(name: str, parts: Parts) -> Parts:
    """The parts with a sentence about every count in which they differ from Table 1, if there is one."""
    wanted = statistics().get(name)
    if wanted is None:
        return parts
    labels = [*parts.train.labels, *parts.test.labels]
    classes = {one for label in labels for one in (label if isinstance(label, tuple) else (label,)) if one is not None}
    pairs = [("training texts", len(parts.train), wanted.train), ("test texts", len(parts.test), wanted.test),
             ("classes", len(classes), wanted.classes)]
    differ = [f"{found:,} {what} (the paper: {said:,})" for what, found, said in pairs if found != said]
    if wanted.labels_per_text is not None:
        several = [len(label) for label in labels if isinstance(label, tuple)]
        mean = sum(several) / max(1, len(several))
        if f"{mean:.2f}" != f"{wanted.labels_per_text:.2f}":
            differ.append(f"{mean:.2f} labels per text (the paper: {wanted.labels_per_text:.2f})")
    if not differ:
        return parts
    if len(parts.train) == PUBLIC.get(name):
        differ.append("as many training texts as the published file")
    return replace(parts, notices=(*parts.notices, f"{name} is not quite the paper's: it has {', '.join(differ)}"))
