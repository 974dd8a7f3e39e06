"""Models that earlier versions saved load and give the same answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from halflabel import TextClassifier

FOLDER = Path(__file__).parent / "models"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(EXPECTED["models"]))
def test_an_older_model_gives_its_old_answers(name: str) -> None:
    classifier, expected = TextClassifier.load(FOLDER / name), EXPECTED["models"][name]
    labels = [list(label) if isinstance(label, tuple) else label for label in classifier.predict(EXPECTED["texts"])]
    assert labels == expected["labels"]
    assert np.allclose(classifier.predict_proba(EXPECTED["texts"]), expected["probabilities"], atol=1e-5)


def test_every_folder_is_expected() -> None:
    assert sorted(path.name for path in FOLDER.iterdir() if path.is_dir()) == sorted(EXPECTED["models"])
