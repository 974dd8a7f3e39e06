"""Distillation: fits a student to a trained model's answers on unlabelled texts, and measures how far they agree."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from halflabel.arrays import Array, Floats
from halflabel.data.columns import text_hashes
from halflabel.data.corpus import Corpus, TextLabel
from halflabel.encoders.neighbours import unit
from halflabel.encoders.ngrams import (
    KINDS,
    MAX_FEATURES,
    MAX_WEIGHTS,
    Kind,
    NgramModel,
    TfIdf,
    distinct_words,
    fit_linear,
    most_frequent,
    occurrences,
    tf_idf_matrix,
)
from halflabel.encoders.text_encoder import BagOfWords
from halflabel.errors import DataError, SettingError
from halflabel.evaluation.decisions import Calibration, Decision, DecisionRule, cut, evidence, log_odds, sigmoid
from halflabel.persistence.model import TrainedModel
from halflabel.randomness import Stream, generator, shuffled
from halflabel.students.cascade import Cascade, confidence
from halflabel.students.student import Student, most_probable
from halflabel.types import Progress

POOL_LIMIT = 50_000  # pool texts that a student is fitted to, at most
MIN_TEXTS = 20  # of the pool: fewer leave too few to measure agreement on
HELD_OUT, MAX_HELD_OUT = 0.2, 5_000  # share of the pool on which agreement is measured, and most texts of it
STATIC_WEIGHTS, STATIC_FEATURES = 8 << 20, 1 << 18  # with weights of words that are in no text of the pool: 16 MB
SHORT = 20  # words of a text, on average, up to which phrases are features: in longer texts they tell nothing more
VOCABULARY = 30_000  # words of the encoder's vocabulary that a static student knows, at most
STRENGTH = 0.03  # of the penalty on weights; scikit-learn's C is its inverse
EPSILON = 1e-9
LOG_TEMPERATURES = (-3.0, 3.0)
SCALES = (2.0, 0.3)  # of vectors of n-grams beside the n-grams themselves, of which one is kept
RIDGE = 1.0  # penalty on how far vectors of n-grams are from those of words
RIDGE_TEXTS = 4_000  # whose vectors they are fitted to, at most
PRIOR = 0.5  # share of naive Bayes in the weights that a penalty draws those of n-grams to, with many texts per class
PRIOR_TEXTS = 300  # per class with which the share is half as large: with few, naive Bayes knows few n-grams of a class
LOG_FACTORS = (-4.0, 4.0)  # of naive Bayes
BLOCK = 512  # held-out texts that are compared with the others at a time
DEFAULT: Kind = "static"
AGREE = 0.99  # share of texts to which a cascade gives the teacher's labels, unless another is asked for
CERTAINTY = 0.9  # with which the held-out texts have to show that it does
SPEED_TRIALS = 3  # thresholds that are tried, at most, to reach a speed-up
FOLDS = 5  # of cross-fitting
Z = 1.96  # of an interval of 95 %
MIN_AGREEMENT = 0.5  # below which a student is of no use

Matrix = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Answers:
    """A teacher's answers: probabilities (N, K), and as 0 and 1 the labels that follow from them, (N, K)."""

    p: Array
    chosen: Matrix

    @classmethod
    def of(cls, teacher: TrainedModel, p: Array) -> Answers:
        """The answers that follow from the teacher's probabilities, (N, K)."""
        return cls(p, teacher.rules.rule()(p) if teacher.task == "multi-label" else most_probable(p))


@dataclass(frozen=True)
class Goal:
    """What the threshold of a cascade is chosen for: agreement with the teacher, or speed."""

    agree: float | None = None
    speed_up: float | None = None

    def __post_init__(self) -> None:
        if self.agree is not None and self.speed_up is not None:
            raise SettingError("--agree and --speed-up both choose the threshold of a cascade; give one of them.")
        if self.agree is not None and not 0.0 < self.agree < 1.0:
            raise SettingError(f"--agree {self.agree:g} is not a share of texts; give a number between 0 and 1, such "
                               f"as {AGREE}.")
        if self.speed_up is not None and not 1.0 < self.speed_up < np.inf:
            raise SettingError(f"--speed-up {self.speed_up:g} is not faster than the model; give a number above 1, "
                               "such as 5.")


