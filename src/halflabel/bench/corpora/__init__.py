"""The corpora that runs are sampled from: the one in the package, the paper's six as published, and the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from halflabel.bench.corpora import class_csv, multilabel
from halflabel.bench.corpora.parts import CorpusParts, compare_with_paper
from halflabel.bench.corpora.user_corpora import find_parts, read_parts
from halflabel.errors import DataError

__all__ = ["SOURCES", "CorpusParts", "load", "open_corpus"]

SAMPLES: dict[str, Literal["queue", "tags"]] = {"sample": "queue", "sample:tags": "tags"}


class CorpusSource(NamedTuple):
    """Who publishes a corpus, and the files that it consists of."""

    title: str
    publisher: str  # who, and where
    archive: str  # what to download there
    files: tuple[str, ...]
    folder: str  # that unpacking creates
    read: Callable[[str, Path], CorpusParts | None]  # None: files of another layout


ZHANG = "Zhang, Zhao and LeCun (2015; github.com/zhangxiangxiao/Crepe links to it)"
SOURCES = {
    "ag_news": CorpusSource("AG News", ZHANG, "ag_news_csv.tar.gz", class_csv.FILES, "ag_news_csv",
                            class_csv.read_class_csv),
    "yelp": CorpusSource("Yelp", ZHANG, "yelp_review_full_csv.tar.gz", class_csv.FILES, "yelp_review_full_csv",
                         class_csv.read_class_csv),
    "yahoo": CorpusSource("Yahoo", ZHANG, "yahoo_answers_csv.tar.gz", class_csv.FILES, "yahoo_answers_csv",
                          class_csv.read_class_csv),
    "ohsumed": CorpusSource("Ohsumed", "Moschitti (disi.unitn.it/moschitti/corpora.htm)", "ohsumed-all-docs.tar.gz",
                            multilabel.CATEGORIES, "ohsumed-all", multilabel.read_ohsumed),
    "aapd": CorpusSource("AAPD", "Yang et al. (SGM, 2018; github.com/lancopku/SGM links to it)", "the data set",
                         multilabel.AAPD_FILES, "aapd", multilabel.read_aapd),
    "rcv1": CorpusSource(
        "RCV1-v2", "Lewis et al. (2004; jmlr.org/papers/volume5/lewis04a, on-line appendices 8 and 12)",
        "the topic assignments and token files",
        (multilabel.RCV1_TOPICS, multilabel.RCV1_TRAIN, *multilabel.RCV1_TEST), "rcv1", multilabel.read_rcv1),
}


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
        files += [f"{half}/{source.files[0]}" for half in multilabel.HALVES]
    folders = (folder, folder / source.folder, folder / name)
    return next((place for place in folders if any((place / file).exists() for file in files)), None)


def _missing_corpus(name: str, folder: Path) -> DataError:
    source = SOURCES[name]
    files = ", ".join(source.files) if len(source.files) < 10 else f"{source.files[0]} to {source.files[-1]}"
    return DataError(f"{folder} has no files of {source.title}; get {source.archive} from {source.publisher} and "
                     f"unpack it there, so that it holds {files}; or save a Hugging Face dataset there")
