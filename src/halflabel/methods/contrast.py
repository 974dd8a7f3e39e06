"""Contrast: fine-tuning an encoder on labelled texts until those of one class have similar vectors and others do not.

Where classes are not what texts are about, such as emotions, the vectors of a pretrained encoder hardly tell them
apart, and clusters of a pool do not either. A few dozen labels can improve the vectors first. Held-out labels decide
whether they do: three encoders, each fine-tuned on two thirds of the labels, give the vectors for models that predict
the other third, and the likelihood is compared with that of such models on the pretrained vectors.

Shapes: N labelled texts, N_u of the pool, K classes, vectors of width H.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from halflabel.devices import half_precision, reseed, to_device
from halflabel.encoders.inference import encode
from halflabel.encoders.inputs import TokenInputs
from halflabel.encoders.text_encoder import TextEncoder
from halflabel.evaluation.confidence import softmax, unit
from halflabel.methods.closed_form import (
    WEIGHT_PRIOR,
    WEIGHT_SPREAD,
    Array,
    Columns,
    correct_of,
    fit_weights,
    gaussian_em,
    held_out_predictions,
    logistic_regression,
    rows_by_class,
)
from halflabel.notices import unseen
from halflabel.randomness import Stream, generator
from halflabel.types import Progress

STEPS = 60
WARMUP = 0.1  # share of the steps in which the learning rate rises
RATE, DECAY, CLIP = 5e-5, 0.01, 1.0
BATCH = 32  # texts of a step; each is compared with all others
PER_CLASS = 4  # texts of a class in a batch, at least
MAX_TOKENS = 128  # of a text
MIN_PER_CLASS = 8  # labels of a class, on median; with five, accuracy fell
FOLDS = 3  # of the labels
AGAINST = 8.0  # log-likelihood by which held-out labels may speak against it where clusters are not trusted at all
FITS = (gaussian_em, logistic_regression)
MIN_MINUTES = 5.0  # of a plan; fine-tuning four times takes one or two of them on two cores
POOL_TEXTS = 1000  # whose expected confidence is measured


class HeldOutContrast(NamedTuple):
    """What labels say that were held out from fine-tuning."""

    evidence: float  # log-likelihood that fine-tuning adds to the best of models on pretrained vectors
    correct: tuple[int, int]  # held-out texts that were predicted right, and all
    confidence: float  # in texts of the pool, on average

    def supports(self, trust: float) -> bool:
        """Whether to fine-tune: the less clusters of the pretrained vectors are trusted, the less it has to be shown.

        A few dozen held-out labels tell little; where clusters are not the classes, they may speak a little against it.
        """
        return self.evidence > -AGAINST * (1.0 - trust)


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


def validate_contrast(encoder: TextEncoder, texts: Sequence[str], x: Array, y: Columns, labels: int,
                      seed: int, progress: Progress = unseen) -> HeldOutContrast | None:
    """What held-out labels say for fine-tuning; None without a pool, or if there are too few labels to tell.

    Vectors x (N + N_u, H) are those of the pretrained encoder, of all texts, the labelled ones first.
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
    log_p, of_pool = list[Array](), list[Array]()
    for number, fold in enumerate(folds):
        def counted(done: int, total: int, before: int = number) -> None:
            progress(before * total + done, FOLDS * total)

        tuned = deepcopy(encoder)
        contrast(tuned, [texts[i] for i in np.flatnonzero(~fold).tolist()], y[~fold], seed, counted)
        f = unit(encode(tuned, seen, consistent=True).astype(np.float64))
        models = [fit(f[:n][~fold], y[~fold], f[n:], labels) for fit in FITS]
        log_p.append(np.stack([model.log_probabilities(f[:n][fold]) for model in models]))
        of_pool.append(np.stack([model.log_probabilities(f[n:]) for model in models]))
    frozen = held_out_predictions(FITS, x[:n], y, x[n:], labels, folds, 1.0 - 1.0 / FOLDS, rng)
    fine_tuned = frozen._replace(log_p=np.concatenate(log_p, axis=1))
    (_, without), (weights, with_contrast) = (fit_weights(some, WEIGHT_PRIOR, WEIGHT_SPREAD)
                                              for some in (frozen, fine_tuned))
    _, labels_alone = fit_weights(frozen.of(1), WEIGHT_PRIOR[1:], WEIGHT_SPREAD[1:])
    p = softmax(np.tensordot(weights, np.concatenate(of_pool, axis=1), 1))
    return HeldOutContrast(min(without, labels_alone) - with_contrast, correct_of(fine_tuned, weights),
                           float(p.max(axis=1).mean()))