Refit = Callable[[Corpus], TrainedModel]  # the teacher's method, trained again on some of its labelled texts


def distill(teacher: TrainedModel, pool: Corpus, *, student: str = DEFAULT, cascade: Goal | None = None,
            examples: Sequence[str] = (), labelled: Corpus | None = None,
            trained_on: NDArray[np.uint64] | None = None, refit: Refit | None = None,
            seed: int = 0, progress: Progress | None = None) -> Student:
    """A student of the teacher, and in its report how it compares on held-out texts of the pool.

    It also learns the teacher's answers on `examples`, the labelled texts that the teacher was trained on. With a goal
    for a cascade the student gets a threshold. On `labelled` texts, which must not be in the pool, accuracy is
    measured: by cross-fitting with `refit` if the teacher was trained on most of them, as hashes of the texts that it
    was `trained_on` tell, else on the others. The teacher answers texts of its own pool as it would new ones, for which
    the student is to agree with it.
    """
    kind, teacher = check_kind(student), teacher.as_if_new()
    if len(pool) < MIN_TEXTS:
        raise DataError(f"{pool.source} has {len(pool)} texts to learn from, which is too few; give at least "
                        f"{MIN_TEXTS}, better thousands.")
    rows = shuffled(generator(seed, Stream.DISTILLATION), len(pool))[:POOL_LIMIT]
    texts = [pool.texts[int(i)] for i in rows]
    words = None
    if kind == "static" and not isinstance(teacher.encoder, BagOfWords):
        (p, h), teacher_seconds = timed(lambda: teacher.with_vectors(texts, progress))
        words = WordVectors.of(teacher, texts, h, progress)
    else:
        p, teacher_seconds = timed(lambda: teacher.probabilities(texts, progress))
    known = Examples.of(teacher, examples, texts)
    trial = best_trial(kind, teacher, texts, p, words, known)
    # a threshold holds for the student that it was chosen for, with more texts it would be sure of more
    fitted = trial.student if cascade is not None else trial.refitted(texts, p, known)
    _, student_seconds = timed(lambda: fitted.probabilities(texts))
    report: dict[str, Any] = {
        "student": kind, "texts": len(texts), "labelled": len(known.texts), "held_out": len(trial.texts),
        **agreement(trial, pool.source),
        "teacher_texts_per_second": len(texts) / teacher_seconds,
        "student_texts_per_second": len(texts) / student_seconds, "speed_up": teacher_seconds / student_seconds}
    if cascade is not None:
        threshold, figures = trial.threshold(cascade, teacher_seconds / len(texts), student_seconds / len(texts))
        fitted, report = replace(fitted, threshold=threshold), report | {"cascade": figures}
    if labelled is not None:
        seen = np.isin(text_hashes(labelled.texts), [] if trained_on is None else trained_on)
        seen_texts, new = (labelled.take(np.flatnonzero(rows).tolist()) for rows in (seen, ~seen))
        if refit is not None and len(seen_texts) > len(new):
            right = cross_fitted(trial, texts, seen_texts, refit, report, seed)
            report["accuracy"] = intervals(right) | {"measured_by": "cross-fitting"}
        else:
            right = correct(fitted, teacher, new if len(new) else seen_texts)
            by = "labelled texts" if trained_on is None else "new texts" if len(new) else "training texts"
            report["accuracy"] = intervals(right) | {"measured_by": by}
    return replace(fitted, report=report)


class Examples(NamedTuple):
    """The labelled texts that the teacher was trained on, and its probabilities of them, (N, K)."""

    texts: Sequence[str]
    p: Array

    @classmethod
    def of(cls, teacher: TrainedModel, labelled: Sequence[str], pool: Sequence[str]) -> Examples:
        """Those of the texts that are not in the pool, of which some texts are held out."""
        others = set(pool)
        texts = [text for text in labelled if text not in others]
        return cls(texts, teacher.probabilities(texts) if texts else np.empty((0, len(teacher.classes))))


