"""One person labels a pool: which text is shown next, and a classifier that learns from the answers meanwhile.

The classifier is fitted to frozen vectors of a sample of the pool: `lift`'s closed form for one label per text; for
several, that of `lift-ml` if there are class names, else logistic regression of each label. It is fitted again in a
thread after every few answers, and chooses the texts that are shown next.

Shapes: N texts that the classifier knows, K classes, H encoder width.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from halflabel.active_learning import unit_length
from halflabel.class_names import Names
from halflabel.data.annotators import Answer, AnswerFile
from halflabel.data.columns import matching_rows, text_hash
from halflabel.data.corpus import Label, TextLabel
from halflabel.data.labels import Classes, names_in, parse_label
from halflabel.errors import DataError, SettingError
from halflabel.evaluation.decisions import Calibration, Decision, DecisionRule, sigmoid
from halflabel.label_errors import estimate_accuracy
from halflabel.methods.closed_form import fit_closed_form
from halflabel.methods.closed_form_several import fit_several_labels
from halflabel.methods.label_smoothing import word_features
from halflabel.methods.linear_models import logistic_regression
from halflabel.persistence.model_folder import Model
from halflabel.randomness import Stream, generator, shuffled
from halflabel.suggestions import known_texts, suggest
from halflabel.types import Progress, Task

SAMPLE = 3000  # texts of the pool that the classifier knows, and that are shown first
LABEL_LENGTH, NOTE_LENGTH = 100, 10_000  # characters
STOP_SECONDS = 10.0  # that the thread has to end

Labels = Mapping[str, TextLabel]


@dataclass(frozen=True, eq=False)
class Guesses:
    """Probabilities of known texts, as a model that `suggest` can use."""

    texts: Mapping[str, int]  # rows of the texts
    x: np.ndarray  # (N, H)
    p: np.ndarray  # (N, K)
    classes: Classes
    task: Task

    @property
    def rules(self) -> Decision:
        k = len(self.classes)
        rule = DecisionRule("fixed", np.full(k, 0.5))
        return Decision(Calibration(True, 1.0, np.zeros(k)), np.full(k, 0.5), {rule.name: rule}, rule.name)

    def rows(self, texts: Sequence[str]) -> list[int]:
        return [self.texts[text] for text in texts]

    def vectors(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """(N, H)."""
        return np.asarray(self.x[self.rows(texts)])

    def probabilities(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """(N, K)."""
        return np.asarray(self.p[self.rows(texts)])

    scores = probabilities

    def guess(self, text: str) -> tuple[tuple[Label, ...], float] | None:
        """The labels of a text and the probability of the most probable one; None for an unknown text."""
        if text not in self.texts:
            return None
        p = self.p[self.texts[text]]
        chosen = np.flatnonzero(p >= 0.5) if self.task == "multi-label" else [p.argmax()]
        return tuple(self.classes.names[int(k)] for k in chosen), float(p.max())


class Learner:
    """Fits a classifier to the labels of some of its texts, and guesses the others."""

    def __init__(self, texts: Sequence[str], vectors: np.ndarray, *, several: bool, names: Names | None = None,
                 name_vectors: Callable[[Classes], np.ndarray] | None = None, seed: int = 0) -> None:
        self.texts = {text: i for i, text in enumerate(texts)}
        self.x = unit_length(vectors.astype(np.float64))
        self.words = word_features(list(texts))
        self.task: Task = "multi-label" if several else "multi-class"
        self.names, self.name_vectors, self.seed = names or {}, name_vectors, seed

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors of known texts, (len(texts), H)."""
        return np.asarray(self.x[[self.texts[text] for text in texts]])

    def guesses(self, model: Model) -> Guesses:
        """What a trained model guesses."""
        return Guesses(self.texts, self.x, model.probabilities(list(self.texts)), model.classes, self.task)

    def fit(self, labels: Labels) -> Guesses | None:
        """Fits to the labels, and class names if there are any; None if there are fewer than two classes."""
        known: dict[str, Label] = {name: name for name in self.names}
        known |= {str(name): name for label in labels.values() for name in names_in(label)}
        if len(known) < 2:
            return None
        classes = Classes(tuple(sorted(known.values())))
        rows, y = self._rows(labels), classes.matrix(list(labels.values()))
        rest = np.setdiff1d(np.arange(len(self.x)), rows)
        names = self.name_vectors(classes) if self.names and self.name_vectors else None
        x, pool, words = self.x[rows], self.x[rest], self.words[np.concatenate([rows, rest])]
        if self.task == "multi-class":
            fitted = fit_closed_form(x, y.argmax(axis=1), pool, words, len(classes), seed=self.seed, names=names)
            p = np.exp(fitted.model.log_probabilities(self.x))
            p[rest] = fitted.soft
        elif names is not None:
            several = fit_several_labels(x, y.astype(np.float64), pool, words, seed=self.seed, names=names)
            p = sigmoid(several.model.logits(self.x))
            p[rest] = several.soft
        else:
            p = self._one_by_one(rows, y)
        return Guesses(self.texts, self.x, p, classes, self.task)

    def estimate(self, labels: Labels) -> float | None:
        """Estimated accuracy, or micro F1 for several labels."""
        return estimate_accuracy(self.x[self._rows(labels)], list(labels.values()), seed=self.seed)

    def _one_by_one(self, rows: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Probabilities of each label by itself, (N, K); those of a label that all or no texts have are its share."""
        p = np.tile(y.mean(axis=0).astype(np.float64), (len(self.x), 1))
        for k in np.flatnonzero((y.sum(axis=0) > 0) & (y.sum(axis=0) < len(y))):
            model = logistic_regression(self.x[rows], y[:, k].astype(int), self.x[:0], 2)
            p[:, k] = np.exp(model.log_probabilities(self.x))[:, 1]
        return p

    def _rows(self, labels: Labels) -> np.ndarray:
        return np.array([self.texts[text] for text in labels], dtype=np.int64)


@dataclass
class Labelling:
    """The pool, the answers so far, and the text to show; all methods may be called by several threads.

    `labelled` are texts with labels that were known before; texts with `labelled_hashes` are not shown.
    """

    texts: Sequence[str]
    answers: AnswerFile
    labels: list[Label]
    several: bool = False
    labelled: dict[str, TextLabel] = field(default_factory=dict)
    labelled_hashes: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    source: str = "the pool"
    retrain_every: int = 10
    seed: int = 0
    report: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self._lock, self._wake, self._closed = threading.RLock(), threading.Event(), False
        self._thread: threading.Thread | None = None
        self._again: list[int] = []  # rows whose answers were undone
        self._queue: list[int] = []  # suggested rows
        self._since = 0  # answers since the last fit
        self._revisit: set[str] = set()  # texts that were skipped and are to be shown again
        self._undone: tuple[str, Answer] | None = None
        self.learner: Learner | None = None
        self.guesses: Guesses | None = None
        self.estimates: list[tuple[int, float]] = []  # numbers of labels and estimated accuracy
        for source, labels in ((self.answers.file, self.answers.labels), ("the labelled texts", self.labelled)):
            if any(isinstance(label, tuple) != self.several for label in labels.values()):
                raise SettingError(f"{source}: there is {'one label' if self.several else 'a list of labels'} per text;"
                                   f" {'leave out' if self.several else 'give'} --several, or other files")
        used = (name for given in (self.answers.labels, self.labelled) for label in given.values()
                for name in names_in(label))
        for name in (*self.answers.added, *used):
            if str(name) not in self.names:
                self.labels.append(name)
        answered = matching_rows(self.texts, self.answers.answers.keys())
        if self.answers.answers and not len(answered):
            raise DataError(f"none of the texts in {self.answers.file} is in {self.source}; give the pool that it was "
                            "labelled from, or choose another --out")
        self._rows = {self.texts[row]: row for row in answered.tolist()}
        hidden = known_texts(self.texts, self.labelled_hashes)
        hidden[matching_rows(self.texts, self.labelled.keys())] = True
        order = shuffled(generator(self.seed, Stream.LABELLING), len(self.texts))
        self._order = order[~hidden[order]]
        self._position = 0  # in that order: all before it are answered
        if self.current() is None:
            raise DataError(f"{self.source}: no text is left to label; give a pool with other texts")

    @property
    def names(self) -> dict[str, Label]:
        """The labels by the names that the page knows."""
        return {str(label): label for label in self.labels}

    def sample(self) -> list[str]:
        """The texts that a learner has to know: labelled ones, and a sample of the pool."""
        shown = {self.texts[row]: row for row in self._order[:SAMPLE].tolist()}
        self._rows |= shown
        return list(dict.fromkeys([*self.labelled, *self.answers.answers, *shown]))

    def start(self, learner: Learner, model: Model | None = None, *, retrain: bool = True) -> None:
        """Fits, and from now on fits again in a thread; a model guesses before the first answer, or always."""
        self.learner = learner
        self.guesses = learner.guesses(model) if model is not None else None
        self._retrains = retrain
        self.fit()
        self._thread = threading.Thread(target=self._work, name="fit", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def _work(self) -> None:
        while not self._closed:
            self._wake.wait()
            self._wake.clear()
            if self._closed:
                return
            try:
                self.fit()
            except Exception as error:  # labelling goes on without new guesses
                self.report(f"the guesses are not up to date: {error}")

    def fit(self) -> None:
        """Fits the classifier to all labels, and chooses which texts are shown next."""
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):  # the matrices are small, and on a busy machine threads would wait for each other
            self._fit()

    def _fit(self) -> None:
        learner, guesses = self.learner, self.guesses
        assert learner is not None, "after start"
        with self._lock:
            answered, own = set(self.answers.answers), self.answers.labels
            rows, self._since = dict(self._rows), 0
        labels = {text: label for text, label in (self.labelled | own).items() if text in learner.texts}
        if guesses is None or (self._retrains and own):
            guesses = learner.fit(labels) or guesses
        left = [text for text in learner.texts if text in rows and text not in answered and text not in self.labelled]
        number = min(len(left), 2 * self.retrain_every + 10)  # more than are answered before the next fit
        found = suggest(left, number, "balanced", model=guesses, vectors=learner.vectors, labelled=list(labels),
                        seed=self.seed)[0] if left else []
        estimate = learner.estimate(labels)
        with self._lock:
            self.guesses = guesses
            self._queue = [rows[suggestion.text] for suggestion in found]
            if estimate is not None and (not self.estimates or self.estimates[-1][0] != len(labels)):
                self.estimates.append((len(labels), round(estimate, 4)))

    def current(self) -> int | None:
        """The row of the text to show; None if none is left."""
        for rows in (self._again, self._queue):
            while rows and self._is_done(rows[0]):
                rows.pop(0)
            if rows:
                return rows[0]
        while self._position < len(self._order) and self._is_done(self._order[self._position]):
            self._position += 1
        return int(self._order[self._position]) if self._position < len(self._order) else None

    def _is_done(self, row: int) -> bool:
        text = self.texts[row]
        return text in self.answers.answers and text not in self._revisit

    def state(self) -> dict[str, Any]:
        """What the page shows."""
        with self._lock:
            row, labels, answers = self.current(), self.answers.labels, self.answers.answers
            text = None if row is None else self.texts[row]
            guess = None if self.guesses is None or text is None else self.guesses.guess(text)
            earlier = self._undone if text is not None and self._undone and self._undone[0] == text else None
            counts = dict.fromkeys(self.names, 0)
            for label in labels.values():
                for name in names_in(label):
                    counts[str(name)] += 1
            return {
                "text": text, "key": None if row is None else self.key(row), "several": self.several,
                "labels": [{"name": name, "count": count} for name, count in counts.items()],
                "guess": None if guess is None else {"labels": [str(name) for name in guess[0]],
                                                     "probability": round(guess[1], 4)},
                "chosen": [] if earlier is None else [str(name) for name in names_in(earlier[1].label)],
                "note": "" if earlier is None else earlier[1].note,
                "labelled": len(labels), "skipped": len(answers) - len(labels), "total": len(self._order),
                "undoable": bool(answers), "estimates": self.estimates, "file": self.answers.file.name,
                "metric": "micro F1" if self.several else "accuracy"}

    def key(self, row: int) -> str:
        """What identifies a text of this pool, also after a restart."""
        return f"{row}-{text_hash(self.texts[row], size=8).hex()}"

    def answer(self, key: str, names: Sequence[str] | None, note: str = "") -> None:
        """Labels the text with that key; None skips it."""
        with self._lock:
            row, text = self._find(key)
            label: TextLabel = None
            if names is not None:
                if unknown := [name for name in names if name not in self.names]:
                    raise DataError(f"there is no label {unknown[0][:LABEL_LENGTH]!r}; add it first")
                if not self.several and len(names) != 1:
                    raise DataError(f"a text has exactly one label here, not {len(names)}")
                chosen = tuple(self.names[name] for name in dict.fromkeys(names))
                label = chosen if self.several else chosen[0]
            self.answers.label(text, label, note[:NOTE_LENGTH].strip())
            self._rows[text] = row
            self._revisit.discard(text)
            self._undone = None
            self._since += label is not None
            if self.learner is not None and self._since >= self.retrain_every:
                self._wake.set()

    def undo(self) -> None:
        """Takes the last answer back, and shows its text again."""
        with self._lock:
            undone = self.answers.undo()
            if undone is None:
                raise DataError("there is no answer to undo")
            self._undone = undone
            if undone[0] in self._rows:  # else it is of another pool
                self._again.insert(0, self._rows[undone[0]])

    def add_label(self, name: str) -> None:
        """Adds a label; where labels are numbers, it has to be one."""
        with self._lock:
            label: TextLabel = parse_label(name)
            if label is None or len(name) > LABEL_LENGTH:
                raise DataError(f"a label has 1 to {LABEL_LENGTH} characters")
            if self.labels and not isinstance(self.labels[0], str):
                try:
                    label = int(name)
                except ValueError:
                    raise DataError(f"the labels are numbers, and {name!r} is none") from None
            if str(label) in self.names:
                raise DataError(f"the label {name!r} exists already")
            assert not isinstance(label, tuple), "made of a string"
            self.answers.add_label(label)
            self.labels.append(label)

    def revisit(self) -> None:
        """Shows skipped texts again."""
        with self._lock:
            self._revisit = {text for text, answer in self.answers.answers.items() if answer.label is None}
            self._again += [self._rows[text] for text in self._revisit if text in self._rows]

    def _find(self, key: str) -> tuple[int, str]:
        number = key.partition("-")[0]
        row = int(number) if number.isdecimal() and len(number) < 19 else len(self.texts)
        if row >= len(self.texts) or self.key(row) != key:
            raise DataError("this text is not in the pool of this server; reload the page")
        return row, self.texts[row]
