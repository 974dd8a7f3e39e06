"""What is wrong with data, and what would be done about it: findings that a person can act on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from halflabel.data.cleaning import clean
from halflabel.data.columns import matching_rows
from halflabel.data.corpus import Corpus
from halflabel.data.readers.formats import SourceTable
from halflabel.notices import Dropped, Notice

Level = Literal["error", "warning", "note"]
SAMPLE = 2000  # texts of a part that are looked at one by one
MOJIBAKE = re.compile(r"Ã[\x80-\xbf©¨¼¶¤±³]|â€[™œ“”˜]|Â[ £°»«]")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
RARE, UNEVEN = 2, 20.0  # texts that a class should have; how much larger the largest class may be than the smallest


@dataclass(frozen=True)
class Diagnostic:
    """Something worth knowing: what it is, and what is done or should be done about it."""

    level: Level
    what: str
    action: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def check_labels(corpus: Corpus) -> list[Diagnostic]:
    """Labels that are too few, too rare, too uneven, too many, or twice there under similar names."""
    counts = label_counts(corpus)
    names, texts = list(counts), sum(label is not None for label in corpus.labels)
    found = []
    if len(names) < 2:
        what = f"{corpus.source} has {len(names)} different labels"
        return [Diagnostic("error", what, "give texts of at least two labels; name the column with --label-column")]
    rare = [str(name) for name in names if counts[name] < RARE]
    if rare:
        found.append(Diagnostic("warning", f"{len(rare)} labels have a single text ({_some(rare)})",
                             "label more texts of them: nothing can be held out of one"))
    if max(counts.values()) > UNEVEN * min(counts.values()):
        what = f"the largest class has {max(counts.values())} texts, the smallest {min(counts.values())}"
        found.append(Diagnostic("warning", what, "label more of the small ones, or look at macro F1, not accuracy"))
    if len(names) > max(20, texts / 2):
        found.append(Diagnostic("warning", f"{len(names)} different labels for {texts} labelled texts",
                             "this looks like a column of ids or texts; name the right one with --label-column"))
    alike: dict[str, list[str]] = {}
    for name in map(str, names):
        alike.setdefault(" ".join(name.casefold().replace("_", " ").replace("-", " ").split()), []).append(name)
    for group in alike.values():
        if len(group) > 1:
            found.append(Diagnostic("warning", f"the labels {_some(group)} look like one label",
                                 "give them one name if they are; they count as different"))
    return found


def label_counts(corpus: Corpus) -> Counter[Any]:
    """How many texts have each label."""
    several = (label if isinstance(label, tuple) else (label,) for label in corpus.labels if label is not None)
    return Counter(name for names in several for name in names)


def check_rows(corpus: Corpus, role: str) -> list[Diagnostic]:
    """Empty and duplicate texts, and texts with different labels."""
    return [notice_diagnostic(notice) for notice in clean(corpus, role=role)[1]]


def notice_diagnostic(notice: Notice) -> Diagnostic:
    """A notice about texts that training would use, before it does."""
    if isinstance(notice, Dropped):
        return Diagnostic("warning", notice.warning, "fix the file if they matter")
    return Diagnostic("note", notice, "nothing to do")


def check_overlap(texts: Sequence[str], other: Corpus, names: tuple[str, str], action: str) -> list[Diagnostic]:
    """Texts that occur in two parts."""
    both = len(matching_rows(texts, other.texts))
    return [Diagnostic("warning", f"{both} texts are among both the {names[0]} and the {names[1]} texts", action)
            ] if both else []


def check_encoding(texts: Sequence[str], source: str) -> list[Diagnostic]:
    """Signs of a wrong encoding in a sample of the texts."""
    some = sample_texts(texts)
    signs = {"the replacement character U+FFFD": "characters were lost before; export the file again as UTF-8",
             "UTF-8 that was read as Latin-1 (Ã© instead of é)": "save it again as UTF-8, from the program that wrote it",
             "control characters": "they are kept; take them out if they mean nothing"}
    counts = [sum("\ufffd" in text for text in some), sum(bool(MOJIBAKE.search(text)) for text in some),
              sum(bool(CONTROL.search(text)) for text in some)]
    return [Diagnostic("warning", f"{count} of {len(some)} texts of {source} hold {sign}", action)
            for (sign, action), count in zip(signs.items(), counts, strict=True) if count]


def check_columns(table: SourceTable, shown: str, text: str, label: str | None) -> list[Diagnostic]:
    """Columns that look more like the texts than the one that was taken, and columns without a name."""
    found = []

    def words(name: str) -> float:
        cells = [cell for cell in table.column(name)[:SAMPLE] if isinstance(cell, str)]
        return float(np.mean([len(cell.split()) for cell in cells])) if cells else 0.0

    for name in table.names:
        if name in (text, label):
            continue
        if name.strip() == "" or name.startswith("Unnamed:"):
            found.append(Diagnostic("note", f"{shown} has a column without a name", "it is not looked at"))
        elif words(name) > 3 * max(1.0, words(text)):
            found.append(Diagnostic("warning", f"the column {name!r} of {shown} has far longer texts than {text!r}",
                                 f"if those are the texts, give --text-column {name}"))
    if label is not None and table.rows > 1 and words(label) > 8:
        found.append(Diagnostic("warning", f"the cells of the label column {label!r} of {shown} are whole sentences",
                             "name the right column with --label-column"))
    return found


def check_lengths(lengths: np.ndarray, limit: int, source: str) -> list[Diagnostic]:
    """Texts that are longer than what is read of them; lengths in tokens, cut or not, (N,)."""
    share = float((lengths > limit).mean()) if len(lengths) else 0.0
    middle, most = (int(np.median(lengths)), int(lengths.max())) if len(lengths) else (0, 0)
    what = (f"texts of {source} have {middle} tokens on the median and {most} at most, and {share:.0%} pass the limit "
            f"of {limit}")
    if share > 0.05:
        return [Diagnostic("warning", what, f"only the first {limit} tokens count; --set max_tokens=... reads more")]
    return [Diagnostic("note", what, "nothing to do")]


def sample_texts(texts: Sequence[str]) -> list[str]:
    """At most SAMPLE texts, spread over all."""
    if len(texts) <= SAMPLE:
        return list(texts)
    return [texts[int(i)] for i in np.linspace(0, len(texts) - 1, SAMPLE)]


def _some(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
