"""Classes of the pool that nobody labelled: clusters of its texts that no labelled text belongs to.

EM fits a spherical Gaussian for each known class and one more component, which starts from each of several clusters of
the pool in turn. Two things tell an unknown class from a part of a known one:

- Labelled texts are not in it. If it were a part of class k, a share s_k of the texts of k would be. The evidence is
  the likelihood ratio of the labelled texts of k, L_k = sum_i log (1 - q_i) / (1 - s_k), where q_i is the probability
  that text i is in the component; the class with the lowest one counts.
- It lies elsewhere: seen from the centre of the pool and from that of all components, the cosine of its mean with that
  of any other class is small, as those of known classes often are, while parts of one class have similar means.

Unknown classes are added one at a time for as long as the evidence is sufficient.

Some texts of known classes are nearer to an unknown one. EM does well without them, but a model that learns soft labels
would lack that side of their classes, so that only texts that are unknown for certain are left out of all steps.

Shapes: vectors x (N_l, H) and pool (N_u, H), y (N_l,) columns of labels, K known and U unknown classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from halflabel.arrays import Array, Columns, Mask
from halflabel.evaluation.confidence import unit

LOG_ODDS = 3.0  # of the evidence from which on there is an unknown class, since most pools have none
LEAST_RATIO = 1.0  # of the labelled texts, as a logarithm, however far the component is from other classes
LARGEST_COSINE = 0.1  # of an unknown class with another one
SEPARATION = 10.0  # log-odds for each unit by which that cosine is below 0
SMALLEST = 0.15  # share of the pool that an unknown class has at least; a smaller one does little harm
MAX_CLUSTERS = 20  # from which the component starts
MISTAKEN = 0.1  # probability that a labelled text is taken for one of the component, or for none of it, by mistake
MAX_TEXTS = 2000  # of the pool that the components are fitted to
POOL_MASS = 25.0  # texts per component that the pool counts as, at most, in the means
PRIOR_MASS = 0.2  # of all texts, which are added to the components in equal parts
ITERATIONS = 10
TOLERANCE = 5e-3  # mean change of the soft labels at which EM ends
TEMPERATURE = 6.0  # of logits, since the entries of a vector are not independent, as a spherical Gaussian has it
CERTAIN = 0.9  # probability from which on a text is of an unknown class for certain
TINY = 1e-9


def find_unknown_classes(x: Array, y: Columns, pool: Array, labels: int, rng: np.random.Generator
                         ) -> UnknownClasses | None:
    """Classes of the pool that no labelled text belongs to; None if a known class has no labelled text."""
    from sklearn.cluster import KMeans

    clusters = min(2 * labels + 2, MAX_CLUSTERS)
    if len(pool) < clusters or not np.bincount(y, minlength=labels).all():
        return None
    centre = pool.mean(axis=0)
    x, pool = x - centre, pool - centre
    sample = pool[rng.permutation(len(pool))[:MAX_TEXTS]]
    cluster = KMeans(clusters, n_init=1, random_state=int(rng.integers(2**31))).fit_predict(unit(sample))
    starts = [sample[cluster == j].mean(axis=0) for j in np.unique(cluster)]
    found, means = None, pool[:0]
    while len(means) < labels:
        fits = [fit_components(x, y, sample, labels, np.vstack([means, start])) for start in starts]
        log_odds, best = max(((evidence(fit, x, y, labels), i) for i, fit in enumerate(fits)))
        if log_odds < LOG_ODDS:
            break
        means = fits[best].means[labels:]
        found = UnknownClasses(fits[best], centre, labels, max(found.log_odds, log_odds) if found else log_odds)
    return found


class UnknownClasses(NamedTuple):
    """Components, of which those after the known classes are unknown ones, and the log-odds that there are such."""

    components: Components
    centre: Array  # (H,) that the components are seen from
    labels: int  # K
    log_odds: float

    def number(self, pool: Array) -> Columns:
        """The unknown class of each text of a pool, from 1 on, or 0 (N_u,)."""
        column = self.components.logits(pool - self.centre).argmax(axis=1)
        return np.asarray(np.maximum(column - self.labels + 1, 0))

    def certain(self, pool: Array) -> Mask:
        """Which texts of a pool are of unknown classes for certain (N_u,)."""
        from scipy.special import softmax

        p = softmax(self.components.logits(pool - self.centre) / TEMPERATURE, axis=1)
        return np.asarray(p[:, self.labels :].sum(axis=1) > CERTAIN)


class Components(NamedTuple):
    """Gaussians with one spherical covariance, of the known classes and then of the unknown ones."""

    means: Array  # (K + U, H)
    mass: Array  # (K + U,) texts that the means are of
    log_prior: Array  # (K + U,)
    variance: float

    def logits(self, x: Array) -> Array:
        """(N, H) -> (N, K + U)."""
        return np.asarray((x @ self.means.T - 0.5 * (self.means**2).sum(axis=1)) / self.variance + self.log_prior)

    def held_out_logits(self, x: Array, y: Columns) -> Array:
        """The same for labelled texts, each without its own part in the mean of its class."""
        logits, mass = self.logits(x), self.mass[y, None]
        means = (mass * self.means[y] - x) / (mass - 1.0 + TINY)
        own = ((x - 0.5 * means) * means).sum(axis=1) / self.variance + self.log_prior[y]
        logits[np.arange(len(y)), y] = own
        return logits


def fit_components(x: Array, y: Columns, pool: Array, labels: int, unknown: Array) -> Components:
    """EM from the means of the labelled texts and of unknown classes (U, H); labelled texts keep their labels."""
    from scipy.special import softmax

    number, width, texts = labels + len(unknown), x.shape[1], len(x) + len(pool)
    one_hot = np.eye(number)[y]
    sums, counts, squares = one_hot.T @ x, one_hot.sum(axis=0), (x**2).sum() + (pool**2).sum()
    means = np.concatenate([sums[:labels] / counts[:labels, None], unknown])
    within = ((x - means[y]) ** 2).sum() / (len(x) - labels) if len(x) > labels else np.inf
    fit = Components(means, counts, np.zeros(number), max(min(within, squares / texts), TINY) / width)
    share, soft = min(1.0, POOL_MASS * number / len(pool)), np.zeros((len(pool), number))
    for _ in range(ITERATIONS):
        previous, soft = soft, softmax(fit.logits(pool), axis=1)
        size, pooled = soft.sum(axis=0), soft.T @ pool
        scatter = squares - ((sums + pooled) ** 2 / (counts + size + TINY)[:, None]).sum()
        mass = counts + share * size + TINY
        prior = (size / len(pool) + PRIOR_MASS / number) / (1.0 + PRIOR_MASS)
        means, variance = (sums + share * pooled) / mass[:, None], max(scatter / texts, TINY) / width
        fit = Components(means, mass, np.log(prior), variance)
        if 0.5 * np.abs(soft - previous).sum(axis=1).mean() < TOLERANCE:
            break
    return fit


def evidence(fit: Components, x: Array, y: Columns, labels: int) -> float:
    """The log-odds that the last component is an unknown class; minus infinity if one criterion excludes that."""
    from scipy.special import softmax

    prior, cosine = np.exp(fit.log_prior), largest_cosine(fit.means)
    if cosine > LARGEST_COSINE or prior[-1] < SMALLEST:
        return -np.inf
    q = MISTAKEN + (1.0 - 2.0 * MISTAKEN) * softmax(fit.held_out_logits(x, y), axis=1)[:, -1]
    log_outside = np.log(prior[:labels] / (prior[:labels] + prior[-1]))  # log (1 - s_k)
    ratios = np.bincount(y, np.log(1.0 - q) - log_outside[y], minlength=labels)
    return float(ratios.min()) - SEPARATION * cosine if ratios.min() >= LEAST_RATIO else -np.inf


def largest_cosine(means: Array) -> float:
    """The largest cosine of the last of some means (K + U, H) with another one.

    They are seen from the centre of the pool, or from their own, whichever gives more: the centre of the pool lies in
    its largest class, parts of which are in opposite directions from there.
    """
    views = (unit(means), unit(means - means.mean(axis=0)))
    return max(float((directions[:-1] @ directions[-1]).max()) for directions in views)
