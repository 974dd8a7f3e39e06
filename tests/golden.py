"""Golden numbers: twenty steps of every method, so that a refactoring can show that it changed nothing.

    python tests/golden.py [METHOD ...]   # writes golden.json, only after a change that is meant to change numbers
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

FILE = Path(__file__).with_name("golden.json")
PLANS = ("frozen", "laptop")
TWENTY = {"warmup": 4, "epochs": 2, "epoch_steps": 8, "labelled_batch": 4, "unlabelled_batch": 8}
Numbers = dict[str, Any]


def numbered_encoder(source: str, folder: Path) -> str:
    """The encoder in `source` with weights from numpy's generators, whose streams no library changes."""
    from transformers import AutoModel, AutoTokenizer

    body = AutoModel.from_pretrained(source, add_pooling_layer=False)
    for name, parameter in body.named_parameters():
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        centre = 1.0 if "LayerNorm.weight" in name else 0.0
        parameter.data = torch.from_numpy(rng.normal(centre, 0.1, parameter.shape).astype(np.float32))
    body.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return str(folder)


def numbers(method: str, plan: str, encoder: str, *, with_log: bool = False, **settings: Any) -> Numbers:
    """Losses of each step, share of accepted pseudo-labels and final probabilities, all in fp32."""
    from conftest import tiny_texts
    from halflabel import TextClassifier
    from halflabel.methods import find
    from halflabel.notices import EpochReport, Event, StepProgress

    texts, topics = tiny_texts(4)
    several = find(method).task == "multi-label"
    labels = [(topic, "long") if i % 3 == 0 else (topic,) for i, topic in enumerate(topics)] if several else topics
    pool, _ = tiny_texts(12, seed=1)
    events: list[Event] = []
    changes = settings if find(method).no_steps else TWENTY | settings
    classifier = TextClassifier(method, encoder, plan, settings=changes or None)
    with mock.patch("torch.cpu.get_capabilities", dict):  # no bf16: the same products on every processor
        classifier.fit(texts, labels, unlabelled=pool, report=events.append)
        probabilities = classifier.predict_proba(pool[:6])
    steps = [event for event in events if isinstance(event, StepProgress)]
    log = {"log": [event.to_json() for event in events if isinstance(event, EpochReport)]} if with_log else {}
    return {"loss": [event.loss for event in steps], "accepted": [event.accepted for event in steps],
            "probabilities": probabilities.tolist()} | log


def differences(found: Numbers, golden: Numbers) -> dict[str, float]:
    """The largest difference in each kind of number, relative for losses; infinite where there are not as many."""
    def largest(name: str) -> float:
        a, b = (np.array(numbers[name], dtype=np.float64) for numbers in (found, golden))
        if a.shape != b.shape or (np.isnan(a) != np.isnan(b)).any():
            return float("inf")
        scale = np.maximum(1.0, np.abs(b)) if name == "loss" else 1.0
        return float(np.nanmax(np.abs(a - b) / scale, initial=0.0))

    return {name: largest(name) for name in golden}


def main() -> None:
    """Writes the numbers of the given methods anew, or of all."""
    import conftest
    from halflabel.methods.registry import METHODS

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        os.environ["HALFLABEL_CACHE"] = place + "/cache"
        encoder = numbered_encoder(conftest.make_tiny_encoder(Path(place) / "tiny"), Path(place) / "numbered")
        golden = json.loads(FILE.read_text(encoding="utf-8"))
        golden |= {f"{method} {plan}": numbers(method, plan, encoder) for method in sys.argv[1:] or sorted(METHODS)
                   for plan in PLANS}
    rows = (f"{json.dumps(name)}: {json.dumps(rounded(value))}" for name, value in sorted(golden.items()))
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    """Numbers to seven digits, which is what fp32 has."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
