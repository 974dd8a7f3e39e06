"""Decisions of multi-label models: from scores to calibrated probabilities, and from these to labels. No torch.

A decision rule turns probabilities (N, K) into yes or no. To add one, write a function from `FitData` to a
`DecisionRule` and add it to `POOL_RULES`, if it needs no labels of the texts that it is fitted on, or to `DEV_RULES`,
if `halflabel tune` has to fit it on a dev set. The README's table of decisions describes them to users.

Nothing here is ever fitted on test texts: frequencies come from labelled texts, scores from the pool or the dev set.
Shapes: N texts, K labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from halflabel.arrays import Array
from halflabel.errors import ModelError, SettingError

Matrix = NDArray[np.bool_]

CALIBRATION_TEXTS = 4096  # whose scores an offset is fitted to, at most
TINY = 1e-12  # the least probability that has log-odds
BISECTIONS = 60  # of the interval in which an offset is searched


@dataclass(frozen=True, eq=False)
class Calibration:
    """p = sigmoid(slope (evidence - offset)), (N, K).

    Log-odds of one model are taken as they are, with slope 1 and no offset. Otherwise the offset of a label makes its
    mean probability equal to its labelled frequency: of log-odds that are the sum of several models', and of angular
    scores, which share one softmax and whose evidence is its logarithm.
    """

    logits: bool
    slope: float
    offset: Array  # (K,); infinite for a label without labelled texts

    @classmethod
    def fit(cls, scores: Array, prior: Array, *, logits: bool, slope: float) -> Calibration:
        """For scores (N, K) of texts, whose labels are not needed, and labelled frequencies (K,)."""
        if logits and slope == 1.0:
            return cls(True, 1.0, np.zeros(len(prior)))
        rows = np.linspace(0, len(scores) - 1, min(len(scores), CALIBRATION_TEXTS)).astype(np.int64)
        offset = offset_to(slope * evidence(scores[rows], logits=logits), prior) / slope
        return cls(logits, slope, np.where(prior > 0, offset, np.inf))

    def log_odds(self, scores: Array) -> Array:
        """slope (evidence - offset), (N, K)."""
        return np.asarray(self.slope * (evidence(scores, logits=self.logits) - self.offset))

    def __call__(self, scores: Array) -> Array:
        return sigmoid(self.log_odds(scores))


def evidence(scores: Array, *, logits: bool) -> Array:
    """What the probability of a label increases with, (N, K): its log-odds, or its log-softmax."""
    e = scores.astype(np.float64)
    if logits:
        return e
    # by hand, as the sigmoid below: importing scipy would be most of the start-up time of an exported model
    e = e - e.max(axis=1, keepdims=True)
    return np.asarray(e - np.log(np.exp(e).sum(axis=1, keepdims=True)))


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, e) / (1.0 + e))


def log_odds(p: Array) -> Array:
    """log(p / (1 - p)) of probabilities, which are kept from 0 and 1 so that it is finite."""
    p = np.clip(p, TINY, 1.0 - TINY)
    return np.asarray(np.log(p) - np.log1p(-p))


@dataclass(frozen=True, eq=False)
class DecisionRule:
    """Yes where a probability reaches its label's threshold (K,), or for the k most probable labels."""

    name: str
    thresholds: Array | None = None
    k: int = 0
    fitted_on: str = ""  # which texts

    def __call__(self, p: Array) -> Matrix:
        """Whether each text has each label, (N, K) from probabilities (N, K); in top-k the first label wins a tie."""
        if self.thresholds is not None:
            return np.asarray(p >= self.thresholds)
        chosen = np.zeros(p.shape, dtype=bool)
        np.put_along_axis(chosen, np.argsort(-p, axis=1, kind="stable")[:, : self.k], True, axis=1)
        return chosen

    def to_json(self) -> dict[str, Any]:
        thresholds = None if self.thresholds is None else _to_json(self.thresholds)
        return {"thresholds": thresholds, "k": self.k, "fitted_on": self.fitted_on}

    @classmethod
    def from_json(cls, name: str, fields: dict[str, Any]) -> DecisionRule:
        thresholds = fields["thresholds"]
        return cls(name, None if thresholds is None else _from_json(thresholds), int(fields["k"]),
                   str(fields["fitted_on"]))


