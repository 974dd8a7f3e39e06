"""Competitors for several labels per text on the same encoder: one-vs-rest logistic regression, SetFit.

Each returns log-odds of the pool's and of other texts, (N, K), to which the same decisions are applied.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from halflabel.encoders.loading import locate
from protocol import Sample
from rivals import vectors

NEVER = -50.0  # log-odds of a label that no labelled text has
STEPS, TOKENS = 200, 128  # of SetFit, by default: its pairs grow with the square of the labelled texts


def logreg(split: Sample, y: np.ndarray, texts: Sequence[str], seed: int,
           changes: Mapping[str, float]) -> dict[str, Any]:
    """A logistic regression for each label, on frozen vectors of the labelled texts."""
    from sklearn.linear_model import LogisticRegression

    x, pool, new = (vectors(part) for part in (split.labelled.texts, split.pool.texts, texts))
    began = time.perf_counter()
    scores = [np.full((len(part), y.shape[1]), NEVER) for part in (pool, new)]
    for k in np.flatnonzero((y.sum(axis=0) > 0) & (y.sum(axis=0) < len(y))):
        model = LogisticRegression(C=10.0, max_iter=1000).fit(x, y[:, k])
        for matrix, part in zip(scores, (pool, new), strict=True):
            matrix[:, k] = model.decision_function(part)
    return {"pool": scores[0], "new": scores[1], "seconds": time.perf_counter() - began}


def setfit(split: Sample, y: np.ndarray, texts: Sequence[str], seed: int,
           changes: Mapping[str, float]) -> dict[str, Any]:
    """SetFit's multi-label mode: `setfit_steps` batches of 16 pairs of `max_tokens`, then one-vs-rest heads."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    model = SetFitModel.from_pretrained(locate("minilm"), multi_target_strategy="one-vs-rest")
    steps, tokens = int(changes.get("setfit_steps", STEPS)), int(changes.get("max_tokens", TOKENS))
    model.model_body.max_seq_length = tokens
    rows = Dataset.from_dict({"text": split.labelled.texts, "label": y.astype(int).tolist()})
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn on labels that no text has
        arguments = TrainingArguments(output_dir=folder, batch_size=16, num_epochs=1, max_steps=steps, seed=seed,
                                      report_to="none", save_strategy="no", show_progress_bar=False)
        began = time.perf_counter()
        Trainer(model=model, args=arguments, train_dataset=rows).train()
        seconds = time.perf_counter() - began
    scores = []
    for part in (split.pool.texts[:1000], texts):  # a thousand are enough for thresholds
        p = np.asarray(model.predict_proba(part, batch_size=32, show_progress_bar=False), dtype=np.float64)
        p = np.clip(p, 1e-9, 1 - 1e-9)
        scores.append(np.log(p) - np.log1p(-p))
    return {"pool": scores[0], "new": scores[1], "seconds": seconds, "steps": steps, "tokens": tokens}


RIVALS = {"logreg": logreg, "setfit": setfit}
