"""The quality of training data: empty and duplicate texts are removed, with a notice about each kind; diagnostics find
problems that a person can act on before training.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from halflabel.data.columns import matching_rows
from halflabel.data.corpus import Corpus, LazySequence, TextLabel, parts_of
from halflabel.data.labels import names_in
from halflabel.data.readers.formats import SourceTable
from halflabel.data.readers.read import quoted_names
from halflabel.notices import Dropped, Notice, dropped

ROLES = ("labelled", "unlabelled", "dev", "test")
Level = Literal["error", "warning", "note"]
SAMPLE_SIZE = 2000  # texts of a corpus that are examined one by one
MOJIBAKE = re.compile(r"Ã[\x80-\xbf©¨¼¶¤±³]|â€[™œ“”˜]|Â[ £°»«]")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
MIN_CLASS_SIZE = 2
CJK = "\u2e80"  # the first character of Chinese, Japanese and Korean scripts
MAX_UNKNOWN = 0.2  # share of a corpus' tokens
MIN_LETTERS = 1.5  # per token: English has 4 to 5 in an English encoder, Russian 1
MAX_IMBALANCE = 20.0  # of the largest class to the smallest


def clean(corpus: Corpus, *, role: str) -> tuple[Corpus, list[Notice]]:
    """The corpus without empty and duplicate texts, and notices about what was left out.

    Of duplicates one is kept, a labelled one if there is any; labelled duplicates with different labels are all left
    out. In dev and test sets only empty texts are left out, since metrics must count what the file contains.
    """
    assert role in ROLES, f"role is one of {ROLES}"
    if isinstance(corpus.texts, LazySequence):
        return _clean_lazy(corpus), []
    rows = [i for i, text in enumerate(corpus.texts) if text.strip()]
    notices = dropped(len(corpus) - len(rows), "empty text", corpus.source)
    if role in ("dev", "test"):
        return corpus.take(rows), notices
    if role == "unlabelled":
        kept = _first_occurrences(corpus.texts, rows)
        notices += dropped(len(rows) - len(kept), "duplicate text", corpus.source)
        return corpus.take(kept), notices
    return _without_conflicts(corpus, rows, notices)


def _first_occurrences(texts: Sequence[str], rows: Sequence[int]) -> list[int]:
    return sorted({texts[i]: i for i in reversed(rows)}.values())


def _clean_lazy(pool: Corpus) -> Corpus:
    """Each part on disk is clean by itself, so only texts of an earlier part and parts in memory need checking."""
    keep = np.ones(len(pool), dtype=bool)
    parts = parts_of(pool.texts)
    starts = [0, *accumulate(map(len, parts))]
    for k, part in enumerate(parts):
        for later, start in zip(parts[k + 1 :], starts[k + 1 :], strict=False):
            if len(part):
                keep[start + matching_rows(later, part)] = False
        if not isinstance(part, LazySequence):
            first = _first_occurrences(part, [i for i, text in enumerate(part) if text.strip()])
            keep[starts[k] + np.setdiff1d(np.arange(len(part)), first)] = False
    return _take(pool, keep)


def drop_labelled(pool: Corpus, labelled: Corpus) -> Corpus:
    """The pool without the texts that are also labelled."""
    keep = np.ones(len(pool), dtype=bool)
    keep[matching_rows(pool.texts, labelled.texts)] = False
    return _take(pool, keep)


def _take(pool: Corpus, keep: np.ndarray) -> Corpus:
    return pool if keep.all() else pool.take(np.flatnonzero(keep))  # type: ignore[arg-type]


def _without_conflicts(corpus: Corpus, rows: list[int], notices: list[Notice]) -> tuple[Corpus, list[Notice]]:
    """Labelled texts once each, without those that occur with different labels."""
    groups: dict[str, list[int]] = {}
    for i in rows:
        groups.setdefault(corpus.texts[i], []).append(i)
    kept: list[int] = []
    conflicts: list[list[int]] = []
    for group in groups.values():
        labelled = [i for i in group if corpus.labels[i] is not None]
        if len({_unordered(corpus.labels[i]) for i in labelled}) > 1:
            conflicts.append(group)
        else:
            kept.append((labelled or group)[0])
    in_conflict = sum(map(len, conflicts))
    notices = notices + dropped(len(rows) - len(kept) - in_conflict, "duplicate text", corpus.source)
    if conflicts:
        first = conflicts[0][0]
        notices += dropped(in_conflict, "text", corpus.source, "the same text has different labels (the first is text "
                           f"{first + 1}, {corpus.texts[first][:40]!r})")
    return corpus.take(sorted(kept)), notices


def _unordered(label: TextLabel) -> object:
    return frozenset(label) if isinstance(label, tuple) else label


@dataclass(frozen=True)
class Diagnostic:
    """A problem or a fact about the data, and what is done or should be done about it."""

    level: Level
    what: str
    action: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def check_labels(corpus: Corpus) -> list[Diagnostic]:
    """Labels that are too few, too rare, imbalanced, too many, or spelled in two ways."""
    counts = label_counts(corpus)
    names, texts = list(counts), sum(label is not None for label in corpus.labels)
    if len(names) < 2:
        return [Diagnostic("error", f"{corpus.source} has {len(names)} different labels",
                           "give texts of at least two labels; name the column with --label-column")]
    diagnostics = []
    smallest, largest = min(counts.values()), max(counts.values())
    if rare := [str(name) for name in names if counts[name] < MIN_CLASS_SIZE]:
        number = _count(len(rare), "label has", "labels have")
        diagnostics.append(Diagnostic("warning", f"{number} a single text ({_examples(rare)})",
                                      "label more texts of them: none of a single text can be held out"))
    if largest > MAX_IMBALANCE * smallest:
        diagnostics.append(Diagnostic("warning", f"the largest class has {largest} texts, the smallest {smallest}",
                                      "label more texts of the small classes, or judge by macro F1, not accuracy"))
    if len(names) > max(20, texts / 2):
        diagnostics.append(Diagnostic("warning", f"{len(names)} different labels for {texts} labelled texts",
                                      "these look like ids or texts; name the right column with --label-column"))
    spellings: dict[str, list[str]] = {}
    for name in map(str, names):
        spellings.setdefault(" ".join(name.casefold().replace("_", " ").replace("-", " ").split()), []).append(name)
    diagnostics += [Diagnostic("warning", f"the labels {_examples(group)} look like one label",
                               "use one spelling if they are; they count as different labels")
                    for group in spellings.values() if len(group) > 1]
    return diagnostics


def label_counts(corpus: Corpus) -> Counter[Any]:
    """The number of texts with each label."""
    return Counter(name for label in corpus.labels for name in names_in(label))


def check_rows(corpus: Corpus, role: str) -> list[Diagnostic]:
    """Empty and duplicate texts, and texts with different labels."""
    return [notice_diagnostic(notice) for notice in clean(corpus, role=role)[1]]


def notice_diagnostic(notice: Notice) -> Diagnostic:
    """A notice of training as a diagnostic before it."""
    if isinstance(notice, Dropped):
        return Diagnostic("warning", notice.warning, "fix the file if they matter")
    return Diagnostic("note", notice, "nothing to do")


def check_overlap(texts: Sequence[str], other: Corpus, names: tuple[str, str], action: str) -> list[Diagnostic]:
    """Texts that occur in two parts of the data."""
    common = len(matching_rows(texts, other.texts))
    what = f"{_count(common, 'text is', 'texts are')} among both the {names[0]} and the {names[1]} texts"
    return [Diagnostic("warning", what, action)] if common else []


def check_encoding(texts: Sequence[str], source: str) -> list[Diagnostic]:
    """Signs of a wrong character encoding in a sample of the texts."""
    sample = sample_texts(texts)
    signs = (("the replacement character U+FFFD", "characters were lost earlier; export the file again as UTF-8",
              re.compile("\ufffd")),
             ("UTF-8 that was read as Latin-1 (Ã© instead of é)", "export it again as UTF-8 from the original program",
              MOJIBAKE),
             ("control characters", "they are kept; remove them if they have no meaning", CONTROL))
    counts = [sum(bool(pattern.search(text)) for text in sample) for _, _, pattern in signs]
    return [Diagnostic("warning", f"{count} of {len(sample)} texts of {source} contain {sign}", action)
            for (sign, action, _), count in zip(signs, counts, strict=True) if count]


def check_columns(table: SourceTable, source: str, texts: Sequence[str], label: str | None) -> list[Diagnostic]:
    """Columns without a name, and columns that look more like texts or less like labels than the chosen ones."""
    diagnostics = []

    def mean_words(name: str) -> float:
        cells = [cell for cell in table.column(name)[:SAMPLE_SIZE] if isinstance(cell, str)]
        return float(np.mean([len(cell.split()) for cell in cells])) if cells else 0.0

    for name in table.names:
        if name in (*texts, label):
            continue
        if name.strip() == "" or name.startswith("Unnamed:"):
            diagnostics.append(Diagnostic("note", f"{source} has a column without a name", "it is ignored"))
        elif mean_words(name) > 3 * max(1.0, *map(mean_words, texts)):
            what = f"the column {name!r} of {source} has far longer texts than {quoted_names(texts)}"
            diagnostics.append(Diagnostic("warning", what, f"if those are the texts, give --text-column {name}"))
    if label is not None and table.rows > 1 and mean_words(label) > 8:
        what = f"the cells of the label column {label!r} of {source} are whole sentences"
        diagnostics.append(Diagnostic("warning", what, "name the right column with --label-column"))
    return diagnostics


def check_lengths(lengths: np.ndarray, limit: int, source: str) -> list[Diagnostic]:
    """Texts that exceed the token limit; lengths in tokens before truncation, (N,)."""
    share = float((lengths > limit).mean()) if len(lengths) else 0.0
    median, longest = (int(np.median(lengths)), int(lengths.max())) if len(lengths) else (0, 0)
    what = (f"texts of {source} have a median of {median} and a maximum of {longest} tokens, and {share:.0%} exceed "
            f"the limit of {limit}")
    if share > 0.05:
        return [Diagnostic("warning", what, f"only the first {limit} tokens are used; --set max_tokens=... uses more")]
    return [Diagnostic("note", what, "nothing to do")]


def check_language(texts: Sequence[str], tokens: Sequence[np.ndarray], unknown: int | None, source: str
                   ) -> list[Diagnostic]:
    """Texts in a language that a tokenizer was not made for: unknown words, or words split into single letters.

    Tokens include two that mark the ends of a text. Chinese and Japanese count by unknown tokens alone, since a
    character of theirs is a token for any encoder. A language in letters that the tokenizer knows is not noticed.
    """
    count = sum(max(0, len(ids) - 2) for ids in tokens)
    letters = sum(c.isalpha() and c < CJK for text in texts for c in text)
    missing = sum(int((ids == unknown).sum()) for ids in tokens) if unknown is not None else 0
    others = sum(c.isalpha() and c >= CJK for text in texts for c in text)
    if not count or (missing <= MAX_UNKNOWN * count and (letters <= others or letters / count >= MIN_LETTERS)):
        return []
    what = (f"the encoder does not know {missing / count:.0%} of the tokens of {source}, and has {letters / count:.1f} "
            "letters per token")
    return [Diagnostic("warning", what, "if they are not in its language, choose a multilingual one with --encoder")]


def sample_texts(texts: Sequence[str]) -> list[str]:
    """At most SAMPLE_SIZE texts, evenly spaced."""
    if len(texts) <= SAMPLE_SIZE:
        return list(texts)
    return [texts[int(i)] for i in np.linspace(0, len(texts) - 1, SAMPLE_SIZE)]


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def _examples(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
