"""Which labels a text gets: from scores to probabilities of each label by itself, and from these to yes or no.

Nothing here is ever fitted on test texts: frequencies come from labelled texts, scores from the pool or from dev texts.
Shape legend: N texts, K labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halflabel.errors import BadInput

Array = NDArray[np.floating]
Matrix = NDArray[np.bool_]

HALF = 0.5
TRIED = 4096  # texts whose scores an offset is fitted to, at most
ROUNDS = 60  # halvings of the interval in which an offset is looked for


@dataclass(frozen=True, eq=False)
class Calibration:
    """p = sigmoid(slope (evidence - offset)), (N, K).

    Where scores are log-odds they are the evidence, and p is their sigmoid. Angular scores compete in one softmax:
    their evidence is its logarithm, and the offset of a label makes its mean probability its labelled frequency.
    """

    logits: bool
    slope: float
    offset: Array  # (K,); infinite for a label that no labelled text has

    @classmethod
    def fit(cls, scores: Array, prior: Array, *, logits: bool, slope: float) -> Calibration:
        """For scores (N, K) of texts whose labels nobody needs to know, and labelled frequencies (K,)."""
        if logits:
            return cls(True, 1.0, np.zeros(len(prior)))
        picked = np.linspace(0, len(scores) - 1, min(len(scores), TRIED)).astype(np.int64)
        e = slope * evidence(scores[picked], logits=False)
        low, high = e.min(axis=0) - 40.0, e.max(axis=0) + 40.0
        for _ in range(ROUNDS):
            middle = (low + high) / 2
            too_many = sigmoid(e - middle).mean(axis=0) > prior
            low, high = np.where(too_many, middle, low), np.where(too_many, high, middle)
        return cls(False, slope, np.where(prior > 0, (low + high) / 2 / slope, np.inf))

    def __call__(self, scores: Array) -> Array:
        return sigmoid(self.slope * (evidence(scores, logits=self.logits) - self.offset))


def evidence(scores: Array, *, logits: bool) -> Array:
    """What the probability of a label rises with, (N, K): its log-odds, or the log of its part in the softmax."""
    e = scores.astype(np.float64)
    if logits:
        return e
    e = e - e.max(axis=1, keepdims=True)
    return np.asarray(e - np.log(np.exp(e).sum(axis=1, keepdims=True)))


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, e) / (1.0 + e))


@dataclass(frozen=True, eq=False)
class DecisionRule:
    """Yes where a probability reaches its label's threshold (K,), or for the k most probable labels."""

    name: str
    thresholds: Array | None = None
    k: int = 0
    fitted_on: str = ""  # what the numbers were taken from

    def __call__(self, p: Array) -> Matrix:
        """Whether each text has each label, (N, K) from probabilities (N, K); ties in top-k go to the first label."""
        if self.thresholds is not None:
            return np.asarray(p >= self.thresholds)
        chosen = np.zeros(p.shape, dtype=bool)
        np.put_along_axis(chosen, np.argsort(-p, axis=1, kind="stable")[:, : self.k], True, axis=1)
        return chosen

    def to_json(self) -> dict[str, Any]:
        cuts = None if self.thresholds is None else [None if np.isinf(t) else float(t) for t in self.thresholds]
        return {"thresholds": cuts, "k": self.k, "fitted_on": self.fitted_on}

    @classmethod
    def from_json(cls, name: str, fields: dict[str, Any]) -> DecisionRule:
        cuts = fields["thresholds"]
        return cls(name, None if cuts is None else _finite(cuts), int(fields["k"]), str(fields["fitted_on"]))


def fixed(labels: int, threshold: float = HALF) -> DecisionRule:
    """The same threshold for all labels, fitted to nothing."""
    return DecisionRule("fixed", np.full(labels, threshold), fitted_on="nothing")


def top_k(cardinality: float, source: str) -> DecisionRule:
    """As many labels for every text as labelled texts have on average, at least one."""
    return DecisionRule("top-k", k=max(1, round(cardinality)), fitted_on=source)


def prior_quantile(p: Array, prior: Array, source: str) -> DecisionRule:
    """Thresholds under which texts with probabilities p (N, K) get each label as often as labelled texts have it."""
    counts = np.floor(prior * len(p) + 0.5).astype(np.int64)
    falling = -np.sort(-p, axis=0)
    cuts = falling[np.maximum(counts - 1, 0), np.arange(p.shape[1])]
    above = np.where(prior > 0, np.nextafter(falling[0], np.inf), np.inf)  # a rare label asks for more than was seen
    return DecisionRule("prior-quantile", np.where(counts > 0, cuts, above), fitted_on=source)


def dev_global(p: Array, truth: Matrix, source: str) -> DecisionRule:
    """The one threshold that gives dev texts the best micro F1."""
    cut = best_threshold(p.ravel(), truth.ravel())
    return DecisionRule("dev-global", np.full(p.shape[1], cut if cut < np.inf else HALF), fitted_on=source)


def dev_per_label(p: Array, truth: Matrix, source: str) -> DecisionRule:
    """The threshold of each label that gives dev texts its best F1; one without dev texts takes the global one."""
    shared = dev_global(p, truth, source).thresholds
    assert shared is not None
    cuts = np.array([best_threshold(p[:, k], truth[:, k]) for k in range(p.shape[1])])
    return DecisionRule("dev-per-label", np.where(np.isfinite(cuts), cuts, shared), fitted_on=source)


