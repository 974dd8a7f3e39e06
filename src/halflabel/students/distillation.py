"""Distillation: fits a student to a trained model's answers on unlabelled texts, and measures how far they agree."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halflabel.data.corpus import Corpus
from halflabel.errors import DataError, SettingError
from halflabel.evaluation.decisions import Decision, evidence, sigmoid
from halflabel.persistence.model import TrainedModel
from halflabel.randomness import Stream, generator, shuffled
from halflabel.students.cascade import confidence
from halflabel.students.ngrams import BUCKETS, KINDS, Kind, occurrences
from halflabel.students.student import Student, TfIdf
from halflabel.types import Progress, Task

POOL_LIMIT = 50_000  # pool texts that a student is fitted to, at most
MIN_TEXTS = 20  # of the pool: fewer leave too few to measure agreement on
HELD_OUT, MAX_HELD_OUT = 0.2, 5_000  # share of the pool on which agreement is measured, and most texts of it
MIN_FREQUENCY = 2  # texts in which a kept n-gram occurs
MAX_WEIGHTS, MAX_FEATURES = 1 << 21, 1 << 17  # of a student: 4 MB in float16
STRENGTH = 0.1  # of the penalty on weights; scikit-learn's C is its inverse
ITERATIONS = 60
LOG_TEMPERATURES = (-3.0, 3.0)
MIN_AGREEMENT = 0.5  # below which a student is of no use
CHUNK = 4096  # texts whose n-grams are found at a time

Array = NDArray[np.floating]
Floats = NDArray[np.float32]
Matrix = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Answers:
    """A teacher's answers: probabilities (N, K), and as 0 and 1 the labels that follow from them, (N, K)."""

    p: Array
    chosen: Matrix

    @classmethod
    def of(cls, teacher: TrainedModel, texts: Sequence[str], progress: Progress | None = None) -> Answers:
        """The answers to texts."""
        p = teacher.probabilities(texts, progress)
        return cls(p, teacher.rules.rule()(p) if teacher.task == "multi-label" else best(p))

    def __getitem__(self, rows: slice) -> Answers:
        return Answers(self.p[rows], self.chosen[rows])


def best(scores: Array) -> Matrix:
    """1 for the highest score of each text and 0 for the others, (N, K)."""
    return np.asarray(np.arange(scores.shape[1]) == scores.argmax(axis=1)[:, None])


def distill(teacher: TrainedModel, pool: Corpus, *, student: str = "words", labelled: Corpus | None = None,
            agree: float | None = None, seed: int = 0, progress: Progress | None = None) -> Student:
    """A student of the teacher, and in its report how it compares on held-out texts of the pool.

    With `agree` the student gets a threshold for a cascade, in which that share of texts gets the teacher's label. On
    `labelled` texts, which must not be in the pool, the accuracy of both is measured.
    """
    kind = check_kind(student)
    if agree is not None:
        check_agree(agree, teacher.task)
    if len(pool) < MIN_TEXTS:
        raise DataError(f"{pool.source} has {len(pool)} texts to learn from, which is too few; give at least "
                        f"{MIN_TEXTS}, better thousands.")
    rows = shuffled(generator(seed, Stream.DISTILLATION), len(pool))[:POOL_LIMIT]
    texts = [pool.texts[int(i)] for i in rows]
    began = time.perf_counter()
    answers = Answers.of(teacher, texts, progress)
    teacher_seconds = time.perf_counter() - began
    held_out = min(MAX_HELD_OUT, int(HELD_OUT * len(texts)))
    hidden, seen = slice(held_out), slice(held_out, None)
    fitted = calibrated(fit_student(kind, teacher, texts[seen], answers[seen]), texts[hidden], answers[hidden])
    scores = fitted.scores(texts[hidden])
    given, expected = labels_by(fitted, scores), answers[hidden].chosen
    report = {"texts": len(texts), "held_out": held_out} | agreement(given, expected, fitted.task, pool.source)
    if agree is not None:
        threshold, share = cascade_threshold(confidence(scores), (given == expected).all(axis=1), agree)
        fitted = replace(fitted, threshold=threshold)
        report |= {"agree": agree, "answered_by_student": share}
    began = time.perf_counter()
    fitted.probabilities(texts)
    student_seconds = time.perf_counter() - began
    report |= {"teacher_texts_per_second": len(texts) / teacher_seconds, "speed_up": teacher_seconds / student_seconds,
               "student_texts_per_second": len(texts) / student_seconds}
    return replace(fitted, report=report if labelled is None else report | accuracies(fitted, teacher, labelled))