class WordVectors(NamedTuple):
    """The teacher's vectors of words and of the texts that a student learns."""

    buckets: NDArray[np.int64]  # (W,) hashes of the words
    vectors: Floats  # (W, H), centred
    texts: Floats  # (N, H) of unit length, then centred
    scale: float = SCALES[0]  # how long the vectors of texts by their n-grams are made

    @classmethod
    def of(cls, teacher: TrainedModel, texts: Sequence[str], h: Array, progress: Progress | None = None) -> WordVectors:
        """For texts with vectors h (N, H): their words, and those of the teacher's vocabulary.

        The vocabulary has words that new texts may have although the pool does not.
        """
        words = distinct_words([*texts, *teacher.encoder.vocabulary()[:VOCABULARY]])
        rows, buckets = occurrences(words, "words")
        vectors = teacher.vectors(words, progress)[rows].astype(np.float32)
        f = unit(h)
        return cls(buckets, vectors - vectors.mean(axis=0), f - f.mean(axis=0))

    def without(self, number: int) -> WordVectors:
        """The same without the first texts."""
        return self._replace(texts=self.texts[number:])


def best_trial(kind: Kind, teacher: TrainedModel, texts: Sequence[str], p: Array, words: WordVectors | None,
               examples: Examples, strength: float = STRENGTH) -> Trial:
    """Of one trial for each scale of the vectors of n-grams, that with the most likely answers to held-out texts.

    Likelihood tells close scales apart where agreement, a count of few texts, does not.
    """
    scaled = [None] if words is None else [words._replace(scale=scale) for scale in SCALES]
    trials = [fit_and_try(kind, teacher, texts, p, some, examples, strength) for some in scaled]
    return min(trials, key=lambda trial: trial.calibration.loss)


def fit_and_try(kind: Kind, teacher: TrainedModel, texts: Sequence[str], p: Array, words: WordVectors | None,
                examples: Examples, strength: float = STRENGTH) -> Trial:
    """A student that learned the teacher's probabilities of most texts, (N, K), and was tried on the first ones."""
    held_out = min(MAX_HELD_OUT, int(HELD_OUT * len(texts)))
    hidden, answers = texts[:held_out], Answers.of(teacher, p[:held_out])
    learned = None if words is None else words.without(held_out)
    fitted = fit_student(kind, teacher, texts[held_out:], p[held_out:], learned, examples, strength)
    calibration = StudentCalibration.fit(fitted.scores(hidden), answers, teacher)
    fitted = calibration(fitted)
    scores = fitted.scores(hidden)
    unlike = None if words is None else least_like(words.texts[:held_out], words.texts[held_out:])
    return Trial(fitted, calibration, teacher, hidden, confidence(fitted, scores), fitted.labels_of(scores),
                 answers.chosen, words, strength, unlike)


