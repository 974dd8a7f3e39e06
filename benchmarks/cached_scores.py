"""Scores of test texts from cached vectors, which all runs on a frozen encoder share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from halflabel.atomic import cache_folder
from halflabel.encoders.cache import EncoderCache
from halflabel.encoders.encoder import Encoder
from halflabel.encoders.loading import load_encoder
from halflabel.persistence.model import TrainedModel
from halflabel.plans import PLANS


@cache
def store(depths: int, max_tokens: int = PLANS["frozen"].max_tokens) -> EncoderCache:
    return EncoderCache(cache_folder(), load_encoder(PLANS["frozen"].encoder, max_tokens, depths))


def vectors(model: TrainedModel, texts: Sequence[str]) -> np.ndarray:
    """`model.vectors` (N, H), from the cache if the encoder is frozen."""
    if not (model.frozen and isinstance(model.encoder, Encoder)):
        return model.vectors(texts)
    return store(model.encoder.depths, model.encoder.max_tokens).vectors(texts)


def scores(model: TrainedModel, texts: Sequence[str]) -> np.ndarray:
    """`model.scores` (N, K), from cached vectors if the encoder is frozen."""
    if not model.frozen:
        return model.scores(texts)
    return np.asarray(model.classify(vectors(model, texts), texts).scores.numpy())
