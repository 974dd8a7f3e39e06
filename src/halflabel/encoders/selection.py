"""`--encoder auto`: the encoder on whose vectors held-out labels are predicted best, and how fast encoders are.

Ridge regression on frozen vectors predicts each label from all other labelled texts; leaving one out has a closed form,
so that the choice costs little more than encoding the labelled texts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from halflabel.atomic import cache_folder
from halflabel.encoders.cache import EncoderCache
from halflabel.encoders.catalogue import CATALOGUE, MINILM, find_place, names_in
from halflabel.encoders.inference import SMALL, encode
from halflabel.encoders.loading import load_encoder
from halflabel.encoders.text_encoder import TextEncoder
from halflabel.notices import Notice
from halflabel.randomness import Stream, generator
from halflabel.types import Plan

SHARE = 0.1  # of the minutes of the plan that the choice may take
MAX_TEXTS = 1000  # labelled texts that are used
RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)  # strengths of ridge regression, of which the best for held-out labels is taken


def choose_encoder(option: str, texts: Sequence[str], y: np.ndarray, plan: Plan, seed: int) -> tuple[str, Notice]:
    """The best of the candidates for texts with labels y (N, K), NaN where unknown, and why.

    Candidates are those that "auto:..." names, else all of the catalogue that are on this machine, the smallest first.
    """
    names = names_in(option) or [name for name, known in CATALOGUE.items() if find_place(known) is not None]
    if not names:
        return MINILM, Notice("no encoder of the catalogue is here, so --encoder auto takes minilm")
    if len(names) == 1:
        return names[0], Notice(f"--encoder auto takes {names[0]}, the only encoder that is here; `halflabel encoders` "
                                "lists others that can be fetched")
    rows = np.flatnonzero(~np.isnan(y).any(axis=1))
    rows = np.sort(generator(seed, Stream.ENCODER_CHOICE).permutation(rows)[:MAX_TEXTS])
    if len(rows) < 3 or not ((y[rows].sum(axis=0) >= 2).sum() >= 2):
        return names[0], Notice(f"--encoder auto takes {names[0]}: there are too few labels to compare encoders by")
    some, began, scores = [texts[int(i)] for i in rows], time.monotonic(), dict[str, float]()
    for name in names:
        spent, budget = time.monotonic() - began, SHARE * 60 * plan.minutes
        if scores and spent * (len(scores) + 1) / len(scores) > budget:
            break
        encoder = load_encoder(name, plan.max_tokens)
        scores[name] = held_out_score(EncoderCache(cache_folder(), encoder).vectors(some), y[rows])
    best = max(scores, key=lambda name: scores[name])
    compared = ", ".join(f"{name} {score:.3f}" for name, score in scores.items())
    skipped = names[len(scores) :]
    left = (f"; {', '.join(skipped)} would have taken more than {SHARE:.0%} of {plan.minutes:g} minutes"
            if skipped else "")
    return best, Notice(f"--encoder auto takes {best}, which predicts held-out labels best (share of their variance, "
                        f"{len(rows)} labelled texts: {compared}){left}")


def held_out_score(x: np.ndarray, y: np.ndarray) -> float:
    """The share of the variance of labels y (N, K) that vectors x (N, H) predict, each text from all others."""
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    x, n = (x - x.mean(axis=0)).astype(np.float64), len(x)
    values, vectors = np.linalg.eigh(x @ x.T)
    projected, constant = vectors.T @ (y - y.mean(axis=0)), 1.0 / n  # the mean is fitted without the text as well
    errors = []
    for ridge in RIDGES:
        shrunk = np.maximum(values, 0.0) / (np.maximum(values, 0.0) + ridge)
        residual = y - y.mean(axis=0) - vectors @ (shrunk[:, None] * projected)
        leverage = (vectors**2 @ shrunk) + constant
        errors.append(((residual / np.maximum(1.0 - leverage, 1e-6)[:, None]) ** 2).sum())
    total = (((y - y.mean(axis=0)) * n / (n - 1)) ** 2).sum()
    return float(1.0 - min(errors) / total)


def texts_per_second(encoder: TextEncoder, texts: Sequence[str]) -> float:
    """How many of these texts the encoder encodes in a second, once it is warm."""
    encode(encoder, texts[:SMALL])
    began = time.perf_counter()
    encode(encoder, texts)
    return len(texts) / (time.perf_counter() - began)
