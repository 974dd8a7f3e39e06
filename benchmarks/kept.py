"""Frozen vectors that one run has computed and all others share."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from halflabel.atomic import cache_folder
from halflabel.encoders.cache import EncoderCache
from halflabel.encoders.encoder import Encoder
from halflabel.encoders.loading import load_encoder
from halflabel.nn.network import PrecomputedVectors
from halflabel.persistence.model import TrainedModel
from halflabel.plans import PLANS


@cache
def store(depths: int) -> EncoderCache:
    plan = PLANS["frozen"]
    return EncoderCache(cache_folder(), load_encoder(plan.encoder, plan.max_tokens, depths))


def scores(model: TrainedModel, texts: list[str]) -> np.ndarray:
    """What `model.scores` gives, (N, K), from vectors in the cache where the encoder is as it came."""
    if not isinstance(model.network.encoder, PrecomputedVectors) or not isinstance(model.encoder, Encoder):
        return model.scores(texts)
    h = store(model.encoder.depths).vectors(texts)
    with torch.inference_mode():
        return np.asarray(model.network.eval().classify(torch.from_numpy(h)).scores.numpy())
