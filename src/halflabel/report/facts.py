"""What a report says about a model: accuracy, calibration, examples with reasons, label errors, pool, learning curve.

Shapes: N texts, K labels, H encoder width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from halflabel import __version__
from halflabel.data.corpus import Corpus
from halflabel.evaluation.confidence import COVERAGE, calibration_error, wilson_interval
from halflabel.evaluation.metrics import multi_class, multi_label
from halflabel.label_errors import cross_fitted, find_label_errors
from halflabel.methods.linear_models import logistic_regression
from halflabel.persistence.model import TrainedModel
from halflabel.reasons import Explanation, explain_prediction
from halflabel.types import Progress

EXAMPLES = 3  # of each kind
POOL_TEXTS = 2000  # that are compared with the labelled texts, at most
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)  # of the labels, on a learning curve
REPEATS = 3  # samples for each of these


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Predictions of texts whose labels are known."""

    source: str
    names: Sequence[object]
    truth: np.ndarray  # (N,) columns
    p: np.ndarray  # (N, K)
    texts: Sequence[str] = ()  # if their predictions are the model's own

    @property
    def predicted(self) -> np.ndarray:
        return np.asarray(self.p.argmax(axis=1))

    @property
    def confidence(self) -> np.ndarray:
        return np.asarray(self.p.max(axis=1))

    @property
    def correct(self) -> np.ndarray:
        return np.asarray(self.predicted == self.truth)

    @property
    def figures(self) -> dict[str, Any]:
        return multi_class(self.truth, self.predicted, self.names) | {
            "calibration_error": calibration_error(self.confidence, self.correct)}


class Example(NamedTuple):
    """A text with its label, its prediction, and the words that speak for it."""

    kind: str  # right, wrong or unsure
    text: str
    label: object
    predicted: object
    explanation: Explanation


class CurvePoint(NamedTuple):
    """Accuracy with some of the labels: mean, lowest and highest over samples."""

    labels: int
    accuracy: float
    lowest: float
    highest: float


class PoolFacts(NamedTuple):
    """How the pool differs from the labelled texts."""

    texts: int
    shares: np.ndarray  # (K,) of predicted labels
    unknown: float | None  # share of texts that are far from all classes
    drift: float | None  # how well pool and labelled texts can be told apart: 0.5 not at all, 1 always


@dataclass(frozen=True, eq=False)
class ReportFacts:
    """Everything that a report and a model card are made of."""

    model: TrainedModel
    name: str
    written: str
    evaluation: Evaluation | None = None
    held_out: tuple[int, int] | None = None  # labelled texts that were predicted right without them, and all
    several: dict[str, Any] | None = None  # figures of a model with several labels per text
    examples: list[Example] = field(default_factory=list)
    label_errors: list[tuple[str, object, object, float]] | None = None
    labelled: np.ndarray | None = None  # (K,) labelled texts
    pool: PoolFacts | None = None
    curve: list[CurvePoint] = field(default_factory=list)
    version: str = __version__

    @property
    def accuracy(self) -> tuple[int, int, str] | None:
        """Texts that were predicted right, all texts, and which they are."""
        if self.evaluation is not None:
            return int(self.evaluation.correct.sum()), len(self.evaluation.truth), self.evaluation.source
        return None if not self.held_out else (*self.held_out, "labelled texts, each predicted without its label")

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of 95 % of the accuracy."""
        return None if self.accuracy is None else wilson_interval(*self.accuracy[:2])


def collect(model: TrainedModel, folder: Path, *, test: Corpus | None = None, labelled: Corpus | None = None,
            pool: Corpus | None = None, progress: Progress | None = None) -> ReportFacts:
    """The facts about the model in a folder, as far as the given texts allow."""
    start, shape = model.facts.get("start", {}), len(model.classes)
    written = datetime.fromtimestamp((folder / "config.json").stat().st_mtime).date().isoformat()
    held_out = (start["held_out_correct"], start["held_out"]) if start.get("held_out") else None
    facts: dict[str, Any] = {"held_out": held_out}
    if model.task == "multi-label":
        return ReportFacts(model, folder.name, written, several=None if test is None else measure_several(model, test))
    vectors = y = None
    if labelled is not None:
        y = model.classes.matrix(labelled.labels, source=labelled.source).argmax(axis=1)
        vectors = model.vectors(labelled.texts)
        facts["labelled"] = np.bincount(y, minlength=shape)
        names = model.classes.names
        facts["label_errors"] = [(labelled.texts[e.row], names[e.given], names[e.suggested], e.score)
                                 for e in find_label_errors(vectors, y, shape)]
    if test is not None:
        evaluation = facts["evaluation"] = evaluate(model, test, progress)
        facts["examples"] = examples(model, evaluation)
        if vectors is not None and y is not None and len(evaluation.names) == shape:
            facts["curve"] = learning_curve(vectors, y, shape, model.vectors(test.texts), evaluation.truth)
    elif vectors is not None and y is not None and model.frozen:
        facts["evaluation"] = held_out_evaluation(model, vectors, y)
    if pool is not None and len(pool):
        facts["pool"] = pool_facts(model, pool, vectors)
    elif counts := model.facts.get("pool_predictions"):
        facts["pool"] = PoolFacts(sum(counts), np.array(counts) / max(1, sum(counts)), None, None)
    return ReportFacts(model, folder.name, written, **facts)


def evaluate(model: TrainedModel, test: Corpus, progress: Progress | None = None) -> Evaluation:
    """The model's predictions of a test set; a label that training never saw is always missed."""
    classes = model.classes.extended(test.labels)
    p = model.probabilities(test.texts, progress)
    p = np.pad(p, ((0, 0), (0, len(classes) - p.shape[1])))
    return Evaluation(test.source, classes.names, classes.matrix(test.labels).argmax(axis=1), p, test.texts)