class FitData(NamedTuple):
    """What a rule is fitted on."""

    p: Array  # (N, K) probabilities of texts
    prior: Array  # (K,) labelled frequencies
    source: str  # what the texts are, such as "500 unlabelled texts"
    truth: Matrix | None = None  # (N, K) labels of the texts, if they are a dev set


def prior_quantile(data: FitData) -> DecisionRule:
    """Thresholds by which the texts get each label as often as labelled texts have it."""
    counts = np.floor(data.prior * len(data.p) + 0.5).astype(np.int64)
    thresholds = [cut(p, count) for p, count in zip(data.p.T, counts, strict=True)]
    return DecisionRule("prior-quantile", np.where(data.prior > 0, thresholds, np.inf), fitted_on=data.source)


def cut(p: Array, count: int) -> float:
    """A threshold that the `count` highest of the values (N,) reach, and those equal to the lowest of them.

    It lies half-way between two values, or between the lowest and 0, never on one: rounding, which differs between
    batches and backends, must not decide about a label. For none it lies as far above the highest value.
    """
    edge = np.sort(p)[::-1][max(count, 1) - 1]
    half = (edge - p[p < edge].max(initial=0.0)) / 2
    return float(edge - half if count else edge + half)


def fixed(data: FitData) -> DecisionRule:
    """A threshold of one half for all labels."""
    return DecisionRule("fixed", np.full(len(data.prior), 0.5), fitted_on="nothing")


def top_k(data: FitData) -> DecisionRule:
    """As many labels for every text as labelled texts, or those of the dev set, have on average; at least one."""
    if data.truth is None:
        return DecisionRule("top-k", k=max(1, round(float(data.prior.sum()))), fitted_on="labelled texts")
    return DecisionRule("top-k", k=max(1, round(float(data.truth.sum(axis=1).mean()))), fitted_on=data.source)


def dev_global(data: FitData) -> DecisionRule:
    """One threshold for all labels, with the best micro F1 on the dev set."""
    assert data.truth is not None
    threshold = best_threshold(data.p.ravel(), data.truth.ravel())
    return DecisionRule("dev-global", np.full(data.p.shape[1], threshold if threshold < np.inf else 0.5),
                        fitted_on=data.source)


def dev_per_label(data: FitData) -> DecisionRule:
    """A threshold for each label with its best F1 on the dev set; a label without dev texts gets the global one."""
    assert data.truth is not None
    shared = dev_global(data).thresholds
    assert shared is not None
    thresholds = np.array([best_threshold(p, truth) for p, truth in zip(data.p.T, data.truth.T, strict=True)])
    return DecisionRule("dev-per-label", np.where(np.isfinite(thresholds), thresholds, shared), fitted_on=data.source)


def best_threshold(p: Array, truth: Matrix) -> float:
    """The threshold with the best F1; infinite if nothing is true, (N,), (N,)."""
    if not truth.any():
        return np.inf
    order = np.argsort(-p, kind="stable")
    falling, correct = p[order], np.cumsum(truth[order])
    f1 = 2.0 * correct / (np.arange(1, len(p) + 1) + truth.sum())
    last = np.append(falling[1:] != falling[:-1], True)  # a threshold cannot separate equal values
    return cut(p, int(np.argmax(np.where(last, f1, -1.0))) + 1)


POOL_RULES: dict[str, Callable[[FitData], DecisionRule]] = {
    "prior-quantile": prior_quantile, "fixed": fixed, "top-k": top_k}
DEV_RULES: dict[str, Callable[[FitData], DecisionRule]] = {"dev-global": dev_global, "dev-per-label": dev_per_label}
RULES = POOL_RULES | DEV_RULES


