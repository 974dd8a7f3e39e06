"""Competitors on the same encoder: logistic regression, self-training, SetFit; and one class for every text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from halflabel.atomic import cache_folder
from halflabel.data.corpus import Corpus
from halflabel.encoders.cache import EncoderCache
from halflabel.encoders.loading import load_encoder, locate
from protocol import Sample


def vectors(texts: Sequence[str]) -> np.ndarray:
    """Frozen vectors of unit length, (N, H), from the cache."""
    x = EncoderCache(cache_folder(), load_encoder("minilm")).vectors(texts)
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def constant(split: Sample, test: Corpus, seed: int) -> dict[str, Any]:
    """One class for every text: the most frequent of the test set, which no method knows."""
    labels, counts = np.unique(np.array(test.labels), return_counts=True)
    return {"predicted": np.full(len(test), labels[counts.argmax()]), "seconds": 0.0}


def logreg(split: Sample, test: Corpus, seed: int) -> dict[str, Any]:
    """Logistic regression on frozen vectors of the labelled texts."""
    from sklearn.linear_model import LogisticRegression

    x, y, xt = vectors(split.labelled.texts), np.array(split.labelled.labels), vectors(test.texts)
    began = time.perf_counter()
    model = LogisticRegression(C=10.0, max_iter=1000).fit(x, y)
    return {"predicted": model.predict(xt), "seconds": time.perf_counter() - began}


def self_training(split: Sample, test: Corpus, seed: int) -> dict[str, Any]:
    """scikit-learn's self-training around the same logistic regression, with its defaults."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.semi_supervised import SelfTrainingClassifier

    x = np.concatenate([vectors(split.labelled.texts), vectors(split.pool.texts)])
    y = np.concatenate([np.array(split.labelled.labels), np.full(len(split.pool), -1)])
    xt = vectors(test.texts)
    began = time.perf_counter()
    model = SelfTrainingClassifier(LogisticRegression(C=10.0, max_iter=1000)).fit(x, y)
    return {"predicted": model.predict(xt), "seconds": time.perf_counter() - began}


MANY_PAIRS = 20_000  # more than that, and all pairs of texts take SetFit hours
MANY_WORDS = 300_000  # in the texts of all pairs: more than that, and fp32 takes SetFit an hour on one core


def setfit(split: Sample, test: Corpus, seed: int) -> dict[str, Any]:
    """SetFit with its defaults: contrastive fine-tuning on the labelled texts, then a logistic head.

    By default it trains on all pairs of labelled texts; where these are too many, on 20 pairs of each kind for each
    text, as in its paper. Long runs have bf16 matrix products, which the line says.
    """
    import torch
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    model = SetFitModel.from_pretrained(locate("minilm"))
    rows = Dataset.from_dict({"text": split.labelled.texts, "label": split.labelled.labels})
    counts = np.unique(np.array(split.labelled.labels), return_counts=True)[1]
    unlike = (counts.sum() ** 2 - (counts**2).sum()) // 2
    per_text = 20 if 2 * unlike > MANY_PAIRS else None
    pairs = 2 * (per_text * len(rows) if per_text else unlike)
    long = pairs * np.mean([len(text.split()) for text in split.labelled.texts]) > MANY_WORDS
    with TemporaryDirectory() as folder, torch.autocast("cpu", torch.bfloat16, enabled=bool(long)):
        arguments = TrainingArguments(output_dir=folder, batch_size=16, num_epochs=1, num_iterations=per_text,
                                      seed=seed, report_to="none", save_strategy="no", show_progress_bar=False)
        began = time.perf_counter()
        Trainer(model=model, args=arguments, train_dataset=rows).train()
        seconds = time.perf_counter() - began
    predicted = np.array(model.predict(test.texts, batch_size=32, show_progress_bar=False))
    return {"predicted": predicted, "seconds": seconds, "pairs_per_text": per_text,
            "precision": "bf16" if long else "fp32"}


RIVALS: dict[str, Callable[[Sample, Corpus, int], dict[str, Any]]] = {
    "constant": constant, "logreg": logreg, "self-training": self_training, "setfit": setfit}
