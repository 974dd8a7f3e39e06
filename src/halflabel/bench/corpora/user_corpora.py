"""Parts from what people have: files and folders of any kind that halflabel reads, and Hugging Face datasets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from halflabel.bench.corpora.class_csv import LAYOUTS
from halflabel.bench.corpora.parts import Parts
from halflabel.data.corpus import Corpus
from halflabel.data.readers.read import read
from halflabel.data.splitting import split_corpus
from halflabel.errors import BadInput

NAMES = {"train": ("train", "training"), "dev": ("dev", "val", "valid", "validation"), "test": ("test",)}
YAHOO = ("question_title", "question_content", "best_answer")  # columns of the dataset on the Hugging Face hub
HELD = 0.2  # share of a single file that is held out for testing, the same texts for every run
SEED = 0


def own(name: str, source: Any) -> Parts:
    """The parts that a mapping or a folder has; of one file, dataset or folder of labels some texts are held out."""
    found = named(source)
    if not found and not isinstance(source, Mapping):
        return held_out(corpus(name, source))
    shown = "the mapping" if isinstance(source, Mapping) else str(source)
    if missing := [part for part in ("train", "test") if part not in found]:
        raise BadInput(f"{shown} has no part named {missing[0]} (it has {', '.join(found) or 'none'}); give one, for "
                       f"example {missing[0]}.csv")
    parts = {part: corpus(name, one) for part, one in found.items()}
    for part in parts.keys() - {"train"}:
        if (row := next((i for i, label in enumerate(parts[part].labels) if label is None), None)) is not None:
            raise BadInput(f"{parts[part].source}, text {row + 1} has no label; a {part} part needs one for each text")
    return Parts(parts["train"], parts.get("dev"), parts["test"])


def named(source: Any) -> dict[str, Any]:
    """What a mapping or a folder has for each part."""
    if isinstance(source, Mapping):
        return {part: source[key] for part, keys in NAMES.items() for key in keys if key in source}
    if isinstance(source, (str, Path)) and Path(source).is_dir():
        return in_folder(Path(source)) or in_folder(Path(source) / "data")
    return {}


def in_folder(folder: Path) -> dict[str, Any]:
    """The files (train.csv, train-00000-of-00002.parquet, ...) or sub-folder of each part that is there."""
    entries = sorted(entry for entry in folder.glob("*") if not entry.name.startswith("."))
    found: dict[str, Any] = {}
    for part, names in NAMES.items():
        pattern = re.compile(rf"({'|'.join(names)})(-\d+-of-\d+)?(\.\w+)*", re.IGNORECASE)
        mine = [entry for entry in entries if pattern.fullmatch(entry.name)]
        if len(mine) > 1 and not all(re.search(r"-\d+-of-\d+", entry.name) for entry in mine):
            raise BadInput(f"{folder}: {mine[0].name} and {mine[1].name} could each be the {part} part; leave one")
        if mine:
            found[part] = [str(entry) for entry in mine] if len(mine) > 1 else mine[0]
    return found


def corpus(name: str, source: Any) -> Corpus:
    """Texts and labels; those of AG News, Yelp and Yahoo as they were before they were put into csv."""
    layout = LAYOUTS.get(name)
    if layout is None:
        return read(source)
    if name == "yahoo":
        with suppress(BadInput):  # other columns: they are found by name below
            fields = [read(source, text=column, label="topic") for column in YAHOO]
            texts = [layout.joined(row) for row in zip(*(one.texts for one in fields), strict=True)]
            return replace(fields[0], texts=texts)
    found = read(source)
    return replace(found, texts=[layout.joined([text]) for text in found.texts])


def held_out(whole: Corpus) -> Parts:
    """A part of the texts for testing where there is only one file."""
    one = {"labelled": 1, "per_class": None} if whole.task == "multi-label" else {"labelled": None, "per_class": 1}
    split = split_corpus(whole, **one, unlabelled=None, test=HELD, seed=SEED)  # type: ignore[arg-type]
    if not len(split.test):
        raise BadInput(f"{whole.source} has {len(whole):,} texts, too few to hold some out for testing; give train and "
                       "test files in a folder")
    rest = replace(split.unlabelled, labels=split.truth)
    said = f"{whole.source} is one file: {len(split.test):,} of its texts are held out for testing, always the same"
    return Parts(split.labelled + rest, None, split.test, (said,))
