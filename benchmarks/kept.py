"""Frozen vectors that one run has computed and all others share."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from halflabel.disk import cache_folder
from halflabel.fitted import Fitted
from halflabel.model.encoder import Encoder, load_encoder
from halflabel.model.network import Frozen
from halflabel.model.vectors import VectorStore
from halflabel.plans import PLANS


@cache
def store(depths: int) -> VectorStore:
    plan = PLANS["frozen"]
    return VectorStore(cache_folder() / "vectors", load_encoder(plan.encoder, plan.max_tokens, depths))


def scores(model: Fitted, texts: list[str]) -> np.ndarray:
    """What `model.scores` gives, (N, K), from vectors in the cache where the encoder is as it came."""
    if not isinstance(model.network.encoder, Frozen) or not isinstance(model.encoder, Encoder):
        return model.scores(texts)
    h = store(model.encoder.depths)(texts)
    with torch.inference_mode():
        return np.asarray(model.network.eval().classify(torch.from_numpy(h)).scores.numpy())
