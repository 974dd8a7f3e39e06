"""Contrast: fine-tuning an encoder on labelled texts until those of one class have similar vectors and others do not.

Where classes are not what texts are about, such as emotions, the vectors of a pretrained encoder hardly tell them
apart, and clusters of a pool do not either. A few dozen labels can improve the vectors first. Held-out labels decide
whether they do: three encoders, each fine-tuned on two thirds of the labels, give the vectors for logistic regression
that predicts the other third, and the likelihood is compared with that of models on the pretrained vectors.

The new vectors know all labels, so that EM on them would be much too certain, and no label is held out. So the pool is
labelled by logistic regression, at the confidence that the three encoders had, then smoothed and corrected by words.

Shapes: N labelled texts, N_u of the pool, K classes, vectors of width H.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from halflabel.arrays import Array, Columns
from halflabel.devices import half_precision, reseed, to_device
from halflabel.encoders.inference import encode
from halflabel.encoders.inputs import TokenInputs
from halflabel.encoders.text_encoder import TextEncoder
from halflabel.evaluation.confidence import softmax, unit
from halflabel.methods.closed_form import MAX_POOL, UNLABELLED_ALPHA, WORD_ROUNDS, ClosedForm, all_soft_labels
from halflabel.methods.gaussian_em import gaussian_em
from halflabel.methods.held_out import WEIGHT_PRIOR, WEIGHT_SPREAD, fit_weights, held_out_predictions, rows_by_class
from halflabel.methods.label_smoothing import (
    corrected_by_words,
    match_confidence,
    neighbour_graph,
    smoothed,
    with_mean_confidence,
)
from halflabel.methods.linear_models import Fit, distil, logistic_regression
from halflabel.notices import unseen
from halflabel.randomness import Stream, generator
from halflabel.types import Progress

STEPS = 60
WARMUP = 0.1  # share of the steps in which the learning rate rises
RATE, DECAY, CLIP = 5e-5, 0.01, 1.0
BATCH = 32  # texts of a step; each is compared with all others
PER_CLASS = 4  # texts of a class in a batch, at least
MAX_TOKENS = 128  # of a text
MIN_PER_CLASS = 5  # labels of a class, on median
FOLDS = 3  # of the labels
MARGIN = 5.0  # log-likelihood of held-out labels that is needed where clusters are certain, or may lack where they fail
SHARPEST = 3.0  # limit of the logarithm of a temperature
MINUTES, TOKENS = 5.0, 64  # of a plan, for texts of so many tokens; fine-tuning four times takes two on two cores
POOL_TEXTS = 500  # whose expected confidence is measured


class HeldOutContrast(NamedTuple):
    """What labels say that were held out from fine-tuning."""

    evidence: float  # log-likelihood that fine-tuning adds to the better of two models on pretrained vectors
    correct: tuple[int, int]  # held-out texts that were predicted right, and all
    confidence: float  # in texts of the pool, on average

    def supports(self, trust: float) -> bool:
        """Whether to fine-tune: the less clusters of the pretrained vectors are trusted, the less it has to be shown.

        A few dozen held-out labels tell little. The final encoder learns from half as many again as the three did, so
        that they may speak a little against it; certain clusters gain by smoothing and words, which they do not tell.
        """
        return self.evidence > MARGIN * (2.0 * trust - 1.0)


def minutes_needed(encoder: TextEncoder, texts: Sequence[str]) -> float:
    """The minutes that a plan must have for contrast on these texts: long ones take as much longer."""
    lengths = [min(len(ids), MAX_TOKENS) for ids in encoder.tokens(texts)]
    return MINUTES * max(1.0, float(np.mean(lengths)) / TOKENS)


def pair_loss(h: Tensor, y: Tensor) -> Tensor:
    """Mean squared error of the cosines of all pairs: 1 for two texts of one class, 0 for others; both weigh the same.

    Vectors h (N, H), classes y (N,).
    """
    z = functional.normalize(h, dim=1)
    cosines, alike = z @ z.T, y[:, None] == y[None, :]
    pairs = alike & ~torch.eye(len(y), dtype=torch.bool, device=y.device)
    attraction, repulsion = ((1.0 - cosines) ** 2 * pairs).sum(), (cosines**2 * ~alike).sum()
    return 0.5 * (attraction / pairs.sum().clamp_min(1) + repulsion / (~alike).sum().clamp_min(1))


def contrast(encoder: TextEncoder, texts: Sequence[str], y: Columns, seed: int, progress: Progress = unseen) -> None:
    """Fine-tunes the encoder in place on texts of classes y (N,)."""
    inputs = TokenInputs(encoder, [texts], limit=MAX_TOKENS)
    parameters = [p for p in encoder.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_at)
    encoder.train()
    for step in range(STEPS):
        rng = generator(seed, Stream.CONTRAST, step)
        reseed(encoder.device, (seed * 1_000_003 + step) % 2**63)
        rows = batch_of(y, rng)
        ids, mask = (to_device(x, encoder.device) for x in inputs(rows, np.zeros_like(rows), rng))
        with half_precision(encoder.device, encoder.precision):
            h = encoder(ids, mask)
        optimizer.zero_grad()
        pair_loss(h.float(), torch.from_numpy(y[rows]).to(h.device)).backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        schedule.step()
        progress(step + 1, STEPS)
    encoder.eval()


def rate_at(step: int) -> float:
    """The learning rate of a step as a share of the largest: it rises, then falls to 0."""
    progress = (step + 1) / STEPS
    return min(progress / WARMUP, (1.0 - progress) / (1.0 - WARMUP) + 1.0 / STEPS, 1.0)


def batch_of(y: Columns, rng: np.random.Generator) -> Columns:
    """Rows of a step: as many texts of each of some classes, (N,)."""
    classes = np.unique(y)
    chosen = rng.permutation(classes)[: max(2, BATCH // PER_CLASS)]
    size = max(2, BATCH // len(chosen))
    rows = (rng.permutation(np.flatnonzero(y == k))[:size] for k in chosen)
    return np.concatenate(list(rows))


def validate_contrast(encoder: TextEncoder, texts: Sequence[str], x: Array, y: Columns, labels: int, seed: int,
                      progress: Progress = unseen, clusters: Fit = gaussian_em) -> HeldOutContrast | None:
    """What held-out labels say for fine-tuning; None without a pool, or if there are too few labels to tell.

    Vectors x (N + N_u, H) are those of the pretrained encoder, of all texts, the labelled ones first; `clusters` is
    the cluster model on them.
    """
    n, counts = len(y), np.bincount(y, minlength=labels)
    if len(x) == n or (counts > 0).sum() < 2 or np.median(counts) < MIN_PER_CLASS:
        return None
    rng = generator(seed, Stream.CONTRAST)
    part = np.full(n, -1)  # -1: the only text of its class is never held out
    for rows in rows_by_class(y, labels, rng):
        part[rows] = np.arange(len(rows)) % FOLDS
    folds = [part == j for j in range(FOLDS)]
    sample = n + rng.permutation(len(x) - n)[:POOL_TEXTS]
    seen = [texts[i] for i in [*range(n), *sample.tolist()]]
    of_held_out, of_pool = list[Array](), list[Array]()
    for number, fold in enumerate(folds):
        def counted(done: int, total: int, before: int = number) -> None:
            progress(before * total + done, FOLDS * total)

        tuned = deepcopy(encoder)
        contrast(tuned, [texts[i] for i in np.flatnonzero(~fold).tolist()], y[~fold], seed, counted)
        f = unit(encode(tuned, seen, consistent=True).astype(np.float64))
        model = logistic_regression(f[:n][~fold], y[~fold], f[n:], labels)
        of_held_out.append(model.log_probabilities(f[:n][fold]))
        of_pool.append(model.log_probabilities(f[n:]))
    log_p = np.concatenate(of_held_out)
    pretrained = held_out_predictions((clusters, logistic_regression), x[:n], y, x[n:], labels, folds,
                                      1.0 - 1.0 / FOLDS, rng)
    weights, _ = fit_weights(pretrained, WEIGHT_PRIOR, WEIGHT_SPREAD)
    without = max(at_best_temperature(some, pretrained.y)[1]
                  for some in (np.tensordot(weights, pretrained.log_p, 1), pretrained.log_p[1]))
    power, fine_tuned = at_best_temperature(log_p, pretrained.y)
    return HeldOutContrast(fine_tuned - without, (int((log_p.argmax(axis=1) == pretrained.y).sum()), len(log_p)),
                           float(softmax(power * np.concatenate(of_pool)).max(axis=1).mean()))


def at_best_temperature(logits: Array, y: Columns) -> tuple[float, float]:
    """The power a of softmax(a logits) (N, K) under which labels y (N,) are likeliest, and their log-likelihood.

    A standard normal prior of log a keeps few labels from making the power extreme.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    def negative_log_posterior(u: float) -> float:
        return 0.5 * u**2 - float(log_softmax(np.exp(u) * logits, axis=1)[np.arange(len(y)), y].sum())

    best = minimize_scalar(negative_log_posterior, bounds=(-SHARPEST, SHARPEST), method="bounded")
    return float(np.exp(best.x)), -float(best.fun)


