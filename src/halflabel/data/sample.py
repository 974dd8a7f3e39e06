"""The sample corpus: helpdesk messages in 8 queues, each with 1 to 3 of 12 tags, written for this project."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Literal

from halflabel.data.corpus import Corpus


def sample(part: Literal["train", "test"], label: Literal["queue", "tags"] = "queue") -> Corpus:
    """The train or test part of the sample corpus, labelled by queue (multi-class) or by tags (multi-label)."""
    lines = files("halflabel.data").joinpath("sample.jsonl").read_text(encoding="utf-8").strip().split("\n")
    rows = [row for line in lines if (row := json.loads(line))["part"] == part]
    labels = [row["queue"] if label == "queue" else tuple(row["tags"]) for row in rows]
    return Corpus([row["text"] for row in rows], labels, source=f"sample ({part})")
