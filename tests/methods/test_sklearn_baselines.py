"""Logistic regression, self-training and label spreading agree with scikit-learn's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from cli_runner import Ran, runner, write_csv
from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.encoders.inference import encode
from halflabel.encoders.loading import load_encoder
from halflabel.errors import HalflabelError, SettingError
from halflabel.methods import find

TEXTS, LABELS = tiny_texts(6)
POOL, _ = tiny_texts(20, seed=1)
TEST, _ = tiny_texts(15, seed=2)
Y = np.array([sorted(set(LABELS)).index(label) for label in LABELS])


@pytest.fixture(autouse=True)
def one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few texts are encoded as many are, so that vectors can be compared to the last digits."""
    monkeypatch.setattr("halflabel.encoders.inference.SMALL", 1)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


@pytest.fixture(scope="module")
def unit(tiny_encoder: str):
    encoder = load_encoder(tiny_encoder)

    def vectors(texts: list[str]) -> np.ndarray:
        x = encode(encoder, texts).astype(np.float64)
        return x / np.linalg.norm(x, axis=1, keepdims=True)
    return vectors


def fitted(encoder: str, method: str, pool: list[str] = POOL, **settings: object) -> TextClassifier:
    return TextClassifier(method, encoder, "frozen", settings=settings).fit(TEXTS, LABELS, unlabelled=pool)


@pytest.mark.parametrize("C", [1.0, 10.0])
def test_logreg_is_scikit_learns(tiny_encoder: str, unit, C: float) -> None:
    reference = LogisticRegression(C=C, max_iter=1000).fit(unit(TEXTS), Y).predict_proba(unit(TEST))
    assert np.allclose(fitted(tiny_encoder, "logreg", C=C).predict_proba(TEST), reference, atol=1e-4)


def test_logreg_ignores_the_pool(tiny_encoder: str) -> None:
    assert np.array_equal(fitted(tiny_encoder, "logreg").predict_proba(TEST),
                          fitted(tiny_encoder, "logreg", []).predict_proba(TEST))


def test_logreg_with_two_classes(tiny_encoder: str, unit) -> None:
    keep = [i for i, label in enumerate(LABELS) if label != "food"]
    texts, labels = [TEXTS[i] for i in keep], [LABELS[i] for i in keep]
    ours = TextClassifier("logreg", tiny_encoder, "frozen").fit(texts, labels)
    reference = LogisticRegression(C=10.0, max_iter=1000).fit(unit(texts), labels).predict_proba(unit(TEST))
    assert np.allclose(ours.predict_proba(TEST), reference, atol=1e-4)


def test_self_training_is_scikit_learns(tiny_encoder: str, unit) -> None:
    columns = np.concatenate([Y, np.full(len(POOL), -1)])
    reference = SelfTrainingClassifier(LogisticRegression(C=10.0, max_iter=1000), threshold=0.6)
    reference.fit(unit(TEXTS + POOL), columns)
    ours = fitted(tiny_encoder, "self-training", threshold=0.6)
    assert np.allclose(ours.predict_proba(TEST), reference.predict_proba(unit(TEST)), atol=1e-4)
    assert ours.labeled_iter_[len(TEXTS):].tolist() == reference.labeled_iter_[len(TEXTS):].tolist()
    assert (ours.labeled_iter_ > 0).sum() > 0


def test_self_training_with_an_unreachable_threshold_is_logreg(tiny_encoder: str) -> None:
    ours = fitted(tiny_encoder, "self-training", threshold=0.99999)
    assert np.array_equal(ours.predict_proba(TEST), fitted(tiny_encoder, "logreg").predict_proba(TEST))
    assert (ours.labeled_iter_[len(TEXTS):] == -1).all()


def test_self_training_without_a_pool_is_logreg(tiny_encoder: str) -> None:
    assert np.array_equal(fitted(tiny_encoder, "self-training", []).predict_proba(TEST),
                          fitted(tiny_encoder, "logreg", []).predict_proba(TEST))


