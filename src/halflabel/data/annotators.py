"""People who label: the file of their answers, and labels by several of them, merged by majority, with their agreement.

Each answer is appended to the file as a line and flushed to disk before the next. A line is an object with an `action`:
`label`, `skip` or `undo` a text, or `add` a label. Of several lines with the same text the last one counts. `read`
understands the file at any time (`data/readers/annotation_tools.py`).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from halflabel.atomic import fsync, real, remedy
from halflabel.data.corpus import Corpus, Label, TextLabel
from halflabel.data.labels import first_inconsistency, names_in, parse_label
from halflabel.data.readers.annotation_tools import is_answer
from halflabel.errors import DataError, OutputError
from halflabel.notices import Notice, dropped


class Answer(NamedTuple):
    """What a person said about a text; the label is None if the text was skipped."""

    label: TextLabel
    note: str = ""
    source: int | None = None  # the annotation of another program that says it


class AnswerFile:
    """The answers in a file, by text; texts that were answered last come last."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.notices: list[Notice] = []
        self.answers: dict[str, Answer] = {}
        self.added: list[Label] = []  # labels, whether a text has them or not
        try:
            is_new = not file.exists()
            self.handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            if is_new:
                fsync(real(file).parent)
        except OSError as error:
            raise OutputError(f"{file} could not be opened ({error.strerror}); {remedy(error, file)}") from None
        try:
            self._read()
        except DataError:
            self.close()
            raise

    @property
    def labels(self) -> dict[str, TextLabel]:
        """The labels of texts that have some; `()` is none of the labels."""
        return {text: answer.label for text, answer in self.answers.items() if answer.label is not None}

    def label(self, text: str, label: TextLabel, note: str = "", source: int | None = None) -> None:
        """Labels a text; None skips it."""
        self._append({"text": text, "label": label, "action": "skip" if label is None else "label"}
                     | ({"note": note} if note else {}) | ({"source": source} if source is not None else {}))

    def undo(self, text: str | None = None) -> tuple[str, Answer] | None:
        """Takes the answer about a text back, by default the last one, and returns it."""
        if not self.answers:
            return None
        text = text or list(self.answers)[-1]
        answer = self.answers[text]
        self._append({"text": text, "label": None, "action": "undo"})
        return text, answer

    def add_label(self, label: Label) -> None:
        """Remembers a label that no text has yet."""
        self._append({"label": label, "action": "add"})

    def close(self) -> None:
        """Closes the file; one without answers is removed."""
        if not os.fstat(self.handle).st_size:
            self.file.unlink(missing_ok=True)
        os.close(self.handle)

    def _append(self, record: dict[str, Any]) -> None:
        """Writes a line as a whole or not at all, and only then counts it."""
        line = json.dumps(record | {"time": datetime.now(UTC).isoformat(timespec="seconds")}, ensure_ascii=False)
        data, size = f"{line}\n".encode(), os.fstat(self.handle).st_size
        try:
            if os.write(self.handle, data) < len(data):
                raise OSError(0, "the disk is full")
            os.fsync(self.handle)
        except OSError as error:
            os.ftruncate(self.handle, size)
            raise OutputError(f"the answer could not be written to {self.file} ({error.strerror}); "
                              f"{remedy(error, self.file)}") from None
        self._count(record)

    def _count(self, record: dict[str, Any]) -> None:
        action, label = record["action"], parse_label(record.get("label"))
        if action == "add":
            assert label is not None and not isinstance(label, tuple), "one label is added at a time"
            self.added.append(label)
            return
        self.answers.pop(record["text"], None)
        if action != "undo":
            self.answers[record["text"]] = Answer(label, str(record.get("note", "")), record.get("source"))

    def _read(self) -> None:
        """Counts all lines; an incomplete last one, as a power failure may leave it, is removed."""
        content = self.file.read_bytes()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            os.ftruncate(self.handle, end)
            self.notices.append(Notice(f"the last line of {self.file} was incomplete and is removed; answer its text "
                                       "again"))
        for number, line in enumerate(content[:end].splitlines(), 1):
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not isinstance(record, dict) or not is_answer(record):
                raise DataError(f"{self.file}, line {number}: not an answer of `halflabel label`; choose another --out")
            self._count(record)
        if inconsistency := first_inconsistency(self.labels.values()):
            raise DataError(f"{self.file}: {inconsistency[1]}")


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
