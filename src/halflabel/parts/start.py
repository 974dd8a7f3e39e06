"""A closed-form start on frozen vectors, trusted as far as held-out labels support it.

Two views of the labels are pooled. One trusts the pool: Gaussian classes that share one covariance, fitted by EM, which
is the paper's idea of equal spreads in closed form. The other looks at labelled texts alone: logistic regression.
Each half of the labels first judges what the other half makes of the pool: where the pool falls into other groups than
the labels do (sentiments among topics), EM follows those groups, and is left out. Else the log-probabilities of both
are added with weights found on labelled texts that were held out in turn. The soft labels that this gives the pool are
then smoothed over a graph of nearest neighbours, as much as held-out labels support that, corrected by the words of the
texts, and a linear rule, logits = x W + b, learns them by heart.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from halflabel.parts.graph import neighbour_graph, smoothed
from halflabel.parts.trial import PRIOR, SPREAD, Trial, corrected, evidence, hold_out, in_halves, pooling, words_help
from halflabel.parts.views import Array, Columns, Rule, View, combined, distilled, gaussian, logistic
from halflabel.parts.words import sharpened

POOL = 20_000  # pool texts that EM looks at; more would not move means that count as MASS
ALPHAS = {0.0: 0.0, 0.5: 1.5, 0.8: 2.0, 0.9: 1.5}  # how far neighbours may be heard, with its log prior
POWERS = (1.0, 1.5, 2.0, 3.0)  # by which smoothed labels may be sharpened
EVIDENCE = 3.0  # the logarithm of how much likelier EM must make held-out labels before it is heard


class Start(NamedTuple):
    """Soft labels of the pool, a rule for any text, and how much each part of the start was trusted."""

    soft: Array  # (N_u, K)
    rule: Rule
    weights: Array  # of the views: Gaussian EM where it is heard, logistic regression
    alpha: float = 0.0  # of the smoothing
    power: float = 1.0  # of the sharpening after it
    heard: bool = False  # whether EM is
    words: bool = False  # whether words correct the soft labels


def closed_form(x: Array, y: Columns, pool: Array, words: Any, labels: int, *, seed: int) -> Start:
    """The start for unit vectors x (N_l, H) with columns y (N_l,) and an unlabelled pool (N_u, H).

    `words` is the sparse (N_l + N_u, V) that `word_counts` makes of the same texts.
    """
    rng = np.random.default_rng([seed, 5])
    rows = np.sort(rng.permutation(len(pool))[:POOL])
    part, known = pool[rows], np.eye(labels)[y]
    if not len(part):
        rule, weights, _ = by_views([logistic], x, y, part, labels, rng)
        return Start(np.empty((0, labels)), rule, weights)
    counts = words[np.concatenate([np.arange(len(x)), len(x) + rows])]
    halves = in_halves(x, y, part, labels, np.random.default_rng([seed, 6]))
    heard = evidence(halves) >= EVIDENCE
    rule, weights, trial = by_views([gaussian, logistic] if heard else [logistic], x, y, part, labels, rng)
    if not heard and not words_help(halves, weights, counts, known):
        return Start(np.exp(rule.log_probabilities(pool)), rule, weights)
    soft, alpha, power = np.exp(rule.log_probabilities(part)), 0.0, 1.0
    if heard:
        alpha, power = smoothing(trial, weights, x, y, labels)
        graph = neighbour_graph(np.concatenate([x, part]))
        soft = sharpened(smoothed(graph, np.concatenate([known, soft]), alpha)[len(x) :], power)
    soft = corrected(counts, known, soft)
    rule = distilled(rule, np.concatenate([x, part]), np.concatenate([known, soft]))
    everywhere = np.exp(rule.log_probabilities(pool))
    everywhere[rows] = soft
    return Start(everywhere, rule, weights, alpha, power, heard, words=True)


def by_views(views: list[View], x: Array, y: Columns, pool: Array, labels: int,
             rng: np.random.Generator) -> tuple[Rule, Array, Trial]:
    """The rule of all views together, the weight of each, and the trial in which the weights were found."""
    trial = hold_out(views, x, y, pool, labels, rng)
    weights, _ = pooling(trial, PRIOR[-len(views) :], SPREAD[-len(views) :])
    return combined([view(x, y, pool, labels) for view in views], weights), weights, trial


def smoothing(trial: Trial, weights: Array, x: Array, y: Columns, labels: int) -> tuple[float, float]:
    """How far neighbours are to be heard, and how much to sharpen: what makes held-out labels likeliest."""
    graph = neighbour_graph(np.concatenate([x, trial.pool]))
    likely = {(alpha, power): prior for alpha, prior in ALPHAS.items() for power in POWERS}
    for out, rules in zip(trial.folds, trial.rules, strict=True):
        rule = combined(rules, weights)
        given = np.exp(rule.log_probabilities(np.concatenate([x, trial.pool])))
        given[: len(y)][~out] = np.eye(labels)[y[~out]]
        for alpha in ALPHAS:
            p = smoothed(graph, given, alpha)[: len(y)][out]
            for power in POWERS:
                q = sharpened(p, power)
                likely[alpha, power] += float(np.log(q[np.arange(len(q)), y[out]] + 1e-3).sum())
    return max(likely, key=lambda pair: likely[pair])