@pytest.mark.parametrize("kernel", ["knn", "rbf"])
@pytest.mark.filterwarnings("ignore")
def test_label_spreading_is_scikit_learns(tiny_encoder: str, unit, kernel: str) -> None:
    columns = np.concatenate([Y, np.full(len(POOL), -1)])
    reference = LabelSpreading(kernel=kernel, n_neighbors=5, gamma=20.0, alpha=0.2, max_iter=30)
    reference.fit(unit(TEXTS + POOL), columns)
    ours = fitted(tiny_encoder, "label-spreading", kernel=kernel, neighbours=5)
    assert np.allclose(ours.predict_proba(TEST), reference.predict_proba(unit(TEST)), atol=1e-3)
    names = np.array(sorted(set(LABELS)))
    known = ours.labeled_iter_[len(TEXTS):] > 0
    assert (ours.transduction_[len(TEXTS):][known] == names[reference.transduction_[len(TEXTS):][known]]).all()


def test_label_spreading_stores_the_pool(tiny_encoder: str) -> None:
    model = fitted(tiny_encoder, "label-spreading").model_
    assert len(model.network.head.points) == len(TEXTS) + len(POOL)
    rows = model.network.head.soft.sum(dim=1)
    assert ((rows - 1).abs() < 1e-5).float().mean() > 0.9


def test_a_text_without_labelled_neighbours_gets_uniform_probabilities() -> None:
    import torch

    from halflabel.methods.baselines import NeighboursHead
    from halflabel.types import Shape

    head = NeighboursHead(Shape(4, 2, 2, 1), "knn", 1, 1.0)
    head.set(torch.eye(3)[:, :2], torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 0, 0]]))
    assert torch.allclose(head(torch.zeros(1, 2)).exp(), torch.full((1, 4), 0.25))
    assert head(torch.tensor([[0.9, 0.1]])).argmax() == 0


def test_a_dense_kernel_of_too_many_texts_is_refused(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.methods.baselines.MAX_DENSE", 30)
    with pytest.raises(SettingError, match="at most 30 texts, not 78; use kernel=knn"):
        fitted(tiny_encoder, "label-spreading", kernel="rbf")


@pytest.mark.parametrize("method", ["logreg", "self-training", "label-spreading", "nb-em"])
def test_settings_of_steps_are_refused(method: str) -> None:
    with pytest.raises(HalflabelError, match="'epochs'"):
        TextClassifier(method, settings={"epochs": 3}).fit(["a b", "c d"], ["x", "y"])


@pytest.mark.parametrize("method", ["lift", "logreg", "self-training", "label-spreading"])
@pytest.mark.parametrize("per_class", [1, 2])
def test_one_or_two_texts_per_class_give_no_warning(method: str, per_class: int, tiny_encoder: str, tmp_path: Path,
                                                    run: Ran) -> None:
    texts, labels = tiny_texts(8 * per_class)[0], [f"class {i}" for i in range(24)] * per_class
    write_csv(tmp_path / "labelled.csv", texts, labels)
    write_csv(tmp_path / "pool.csv", POOL)
    steps = () if find(method).no_steps else ("--set", "epochs=1", "--set", "epoch_steps=2", "--set", "warmup=2")
    for pool in ((), ("--unlabelled", tmp_path / "pool.csv")):
        done = run("train", tmp_path / "labelled.csv", "--method", method, "--plan", "frozen", "--encoder",
                   tiny_encoder, *pool, *steps, "--out", tmp_path / f"run{len(pool)}")
        assert done.code == 0 and "unique classes" not in done.err
    done = run("evaluate", tmp_path / "run2", tmp_path / "labelled.csv")
    assert done.code == 0 and "unique classes" not in done.err
    assert 0 <= TextClassifier.load(tmp_path / "run2").score(texts, labels) <= 1