def check_kind(student: str) -> Kind:
    """Refuses an unknown kind of student."""
    for kind in KINDS:
        if kind == student:
            return kind
    raise SettingError(f"there is no student '{student}'; choose one of {', '.join(KINDS)}.")


def check_agree(agree: float, task: Task) -> None:
    """Refuses a cascade that cannot be made."""
    if not 0.0 < agree < 1.0:
        raise SettingError(f"--agree {agree:g} is not a share of texts; give a number between 0 and 1, such as 0.99.")
    if task == "multi-label":
        raise SettingError("a cascade is for models with one label per text, and this one gives several; leave out "
                           "--cascade to distill a student alone.")


def fit_student(kind: Kind, teacher: TrainedModel, texts: Sequence[str], answers: Answers) -> Student:
    """A linear model of the teacher's probabilities, so that a text counts as much as the teacher is sure of it."""
    features = fit_features(kind, texts, len(teacher.classes))
    weights, bias = fit_linear(tf_idf_matrix(features, texts), answers.p.astype(np.float32), teacher.task)
    return Student(teacher.classes, teacher.task, features, weights, bias)


def fit_features(kind: Kind, texts: Sequence[str], labels: int) -> TfIdf:
    """The most frequent n-grams of the texts, as many as a student of a few MB has room for."""
    frequency = np.zeros(BUCKETS, np.int64)
    for start in range(0, len(texts), CHUNK):
        rows, buckets = occurrences(texts[start : start + CHUNK], kind)
        frequency += np.bincount(np.unique(rows * BUCKETS + buckets) % BUCKETS, minlength=BUCKETS)
    number = min(MAX_FEATURES, MAX_WEIGHTS // labels, int((frequency >= MIN_FREQUENCY).sum()))
    if not number:
        raise DataError("no word occurs in two texts of the pool, so a student has nothing to learn from; give a "
                        "larger pool.")
    kept = np.sort(np.argsort(-frequency, kind="stable")[:number])
    idf = np.log((1 + len(texts)) / (1 + frequency[kept])) + 1.0
    return TfIdf(kind, kept.astype(np.uint32), idf.astype(np.float32))


def tf_idf_matrix(features: TfIdf, texts: Sequence[str]) -> Any:
    """The features of texts as a scipy matrix, (N, F)."""
    from scipy.sparse import csr_matrix, vstack

    parts = [features(texts[start : start + CHUNK]) for start in range(0, len(texts), CHUNK)]
    return vstack([csr_matrix((x.values, x.features, x.bounds), (len(x.bounds) - 1, len(features.buckets)))
                   for x in parts], format="csr")


def fit_linear(x: Any, y: Array, task: Task, strength: float = STRENGTH) -> tuple[Floats, Floats]:
    """Logistic regression on soft labels y (N, K): weights (F, K) and bias (K,); a softmax, or a sigmoid per label."""
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    shape = (x.shape[1] + 1, y.shape[1])
    transposed = x.T.tocsr()

    def loss(flat: Array) -> tuple[float, Array]:
        w = flat.reshape(shape)
        scores = (x @ w[:-1].astype(np.float32) + w[-1]).astype(np.float32)
        if task == "multi-class":
            log_p = log_softmax(scores, axis=1)
            value, error = -(y * log_p).sum(), np.exp(log_p) - y
        else:
            value, error = (np.logaddexp(0.0, scores) - y * scores).sum(), sigmoid(scores) - y
        gradient = np.empty(shape)
        gradient[:-1] = transposed @ error
        gradient[:-1] += strength * w[:-1]
        gradient[-1] = error.sum(axis=0)
        return float(value + strength / 2 * (w[:-1] ** 2).sum()), gradient.ravel()

    found = minimize(loss, np.zeros(shape[0] * shape[1]), jac=True, method="L-BFGS-B",
                     options={"maxiter": ITERATIONS, "maxcor": 5}).x.reshape(shape).astype(np.float32)
    return found[:-1], found[-1]


def calibrated(student: Student, texts: Sequence[str], answers: Answers) -> Student:
    """The student with its logits divided by the temperature at which the answers to held-out texts are most likely.

    For several labels per text, decision rules are fitted to the same texts: they give each label as often as the
    teacher does.
    """
    from scipy.optimize import minimize_scalar

    scores = student.scores(texts)

    def loss(log_temperature: float) -> float:
        cooled = scores / np.exp(log_temperature)
        if student.task == "multi-class":
            return -float(evidence(cooled, logits=False)[answers.chosen].mean())
        return float((np.logaddexp(0.0, cooled) - answers.p * cooled).mean())

    temperature = np.float32(np.exp(minimize_scalar(loss, bounds=LOG_TEMPERATURES, method="bounded").x))
    decision = None
    if student.task == "multi-label":
        decision = Decision.fit(scores / temperature, answers.chosen.mean(axis=0), logits=True, slope=1.0,
                                source=f"{len(texts)} held-out texts", chosen="prior-quantile")
    return replace(student, weights=student.weights / temperature, bias=student.bias / temperature, decision=decision)


def labels_by(student: Student, scores: Array) -> Matrix:
    """The labels that the student gives by its scores, as 0 and 1, (N, K)."""
    return best(scores) if student.decision is None else student.decision(scores)


def agreement(given: Matrix, expected: Matrix, task: Task, source: str) -> dict[str, float]:
    """How far the labels of student and teacher agree; a student that is of no use is refused."""
    same = float((given == expected).all(axis=1).mean())
    if task == "multi-label":
        micro_f1 = float(2 * (given & expected).sum() / max(1, given.sum() + expected.sum()))
        figures, value, floor = {"agreement": same, "micro_f1": micro_f1}, micro_f1, MIN_AGREEMENT
    else:  # a student that always gave the most frequent label would agree as often as it occurs
        figures, value, floor = {"agreement": same}, same, max(MIN_AGREEMENT, float(expected.mean(axis=0).max()))
    if value <= floor:
        raise DataError(f"{source}: on held-out texts the student agrees with the model only to {value:.0%}, which is "
                        f"not above {floor:.0%}, so nothing is written; give a larger pool of texts like the labelled "
                        "ones, in their language.")
    return figures


def cascade_threshold(sure: Array, same: Matrix, agree: float) -> tuple[float, float]:
    """The lowest confidence from which a student may answer so that the cascade agrees, and its share of the texts.

    One disagreement more than was seen is allowed for, as in conformal risk control: then the expected agreement on
    texts of the same kind is at least `agree`, although the threshold is chosen on the texts that it is measured on.
    """
    order = np.argsort(-sure, kind="stable")
    falling, wrong = sure[order], np.cumsum(~same[order])
    last = np.append(falling[1:] < falling[:-1], True)  # a threshold cannot separate equal values
    allowed = np.flatnonzero(last & (wrong + 1 <= (1.0 - agree) * (len(same) + 1) + 1e-9))
    if not len(allowed):
        raise DataError(f"the student is never sure enough for an agreement of {agree:.1%} on {len(same)} held-out "
                        "texts, so nothing is written; lower --agree, or give a larger pool.")
    return float(falling[allowed[-1]]), float((allowed[-1] + 1) / len(same))


def accuracies(student: Student, teacher: TrainedModel, labelled: Corpus) -> dict[str, float]:
    """The share of labelled texts whose labels student and teacher get all right."""
    truth = teacher.classes.matrix(labelled.labels, source=labelled.source) > 0
    answers = {"student": labels_by(student, student.scores(labelled.texts)),
               "teacher": Answers.of(teacher, labelled.texts).chosen}
    return {"labelled": len(labelled)} | {f"{name}_accuracy": float((given == truth).all(axis=1).mean())
                                          for name, given in answers.items()}
