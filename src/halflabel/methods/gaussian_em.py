"""The cluster model: Gaussian classes with one shared covariance, fitted by EM to labelled texts and a pool.

Equal variances for all classes are the paper's idea, here in closed form.

Shapes: vectors x (N_l, H) and pool (N_u, H) of unit length, y (N_l,) columns of labels, K labels.
"""

from __future__ import annotations

import numpy as np

from halflabel.arrays import Array, Columns, Mask
from halflabel.evaluation.confidence import held_out_distances, unit
from halflabel.methods.linear_models import LinearModel

POOL_MASS = 25.0  # texts per class that the pool counts as, at most, in means and priors of EM
# Shares of an isotropic covariance, iterations of EM with it, and the quantile of the labelled texts' distances from
# their classes within which pool texts count. The first covariance is isotropic, since whitening before the means are
# good misleads EM when labels are few.
STAGES = ((1.0, 10, 0.9), (0.9, 8, 0.95))
MORE_FAR = 2.0  # times as many pool texts as labelled ones are far from all classes if some are of unknown classes
SMALLEST_VARIANCE = 1e-9  # if all texts of the pool are the same
TOLERANCE = 5e-3  # mean change of the soft labels at which a stage ends
NAME_MASSES = (5.0, 10.0, 20.0)  # texts that a class name may count as; the first, if there are no labels to choose by
NAME_RADIUS = 0.3  # distance of a class name from the centre of the pool, about that of a class mean


def gaussian_em(x: Array, y: Columns, pool: Array, labels: int, *, names: Array | None = None,
                name_mass: float = NAME_MASSES[0]) -> LinearModel:
    """The cluster model: EM for Gaussian classes with one shared covariance; labelled texts keep their labels.

    Texts of the pool that are far from all classes do not count: EM would take a cluster of unknown texts for a part
    of some class. The vectors of class names (K, H) count as `name_mass` labelled texts each.
    """
    from scipy.special import softmax

    centre = pool.mean(axis=0)
    x, pool, width = x - centre, pool - centre, x.shape[1]
    one_hot = np.eye(labels)[y]
    sums, counts = one_hot.T @ x, one_hot.sum(axis=0)
    if names is not None:
        sums, counts = sums + name_mass * NAME_RADIUS * name_directions(names), counts + name_mass
    means, log_prior = sums / np.maximum(counts, 1.0)[:, None], np.full(labels, -np.log(labels))
    within = ((x - means[y]) ** 2).sum() / (len(x) - labels) if len(x) > labels else np.inf
    variance = min(within, ((x**2).sum() + (pool**2).sum()) / (len(x) + len(pool)))
    covariance = np.eye(width) * max(variance, SMALLEST_VARIANCE) / width
    middle = centre_of_classes(one_hot.T @ x, one_hot.sum(axis=0), variance)
    f, f_pool = unit(x - middle), unit(pool - middle)
    soft, share = np.zeros((len(pool), labels)), 1.0
    for isotropic, iterations, quantile in STAGES:
        near = near_classes(f, y, f_pool, one_hot.T @ f + share * (soft.T @ f_pool), quantile)
        total, share = len(x) + near.sum(), min(1.0, POOL_MASS * labels / near.sum())
        scatter = pool[near].T @ pool[near] + x.T @ x
        smoothing = 0.2 * (counts.sum() / labels + share * near.sum() / labels)
        soft[~near] = 0.0
        for _ in range(iterations):
            if soft.any():
                mass = counts + soft.sum(axis=0)
                centres = (sums + soft.T @ pool) / mass[:, None]
                pooled = (scatter - (centres * mass[:, None]).T @ centres) / total
                spread = max(np.trace(pooled), SMALLEST_VARIANCE)  # none if all texts are the same to the encoder
                covariance = (1 - isotropic) * pooled + isotropic * spread / width * np.eye(width)
            weight = np.linalg.solve(covariance, means.T)
            bias = log_prior - 0.5 * (means.T * weight).sum(axis=0)
            previous, soft = soft, softmax(pool @ weight + bias, axis=1) * near[:, None]
            mass = counts + share * soft.sum(axis=0)
            means = (sums + share * (soft.T @ pool)) / mass[:, None]
            log_prior = np.log((mass + smoothing) / (mass.sum() + labels * smoothing))
            if 0.5 * np.abs(soft - previous).sum(axis=1).mean() < TOLERANCE:
                break
    return LinearModel(weight, bias - centre @ weight)


def centre_of_classes(sums: Array, counts: Array, variance: float) -> Array:
    """The mean of the class means (H,), shrunk towards the centre of the pool, which is the origin.

    Texts of a large class look far from everything when seen from the pool's centre, which lies in that class; but the
    mean of a few texts is elsewhere by chance. So the part of its squared length that chance explains is taken away,
    as by James and Stein. `sums` (K, H) are those of labelled texts, `variance` is theirs around their class means.
    """
    counts = np.maximum(counts, 1.0)
    mean = (sums / counts[:, None]).mean(axis=0)
    chance = variance * (1.0 / counts).mean() / len(counts)
    return np.asarray(mean * max(0.0, 1.0 - chance / max(mean @ mean, SMALLEST_VARIANCE)))


def name_directions(names: Array) -> Array:
    """Unit vectors from the centre of the class names, which is not that of the texts, to each of them, (K, H)."""
    directions = names - names.mean(axis=0)
    return np.asarray(directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-12))


def near_classes(f: Array, y: Columns, f_pool: Array, sums: Array, quantile: float) -> Mask:
    """Which texts of the pool are as near to a class as that share of the labelled texts, (N_u,).

    The distance is one minus the cosine with the nearest class mean; `sums` (K, H) are the means' sums of vectors, of
    which a labelled text is no part itself. All texts count as near if a class has no label, if none would be, and if
    not many more of them are far than of the labelled texts: then the pool has no other classes than these.
    """
    if not np.bincount(y, minlength=len(sums)).all():
        return np.ones(len(f_pool), dtype=bool)
    farthest = np.quantile(held_out_distances(f, y, sums), quantile)
    near = 1.0 - (f_pool @ unit(sums).T).max(axis=1) <= farthest
    if not near.any() or 1.0 - near.mean() <= MORE_FAR * (1.0 - quantile):
        return np.ones(len(f_pool), dtype=bool)
    return np.asarray(near)