def least_like(f: Floats, others: Floats) -> Matrix:
    """Which half of the vectors f (N, H) are farthest from the nearest of the others, (N,)."""
    f, others = unit(f), unit(others)
    nearest = np.concatenate([(f[start : start + BLOCK] @ others.T).max(axis=1) for start in range(0, len(f), BLOCK)])
    return np.asarray(nearest <= np.median(nearest))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and the seconds that it took."""
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def check_kind(student: str) -> Kind:
    """Refuses an unknown kind of student."""
    for kind in KINDS:
        if kind == student:
            return kind
    raise SettingError(f"there is no student '{student}'; choose one of {', '.join(KINDS)}.")


def fit_student(kind: Kind, teacher: TrainedModel, texts: Sequence[str], p: Array, words: WordVectors | None,
                examples: Examples, strength: float = STRENGTH) -> Student:
    """A linear model of the teacher's probabilities, so that a text counts as much as the teacher is sure of it.

    With vectors of words, a text also has the sum of its n-grams' vectors as features. Since that is linear in its
    TF-IDF values, the weights of these features become part of those of the n-grams: similar ones get similar weights.
    For one label per text, the penalty draws weights of n-grams to those of naive Bayes instead of 0, as in NBSVM.
    """
    texts, y = [*texts, *examples.texts], np.concatenate([p, examples.p]).astype(np.float32)
    features = fit_features(kind, texts, len(teacher.classes), words)
    x = tf_idf_matrix(features, texts)
    vectors, sums = vectors_of(features, words, x)
    present = np.flatnonzero(np.bincount(x.indices, minlength=x.shape[1]))  # the others have no weights but by vectors
    x = x[:, present]
    prior = naive_bayes(x, y) if teacher.task == "multi-class" else np.zeros((len(present), y.shape[1]), np.float32)
    fitted, bias = fit_linear(x, sums, y, teacher.task, strength, offset=x @ prior)
    weights = vectors @ fitted[len(present) :]
    weights[present] += fitted[: len(present)] + prior
    return Student(teacher.classes, teacher.task, NgramModel(features, weights, bias))


def naive_bayes(x: Any, y: Floats) -> Floats:
    """A share of the weights (F, K) that naive Bayes gives the columns of x (N, F) by soft labels y (N, K).

    These are log-ratios of a column's frequency with the class and without, times the factor at which y is most likely:
    naive Bayes counts n-grams that occur together as if each were evidence by itself.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    share = y.mean(axis=0) + np.float32(EPSILON)
    with_class = x.T @ y + share
    without = np.maximum(np.asarray(x.sum(axis=0)).reshape(-1, 1) + 1.0 - with_class, EPSILON)
    weights = (np.log(with_class / with_class.sum(axis=0)) - np.log(without / without.sum(axis=0))).astype(np.float32)
    scores, bias = x @ weights, np.log(share)
    found = minimize_scalar(lambda log_factor: -(y * log_softmax(np.exp(log_factor) * scores + bias, axis=1)).sum(),
                            bounds=LOG_FACTORS, method="bounded")
    prior = PRIOR * len(y) / (len(y) + PRIOR_TEXTS * y.shape[1])
    return np.asarray(prior * np.exp(found.x) * weights, np.float32)


def vectors_of(features: TfIdf, words: WordVectors | None, x: Any) -> tuple[Floats, Floats]:
    """Vectors of the features, (F, H), whose sums by rows of x (N, F) are near the teacher's vectors of the texts.

    They are fitted to some of the texts by ridge regression, V = a V_0 + X' (X X' + lambda)^-1 (H - a X V_0), whose
    penalty draws them to the teacher's vectors of single words V_0, since most n-grams are in few texts. Also the sums,
    (N, H), each by vectors that were fitted without the text, as for a new one: those with it would be too near.
    """
    if words is None:
        return np.zeros((len(features.buckets), 0), np.float32), np.zeros((x.shape[0], 0), np.float32)
    vectors = vectors_of_words(features, words)
    x_some, h = x[:RIDGE_TEXTS], words.texts[:RIDGE_TEXTS]
    x_some = x_some[: len(h)]  # texts after them are labelled ones
    sums = x_some @ vectors
    sums -= sums.mean(axis=0)
    a = float((sums * h).sum() / ((sums**2).sum() + EPSILON))
    gram = (x_some @ x_some.T).toarray()
    gram[np.diag_indices_from(gram)] += np.float32(RIDGE)
    inverse = np.linalg.inv(gram)
    residuals = inverse @ (h - a * sums)
    vectors = a * vectors + x_some.T @ residuals
    sums = x @ vectors
    sums[: len(h)] -= residuals * (1.0 / np.diag(inverse) - RIDGE)[:, None]  # to leave one out, in closed form
    scale = words.scale / (np.sqrt((sums**2).sum() / len(sums)) + EPSILON)
    return np.asarray(scale * vectors, np.float32), np.asarray(scale * sums, np.float32)


