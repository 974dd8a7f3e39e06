"""Naive Bayes with EM, on bags of words: no encoder, no training steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from halflabel.encoders.bag_of_words import BagOfWords
from halflabel.methods.registry import Range, method
from halflabel.nn.losses import cross_entropy
from halflabel.nn.network import Head
from halflabel.nn.pseudo_labels import NoLabels
from halflabel.training.objective import SelfTraining, StartInputs, StartResult
from halflabel.types import Shape

Array = NDArray[np.floating]


@method("nb-em", task="multi-class", paper="NB+EM: Nigam et al., Machine Learning 2000", bag_of_words="tf-idf",
        no_steps=True, limits={"smooth": Range(1e-9, 1e6), "still": Range(0.0, 1.0)})
def nb_em(shape: Shape, *, smooth: float = 1.0, lambda1: float = 1.0, rounds: int = 50, still: float = 1e-4,
          vocabulary: int = 30_000) -> SelfTraining:
    """Multinomial naive Bayes on tf-idf, with EM over the pool; the log has the objective of each iteration."""
    head = NaiveBayesHead(shape)

    def start(inputs: StartInputs) -> StartResult:
        assert isinstance(inputs.encoder, BagOfWords)
        x, labelled = inputs.encoder.matrix(inputs.texts), len(inputs.y)
        model, objectives = fit_em(x[:labelled], inputs.y.double().numpy(), x[labelled:], smooth=smooth,
                                   lambda1=lambda1, rounds=int(rounds), tolerance=still)
        head.set(*map(torch.from_numpy, model))
        log = tuple({"round": i, "objective": value} for i, value in enumerate(objectives))
        label = torch.from_numpy(model.posterior(x[labelled:]).argmax(axis=1))
        return StartResult(log, label=label, since=torch.ones_like(label))

    return SelfTraining(head=head, loss=cross_entropy, pseudo_labels=NoLabels(shape), start=start,
                        closed_form_head=True)


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


def fit_em(x: Any, y: Array, pool: Any, *, smooth: float, lambda1: float, rounds: int,
           tolerance: float) -> tuple[NaiveBayes, list[float]]:
    """EM from naive Bayes on labelled x (N_l, V), y (N_l, K); pool texts (N_u, V) weigh lambda1 each.

    Also returns the objective after each round, the first being that of the labelled texts alone.
    """
    from scipy import sparse

    model = m_step(x, y, smooth)
    objectives = [log_posterior(model, x, y, pool, lambda1, smooth)]
    all_texts = sparse.vstack([x, pool]).tocsr()
    for _ in range(rounds if pool.shape[0] and lambda1 else 0):
        model = m_step(all_texts, np.concatenate([y, lambda1 * model.posterior(pool)]), smooth)
        objectives.append(log_posterior(model, x, y, pool, lambda1, smooth))
        if objectives[-1] - objectives[-2] < tolerance * abs(objectives[-2]):
            break
    return model, objectives


def m_step(x: Any, y: Array, smooth: float) -> NaiveBayes:
    """The model of highest likelihood for x (N, V) with soft labels y (N, K), with additive smoothing."""
    mass = np.asarray(x.T @ y) + smooth
    prior = y.sum(axis=0) + 1.0
    return NaiveBayes(np.log(mass / mass.sum(axis=0)), np.log(prior / prior.sum()))


def log_posterior(model: NaiveBayes, x: Any, y: Array, pool: Any, lambda1: float, smooth: float) -> float:
    """The objective of EM: labelled joint + lambda1 * unlabelled marginal + the Dirichlet priors of the smoothing."""
    from scipy.special import logsumexp

    priors = smooth * model.words.sum() + model.prior.sum()
    marginal = logsumexp(model.joint(pool), axis=1).sum() if pool.shape[0] else 0.0
    return float((y * model.joint(x)).sum() + lambda1 * marginal + priors)


class NaiveBayesHead(Head):
    """Logits that are linear in the counts: f = x W, one feature for each label, plus a bias."""

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
        """Sets the weights to log P(w | k), (V, K), and the bias to log P(k), (K,)."""
        self.weight.copy_(weight)
        self.bias.copy_(bias)
