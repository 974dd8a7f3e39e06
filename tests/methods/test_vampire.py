"""VAMPIRE: the autoencoder predicts words, coherence ends pre-training, and the classifier leaves it unchanged."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.methods.vampire import Autoencoder, PretrainingStep, npmi, vampire
from halflabel.nn.network import PrecomputedVectors
from halflabel.training.objective import Objective, Problem, StepBatch
from halflabel.types import Shape


def bags(number: int, seed: int) -> torch.Tensor:
    """Counts of 30 words by three topics that share no word."""
    rng = np.random.default_rng(seed)
    topics = np.zeros((3, 30))
    for k in range(3):
        topics[k, 10 * k : 10 * k + 10] = np.random.default_rng(k).dirichlet(np.ones(10))
    return torch.tensor(np.stack([rng.multinomial(20, topics[k]) for k in rng.integers(3, size=number)]),
                        dtype=torch.float32)


class CountInputs:
    """Inputs that are the counts themselves."""

    def __init__(self, counts: torch.Tensor) -> None:
        self.counts, self.lengths = counts, np.ones(len(counts), dtype=np.int64)

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: object = None) -> tuple[torch.Tensor, ...]:
        return (self.counts[torch.from_numpy(rows)],)


def make_objective(number: int = 60, **settings: object) -> tuple[Objective, Problem]:
    torch.manual_seed(0)
    shape = Shape(3, 30, 6, number)
    method = vampire(shape, states=8, embedding=5, **settings)
    counts = bags(6 + number, 1)
    assert isinstance(method.custom_step, PretrainingStep)
    method.custom_step.counts = sparse.csr_matrix(counts.numpy())
    problem = Problem(CountInputs(counts), torch.eye(3)[[0, 1, 2, 0, 1, 2]], number)
    return Objective(PrecomputedVectors(), method), problem


def make_batch(progress: float, seed: int = 0) -> StepBatch:
    rng = np.random.default_rng(seed)
    return StepBatch(np.arange(6), rng.integers(60, size=16), rng, progress)


@cache
def trained() -> tuple[Autoencoder, torch.Tensor]:
    """An autoencoder after 400 steps, and the frequencies of the words."""
    torch.manual_seed(0)
    x = bags(400, 1)
    model = Autoencoder(30, 8, follow_code=False)
    share = x.sum(dim=0) / x.sum()
    model.background.copy_(share.log())
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 5e-3)
    for i in range(400):
        loss = model.negative_elbo(x[torch.randint(400, (64,))], i / 4000).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval(), share


def test_reconstruction_beats_the_unigram_model_on_held_out_bags() -> None:
    model, share = trained()
    held = bags(100, 9)
    with torch.no_grad():
        ours = model.negative_elbo(held, 0.0).mean()
    unigram = -(held * share.log()).sum(dim=1).mean()
    assert float(ours) < 0.85 * float(unigram)


def test_trained_topics_are_more_coherent_than_untrained_ones() -> None:
    model, _ = trained()
    texts = sparse.csr_matrix(bags(200, 3).numpy())
    untrained = Autoencoder(30, 8, follow_code=False)
    before, after = (npmi(m.topics.weight.detach().T.numpy(), texts) for m in (untrained, model))
    assert after > before + 0.1


def test_the_relu_is_on_unless_the_public_code_is_followed() -> None:
    x = bags(20, 1)
    first, second = Autoencoder(30, 8, follow_code=False).states(x)
    assert bool((first >= 0).all()) and bool((second >= 0).all())
    assert bool((Autoencoder(30, 8, follow_code=True).states(x)[0] < 0).any())


def test_the_negative_elbo_by_hand() -> None:
    torch.manual_seed(0)
    model = Autoencoder(30, 8, follow_code=False).eval()
    x = bags(4, 1)
    mean, log_variance = model.latents(x)
    kl = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(dim=1)
    words = (x * model.log_words(mean.softmax(dim=1))).sum(dim=1)
    assert torch.allclose(model.negative_elbo(x, 0.3), -words + 0.3 * kl, rtol=1e-4)
    assert torch.allclose(model.log_words(mean.softmax(dim=1)).exp().sum(dim=1), torch.ones(4), atol=1e-5)


def test_npmi_by_hand() -> None:
    texts = sparse.csr_matrix(np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]]))
    topics = np.array([[3.0, 2.0, 1.0]])
    pairs = {(0, 1): np.log(0.5 / (0.75 * 0.5)) / -np.log(0.5), (0, 2): np.log(0.25 / (0.75 * 0.5)) / -np.log(0.25)}
    assert npmi(topics, texts) == pytest.approx((pairs[0, 1] + pairs[0, 2] - 1.0) / 3)
    assert npmi(np.array([[1.0, 1.0]]), sparse.csr_matrix(np.ones((3, 2)))) == 1.0


def test_pretraining_trains_the_autoencoder_and_the_classifier_the_rest() -> None:
    objective, problem = make_objective()
    objective(problem, make_batch(0.0), 1.0).loss.backward()
    trained = {name: p.grad is not None for name, p in objective.named_parameters() if p.requires_grad}
    assert all(is_trained == ("autoencoder" in name) for name, is_trained in trained.items())
    objective.zero_grad(set_to_none=True)
    objective(problem, make_batch(0.9), 1.0).loss.backward()
    trained = {name: p.grad is not None for name, p in objective.named_parameters() if p.requires_grad}
    assert all(is_trained == ("autoencoder" not in name) for name, is_trained in trained.items())


def test_pretraining_stops_without_progress_and_restores_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    objective, _ = make_objective(patience=2)
    step, autoencoder = objective.custom_step, objective.network.head.autoencoder
    assert isinstance(step, PretrainingStep)
    scores = iter([0.1, 0.3, 0.2, 0.3])
    monkeypatch.setattr("halflabel.methods.vampire.npmi", lambda topics, counts: next(scores))
    kept = None
    for i in range(4):
        with torch.no_grad():
            autoencoder.mean.bias.fill_(float(i))
        step.end_pass(autoencoder)
        kept = autoencoder.mean.bias.clone() if i == 1 else kept
        assert bool(step.over) == (i == 3)
    assert torch.equal(autoencoder.mean.bias, kept) and float(step.score) == pytest.approx(0.3)


def test_the_log_has_the_progress_of_pretraining(tmp_path: Path) -> None:
    texts, labels = tiny_texts(4)
    settings = {"epochs": 4, "epoch_steps": 6, "reading": 0.5, "states": 8, "embedding": 5}
    TextClassifier("vampire", plan="frozen", settings=settings).fit(texts, labels, unlabelled=tiny_texts(8, seed=1)[0],
                                                                    folder=tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["reading"] for line in lines] == [True, True, True, False, False]
    assert [line["read"] for line in lines] == [0, 6, 12, 12, 12] and -1 <= lines[-1]["npmi"] <= 1


def test_a_batch_may_have_one_text() -> None:
    model = Autoencoder(30, 8, follow_code=False).train()
    assert torch.isfinite(model.negative_elbo(bags(1, 1), 0.1)).all()
