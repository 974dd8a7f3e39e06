"""Naive Bayes with EM: counts of words, no encoder, nothing to fine-tune."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from halflabel.encoders.bag_of_words import BagOfWords
from halflabel.methods.registry import method
from halflabel.nn.losses import cross_entropy
from halflabel.nn.network import Head
from halflabel.nn.pseudo_labels import NoLabels
from halflabel.training.objective import SelfTraining, StartInputs, StartResult
from halflabel.types import Shape

Array = NDArray[np.floating]


@method("nb-em", task="multi-class", paper="NB+EM: Nigam et al., Machine Learning 2000", bag_of_words="tf-idf", no_steps=True)
def nb_em(shape: Shape, *, smooth: float = 1.0, lambda1: float = 1.0, rounds: int = 50, still: float = 1e-4,
          vocabulary: int = 30_000) -> SelfTraining:
    """Multinomial naive Bayes on tf-idf, with EM over the pool; the objective of each round stands in the log."""
    head = WordCountHead(shape)

    def start(given: StartInputs) -> StartResult:
        assert isinstance(given.encoder, BagOfWords)
        x, known = given.encoder.matrix(given.texts), len(given.y)
        found = fit_em(x[:known], given.y.double().numpy(), x[known:], smooth=smooth, lambda1=lambda1,
                    rounds=int(rounds), still=still)
        head.set(torch.from_numpy(found.model.words), torch.from_numpy(found.model.prior))
        lines = tuple({"round": i, "objective": value} for i, value in enumerate(found.trace))
        label = torch.from_numpy(found.model.posterior(x[known:]).argmax(axis=1))
        return StartResult(lines, label=label, since=torch.ones_like(label))

    return SelfTraining(head=head, loss=cross_entropy, pseudo_labels=NoLabels(shape), start=start, closed_form_head=True)


class NaiveBayes(NamedTuple):
    """log P(w | k), (V, K), and log P(k), (K,)."""

    words: Array
    prior: Array

    def joint(self, x: Any) -> Array:
        """log P(k) + sum_w x_w log P(w | k), (N, K), of sparse x (N, V)."""
        return np.asarray(x @ self.words + self.prior)

    def posterior(self, x: Any) -> Array:
        """P(k | x), (N, K)."""
        from scipy.special import softmax

        return np.asarray(softmax(self.joint(x), axis=1))


class Fit(NamedTuple):
    """The model, and the objective after each round of EM, the first being that of the labelled texts alone."""

    model: NaiveBayes
    trace: list[float]
    settled: bool


def maximised(x: Any, z: Array, smooth: float) -> NaiveBayes:
    """M-step: the model that makes x (N, V) likeliest under soft labels z (N, K), with added counts."""
    mass = np.asarray(x.T @ z) + smooth
    prior = z.sum(axis=0) + 1.0
    return NaiveBayes(np.log(mass / mass.sum(axis=0)), np.log(prior / prior.sum()))


def objective(model: NaiveBayes, x: Any, y: Array, pool: Any, lambda1: float, smooth: float) -> float:
    """What EM climbs: labelled joint + lambda1 * unlabelled marginal + the Dirichlet priors behind added counts."""
    from scipy.special import logsumexp

    priors = smooth * model.words.sum() + model.prior.sum()
    marginal = logsumexp(model.joint(pool), axis=1).sum() if pool.shape[0] else 0.0
    return float((y * model.joint(x)).sum() + lambda1 * marginal + priors)


def fit_em(x: Any, y: Array, pool: Any, *, smooth: float, lambda1: float, rounds: int, still: float) -> Fit:
    """EM from naive Bayes on labelled x (N_l, V), y (N_l, K); pool texts (N_u, V) weigh lambda1 each."""
    from scipy import sparse

    model = maximised(x, y, smooth)
    trace = [objective(model, x, y, pool, lambda1, smooth)]
    everything = sparse.vstack([x, pool]).tocsr()
    for _ in range(rounds if pool.shape[0] and lambda1 else 0):
        model = maximised(everything, np.concatenate([y, lambda1 * model.posterior(pool)]), smooth)
        trace.append(objective(model, x, y, pool, lambda1, smooth))
        if trace[-1] - trace[-2] < still * abs(trace[-2]):
            return Fit(model, trace, True)
    return Fit(model, trace, len(trace) == 1)


class WordCountHead(Head):
    """Logits that are linear in the counts: f = x W, one feature for each label, then the bias."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape.width, shape.labels), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(shape.labels), requires_grad=False)

    def features(self, h: Tensor) -> Tensor:
        """(N, V) -> (N, K)."""
        return h @ self.weight

    def forward(self, f: Tensor) -> Tensor:
        """(N, K) -> (N, K)."""
        return f + self.bias

    @torch.no_grad()
    def set(self, weight: Tensor, bias: Tensor) -> None:
        """Takes over log P(w | k), (V, K), and log P(k), (K,)."""
        self.weight.copy_(weight)
        self.bias.copy_(bias)
