"""TextClassifier: the estimator, by scikit-learn's conventions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from halflabel.data.cleaning import clean, drop_labelled
from halflabel.data.corpus import Corpus
from halflabel.data.labels import from_matrix, is_matrix, to_matrix
from halflabel.data.sequences import concat
from halflabel.events import Report, silent
from halflabel.fitting import Trained, fit
from halflabel.methods.registry import find
from halflabel.output_folders import RUN, locked
from halflabel.persistence.model import TrainedModel, load
from halflabel.settings import WORDS, Settings, choose_settings
from halflabel.training.collapse import PoolState
from halflabel.types import Task
from halflabel.validation import (
    align_truth,
    as_corpus,
    as_labels,
    as_objects,
    as_pool,
    as_texts,
    texts_and_labels,
    trace_labels,
)


class TextClassifier(ClassifierMixin, BaseEstimator):
    """A text classifier that learns from labelled and unlabelled texts.

    Without a `method` the labels choose it: `lift` for one label per text, `bdd-ml` for several. `settings` changes
    single hyper-parameters of the method or fields of the plan by name; `minutes` is the time that fine-tuning may
    take. Learnt: `method_`, `classes_`, `n_iter_`, and the audit of self-training: `transduction_` (the label of
    every training text), `labeled_iter_` (the step at which a text was first pseudo-labelled; 0 for labelled texts,
    -1 for never), `termination_condition_` and `notices_`; for several labels also `decision_`.
    """

    def __init__(self, method: str | None = None, encoder: str | None = None, plan: str = "laptop", *,
                 minutes: float | None = None, settings: dict[str, Any] | None = None, random_state: int = 0) -> None:
        self.method = method
        self.encoder = encoder
        self.plan = plan
        self.minutes = minutes
        self.settings = settings
        self.random_state = random_state

    def fit(self, X: Any, y: Any, unlabelled: Any = None, *, dev: tuple[Any, Any] | None = None, truth: Any = None,
            views: Any = None, folder: str | Path | None = None, resume: bool = False,
            report: Report = silent) -> TextClassifier:
        """Learns from texts X with labels y; None, NaN or -1 in y, and all of `unlabelled`, have no label.

        Texts are a list or anything like it: an array, a Series, a generator; or a frame, of which the column that
        holds texts by its name is taken, or the only one. `unlabelled` may also be the texts of a pool of any size that
        `open_pool` gave.
        Texts with several labels each have a set (list, tuple) of them in y, empty for none; or y is a matrix of 0 and
        1 with a column for each label, dense, sparse or a data frame, in which NaN or -1 leaves a label of a text open.
        `truth` holds the labels of `unlabelled` for measuring pseudo-labels: it never reaches training. `views` are
        ready strong views of `unlabelled`, a few for each text. With `folder` the run is kept there and can go on.
        """
        columns = from_matrix(y, "y")[1] if is_matrix(y) else None
        given = as_corpus(X, y, "the training texts")
        hidden = pool = as_pool(unlabelled if unlabelled is not None else [], views)
        everything = concat(given.texts, pool.texts)
        labelled, said = clean(given.labelled(), role="labelled")
        pool, more = clean(given.unlabelled() + pool if len(given.unlabelled()) else pool, role="unlabelled")
        pool = drop_labelled(pool, labelled)
        development = None if dev is None else as_corpus(*texts_and_labels(dev, "dev"), "dev")
        kept = None if folder is None else Path(folder)
        with nullcontext() if kept is None else locked(kept, RUN):
            trained = fit(labelled, pool, self.chosen_settings(labelled.task), dev=development,
                          truth=align_truth(truth, hidden.texts, pool), classes=columns, folder=kept, resume=resume,
                          report=report)
        self._remember(trained, everything, labelled, pool)
        unused = find(self.method_).bag_of_words and self.encoder not in (None, WORDS)
        ignored = [f"{self.method_} learns on bags of words; the encoder {self.encoder} is not used"] if unused else []
        self.notices_ = [*map(str, [*said, *more]), *ignored, *trained.model.facts["run"]["notices"]]
        return self

    def chosen_settings(self, task: Task) -> Settings:
        """Method, plan and hyper-parameters for labels of that kind, checked before anything is loaded."""
        return choose_settings(task, method=self.method, encoder=self.encoder, plan=self.plan, minutes=self.minutes,
                               changes=self.settings, seed=int(self.random_state))

    def _remember(self, trained: Trained, everything: Sequence[str], labelled: Corpus, pool: Corpus) -> None:
        self._adopt(trained.model)
        self.n_iter_ = trained.model.facts["plan"]["epochs"]
        self.termination_condition_ = trained.outcome.reason
        classes = trained.model.classes
        guard = trained.outcome.pool if len(pool) else PoolState(len(classes.names), 0, trained.model.task)
        taken = np.flatnonzero(guard.since.numpy() >= 0)
        found, steps = as_objects(classes.names_of(guard.label.numpy()[taken])), guard.since.numpy()[taken]
        rows = taken if trained.rows is None else np.asarray(trained.rows)[taken]
        self._audit = trace_labels(everything, labelled, pool, rows, found, steps)

    @property
    def transduction_(self) -> np.ndarray:
        """The label of every training text, (N,)."""
        return self._audit.labels

    @property
    def labeled_iter_(self) -> np.ndarray:
        """The step at which each training text was first pseudo-labelled, (N,)."""
        return self._audit.steps

    def _adopt(self, model: TrainedModel) -> None:
        names = model.classes.names
        self.model_, self.method_ = model, model.method
        self.classes_ = np.array(names, dtype=object if isinstance(names[0], str) else None)
        if model.decision is not None:
            self.decision_ = model.decision

    def predict(self, X: Any, *, decision: str | None = None) -> np.ndarray:
        """The most probable label of each text, (N,); for several labels what `decision` (a name) makes of each text.

        Who fitted a matrix gets a matrix (N, K) of 0 and 1; who fitted sets gets an array (N,) of tuples.
        """
        scores = self._model.scores(as_texts(X, "the texts"))
        if self._model.task == "multi-class" and decision is None:
            return np.asarray(self.classes_[scores.argmax(axis=1)])
        chosen = self._model.rules(scores, decision)
        if self._model.facts.get("matrix"):
            return to_matrix(chosen)
        return as_objects(self._model.classes.names_of(chosen))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities in the order of `classes_`, (N, K); where texts have several labels each is by itself."""
        return self._model.probabilities(as_texts(X, "the texts"))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; where texts have several labels, the share of texts of which all labels are right.

        A text with a label that training never saw is a wrong one.
        """
        if self._model.task == "multi-class":
            return float(super().score(X, as_labels(y, "y"), sample_weight))
        given = as_corpus(X, y, "the texts")
        classes = self._model.classes.extended(given.labels)
        found = self._model.rules(self._model.scores(given.texts))
        unseen = len(classes) - len(self._model.classes)
        right = (classes.matrix(given.labels) == np.pad(found, ((0, 0), (0, unseen)))).all(axis=1)
        return float(np.average(right, weights=sample_weight))

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
        self._adopt(model)
        self.termination_condition_ = model.facts.get("run", {}).get("why", "not finished")
        self.notices_ = model.facts.get("run", {}).get("notices", [])
        return self

    @property
    def _model(self) -> TrainedModel:
        check_is_fitted(self, "model_")
        return self.model_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.classifier_tags.multi_label = True
        return tags
