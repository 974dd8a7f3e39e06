"""TextClassifier: the estimator, by scikit-learn's conventions."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, overload

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from halflabel.class_names import Names, check_named, choose_names, classes_with_names, names_of_labels
from halflabel.data.cleaning import clean, drop_labelled
from halflabel.data.columns import text_hashes
from halflabel.data.corpus import Corpus, concat
from halflabel.data.labels import from_matrix, is_matrix, to_matrix
from halflabel.devices import AUTO, choose_compute
from halflabel.errors import ModelError, SettingError
from halflabel.fitting import Trained, fit, refitting
from halflabel.methods.registry import find
from halflabel.notices import Report, silent
from halflabel.output_folders import RUN, locked
from halflabel.persistence.model import TrainedModel, load
from halflabel.persistence.model_folder import kept_texts, read_text_hashes
from halflabel.persistence.onnx_model import OnnxModel, is_export
from halflabel.settings import WORDS, Settings, choose_settings, choose_task
from halflabel.students.cascade import Cascade
from halflabel.students.student import Student, is_student
from halflabel.suggestions import Suggestion, suggest
from halflabel.training.statistics import PoolState
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
    """A text classifier that learns from labelled and unlabelled texts, by scikit-learn's conventions.

    Parameters
    ----------
    method : str, optional
        A name that `halflabel methods` lists. By default the labels choose: `lift` for one label per text,
        `lift-ml` for several.
    encoder : str, optional
        A name that `halflabel encoders` lists, a folder, or a name on the Hugging Face hub. Several with commas
        ("minilm,gte-small") are joined; "auto" takes the one of those on this machine that predicts held-out labels
        best, and "auto:minilm,FOLDER" chooses among those. By default the plan's encoder.
    plan : {"laptop", "frozen", "paper"}
        `laptop` fine-tunes the encoder within `minutes`, `frozen` trains on vectors that are computed once, `paper`
        follows the schedule of the S2TC-BDD paper.
    minutes : float, optional
        Time that fine-tuning may take. By default the plan's: 15 for `laptop`.
    settings : dict, optional
        Hyper-parameters of the method and fields of the plan by name, such as `{"epochs": 5, "lambda1": 0.5}`.
    names : mapping, "labels" or "none", optional
        What the labels mean in words, such as `{"billing": "invoices and refunds", "bug": ["error", "crash"]}`, or
        "labels" if the labels themselves say it. `lift` uses names beside labels and pool if they match the labels,
        and can be trained without any label (`lift-ml` for several labels per text). By default both try labels that
        read as words; "none" prevents that.
    class_weight : mapping or "balanced", optional
        How much a labelled text of each class counts, as in scikit-learn: numbers by label, 1 for those left out, or
        "balanced" for numbers that make all classes count alike. Not for several labels per text, nor for methods
        with a closed form other than `lift`.
    device : str
        `auto` takes the GPU that torch reports (cuda, mps, xpu), else the CPU; or a name such as `cpu` or `cuda:1`.
    precision : {"auto", "bf16", "fp16", "fp32"}
        Of the encoder's products. By default bf16 if the device has it and it does no harm, else fp32.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None
        The same int gives the same numbers on the same machine. A generator gives the seed of each `fit`, None a new
        seed each time.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The labels, in the order of the columns of `predict_proba`.
    method_ : str
        The method that was trained.
    decision_ : Decision
        Several labels per text only: the rules by which a text gets its labels.
    transduction_ : ndarray of shape (N,)
        The label of every training text, known or pseudo-labelled, in the order of X and then `unlabelled`.
    labeled_iter_ : ndarray of shape (N,)
        The step at which each training text was first pseudo-labelled; 0 for labelled texts, -1 for never.
    termination_condition_ : str
        Why training ended.
    notices_ : list of str
        What is worth knowing about the texts and the run.
    n_iter_ : int
        The number of epochs.
    model_ : TrainedModel or OnnxModel
        Encoder, network and labels.
    """

    def __init__(self, method: str | None = None, encoder: str | None = None, plan: str = "laptop", *,
                 minutes: float | None = None, settings: dict[str, Any] | None = None,
                 names: Mapping[Any, Any] | str | None = None,
                 class_weight: Mapping[Any, float] | str | None = None, device: str = AUTO, precision: str = AUTO,
                 random_state: int | np.random.RandomState | np.random.Generator | None = 0) -> None:
        self.method = method
        self.encoder = encoder
        self.plan = plan
        self.minutes = minutes
        self.settings = settings
        self.names = names
        self.class_weight = class_weight
        self.device = device
        self.precision = precision
        self.random_state = random_state

    def fit(self, X: Any, y: Any, unlabelled: Any = None, *, dev: tuple[Any, Any] | None = None, truth: Any = None,
            views: Any = None, folder: str | Path | None = None, resume: bool = False,
            report: Report = silent, **unsupported: Any) -> TextClassifier:
        """Trains on texts X with labels y, and on unlabelled texts.

        Parameters
        ----------
        X : list of str, array, Series, generator or data frame
            Texts. Of a data frame the column that is named like texts is taken, or its only column.
        y : list, array, Series or matrix
            One label per text; or a set (list, tuple) of labels per text, empty for none; or a matrix of 0 and 1 with a
            column for each label (dense, sparse, data frame). None, NaN or -1 means not labelled; in a matrix it leaves
            a single label unknown.
        unlabelled : like X, optional
            More texts without labels; also the texts of a pool of any size that `open_pool` returned.
        dev : pair of texts and labels, optional
            A dev set: the model with the best micro F1 on it is kept.
        truth : like y, optional
            Labels of `unlabelled`, only for measuring the accuracy of pseudo-labels; they never reach training.
        views : for each unlabelled text a list of augmented versions, optional
            Strong views for methods that use them, instead of word edits.
        folder : path, optional
            Keeps the run in a folder, so that it can be resumed after a kill.
        resume : bool
            Resumes the run in `folder`; texts and settings have to be the same.
        report : callable
            Receives progress, see `halflabel.notices`.
        """
        if "sample_weight" in unsupported:  # no parameter, so that scikit-learn's ensembles see that it does not exist
            raise SettingError("fit takes no sample_weight: leave it out, or weight classes by class_weight.")
        if unsupported:
            raise TypeError(f"fit() got an unexpected keyword argument {next(iter(unsupported))!r}")
        columns = from_matrix(y, "y")[1] if is_matrix(y) else None
        given = as_corpus(X, y, "the training texts")
        hidden = pool = as_pool(unlabelled if unlabelled is not None else [], views)
        everything = concat(given.texts, pool.texts)
        labelled, notices = clean(given.labelled(), role="labelled")
        pool, pool_notices = clean(given.unlabelled() + pool if len(given.unlabelled()) else pool, role="unlabelled")
        pool = drop_labelled(pool, labelled)
        names, name_notices = choose_names(self.names, labelled.labels)
        label_names = names_of_labels(labelled.labels) if self.names is None else None
        task = choose_task(labelled, self.method, several=columns is not None)
        settings = self.chosen_settings(task, names, label_names, labelled=bool(len(labelled)))
        compute = choose_compute(self.device, self.precision)
        if columns is not None:
            check_named(columns, names)
        elif names:
            name_notices += classes_with_names(labelled.labels, names)[1]
        development = None if dev is None else as_corpus(*texts_and_labels(dev, "dev"), "dev")
        path = None if folder is None else Path(folder)
        with nullcontext() if path is None else locked(path, RUN):
            trained = fit(labelled, pool, settings, dev=development,
                          truth=align_truth(truth, hidden.texts, pool), classes=columns, folder=path, resume=resume,
                          report=report, compute=compute)
        self._remember(trained, everything, labelled, pool)
        unused = find(self.method_).bag_of_words and self.encoder not in (None, WORDS)
        ignored = [f"{self.method_} trains on bags of words; the encoder {self.encoder} is not used"] if unused else []
        self.notices_ = [*notices, *pool_notices, *name_notices, *ignored, *trained.model.facts["run"]["notices"]]
        return self

    def chosen_settings(self, task: Task, names: Names | None = None, label_names: Names | None = None, *,
                        labelled: bool = True) -> Settings:
        """Method, plan and hyper-parameters for labels of that kind, checked before anything is loaded."""
        return choose_settings(task, labelled=labelled, method=self.method, encoder=self.encoder, plan=self.plan,
                               minutes=self.minutes, changes=self.settings, seed=seed_of(self.random_state),
                               names=names, label_names=label_names, class_weight=self.class_weight)

    def _remember(self, trained: Trained, everything: Sequence[str], labelled: Corpus, pool: Corpus) -> None:
        self._adopt(trained.model)
        self._labelled = self._examples = list(labelled.texts)
        self.n_iter_ = trained.model.facts["plan"]["epochs"]
        self.termination_condition_ = trained.outcome.reason
        classes = trained.model.classes
        state = trained.outcome.pool if len(pool) else PoolState(len(classes.names), 0, trained.model.task)
        accepted = np.flatnonzero(state.since.numpy() >= 0)
        labels, steps = as_objects(classes.names_of(state.label.numpy()[accepted])), state.since.numpy()[accepted]
        rows = accepted if trained.rows is None else np.asarray(trained.rows)[accepted]
        self._audit = trace_labels(everything, labelled, pool, rows, labels, steps)

    @property
    def transduction_(self) -> np.ndarray:
        """The label of every training text, (N,)."""
        return self._audit.labels

    @property
    def labeled_iter_(self) -> np.ndarray:
        """The step at which each training text was first pseudo-labelled, (N,)."""
        return self._audit.steps

    def _adopt(self, model: TrainedModel | OnnxModel) -> None:
        names = model.classes.names
        self.model_, self.method_ = model, model.method
        self.classes_ = np.array(names, dtype=object if isinstance(names[0], str) else None)
        self._labelled, self._labelled_hashes = list[str](), np.empty(0, np.uint64)  # training texts, or their hashes
        self._examples = list[str]()  # that a student learns from, too
        if model.decision is not None:
            self.decision_ = model.decision

    def predict(self, X: Any, *, decision: str | None = None, coverage: float | None = None) -> np.ndarray:
        """The most probable label of each text, (N,); for several labels per text those that the decision rule gives.

        `decision` names another rule than the model's own. A classifier that was fitted on a matrix returns a matrix
        (N, K) of 0 and 1, one that was fitted on sets an array (N,) of tuples.

        With a `coverage` such as 0.95, texts that are too far from all classes get None instead of a label; that share
        of the texts of known classes still gets one.
        """
        if coverage is not None:
            detector = self._detecting.detector
            p, distances = self._detecting.with_distances(as_texts(X, "the texts"))
            labels = self.classes_.astype(object)[p.argmax(axis=1)]
            labels[distances > detector.threshold(coverage)] = None
            return np.asarray(labels)
        scores = self._model.scores(as_texts(X, "the texts"))
        if self._model.task == "multi-class" and decision is None:
            return np.asarray(self.classes_[scores.argmax(axis=1)])
        labels = self._model.rules(scores, decision)
        if self._model.facts.get("matrix"):
            return to_matrix(labels)
        return as_objects(self._model.classes.names_of(labels))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities in the order of `classes_`, (N, K); for several labels per text they do not sum to one."""
        return self._model.probabilities(as_texts(X, "the texts"))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of `predict_proba`, (N, K)."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def unknown_scores(self, X: Any) -> np.ndarray:
        """How far each text is from the nearest class, (N,): one minus the cosine; unknown texts are farther."""
        return self._detecting.with_distances(as_texts(X, "the texts"))[1]

    @property
    def _detecting(self) -> TrainedModel:
        model = self._model
        if not isinstance(model, TrainedModel):
            raise ModelError("an exported model does not recognise unknown texts; load the model that it was exported "
                             "from.")
        return model

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores in the order of `classes_`, (N, K), of which `predict` takes the highest.

        With two classes, the score of the second minus that of the first, (N,). For several labels per text, the
        log-odds of each label.
        """
        scores = self._model.scores(as_texts(X, "the texts"))
        if self._model.task == "multi-label":
            return self._model.rules.calibration.log_odds(scores)
        return np.asarray(scores[:, 1] - scores[:, 0]) if len(self.classes_) == 2 else scores

    def suggest(self, pool: Any, n: int = 50, strategy: str = "balanced") -> list[Suggestion]:
        """The n texts of a pool to label next, the most useful first; texts that are labelled already are left out.

        `balanced` combines doubt, diversity, class balance and density; the other strategies are `uncertainty`,
        `diverse` and `random`. A suggestion has the fields text, guess, probability and reason.
        """
        texts = clean(as_pool(pool, None), role="unlabelled")[0].texts
        return suggest(texts, n, strategy, model=self._model, vectors=self._model.vectors, labelled=self._labelled,
                       labelled_hashes=self._labelled_hashes, seed=seed_of(self.random_state))[0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; for several labels per text subset accuracy, the share of texts with all labels right.

        A label that training never saw counts as missed.
        """
        if self._model.task == "multi-class":
            return float(super().score(X, as_labels(y, "y"), sample_weight))
        given = as_corpus(X, y, "the texts")
        classes = self._model.classes.extended(given.labels)
        predicted = self._model.rules(self._model.scores(given.texts))
        unseen = len(classes) - len(self._model.classes)
        correct = (classes.matrix(given.labels) == np.pad(predicted, ((0, 0), (0, unseen)))).all(axis=1)
        return float(np.average(correct, weights=sample_weight))

    def save(self, folder: str | Path) -> None:
        """Writes the model as a folder of safetensors and JSON."""
        self._model.save(Path(folder))

    @overload
    def distill(self, pool: Any, *, student: str = "static", cascade: Literal[False] = False,
                labelled: tuple[Any, Any] | None = None) -> Student: ...

    @overload
    def distill(self, pool: Any, *, student: str = "static", cascade: Literal[True], agree: float | None = None,
                speed_up: float | None = None, labelled: tuple[Any, Any] | None = None) -> Cascade: ...

    def distill(self, pool: Any, *, student: str = "static", cascade: bool = False, agree: float | None = None,
                speed_up: float | None = None, labelled: tuple[Any, Any] | None = None) -> Student | Cascade:
        """A small, fast model that imitates this one and needs no torch, fitted to its answers on unlabelled texts.

        Parameters
        ----------
        pool : like X of `fit`
            Texts like those that the student is for, better thousands than hundreds.
        student : {"static", "words", "characters"}
            Its features: words, pairs of words and 4 characters, where words whose vectors are similar get similar
            weights; words and pairs of words alone; or 3 to 5 characters.
        cascade : bool
            Returns student and this model together: the student answers the texts of which it is sure.
        agree : float, optional
            With `cascade`, the share of texts that get the labels of this model. By default 0.99.
        speed_up : float, optional
            With `cascade` and instead of `agree`, how many times as fast as this model the cascade is.
        labelled : pair of texts and labels, optional
            Measures accuracy; by cross-fitting, if this model was trained on the texts and its encoder was not.
        """
        from halflabel.students.distillation import distill
        from halflabel.students.trial import Goal

        model = self._model
        if not isinstance(model, TrainedModel):
            raise ModelError("an exported model cannot be distilled; load the model that it was exported from.")
        if not cascade and (agree is not None or speed_up is not None):
            raise SettingError("agree and speed_up are for a cascade; give cascade=True as well, or leave them out.")
        truth = None if labelled is None else as_corpus(*texts_and_labels(labelled, "labelled"), "labelled").labelled()
        texts, _ = clean(as_pool(pool, None), role="unlabelled")
        texts = texts if truth is None else drop_labelled(texts, truth)
        names = {} if truth is None else choose_names(self.names, truth.labels)[0]
        fitted = distill(model, texts, student=student, cascade=Goal(agree, speed_up) if cascade else None,
                         examples=self._examples, labelled=truth, refit=refitting(model, texts, names),
                         seed=model.facts.get("seed", 0),
                         trained_on=np.union1d(text_hashes(self._labelled), self._labelled_hashes))
        return fitted if fitted.threshold is None else Cascade(fitted, fitted.threshold, lambda: model)

    @classmethod
    def load(cls, folder: str | Path, *, device: str = AUTO, precision: str = AUTO) -> TextClassifier:
        """Loads a model that `save`, a training run or `halflabel export` wrote; an exported one runs on the CPU."""
        if is_student(Path(folder)):
            raise ModelError(f"{folder} is a distilled model; open it with halflabel.students.cascade.open_student.")
        compute = choose_compute(device, precision)
        model = OnnxModel(folder) if is_export(Path(folder)) else load(folder).on(compute)
        plan = model.facts.get("plan", {}).get("name", "laptop")
        self = cls(model.method, model.facts.get("encoder"), plan, settings=getattr(model, "settings", None) or None,
                   device=device, precision=precision, random_state=model.facts.get("seed", 0))
        self._adopt(model)
        self._labelled_hashes = read_text_hashes(Path(folder))["labelled"]
        self._examples = kept_texts(Path(folder))
        self.termination_condition_ = model.facts.get("run", {}).get("why", "not finished")
        self.notices_ = model.facts.get("run", {}).get("notices", [])
        return self

    def __getstate__(self) -> dict[str, Any]:
        """The estimator for pickle, joblib and copies: its model as the files that `save` writes, by name."""
        state: dict[str, Any] = super().__getstate__()
        if "model_" not in state:
            return state
        with TemporaryDirectory() as parent:
            folder = Path(parent) / "model"
            self.save(folder)
            files = {file.relative_to(folder).as_posix(): file.read_bytes()
                     for file in sorted(folder.rglob("*")) if file.is_file()}
        return {name: value for name, value in state.items() if name != "decision_"} | {"model_": files}

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.get("model_")
        super().__setstate__({name: value for name, value in state.items() if name != "model_"})
        if files is None:
            return
        with TemporaryDirectory() as parent:
            for name, content in files.items():
                file = Path(parent, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            self._adopt(load(parent).on(choose_compute()))  # another machine may lack the device of this one

    @property
    def _model(self) -> TrainedModel | OnnxModel:
        check_is_fitted(self, "model_")
        return self.model_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.classifier_tags.multi_label = True
        return tags


def seed_of(random_state: Any) -> int:
    """An int as it is; otherwise a seed that the generator, or the operating system, draws."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int((random_state or np.random.RandomState()).randint(2**31))
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    raise SettingError(f"random_state={random_state!r} is no seed; give a whole number, None, or a generator of numpy.")