def fit_tuned(x: Array, y: Columns, pool: Array, words: Any, labels: int, held_out: HeldOutContrast, *,
              seed: int) -> ClosedForm:
    """The closed form on vectors x (N, H) and pool (N_u, H) of the fine-tuned encoder; `words` as for all others."""
    rows = np.sort(generator(seed, Stream.CLOSED_FORM).permutation(len(pool))[:MAX_POOL])
    sample, one_hot = pool[rows], np.eye(labels)[y]
    words = words[np.concatenate([np.arange(len(x)), len(x) + rows])]
    model = logistic_regression(x, y, sample, labels)
    soft = with_mean_confidence(np.exp(model.log_probabilities(sample)), held_out.confidence)
    graph = neighbour_graph(np.concatenate([x, sample]))
    soft = match_confidence(smoothed(graph, np.concatenate([one_hot, soft]), UNLABELLED_ALPHA)[len(x) :], soft)
    soft = corrected_by_words(words, one_hot, soft, rounds=WORD_ROUNDS)
    model = distil(model, np.concatenate([x, sample]), np.concatenate([one_hot, soft]))
    return ClosedForm(all_soft_labels(model, pool, rows, soft), model, np.ones(1), UNLABELLED_ALPHA, uses_words=True,
                      held_out=held_out.correct)
