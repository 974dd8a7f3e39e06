"""A student that is tried on held-out texts: its temperature, how far it agrees with its teacher, and from which
confidence it may answer in a cascade.

Shapes: N held-out texts, K labels, H encoder width.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halflabel.arrays import Array, Floats, Mask
from halflabel.encoders.neighbours import unit
from halflabel.encoders.ngrams import Kind
from halflabel.errors import DataError, SettingError
from halflabel.evaluation.decisions import Calibration, Decision, DecisionRule, cut, evidence, log_odds, sigmoid
from halflabel.persistence.model import TrainedModel
from halflabel.students.cascade import Cascade, confidence
from halflabel.students.learning import SCALES, STRENGTH, Examples, WordVectors, fit_student
from halflabel.students.student import Student, most_probable

HELD_OUT, MAX_HELD_OUT = 0.2, 5_000  # share of the pool on which agreement is measured, and most texts of it
LOG_TEMPERATURES = (-3.0, 3.0)
BLOCK = 512  # held-out texts that are compared with the others at a time
AGREE = 0.99  # share of texts to which a cascade gives the teacher's labels, unless another is asked for
CERTAINTY = 0.9  # with which the held-out texts have to show that it does
SPEED_TRIALS = 3  # thresholds that are tried, at most, to reach a speed-up
MIN_AGREEMENT = 0.5  # below which a student is of no use


@dataclass(frozen=True, eq=False)
class Answers:
    """A teacher's answers: probabilities (N, K), and as 0 and 1 the labels that follow from them, (N, K)."""

    p: Array
    chosen: Mask

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


@dataclass(frozen=True, eq=False)
class Trial:
    """Student and teacher on N held-out texts."""

    student: Student
    calibration: StudentCalibration
    teacher: TrainedModel
    texts: Sequence[str]
    confidence: Array  # of the student, (N,)
    given: Mask  # the student's labels, (N, K)
    expected: Mask  # the teacher's, (N, K)
    words: WordVectors | None = None
    strength: float = STRENGTH
    unlike: Mask | None = None  # which texts are least like those that were learned, (N,); unknown without vectors

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
    def same(self) -> Mask:
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


def least_like(f: Floats, others: Floats) -> Mask:
    """Which half of the vectors f (N, H) are farthest from the nearest of the others, (N,)."""
    f, others = unit(f), unit(others)
    nearest = np.concatenate([(f[start : start + BLOCK] @ others.T).max(axis=1) for start in range(0, len(f), BLOCK)])
    return np.asarray(nearest <= np.median(nearest))


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


def offsets(scores: Array, chosen: Mask, rule: DecisionRule) -> Array:
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


def thresholds(confidence: Array) -> tuple[NDArray[np.int64], Mask]:
    """Rows by falling confidence, and after which of them a threshold can lie: it cannot separate equal values."""
    order = np.argsort(-confidence, kind="stable")
    falling = confidence[order]
    return order, np.append(falling[1:] < falling[:-1], True)


def agreeing_threshold(confidence: Array, same: Mask, agree: float) -> float:
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


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and the seconds that it took."""
    began = time.perf_counter()
    return work(), time.perf_counter() - began