@dataclass(frozen=True, eq=False)
class Decision:
    """The fitted rules of a model, and the one in use."""

    calibration: Calibration
    prior: Array  # (K,) labelled frequencies
    rules: dict[str, DecisionRule]
    chosen: str

    @classmethod
    def fit(cls, scores: Array, prior: Array, *, source: str, logits: bool, slope: float, chosen: str) -> Decision:
        """From scores (N, K) of the pool, or of other texts, described by `source`."""
        calibration = Calibration.fit(scores, prior, logits=logits, slope=slope)
        data = FitData(calibration(scores), prior, source)
        return cls(calibration, prior, {name: fit(data) for name, fit in POOL_RULES.items()}, chosen)

    def probabilities(self, scores: Array) -> Array:
        """Probabilities of each label on its own, (N, K)."""
        return self.calibration(scores)

    def __call__(self, scores: Array, name: str | None = None) -> Matrix:
        """Whether each text has each label, (N, K), by the named rule or the one in use."""
        return self.rule(name)(self.calibration(scores))

    def rule(self, name: str | None = None) -> DecisionRule:
        """The named rule, or the one in use."""
        name = name or self.chosen
        if name not in self.rules:
            raise SettingError(f"This model has no decision '{name}', only {', '.join(self.rules)}; " + (
                "fit it with `halflabel tune DIR --dev FILE`." if name in DEV_RULES else "choose one of these."))
        return self.rules[name]

    def tuned(self, name: str, scores: Array, truth: Matrix, source: str) -> Decision:
        """The decision with a rule fitted on a dev set, scores (N, K) and truth (N, K), and in use."""
        check_rule(name)
        rule = RULES[name](FitData(self.calibration(scores), self.prior, source, truth))
        return replace(self, rules=self.rules | {name: rule}, chosen=name)

    def to_json(self) -> dict[str, Any]:
        c = self.calibration
        return {"chosen": self.chosen, "prior": self.prior.tolist(),
                "calibration": {"logits": c.logits, "slope": c.slope, "offset": _to_json(c.offset)},
                "rules": {name: rule.to_json() for name, rule in self.rules.items()}}

    @classmethod
    def from_json(cls, fields: dict[str, Any], labels: int) -> Decision:
        """What `to_json` gave for that many labels; anything else raises ValueError, KeyError or TypeError."""
        c = fields["calibration"]
        rules = {name: DecisionRule.from_json(name, rule) for name, rule in fields["rules"].items()}
        calibration = Calibration(bool(c["logits"]), float(c["slope"]), _from_json(c["offset"]))
        decision = cls(calibration, np.array(fields["prior"], dtype=np.float64), rules, str(fields["chosen"]))
        rows = [decision.prior, calibration.offset, *(r.thresholds for r in rules.values() if r.thresholds is not None)]
        if any(row.shape != (labels,) or np.isnan(row).any() for row in rows):
            raise ValueError("it does not have one number for each label")
        if any(rule.thresholds is None and rule.k < 1 for rule in rules.values()):
            raise ValueError("a rule has neither thresholds nor a number of labels")
        if decision.chosen not in rules or not np.isfinite(calibration.slope):
            raise ValueError("the rule in use or its slope is missing")
        return decision


def offset_to(log_odds: Array, prior: Array) -> Array:
    """What to subtract from log-odds (N, K), (K,), so that the mean probability of each label is its prior (K,)."""
    low, high = log_odds.min(axis=0) - 40.0, log_odds.max(axis=0) + 40.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        too_high = sigmoid(log_odds - middle).mean(axis=0) > prior
        low, high = np.where(too_high, middle, low), np.where(too_high, high, middle)
    return np.asarray((low + high) / 2)


def finite(scores: Array) -> Array:
    """The scores (N, K), or an error if one is NaN or infinite, since no label could be predicted from it."""
    if not np.isfinite(scores).all():
        raise ModelError("The model has scores that are not finite numbers, so its weights are damaged or diverged in "
                         "training; copy or train the model again.")
    return scores


def check_rule(name: str) -> None:
    """Refuses an unknown rule."""
    if name not in RULES:
        raise SettingError(f"There is no decision '{name}'; choose one of {', '.join(RULES)}.")


def _to_json(values: Array) -> list[float | None]:
    """Numbers for JSON, which has no infinity: null instead."""
    return [None if np.isinf(value) else float(value) for value in values]


def _from_json(values: Sequence[float | None]) -> Array:
    return np.array([np.inf if value is None else value for value in values], dtype=np.float64)
