"""The corpora that runs are sampled from: the one in the package, the paper's six as published, and the user's; and
their samples: which training texts are labelled, unlabelled or dev texts, a function of corpus, sizes and seed alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from halflabel.bench.paper import statistics
from halflabel.bench.published_corpora import (
    LAYOUTS,
    OHSUMED_HALVES,
    SOURCES,
    CorpusParts,
    CorpusSource,
    compare_with_paper,
)
from halflabel.bench.runs import Run
from halflabel.data.corpus import Corpus
from halflabel.data.readers.read import read
from halflabel.data.splitting import split_corpus
from halflabel.errors import DataError, HalflabelError

__all__ = ["SOURCES", "CorpusParts", "CorpusSource", "load", "open_corpus", "run_data"]

SAMPLES: dict[str, Literal["queue", "tags"]] = {"sample": "queue", "sample:tags": "tags"}
PART_NAMES = {"train": ("train", "training"), "dev": ("dev", "val", "valid", "validation"), "test": ("test",)}
YAHOO_COLUMNS = ("question_title", "question_content", "best_answer")  # of the dataset on the Hugging Face hub
TEST_SHARE = 0.2  # of a single file; all runs share one split
SPLIT_SEED = 0
DEV_LIMIT = 500  # dev texts of a corpus that is not the paper's, at most,
DEV_SHARE = 0.1  # and as a share of its training texts
PROTOCOL_SETTINGS = ("dev_texts", "test_texts")  # settings of a run that are not the method's


@lru_cache(maxsize=4)  # a queue goes through its corpora once for each seed
def open_corpus(name: str, data: Path | None) -> CorpusParts:
    """The corpus of that name: in the package, at a path, or in the data folder."""
    if name in SAMPLES:
        from halflabel.data.corpus import sample

        return CorpusParts(sample("train", SAMPLES[name]), None, sample("test", SAMPLES[name]))
    places = [Path(name), *([data / name] if data else [])]
    place = next((place for place in places if place.exists()), data if name in SOURCES else None)
    if place is None and name in SOURCES:
        raise DataError(f"the corpus {name} is not part of halflabel; give the folder of its files with --data FOLDER")
    if place is None:
        raise DataError(f"there is no corpus '{name}'; give {', '.join(SAMPLES)}, one of {', '.join(SOURCES)} (with "
                        "--data), a labelled file, or a folder with train and test files")
    parts = load(name, place)
    return replace(parts, train=parts.train.labelled())


def load(name: str, source: Any) -> CorpusParts:
    """Train, dev (if the corpus has one) and test part of a corpus.

    One of the paper's six is read from its published files, or from files named train, dev and test, or from a Hugging
    Face dataset (a folder, or a mapping of datasets); counts that differ from the paper's become a notice. Any other
    name stands for a corpus of the user: a folder or mapping of such parts, or one file, of which a part is held out.
    """
    if name not in SOURCES:
        return read_parts(name, source)
    parts, folder = None, Path(source) if isinstance(source, (str, Path)) else None
    if folder is not None:
        published = _published_folder(name, folder)
        parts = SOURCES[name].read(name, published) if published else None
        if parts is None and not (folder.is_file() or find_parts(folder) or (folder / "state.json").is_file()):
            raise _missing_corpus(name, folder)
    return compare_with_paper(name, parts or read_parts(name, source))


def _published_folder(name: str, folder: Path) -> Path | None:
    """The folder of the published files: the given one, or the one that unpacking creates in it."""
    source = SOURCES[name]
    files = [f"{file}{suffix}" for file in source.files for suffix in ("", ".gz")]
    if name == "ohsumed":
        files += [f"{half}/{source.files[0]}" for half in OHSUMED_HALVES]
    folders = (folder, folder / source.folder, folder / name)
    return next((place for place in folders if any((place / file).exists() for file in files)), None)


def _missing_corpus(name: str, folder: Path) -> DataError:
    source = SOURCES[name]
    files = ", ".join(source.files) if len(source.files) < 10 else f"{source.files[0]} to {source.files[-1]}"
    return DataError(f"{folder} has no files of {source.title}; get {source.archive} from {source.publisher} and "
                     f"unpack it there, so that it holds {files}; or save a Hugging Face dataset there")


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


@dataclass(frozen=True)
class Sample:
    """Labelled texts and a pool; `truth` holds the labels of the pool, for evaluation only."""

    labelled: Corpus
    pool: Corpus
    truth: list[Any]
    rest: Corpus  # training texts in neither


@dataclass(frozen=True)
class RunData:
    """What one run trains on, selects its epoch by and is evaluated on."""

    sample: Sample
    dev: Corpus | None
    test: Corpus


def sample_per_class(train: Corpus, per_class: int, unlabelled: int, seed: int) -> Sample:
    """`per_class` labelled texts of each class, then `unlabelled` others."""
    counts: dict[Any, int] = {}
    labelled, others = [], []
    for row in shuffled_rows(train, seed):
        label = train.labels[row]
        if counts.get(label, 0) < per_class:
            counts[label] = counts.get(label, 0) + 1
            labelled.append(row)
        else:
            others.append(row)
    return _sample(train, labelled, others, unlabelled)


def sample_texts(train: Corpus, labelled: int, unlabelled: int, seed: int) -> Sample:
    """`labelled` texts at random, whatever their labels, then `unlabelled` others."""
    order = shuffled_rows(train, seed)
    return _sample(train, order[:labelled], order[labelled:], unlabelled)


def shuffled_rows(train: Corpus, seed: int) -> list[int]:
    """Rows in the order of the seed: a sample with more labels contains those of the same seed with fewer."""
    return [int(row) for row in np.random.default_rng([17, seed]).permutation(len(train))]


def _sample(train: Corpus, labelled: list[int], others: list[int], unlabelled: int) -> Sample:
    pool = train.take(others[:unlabelled])
    return Sample(train.take(labelled), pool.without_labels(), list(pool.labels), train.take(others[unlabelled:]))


def run_data(run: Run, parts: CorpusParts) -> RunData:
    """The texts of a run; dev texts never change which texts are labelled or in the pool."""
    protocol = {name: int(value) for name, value in run.settings if name in PROTOCOL_SETTINGS}
    if run.per_class and parts.train.task == "multi-label":
        raise DataError(f"{run.set} has several labels per text; give labelled texts in total (200), not per class")
    if not run.per_class and run.labelled > len(parts.train):
        raise DataError(f"{run.set} has {len(parts.train):,} training texts, not {run.labelled:,}; ask for fewer")
    sample = (sample_per_class if run.per_class else sample_texts)(parts.train, run.labelled, run.unlabelled, run.seed)
    dev_texts = 0 if run.protocol == "none" else protocol.get("dev_texts", dev_size(run.set, len(parts.train)))
    sampled_dev = dev_texts if parts.dev is None else 0
    _check_sizes(run, sample, parts.train, sampled_dev)
    dev = None if not dev_texts else sample.rest.take(range(sampled_dev)) if parts.dev is None else parts.dev
    test = parts.test
    if (limit := protocol.get("test_texts", len(test))) < len(test):
        test = test.take(np.random.default_rng(0).permutation(len(test))[:limit].tolist())
    return RunData(sample, dev, test)


def _check_sizes(run: Run, sample: Sample, train: Corpus, dev: int) -> None:
    """A sample that is smaller than asked for is an error: its scores would be reported under the wrong size."""
    for label in dict.fromkeys(train.labels) if run.per_class else ():
        if (count := sample.labelled.labels.count(label)) < run.labelled:
            raise DataError(f"{train.source} has {count} texts of {label!r}, not {run.labelled}; ask for fewer")
    if len(sample.pool) < run.unlabelled or len(sample.rest) < dev:
        left = len(sample.pool) + len(sample.rest)
        wanted = f"{run.unlabelled:,} unlabelled" + (f" and {dev:,} dev texts" if dev else " texts")
        raise DataError(f"{train.source} has {left:,} training texts beside the labelled ones, too few for {wanted}; "
                        "ask for fewer")


def dev_size(name: str, train: int) -> int:
    """Dev texts to sample from the training texts: the paper's number, or a tenth up to 500."""
    paper = statistics().get(name)
    if paper is not None and train >= paper.train:
        return paper.dev
    return max(1, min(DEV_LIMIT, int(DEV_SHARE * train)))
