"""The paper on one page: Section III as pure functions of tensors, in the paper's order.

Shapes: N texts, K labels, D features. Targets `y` are (N, K) floats: one-hot, multi-hot or soft.
Eqs. 4, 5, 11, 14 and 15 only average and add what is here; the recipes and the training loop do that.
Work in float32 or wider: in half precision 1 - EPS is 1, where the slope of arccos is infinite.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, normalize

# Cosines stop this short of +-1, so that arccos has a slope of at most 725. Angles below sqrt(2 EPS) rad look
# alike from then on, which makes variances below EPS rad^2 noise: the same number is their floor.
EPS = 1e-6


def _tiny(x: Tensor) -> float:
    """The smallest divisor and the smallest argument of a logarithm that stay finite."""
    return torch.finfo(x.dtype).tiny


# Section III-A: balanced deep representation distributions


def cosines(f: Tensor, w: Tensor) -> Tensor:
    """cos(theta_ik) below Eq. 1: features (N, D) against weights (K, D), (N, K); zeros for a zero row."""
    return normalize(f, dim=1) @ normalize(w, dim=1).T


def am_loss(cos: Tensor, y: Tensor, s: float, m: float) -> Tensor:
    """Eq. 1: additive-margin loss of cosines (N, K), one value per text (N,).

    Read literally for any y: label k gives up the margin y_k m and weighs y_k; a text without labels costs 0.
    """
    y = y.detach()
    return -(y * log_softmax(s * (cos - m * y), dim=1)).sum(1)


def slopes(var: Tensor) -> Tensor:
    """a_k of Eq. 2: how much the angles of each label stretch, (K,) from variances (K,)."""
    var = var.clamp_min(EPS)
    return (var.mean() / var).sqrt()


def psi(theta: Tensor, mu: Tensor, var: Tensor) -> Tensor:
    """Eq. 2: angles (N, K) made to spread alike around the means mu (K,); may leave [0, pi], as written."""
    a = slopes(var)
    return a * theta + (1 - a) * mu


def balanced(cos: Tensor, mu: Tensor, var: Tensor) -> Tensor:
    """cos(psi_k(theta_ik)) of Eq. 3, (N, K); where a_k is 1 the cosine passes untouched."""
    untouched = (slopes(var) - 1).abs() <= 1e-6
    return torch.where(untouched, cos, psi(angles(cos), mu, var).cos())


def bdd_loss(cos: Tensor, y: Tensor, mu: Tensor, var: Tensor, s: float, m: float) -> Tensor:
    """Eq. 3: the loss of Eq. 1 on balanced angles, one value per text (N,)."""
    return am_loss(balanced(cos, mu, var), y, s, m)


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


def cap_thresholds(p: Tensor, prior: Tensor) -> Tensor:
    """gamma_k of Eq. 12: the n_k-th largest of each column of p (N, K), (K,); +inf where n_k = 0."""
    counts = cap_counts(prior, len(p))
    ladder = p.topk(int(counts.max()), dim=0).values
    ladder = torch.cat([p.new_full((1, p.shape[1]), torch.inf), ladder])  # rung 0 is out of reach
    return ladder.gather(0, counts[None])[0]


def cap_labels(p: Tensor, thresholds: Tensor | None = None, *, counts: Tensor | None = None) -> Tensor:
    """Eq. 12: 1 where p (N, K) reaches its label's threshold (K,), else 0, (N, K).

    Ties at a threshold give a label more than its share. With `counts` (K,) the thresholds are not consulted:
    exactly counts[k] texts become positive, those with the largest p and, among equals, the lowest index.
    """
    if counts is None:
        assert thresholds is not None, "thresholds or counts"
        return (p >= thresholds).to(p.dtype)
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
