"""The paper on one page: Section III as pure functions of tensors, in the paper's order.

Shapes: N texts, K labels, D features. Targets `y` are (N, K) floats: one-hot, multi-hot or soft.
Training executes these functions: a change here changes every run. Bounds that the paper does not have are arguments
whose defaults are its own: none. Eqs. 4, 5, 11, 14 and 15 only average and add what is here, in `training/objective.py`.
Work in float32 or wider: in half precision 1 - EPS is 1, where the slope of arccos is infinite.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, normalize

# Cosines stop this short of +-1, so that arccos has a slope of at most 725. Angles below sqrt(2 EPS) rad look
# alike from then on, which makes variances below EPS rad^2 noise.
EPS = 1e-6


def _tiny(x: Tensor) -> float:
    """The smallest divisor and the smallest argument of a logarithm that stay finite."""
    return torch.finfo(x.dtype).tiny


# Section III-A: balanced deep representation distributions


def cosines(f: Tensor, w: Tensor) -> Tensor:
    """cos(theta_ik) below Eq. 1: features (N, D) against weights (K, D), (N, K); zeros for a zero row."""
    return normalize(f, dim=1) @ normalize(w, dim=1).T


def am_loss(cos: Tensor, y: Tensor, s: float, m: float) -> Tensor:
    """Eq. 1: additive-margin loss of cosines (N, K), one value per text (N,). On balanced cosines it is Eq. 3.

    Read literally for any y: label k gives up the margin y_k m and weighs y_k; a text without labels costs 0.
    """
    y = y.detach()
    return -(y * log_softmax(s * (cos - m * y), dim=1)).sum(1)


def slopes(var: Tensor, *, floor: float = 0.0, limit: float = math.inf, seen: Tensor | None = None) -> Tensor:
    """a_k of Eq. 2: how much the angles of each label stretch, (K,) from variances (K,).

    The paper has no bounds. With `floor` no variance counts as less, with `limit` a_k stays within [1/limit, limit],
    and with `seen` (K,) the other labels are left out of the mean and keep their angles.
    """
    var = var.clamp_min(floor)
    mean = var.mean() if seen is None or not bool(seen.any()) else var[seen].mean()
    a = (mean / var).sqrt().clamp(1 / limit, limit)
    return a if seen is None else a.where(seen, torch.ones_like(a))


def psi(theta: Tensor, mu: Tensor, a: Tensor, *, leak: float | None = None) -> Tensor:
    """Eq. 2: angles (N, K) that spread alike around the means mu (K,), stretched by a (K,).

    As written, psi may leave [0, pi]. With `leak` its value is clamped there, with that slope outside.
    """
    stretched = a * theta + (1 - a) * mu
    if leak is None:
        return stretched
    inside = stretched.clamp(0.0, math.pi)
    outside = leak * (stretched - inside)
    return inside + outside - outside.detach()


def balanced(cos: Tensor, mu: Tensor, a: Tensor, *, leak: float | None = None) -> Tensor:
    """cos(psi_k(theta_ik)) of Eq. 3, (N, K); where a_k is 1 the cosine passes untouched."""
    return torch.where((a - 1).abs() <= 1e-6, cos, psi(angles(cos), mu, a, leak=leak).cos())


def probabilities(scores: Tensor) -> Tensor:
    """p(k | x_i) below Eq. 4: softmax of the balanced cosines (N, K), with neither scale nor margin."""
    return scores.softmax(1)


# Section III-B: label angle variances


def prototypes(f: Tensor, y: Tensor) -> Tensor:
    """Eq. 6: mean feature of each label, (K, D) from f (N, D) and y (N, K); zeros for one without mass."""
    return y.T @ f / y.sum(0).clamp_min(_tiny(y))[:, None]


def angles(cos: Tensor) -> Tensor:
    """Eq. 7: arccos of (N, K) cosines in radians, within [0.0014, pi - 0.0014] and without slope outside."""
    return cos.clamp(EPS - 1, 1 - EPS).arccos()


def angle_moments(beta: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 8: mean (K,) and variance (K,) of each label's angles beta (N, K) under y (N, K).

    The variance's denominator never falls below 1, the authors' habit for labels with fewer than two texts.
    A label without mass gets 0 and 0.
    """
    mass = y.sum(0)
    mu = (y * beta).sum(0) / mass.clamp_min(_tiny(y))
    return mu, (y * (beta - mu).square()).sum(0) / (mass - 1).clamp_min(1)


def blend(new: Tensor, old: Tensor, memory: float) -> Tensor:
    """Moving average below Eqs. 6 and 8: `memory`, the paper's gamma, is the share that the past keeps."""
    return (1 - memory) * new + memory * old


# Section III-C: multi-class


def sharpen(p: Tensor, T: float) -> Tensor:
    """Eq. 9: p^(1/T) over its sum, (N, K); one-hot as T goes to 0, where ties share; T = 0 is that limit."""
    logits = p.clamp_min(_tiny(p)).log()
    gaps = (logits - logits.amax(1, keepdim=True)) / max(T, _tiny(p))  # the largest is 0 for every T
    return gaps.masked_fill(p == 0, -torch.inf).softmax(1)


def entropy(p: Tensor) -> Tensor:
    """Eq. 10: entropy in nats of each text's probabilities (N, K), (N,); 0 log 0 = 0."""
    return -(p * p.clamp_min(_tiny(p)).log()).sum(1)


# Section III-D: multi-label


def cap_counts(prior: Tensor, n: int) -> Tensor:
    """n_k below Eq. 12: how many of n texts each label gets, (K,) from shares in [0, 1]; halves round up."""
    return (prior * n + 0.5).floor().long()


def cap_labels(p: Tensor, counts: Tensor) -> Tensor:
    """Eq. 12: 1 for the counts[k] texts with the largest p (N, K) of each label, else 0, (N, K).

    gamma_k is the smallest p among them. Of equal ones the lowest index comes first, so that a label never goes to
    more texts than its share.
    """
    order = p.sort(dim=0, descending=True, stable=True).indices
    places = torch.arange(len(p), device=p.device)[:, None]
    return torch.zeros_like(p).scatter(0, order, (places < counts).to(p.dtype))


def nuclear_norm(w: Tensor) -> Tensor:
    """Eq. 13: sum of the singular values of w (K, D), a scalar."""
    values: Tensor = torch.linalg.svdvals(w)
    return values.sum()


def singular_value_threshold(w: Tensor, tau: float) -> Tensor:
    """D_tau below Eq. 16: w (K, D) with each singular value lowered by tau, down to 0; without gradient."""
    u, values, v = torch.linalg.svd(w.detach(), full_matrices=False)
    lowered: Tensor = (u * (values - tau).clamp_min(0)) @ v
    return lowered


def lagrangian_penalty(w: Tensor, twin: Tensor, dual: Tensor, tau: float) -> Tensor:
    """Last term of Eq. 16: what ties w (K, D) to its low-rank twin (K, D) under the dual (K, D), a scalar."""
    return tau / 2 * (twin - w + dual / tau).square().sum()


def dual_ascent(dual: Tensor, twin: Tensor, w: Tensor, tau: float) -> Tensor:
    """Theta's update below Eq. 16: up along the broken constraint twin = w; all (K, D), without gradient."""
    return dual + tau * (twin - w.detach())