def best_threshold(p: Array, truth: Matrix) -> float:
    """The threshold with the best F1, half-way to the next lower value; infinite if nothing is true, (N,), (N,)."""
    if not truth.any():
        return np.inf
    order = np.argsort(-p, kind="stable")
    falling, right = p[order], np.cumsum(truth[order])
    f1 = 2.0 * right / (np.arange(1, len(p) + 1) + truth.sum())
    last = np.append(falling[1:] != falling[:-1], True)  # a cut cannot part equals
    best = int(np.argmax(np.where(last, f1, -1.0)))
    return float(falling[best] if best + 1 == len(p) else (falling[best] + falling[best + 1]) / 2)


DEV_RULES: dict[str, Callable[[Array, Matrix, str], DecisionRule]] = {"dev-global": dev_global, "dev-per-label": dev_per_label}
RULES = ("prior-quantile", "fixed", "top-k", *DEV_RULES)


@dataclass(frozen=True, eq=False)
class Decision:
    """The rules that a model knows, and the one it uses."""

    calibration: Calibration
    prior: Array  # (K,) labelled frequencies
    rules: dict[str, DecisionRule]
    chosen: str

    @classmethod
    def fit(cls, scores: Array, prior: Array, *, source: str, logits: bool, slope: float, chosen: str) -> Decision:
        """From scores (N, K) of the pool (or of what there is instead, named by `source`)."""
        calibration = Calibration.fit(scores, prior, logits=logits, slope=slope)
        rules = (prior_quantile(calibration(scores), prior, source), fixed(len(prior)),
                 top_k(float(prior.sum()), "labelled texts"))
        return cls(calibration, prior, {rule.name: rule for rule in rules}, chosen)

    def probabilities(self, scores: Array) -> Array:
        """(N, K), each label by itself."""
        return self.calibration(scores)

    def __call__(self, scores: Array, name: str | None = None) -> Matrix:
        """Whether each text has each label, (N, K), by the rule of that name or by the chosen one."""
        return self.rule(name)(self.calibration(scores))

    def rule(self, name: str | None = None) -> DecisionRule:
        """The rule of that name, or the chosen one."""
        name = name or self.chosen
        if name not in self.rules:
            raise BadInput(f"The decision '{name}' is not known to this model, which has {', '.join(self.rules)}"
                           + ("; fit it with `halflabel tune DIR --dev FILE`." if name in DEV_RULES else "."))
        return self.rules[name]

    def tuned(self, name: str, scores: Array, truth: Matrix, source: str) -> Decision:
        """The same with a rule fitted on dev texts, scores (N, K) and truth (N, K), and chosen."""
        p = self.calibration(scores)
        if name in DEV_RULES:
            rule = DEV_RULES[name](p, truth, source)
        elif name == "prior-quantile":
            rule = prior_quantile(p, self.prior, source)
        elif name == "top-k":
            rule = top_k(float(truth.sum(axis=1).mean()), source)
        else:
            rule = self.rule(name) if name == "fixed" else _unknown(name)
        return replace(self, rules=self.rules | {name: rule}, chosen=name)

    def to_json(self) -> dict[str, Any]:
        c = self.calibration
        offset = [None if np.isinf(t) else float(t) for t in c.offset]
        return {"chosen": self.chosen, "prior": self.prior.tolist(),
                "calibration": {"logits": c.logits, "slope": c.slope, "offset": offset},
                "rules": {name: rule.to_json() for name, rule in self.rules.items()}}

    @classmethod
    def from_json(cls, fields: dict[str, Any], labels: int) -> Decision:
        """What `to_json` gave of a decision on so many labels; anything else is a ValueError, KeyError or TypeError."""
        c = fields["calibration"]
        rules = {name: DecisionRule.from_json(name, rule) for name, rule in fields["rules"].items()}
        calibration = Calibration(bool(c["logits"]), float(c["slope"]), _finite(c["offset"]))
        found = cls(calibration, np.array(fields["prior"], dtype=np.float64), rules, str(fields["chosen"]))
        rows = [found.prior, calibration.offset, *(r.thresholds for r in rules.values() if r.thresholds is not None)]
        if any(row.shape != (labels,) or np.isnan(row).any() for row in rows):
            raise ValueError("it does not have one number for each label")
        if any(rule.thresholds is None and rule.k < 1 for rule in rules.values()):
            raise ValueError("a rule has neither thresholds nor a number of labels")
        if found.chosen not in rules or not np.isfinite(calibration.slope):
            raise ValueError("the rule in use or its slope is not there")
        return found


def finite(scores: Array) -> Array:
    """The scores of texts, (N, K); refused if any is not a number, since no label could be told from them."""
    if not np.isfinite(scores).all():
        raise BadInput("The model gives scores that are not finite numbers, so its weights are damaged or diverged in "
                       "training; copy or train the model again.")
    return scores


def check_rule(name: str) -> None:
    """Refuses a name that is no rule's."""
    if name not in RULES:
        _unknown(name)


def _unknown(name: str) -> DecisionRule:
    raise BadInput(f"There is no decision '{name}'; choose one of {', '.join(RULES)}.")


def _finite(values: Sequence[float | None]) -> Array:
    """Numbers as JSON keeps them: null is infinite."""
    return np.array([np.inf if value is None else value for value in values], dtype=np.float64)
