"""Corpora of the user: files and folders in any format that halflabel reads, and Hugging Face datasets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from halflabel.bench.corpora.class_csv import LAYOUTS
from halflabel.bench.corpora.parts import CorpusParts
from halflabel.data.corpus import Corpus
from halflabel.data.readers.read import read
from halflabel.data.splitting import split_corpus
from halflabel.errors import DataError, HalflabelError

PART_NAMES = {"train": ("train", "training"), "dev": ("dev", "val", "valid", "validation"), "test": ("test",)}
YAHOO_COLUMNS = ("question_title", "question_content", "best_answer")  # of the dataset on the Hugging Face hub
TEST_SHARE = 0.2  # of a single file; all runs share one split
SPLIT_SEED = 0


def read_parts(name: str, source: Any) -> CorpusParts:
    """The parts of a mapping or a folder; a single file, dataset or folder of labels is split into train and test."""
    sources = find_parts(source)
    if not sources and not isinstance(source, Mapping):
        return hold_out_test(read_corpus(name, source))
    shown = "the mapping" if isinstance(source, Mapping) else str(source)
    if missing := [part for part in ("train", "test") if part not in sources]:
        raise DataError(f"{shown} has no {missing[0]} part (found: {', '.join(sources) or 'none'}); add one, for "
                        f"example {missing[0]}.csv")
    parts = {part: read_corpus(name, where) for part, where in sources.items()}
    for part in parts.keys() - {"train"}:
        if (row := next((i for i, label in enumerate(parts[part].labels) if label is None), None)) is not None:
            raise DataError(f"{parts[part].source}, text {row + 1} has no label; label every text of the {part} part")
    return CorpusParts(parts["train"], parts.get("dev"), parts["test"])


def find_parts(source: Any) -> dict[str, Any]:
    """The source of each part that a mapping or a folder has."""
    if isinstance(source, Mapping):
        return {part: source[key] for part, keys in PART_NAMES.items() for key in keys if key in source}
    if isinstance(source, (str, Path)) and Path(source).is_dir():
        return _parts_in(Path(source)) or _parts_in(Path(source) / "data")
    return {}


def _parts_in(folder: Path) -> dict[str, Any]:
    """The files (train.csv, train-00000-of-00002.parquet, ...) or sub-folder of each part."""
    entries = sorted(entry for entry in folder.glob("*") if not entry.name.startswith("."))
    parts: dict[str, Any] = {}
    for part, names in PART_NAMES.items():
        pattern = re.compile(rf"({'|'.join(names)})(-\d+-of-\d+)?(\.\w+)*", re.IGNORECASE)
        matches = [entry for entry in entries if pattern.fullmatch(entry.name)]
        if len(matches) > 1 and not all(re.search(r"-\d+-of-\d+", entry.name) for entry in matches):
            raise DataError(f"{folder}: {matches[0].name} and {matches[1].name} could both be the {part} part; remove "
                            "one of them")
        if matches:
            parts[part] = [str(entry) for entry in matches] if len(matches) > 1 else matches[0]
    return parts


def read_corpus(name: str, source: Any) -> Corpus:
    """Texts and labels; those of AG News, Yelp and Yahoo unescaped, as in the published CSV."""
    layout = LAYOUTS.get(name)
    if layout is None:
        return read(source)
    if name == "yahoo":
        with suppress(HalflabelError):  # other columns, which are found by name below
            columns = [read(source, text=column, label="topic") for column in YAHOO_COLUMNS]
            texts = [layout.join(cells) for cells in zip(*(column.texts for column in columns), strict=True)]
            return replace(columns[0], texts=texts)
    corpus = read(source)
    return replace(corpus, texts=[layout.join([text]) for text in corpus.texts])


def hold_out_test(corpus: Corpus) -> CorpusParts:
    """Train and test part of a corpus that comes as one file."""
    several = corpus.task == "multi-label"
    split = split_corpus(corpus, per_class=None if several else 1, labelled=1 if several else None, unlabelled=None,
                         test=TEST_SHARE, seed=SPLIT_SEED)
    if not len(split.test):
        raise DataError(f"{corpus.source} has {len(corpus):,} texts, too few to hold out a test set; give a folder "
                        "with train and test files")
    rest = replace(split.unlabelled, labels=split.truth)
    notice = f"{corpus.source} is one file: {len(split.test):,} of its texts are held out as test set in all runs"
    return CorpusParts(split.labelled + rest, None, split.test, (notice,))