def measure_several(model: TrainedModel, test: Corpus) -> dict[str, Any]:
    """Figures of a model with several labels per text on a test set."""
    classes = model.classes.extended(test.labels)
    scores = model.scores(test.texts)
    unseen = ((0, 0), (0, len(classes) - scores.shape[1]))
    return multi_label(classes.matrix(test.labels) > 0, np.pad(model.rules(scores), unseen),
                       np.pad(scores, unseen, constant_values=-np.inf), classes.names) | {"source": test.source}


def held_out_evaluation(model: TrainedModel, vectors: np.ndarray, y: np.ndarray) -> Evaluation | None:
    """Labelled texts, each predicted by logistic regression that was fitted without it."""
    p = cross_fitted(vectors, y, len(model.classes))
    rows = np.flatnonzero(~np.isnan(p[:, 0]))
    source = "labelled texts, each predicted by logistic regression that was fitted without it"
    return Evaluation(source, model.classes.names, y[rows], p[rows]) if len(rows) else None


def examples(model: TrainedModel, evaluation: Evaluation) -> list[Example]:
    """The texts that the model is surest of, rightly and wrongly, and those that it is least sure of."""
    sure, correct = evaluation.confidence, evaluation.correct
    order = np.argsort(-sure, kind="stable")
    kinds = {"right": order[correct[order]], "wrong": order[~correct[order]], "unsure": order[::-1]}
    return [Example(kind, evaluation.texts[row], evaluation.names[evaluation.truth[row]],
                    evaluation.names[evaluation.predicted[row]], explain_prediction(model, evaluation.texts[row]))
            for kind, rows in kinds.items() for row in rows[:EXAMPLES].tolist()]


def learning_curve(x: np.ndarray, y: np.ndarray, labels: int, test: np.ndarray, truth: np.ndarray) -> list[CurvePoint]:
    """Accuracy on test texts of logistic regression with some of the labels, on vectors (N, H) of the encoder."""
    x, test = (v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for v in (x, test))
    points = []
    for share in SHARES:
        scores = []
        for repeat in range(REPEATS if share < 1.0 else 1):
            rng = np.random.default_rng([repeat, 1])
            rows = np.concatenate([rng.permutation(rows)[: max(1, round(share * len(rows)))]
                                   for rows in (np.flatnonzero(y == k) for k in range(labels)) if len(rows)])
            fitted = logistic_regression(x[rows], y[rows], x[:0], labels)
            scores.append(float((fitted.log_probabilities(test).argmax(axis=1) == truth).mean()))
        points.append(CurvePoint(len(rows), float(np.mean(scores)), min(scores), max(scores)))
    return points


def pool_facts(model: TrainedModel, pool: Corpus, labelled: np.ndarray | None) -> PoolFacts:
    """Predicted classes of a sample of the pool, and how far it differs from the vectors (N, H) of labelled texts."""
    rows = np.sort(np.random.default_rng(0).permutation(len(pool))[:POOL_TEXTS])
    texts = [pool.texts[int(i)] for i in rows]
    unknown = None
    if model.unknown is not None and len(model.unknown.held_out) >= COVERAGE / (1.0 - COVERAGE):
        p, distances = model.with_distances(texts)
        unknown = float((distances > model.unknown.threshold(COVERAGE)).mean())
    else:
        p = model.probabilities(texts)
    shares = np.bincount(p.argmax(axis=1), minlength=p.shape[1]) / len(texts)
    return PoolFacts(len(texts), shares, unknown, None if labelled is None else drift(labelled, model.vectors(texts)))


def drift(labelled: np.ndarray, pool: np.ndarray) -> float:
    """AUROC of held-out predictions whether a text is from the pool (M, H) or labelled (N, H), as many of each."""
    from sklearn.metrics import roc_auc_score

    rng, size = np.random.default_rng(0), min(len(labelled), len(pool))
    x = np.concatenate([rng.permutation(labelled)[:size], rng.permutation(pool)[:size]])
    origin = np.repeat([0, 1], size)
    return float(roc_auc_score(origin, cross_fitted(x, origin, 2)[:, 1])) if size > 1 else 0.5
