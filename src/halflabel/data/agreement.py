"""Labels by several annotators: merged by majority, and how far the annotators agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import chain

from halflabel.data.corpus import Corpus, TextLabel
from halflabel.data.labels import first_inconsistency, names_in
from halflabel.errors import DataError
from halflabel.notices import Notice, dropped


def merge_annotators(corpus: Corpus, annotators: Sequence[Hashable]) -> tuple[Corpus, list[Notice]]:
    """Each text once, with the label that most annotators gave it; texts without a majority are left out.

    With several labels per text, those that more than half of its annotators gave. An annotator who labelled a text
    twice counts with the last label.
    """
    if inconsistency := first_inconsistency(corpus.labels):
        raise DataError(f"{corpus.source}: {inconsistency[1]}")
    rows: dict[str, int] = {}
    votes: dict[str, dict[Hashable, TextLabel]] = {}
    for i, (text, label, annotator) in enumerate(zip(corpus.texts, corpus.labels, annotators, strict=True)):
        rows.setdefault(text, i)
        votes.setdefault(text, {})
        if label is not None:
            votes[text][annotator] = tuple(sorted(label, key=str)) if isinstance(label, tuple) else label
    units = [list(given.values()) for given in votes.values()]
    merged = {text: majority(labels) for text, labels in zip(rows, units, strict=True)}
    kept = [text for text, labels in zip(rows, units, strict=True) if merged[text] is not None or not labels]
    several = [labels for labels in units if len(labels) > 1]
    same = sum(len(set(labels)) == 1 for labels in several)
    notices = [Notice(f"{len(set(chain.from_iterable(votes.values())))} annotators labelled {sum(map(bool, units))} "
                      f"texts in {corpus.source}, {len(several)} of them more than once: Krippendorff's alpha "
                      f"{krippendorff_alpha(several):.2f}, the same label for {same}")] if several else []
    notices += dropped(len(rows) - len(kept), "text", corpus.source, "its annotators disagree without a majority")
    return replace(corpus.take([rows[text] for text in kept]), labels=[merged[text] for text in kept]), notices


def majority(labels: Sequence[TextLabel]) -> TextLabel:
    """The label that most annotators gave, or the labels that more than half gave; None for a tie."""
    if labels and isinstance(labels[0], tuple):
        counts = Counter(chain.from_iterable(map(names_in, labels)))
        tie = any(2 * count == len(labels) for count in counts.values())
        return None if tie else tuple(name for name, count in counts.items() if 2 * count > len(labels))
    first, *rest = [*Counter(labels).most_common(2)] or [(None, 0)]
    return None if rest and rest[0][1] == first[1] else first[0]


def krippendorff_alpha(units: Sequence[Sequence[Hashable]]) -> float:
    """Krippendorff's alpha for nominal values: 1 is full agreement, 0 that of chance.

    Each unit has the values that a text got, at least two; equal sets of labels are equal values.
    """
    totals = Counter(chain.from_iterable(units))
    n = sum(totals.values())
    # ordered pairs of different values: within units, and among all values
    observed = sum(different_pairs(Counter(unit)) / (len(unit) - 1) for unit in units)
    expected = different_pairs(totals) / max(1, n - 1)
    return 1.0 - observed / expected if expected else 1.0


def different_pairs(counts: Counter[Hashable]) -> int:
    """Ordered pairs of values that differ."""
    return counts.total() ** 2 - sum(count**2 for count in counts.values())
