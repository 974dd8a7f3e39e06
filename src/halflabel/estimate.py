"""What training would take in time and memory, by a short trial of the encoder."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from halflabel.data.corpus import Corpus
from halflabel.encoders.inference import SMALL, encode
from halflabel.encoders.text_encoder import TextEncoder
from halflabel.fitting import POOL_LIMIT
from halflabel.training.time_budget import within_passes
from halflabel.types import Plan

TRIAL = 64  # texts that are encoded
BACKWARD = 3.0  # a step with gradients, in forward passes
BASE = 0.6  # gigabytes that Python, torch and Arrow take by themselves


def token_lengths(encoder: TextEncoder, texts: list[str]) -> np.ndarray:
    """Tokens of each text, as if there were no limit, (N,)."""
    encoder = encoder.parts[0]
    limit = encoder.max_tokens
    encoder.max_tokens = 10 * limit
    try:
        return np.array([len(ids) for ids in encoder.tokens(texts)], dtype=np.int64)
    finally:
        encoder.max_tokens = limit


def estimate(encoder: TextEncoder, plan: Plan, labelled: Corpus, pool: Corpus, *,
             bounded: bool = True) -> dict[str, Any]:
    """Minutes and gigabytes of a run of the default method: encoding once, then the steps and looks of the plan."""
    texts = [*labelled.texts[: TRIAL // 2], *pool.texts[: TRIAL // 2]]
    encode(encoder, texts[:SMALL])  # as many as prepare the weights
    began = time.perf_counter()
    encode(encoder, texts)
    per_text = (time.perf_counter() - began) / max(1, len(texts))
    part = min(len(pool), POOL_LIMIT) if bounded else len(pool)
    once = per_text * (len(labelled) + part)
    plan = within_passes(plan, part)
    steps = 0.0
    if not plan.frozen:
        step = BACKWARD * per_text * (plan.labelled_batch + plan.unlabelled_batch)
        looks = (plan.epochs + 1) * per_text * (len(labelled) + min(part, plan.survey))
        steps = min(60 * plan.minutes, plan.steps * step + looks)
    weights = sum(parameter.numel() for parameter in encoder.parameters()) * 4 / 1e9
    vectors = (len(labelled) + part) * encoder.width * (4 + 8 + 8) / 1e9  # as floats, as doubles, and centred
    return {"minutes": round((once + steps) / 60, 2), "encoding_minutes": round(once / 60, 2),
            "gigabytes": round(BASE + weights * (1 if plan.frozen else 5) + vectors, 2),
            "texts_that_take_part": len(labelled) + part, "texts_per_second": round(1 / per_text, 1)}