def vectors_of_words(features: TfIdf, words: WordVectors) -> Floats:
    """The teacher's vectors of the features that are words, (F, H), 0 for others."""
    vectors = np.zeros((len(features.buckets), words.vectors.shape[1]), np.float32)
    found = features.feature_of[words.buckets]
    vectors[found[found >= 0]] = words.vectors[found >= 0]
    return vectors


def fit_features(kind: Kind, texts: Sequence[str], labels: int, words: WordVectors | None = None) -> TfIdf:
    """The most frequent n-grams of the texts, and words with vectors, as many as a student has room for."""
    number = min(MAX_FEATURES, MAX_WEIGHTS // labels)
    if words is not None:
        number = min(STATIC_FEATURES, STATIC_WEIGHTS // labels)
    short = sum(len(text.split()) for text in texts) <= SHORT * len(texts)
    features = most_frequent(kind, texts, number, None if words is None else words.buckets, phrases=short)
    if features is None:
        raise DataError("no word occurs in two texts of the pool, so a student has nothing to learn from; give a "
                        "larger pool.")
    return features


@dataclass(frozen=True, eq=False)
class StudentCalibration:
    """What a student's logits are divided by, the decision for several labels per text, and the loss that is left."""

    temperature: np.float32
    decision: Decision | None
    loss: float

    @classmethod
    def fit(cls, scores: Array, answers: Answers, teacher: TrainedModel) -> StudentCalibration:
        """The temperature at which the answers to held-out texts with these logits (N, K) are most likely.

        The decision has the teacher's rules, and offsets of the logits at which the rule in use gives each label as
        often as the teacher does.
        """
        from scipy.optimize import minimize_scalar

        def loss(log_temperature: float) -> float:
            cooled = scores / np.exp(log_temperature)
            if teacher.task == "multi-class":
                return -float(evidence(cooled, logits=False)[answers.chosen].mean())
            return float((np.logaddexp(0.0, cooled) - answers.p * cooled).mean())

        found = minimize_scalar(loss, bounds=LOG_TEMPERATURES, method="bounded")
        temperature = np.float32(np.exp(found.x))
        if teacher.task == "multi-class":
            return cls(temperature, None, float(found.fun))
        offset = offsets(scores / temperature, answers.chosen, teacher.rules.rule())
        return cls(temperature, replace(teacher.rules, calibration=Calibration(True, 1.0, offset)), float(found.fun))

    def __call__(self, student: Student) -> Student:
        """The student, calibrated."""
        return replace(student, linear=student.linear.scaled(1.0 / float(self.temperature)), decision=self.decision)


def offsets(scores: Array, chosen: Matrix, rule: DecisionRule) -> Array:
    """What to subtract from logits (N, K), (K,), so that a rule with thresholds gives labels as often as `chosen`."""
    if rule.thresholds is None:
        return np.zeros(scores.shape[1])
    cuts = np.array([cut(p, count) for p, count in zip(sigmoid(scores).T, chosen.sum(axis=0), strict=True)])
    shift = log_odds(cuts) - log_odds(rule.thresholds)
    return np.where(np.isfinite(rule.thresholds), shift, 0.0)


def agreement(trial: Trial, source: str) -> dict[str, float]:
    """How far the labels of student and teacher agree; a student that is of no use is refused."""
    given, expected, same = trial.given, trial.expected, float(trial.same.mean())
    if trial.student.task == "multi-label":
        micro_f1 = float(2 * (given & expected).sum() / max(1, given.sum() + expected.sum()))
        figures, value, floor = {"agreement": same, "micro_f1": micro_f1}, micro_f1, MIN_AGREEMENT
    else:  # a student that always gave the most frequent label would agree as often as it occurs
        figures, value, floor = {"agreement": same}, same, max(MIN_AGREEMENT, float(expected.mean(axis=0).max()))
    if trial.student.task != "multi-label" and floor == 1.0:
        raise DataError(f"{source}: the model gives all held-out texts the same label, so nothing is written; give "
                        "texts of all classes.")
    if value <= floor:
        raise DataError(f"{source}: on held-out texts the student agrees with the model only to {value:.0%}, which is "
                        f"not above {floor:.0%}, so nothing is written; give a larger pool of texts like the labelled "
                        "ones, in their language.")
    return figures


@dataclass(frozen=True, eq=False)
class Trial:
    """Student and teacher on N held-out texts."""

    student: Student
    calibration: StudentCalibration
    teacher: TrainedModel
    texts: Sequence[str]
    confidence: Array  # of the student, (N,)
    given: Matrix  # the student's labels, (N, K)
    expected: Matrix  # the teacher's, (N, K)
    words: WordVectors | None = None
    strength: float = STRENGTH
    unlike: Matrix | None = None  # which texts are least like those that were learned, (N,); unknown without vectors

    def refitted(self, texts: Sequence[str], p: Array, examples: Examples) -> Student:
        """The student that learned from all texts, with the temperature of the one that was tried."""
        return self.calibration(fit_student(self.student.features.kind, self.teacher, texts, p, self.words, examples,
                                            self.strength))

    def threshold(self, goal: Goal, teacher_seconds: float, student_seconds: float) -> tuple[float, dict[str, float]]:
        """The confidence from which the student answers in a cascade, and how that does; seconds are per text."""
        if goal.speed_up is None:
            agree = AGREE if goal.agree is None else goal.agree
            threshold = self.agreeing_threshold(agree)
            return threshold, self.figures(threshold, teacher_seconds) | {"agree": agree}
        aim = goal.speed_up
        for _ in range(SPEED_TRIALS):
            threshold = self.fast_threshold(aim, teacher_seconds / student_seconds)
            figures = self.figures(threshold, teacher_seconds)
            if figures["speed_up"] >= goal.speed_up:
                break
            aim *= goal.speed_up / figures["speed_up"]
        return threshold, figures

    def agreeing_threshold(self, agree: float) -> float:
        """That of the texts least like the learned ones: texts in use are less like the pool than its own are."""
        rows = slice(None) if self.unlike is None else self.unlike
        return agreeing_threshold(self.confidence[rows], self.same[rows], agree)

    @property
    def same(self) -> Matrix:
        """Whether both give the same labels, (N,)."""
        return np.asarray((self.given == self.expected).all(axis=1))

    def fast_threshold(self, speed_up: float, student_speed_up: float) -> float:
        """The highest threshold with that speed-up, if the teacher's time is proportional to the length of texts."""
        order, last = thresholds(self.confidence)
        lengths = np.array([len(self.texts[i]) for i in order], dtype=np.float64)
        left = 1.0 - np.cumsum(lengths) / max(1.0, lengths.sum())
        reached = last & (speed_up * (1.0 / student_speed_up + left) <= 1.0)
        if not reached.any():
            raise SettingError(f"the student alone is {student_speed_up:.1f} times as fast as the model, so a cascade "
                               f"cannot be {speed_up:.3g} times as fast; lower --speed-up.")
        return float(self.confidence[order[np.argmax(reached)]])

    def figures(self, threshold: float, teacher_seconds: float) -> dict[str, float]:
        """Share of the texts that the student answers, expected agreement, and measured speed-up over the teacher."""
        answered = self.confidence >= threshold
        _, seconds = timed(lambda: Cascade(self.student, threshold, lambda: self.teacher).answers(self.texts))
        return {"answered_by_student": float(answered.mean()), "speed_up": teacher_seconds * len(self.texts) / seconds,
                "agreement": 1.0 - float((answered & ~self.same).sum() + 1) / (len(answered) + 1)}


def thresholds(confidence: Array) -> tuple[NDArray[np.int64], Matrix]:
    """Rows by falling confidence, and after which of them a threshold can lie: it cannot separate equal values."""
    order = np.argsort(-confidence, kind="stable")
    falling = confidence[order]
    return order, np.append(falling[1:] < falling[:-1], True)


def agreeing_threshold(confidence: Array, same: Matrix, agree: float) -> float:
    """The lowest confidence from which a student may answer so that the cascade agrees with the teacher.

    Few disagreements are seen, and by chance too few: the bound of Clopper and Pearson below which their share is with
    `CERTAINTY`, on texts of the same kind, has to leave `agree`. It holds although the threshold is chosen by it, since
    a lower threshold never has fewer disagreements.
    """
    from scipy.stats import beta

    order, last = thresholds(confidence)
    disagreements = np.cumsum(~same[order])
    bound = beta.ppf(CERTAINTY, disagreements + 1, len(same) - disagreements)  # NaN if all disagree
    allowed = np.flatnonzero(last & (bound <= 1.0 - agree))
    if not len(allowed):
        raise DataError(f"the student is never sure enough for an agreement of {agree:.1%} on {len(same)} held-out "
                        "texts, so nothing is written; lower --agree, or give a larger pool.")
    return float(confidence[order[allowed[-1]]])


def correct(student: Student, teacher: TrainedModel, labelled: Corpus) -> dict[str, Matrix]:
    """Of which labelled texts each gets all labels right, (N,)."""
    truth = teacher.classes.matrix(labelled.labels, source=labelled.source) > 0
    scores, expected = student.scores(labelled.texts), Answers.of(teacher, teacher.probabilities(labelled.texts)).chosen
    labels = {"teacher": expected, "student": student.labels_of(scores)}
    if student.threshold is not None:
        sure = confidence(student, scores) >= student.threshold
        labels["cascade"] = np.where(sure[:, None], labels["student"], expected)
    return {name: np.asarray((given == truth).all(axis=1)) for name, given in labels.items()}


def cross_fitted(trial: Trial, texts: Sequence[str], labelled: Corpus, refit: Refit, report: dict[str, Any],
                 seed: int) -> dict[str, Matrix]:
    """`correct` by teachers and students that were made without the text, in other respects as the report says.

    A cascade's student answers as often, and students learn from labelled texts if that of the report did.
    A text with a label that no other has is left out: no teacher would know the label without it.
    """
    vectors, parts = trial.teacher.vectors(texts), []
    for fold in folds(labelled.labels, seed):
        others = labelled.take(sorted({*range(len(labelled))} - {*fold}))
        teacher = refit(others).as_if_new()
        p = teacher.probabilities_of(teacher.classify(vectors, texts).scores.cpu().numpy())
        again = fit_and_try(trial.student.features.kind, teacher, texts, p, trial.words,
                            Examples.of(teacher, others.texts if report["labelled"] else [], texts), trial.strength)
        threshold = None
        if cascade := report.get("cascade"):
            threshold = float(np.quantile(again.confidence, 1 - cascade["answered_by_student"]))
        parts.append(correct(replace(again.student, threshold=threshold), teacher, labelled.take(fold)))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def folds(labels: Sequence[TextLabel], seed: int) -> list[list[int]]:
    """Rows in parts that have about equally many of each label; a row whose label no other has is in none."""
    parts: list[list[int]] = [[] for _ in range(FOLDS)]
    dealt, counts = Counter[TextLabel](), Counter(labels)
    for row in shuffled(generator(seed, Stream.DISTILLATION, 1), len(labels)).tolist():
        if counts[labels[row]] > 1:
            parts[dealt[labels[row]] % FOLDS].append(row)
            dealt[labels[row]] += 1
    return [part for part in parts if part]


def intervals(correct: dict[str, Matrix]) -> dict[str, Any]:
    """The share of texts that each gets right, with Wilson's interval of 95 %."""
    n = len(correct["teacher"])
    figures: dict[str, Any] = {"texts": n}
    for name, right in correct.items():
        share = float(right.mean())
        middle, half = (share + Z**2 / (2 * n)), Z * np.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
        figures[name] = [share, *(float(bound / (1 + Z**2 / n)) for bound in (middle - half, middle + half))]
    return figures
