"""Where the six corpora come from, and how their files lie in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from halflabel.bench.corpora import aapd, class_csv, ohsumed, rcv1
from halflabel.bench.corpora.parts import Reader
from halflabel.errors import BadInput


class Source(NamedTuple):
    """Who gives a corpus out, and which files are looked for."""

    title: str
    given: str  # by whom and where
    archive: str  # what is taken from there
    files: tuple[str, ...]  # what has to lie in the folder
    inside: str  # the folder that unpacking makes, which may also be given by its parent
    read: Reader


ZHANG = "Zhang, Zhao and LeCun (2015; github.com/zhangxiangxiao/Crepe links to it)"
TABLES = ("train.csv", "test.csv")
SOURCES = {
    "ag_news": Source("AG News", ZHANG, "ag_news_csv.tar.gz", TABLES, "ag_news_csv", class_csv.read),
    "yelp": Source("Yelp", ZHANG, "yelp_review_full_csv.tar.gz", TABLES, "yelp_review_full_csv", class_csv.read),
    "yahoo": Source("Yahoo", ZHANG, "yahoo_answers_csv.tar.gz", TABLES, "yahoo_answers_csv", class_csv.read),
    "ohsumed": Source("Ohsumed", "Moschitti (disi.unitn.it/moschitti/corpora.htm)", "ohsumed-all-docs.tar.gz",
                      ohsumed.CATEGORIES, "ohsumed-all", ohsumed.read),
    "aapd": Source("AAPD", "Yang et al. (SGM, 2018; github.com/lancopku/SGM links to it)", "the data set",
                   aapd.FILES, "aapd", aapd.read),
    "rcv1": Source("RCV1-v2", "Lewis et al. (2004; jmlr.org/papers/volume5/lewis04a, on-line appendices 8 and 12)",
                   "the topic assignments and token files", (rcv1.TOPICS, rcv1.TRAIN, *rcv1.TEST), "rcv1", rcv1.read),
}


def place_of(name: str, folder: Path) -> Path | None:
    """The folder in which published files of a corpus lie: the given one, or the one that unpacking makes in it."""
    source = SOURCES[name]
    marks = [f"{file}{packing}" for file in source.files for packing in ("", ".gz")]
    if name == "ohsumed":
        marks += [f"{half}/{source.files[0]}" for half in ohsumed.HALVES]
    places = (folder, folder / source.inside, folder / name)
    return next((place for place in places if any((place / mark).exists() for mark in marks)), None)


def missing(name: str, folder: object) -> BadInput:
    """Says where a corpus can be had and how to lay it out."""
    source = SOURCES[name]
    listed = ", ".join(source.files) if len(source.files) < 10 else f"{source.files[0]} to {source.files[-1]}"
    return BadInput(f"{folder} has no files of {source.title}; get {source.archive} from {source.given} and unpack it "
                    f"there, so that it holds {listed}; or save a Hugging Face dataset there")
