"""TextClassifier: the estimator, by scikit-learn's conventions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from halflabel.columns import rows_holding
from halflabel.data.clean import clean, without
from halflabel.data.labels import label_of
from halflabel.fitted import Fitted, load
from halflabel.methods import find
from halflabel.plans import adjustable, plan_named
from halflabel.sequences import Lying, joined, origin_of, parts_of
from halflabel.training import Settings, Trained, learn
from halflabel.types import BadInput, Corpus

DEFAULT_METHOD = "lift"


class TextClassifier(ClassifierMixin, BaseEstimator):
    """A text classifier that learns from labelled and unlabelled texts.

    `settings` changes single hyper-parameters of the method or fields of the plan by name; `minutes` is the time
    that fine-tuning may take. Learnt: `classes_`, `n_iter_`, `n_features_in_`, and the audit of self-training:
    `transduction_` (the label of every training text), `labeled_iter_` (the step at which a text was first
    pseudo-labelled; 0 for labelled texts, -1 for never), `termination_condition_` and `notices_`.
    """

    def __init__(self, method: str = DEFAULT_METHOD, encoder: str | None = None, plan: str = "laptop", *,
                 minutes: float | None = None, settings: dict[str, Any] | None = None, random_state: int = 0) -> None:
        self.method = method
        self.encoder = encoder
        self.plan = plan
        self.minutes = minutes
        self.settings = settings
        self.random_state = random_state

    def fit(self, X: Sequence[str], y: Sequence[Any], unlabelled: Sequence[str] | None = None, *,
            dev: tuple[Sequence[str], Sequence[Any]] | None = None, truth: Sequence[Any] | None = None,
            views: Sequence[Sequence[str]] | None = None, folder: str | Path | None = None, resume: bool = False,
            report: Callable[[dict[str, Any]], None] = lambda line: None) -> TextClassifier:
        """Learns from texts X with labels y; None, NaN or -1 in y, and all of `unlabelled`, have no label.

        `unlabelled` is a list, or the texts of a pool of any size that `open_pool` gave.
        `truth` holds the labels of `unlabelled` for measuring pseudo-labels: it never reaches training. `views` are
        ready strong views of `unlabelled`, a few for each text. With `folder` the run is kept there and can go on.
        """
        given = as_corpus(X, y, "the training texts")
        pool = as_pool(unlabelled if unlabelled is not None else [], views)
        everything = joined(given.texts, pool.texts)
        labelled, said = clean(given.labelled(), role="labelled")
        pool, more = clean(given.unlabelled() + pool if len(given.unlabelled()) else pool, role="unlabelled")
        pool = without(pool, labelled)
        development = None if dev is None else as_corpus(*dev, "dev")
        trained = learn(labelled, pool, self.chosen_settings(), dev=development,
                        truth=_aligned(truth, unlabelled, pool),
                        folder=None if folder is None else Path(folder), resume=resume, report=report)
        self.notices_ = [*said, *more, *trained.outcome.notices]
        self._remember(trained, everything, labelled, pool)
        return self

    def chosen_settings(self) -> Settings:
        """Method, plan and hyper-parameters, checked before anything is loaded."""
        method = find(self.method)
        changes = dict(self.settings or {})
        known = [*method.defaults, *adjustable()]
        if unknown := [key for key in changes if key not in known]:
            raise BadInput(f"'{unknown[0]}' is no setting of {self.method}; it has {', '.join(known)}.")
        hyper = {key: changes.pop(key) for key in list(changes) if key in method.defaults}
        if self.minutes is not None:
            changes["minutes"] = self.minutes
        plan = plan_named(self.plan, **{**method.plans.get(self.plan, {}), **changes})
        return Settings(self.method, plan, self.encoder or plan.encoder, int(self.random_state), hyper)

    def _remember(self, trained: Trained, everything: Sequence[str], labelled: Corpus, pool: Corpus) -> None:
        names = trained.model.classes.names
        self.model_ = trained.model
        self.classes_ = np.array(names, dtype=object if isinstance(names[0], str) else None)
        self.n_iter_ = trained.model.facts["plan"]["epochs"]
        self.termination_condition_ = trained.outcome.why
        guard = trained.outcome.guard
        rows = np.arange(len(pool)) if trained.rows is None else np.asarray(trained.rows)
        columns, steps = np.full(len(pool), -1), np.full(len(pool), -1)
        columns[rows], steps[rows] = guard.label.numpy(), guard.since.numpy()
        found = np.array([*names, None], dtype=object)[columns]  # column -1: not labelled
        self.transduction_, self.labeled_iter_ = traced(everything, labelled, pool, found, steps)

    def predict(self, X: Sequence[str]) -> np.ndarray:
        """The most probable label of each text, (N,)."""
        scores = self._model.scores(as_texts(X, "the texts"))
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def predict_proba(self, X: Sequence[str]) -> np.ndarray:
        """Probabilities in the order of `classes_`, (N, K)."""
        return self._model.probabilities(as_texts(X, "the texts"))

    def save(self, folder: str | Path) -> None:
        """Writes the model as a folder of safetensors and JSON."""
        self._model.save(Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> TextClassifier:
        """Reads a model that `save`, or a training run, wrote."""
        model = load(folder)
        plan = model.facts.get("plan", {}).get("name", "laptop")
        self = cls(model.method, model.facts.get("encoder"), plan, settings=model.settings or None,
                   random_state=model.facts.get("seed", 0))
        names = model.classes.names
        self.model_ = model
        self.classes_ = np.array(names, dtype=object if isinstance(names[0], str) else None)
        self.termination_condition_ = model.facts.get("run", {}).get("why", "not finished")
        self.notices_ = model.facts.get("run", {}).get("notices", [])
        return self

    @property
    def _model(self) -> Fitted:
        check_is_fitted(self, "model_")
        return self.model_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def as_texts(texts: Sequence[str], name: str) -> Sequence[str]:
    """A list of strings, whatever kind of sequence came in; stored texts stay where they lie."""
    if isinstance(texts, Lying):
        return texts
    if isinstance(texts, (str, bytes)):
        raise BadInput(f"{name}: one string was given where a list of texts is wanted; put it into a list.")
    found = list(texts)
    for i, text in enumerate(found):
        if not isinstance(text, str):
            raise BadInput(f"{name}: text {i + 1} is {type(text).__name__}, not a string; give a list of strings.")
    return [str(text) for text in found]


def as_corpus(texts: Sequence[str], labels: Sequence[Any], name: str) -> Corpus:
    """Texts and labels of the same number."""
    found, given = as_texts(texts, name), list(labels)
    if len(found) != len(given):
        raise BadInput(f"{name}: there are {len(found)} texts and {len(given)} labels; give one label for each text.")
    return Corpus(found, [label_of(label) for label in given], source=name)


def as_pool(texts: Sequence[str], views: Sequence[Sequence[str]] | None) -> Corpus:
    """Unlabelled texts with the views that came with them; stored texts stay where they lie."""
    found = as_texts(texts, "unlabelled")
    ready = views if isinstance(views, Lying) else [tuple(view) for view in views or []]
    return Corpus(found, [None] * len(found), ready, "unlabelled")


def traced(everything: Sequence[str], labelled: Corpus, pool: Corpus, found: np.ndarray,
           steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Label (found) and step of the pool's texts, at the places that these texts, and the labelled, have in all."""
    known: dict[str, tuple[Any, int]] = {text: (label, 0) for text, label in zip(labelled.texts, labelled.labels,
                                                                                strict=True)}
    stored: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    start = 0
    for part in parts_of(pool.texts):
        base, rows, mine = *origin_of(part), slice(start, start + len(part))
        start += len(part)
        if isinstance(base, Lying):
            label, step = stored.setdefault(id(base), (np.full(len(base), None, object), np.full(len(base), -1)))
            label[rows], step[rows] = found[mine], steps[mine]
        else:
            known.update(zip(part, zip(found[mine], steps[mine].tolist(), strict=True), strict=True))
    parts = []
    for part in parts_of(everything):
        base, rows = origin_of(part)
        if isinstance(base, Lying):
            label, step = (array[rows].copy() for array in stored.get(id(base), (
                np.full(len(base), None, object), np.full(len(base), -1))))
            for i in rows_holding(part, known).tolist():
                label[i], step[i] = known[part[i]]
        else:
            pairs = [known.get(text, (None, -1)) for text in part]
            label = np.array([*(one for one, _ in pairs), None], dtype=object)[:-1]
            step = np.array([one for _, one in pairs], dtype=np.int64)
        parts.append((label, step))
    return np.concatenate([one for one, _ in parts]), np.concatenate([one for _, one in parts])


def _aligned(truth: Sequence[Any] | None, unlabelled: Sequence[str] | None, pool: Corpus) -> list[Any] | None:
    """True labels in the order of the pool, for measuring alone."""
    if truth is None:
        return None
    by_text = dict(zip(unlabelled or [], truth, strict=True))
    if any(text not in by_text for text in pool.texts):
        raise BadInput("truth: it has to hold the label of every unlabelled text; leave it out otherwise.")
    return [label_of(by_text[text]) for text in pool.texts]
