"""Baselines: a linear head with cross-entropy or the asymmetric loss, on labelled texts alone or with class-aware
pseudo-labels (CAP); classifiers of scikit-learn on frozen vectors of length one; naive Bayes with EM, on bags of words.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel.arrays import Array
from halflabel.encoders.text_encoder import BagOfWords
from halflabel.errors import SettingError
from halflabel.methods.linear_models import few_texts_per_class, from_sklearn
from halflabel.methods.registry import Choice, Range, method
from halflabel.nn.losses import Asymmetric, binary_cross_entropy, constant, cross_entropy
from halflabel.nn.network import Head, Linear, NormalizedLinear
from halflabel.nn.pseudo_labels import ClassAware, NoLabels
from halflabel.plans import MULTILABEL, SEMI_SUPERVISED_MULTILABEL
from halflabel.training.objective import SelfTraining, StartInputs, StartResult
from halflabel.types import Shape

MAX_DENSE = 20_000  # texts: their matrix of similarities takes 3 GB


@method("ce", task="multi-class", paper="BERT+CE", plans={"paper": {"labelled_batch": 8}})
def ce(shape: Shape) -> SelfTraining:
    """Cross-entropy on labelled texts only; the pool is ignored."""
    return SelfTraining(head=Linear(shape), loss=cross_entropy)


# Ours: at a lower rate a short run learns little more than how rare each label is.
@method("bce", task="multi-label", paper="BERT+BCE", plans=MULTILABEL | {
    "laptop": MULTILABEL["laptop"] | {"head_rate": 5e-3}, "paper": {"labelled_batch": 8}})
def bce(shape: Shape) -> SelfTraining:
    """Binary cross-entropy of each label on labelled texts only; the pool is ignored."""
    return SelfTraining(head=Linear(shape), loss=binary_cross_entropy, logits=True)


@method("asl", task="multi-label", paper="ASL: Ridnik et al., ICCV 2021",
        plans=MULTILABEL | {"paper": {"labelled_batch": 8, "ema": 0.9997}})
def asl(shape: Shape, *, gamma_neg: float = 4.0, gamma_pos: float = 0.0, shift: float = 0.05,
        follow: str = "paper") -> SelfTraining:
    """Binary cross-entropy that down-weights easy negatives, on labelled texts only; the pool is ignored."""
    loss = Asymmetric(gamma_neg, gamma_pos, shift, detach_focus=follow == "code")
    return SelfTraining(head=Linear(shape), loss=loss, logits=True)


@method("cap", task="multi-label", paper="CAP: Xie et al., NeurIPS 2023",
        plans=SEMI_SUPERVISED_MULTILABEL | {"paper": {**SEMI_SUPERVISED_MULTILABEL["paper"], "ema": 0.9997}},
        limits={"positives": Range(0.0, 1.0), "negatives": Range(0.0, 1.0)})
def cap(shape: Shape, *, gamma_neg: float = 4.0, gamma_pos: float = 0.0, shift: float = 0.05, positives: float = 1.0,
        negatives: float = 1.0, lambda1: float = 1.0, views: str = "same", follow: str = "paper") -> SelfTraining:
    """asl plus pseudo-labels that an averaged teacher assigns each epoch, at the labelled frequency of each label."""
    supervised = asl(shape, gamma_neg=gamma_neg, gamma_pos=gamma_pos, shift=shift, follow=follow)
    return replace(supervised, pseudo_labels=ClassAware(shape, positives, negatives), weight=constant(lambda1),
                   averaged_teacher=True, strong_views=views == "strong")


@method("logreg", task="multi-class", paper="-", no_steps=True)
def logreg(shape: Shape, *, C: float = 10.0) -> SelfTraining:
    """Logistic regression on the labelled texts only; the pool is ignored."""
    head = NormalizedLinear(shape)

    def start(inputs: StartInputs) -> StartResult:
        y = inputs.columns
        with few_texts_per_class():
            model = logistic_regression(C).fit(inputs.unit_vectors()[: len(y)], y)
        head.set(*map(torch.from_numpy, from_sklearn(model, shape.labels)))
        return StartResult()

    return SelfTraining(head=head, loss=cross_entropy, start=start, closed_form_head=True)


@method("self-training", task="multi-class", paper="Yarowsky, ACL 1995; scikit-learn", no_steps=True,
        limits={"threshold": Range(0.0, 0.999999)})
def self_training(shape: Shape, *, C: float = 10.0, threshold: float = 0.75, rounds: int = 10) -> SelfTraining:
    """Logistic regression, refitted in rounds on its own predictions above a confidence threshold."""
    head = NormalizedLinear(shape)

    def start(inputs: StartInputs) -> StartResult:
        from sklearn.semi_supervised import SelfTrainingClassifier

        x, y = inputs.unit_vectors(), inputs.columns
        if len(x) == len(y):
            with few_texts_per_class():
                model = logistic_regression(C).fit(x, y)
            head.set(*map(torch.from_numpy, from_sklearn(model, shape.labels)))
            return StartResult()
        model = SelfTrainingClassifier(logistic_regression(C), threshold=threshold, max_iter=int(rounds) or None)
        with few_texts_per_class():
            model.fit(x, with_unlabelled(y, len(x)))
        head.set(*map(torch.from_numpy, from_sklearn(model.estimator_, shape.labels)))
        return StartResult(label=torch.from_numpy(model.transduction_[len(y) :]),
                           since=torch.from_numpy(model.labeled_iter_[len(y) :]))

    return SelfTraining(head=head, loss=cross_entropy, pseudo_labels=NoLabels(shape), start=start,
                        closed_form_head=True)


@method("label-spreading", task="multi-class", paper="Zhou et al., NeurIPS 2003; scikit-learn", no_steps=True,
        limits={"kernel": Choice(("knn", "rbf")), "neighbours": Range(1, 1e6), "gamma": Range(1e-9, 1e6),
                "relax": Range(1e-6, 0.999999)})
def label_spreading(shape: Shape, *, kernel: str = "knn", neighbours: int = 7, gamma: float = 20.0,
                    relax: float = 0.2, rounds: int = 30) -> SelfTraining:
    """Labels spread over a graph of all texts; new texts are labelled by neighbours, whose vectors the model stores."""
    head = NeighboursHead(shape, kernel, int(neighbours), gamma)

    def start(inputs: StartInputs) -> StartResult:
        from sklearn.semi_supervised import LabelSpreading

        if kernel == "rbf" and len(inputs.texts) > MAX_DENSE:
            raise SettingError(f"kernel=rbf compares all texts with each other and takes at most {MAX_DENSE:,} texts, "
                               f"not {len(inputs.texts):,}; use kernel=knn, or fewer unlabelled texts.")
        x, y = inputs.unit_vectors(), inputs.columns
        model = LabelSpreading(kernel=kernel, n_neighbors=head.neighbours, gamma=gamma, alpha=relax,
                               max_iter=int(rounds))
        with warnings.catch_warnings(action="ignore"):  # not converged, or texts that no label reaches: both are fine
            model.fit(x, with_unlabelled(y, len(x)))
        soft = np.zeros((len(x), shape.labels))
        soft[:, model.classes_] = np.nan_to_num(model.label_distributions_)
        head.set(torch.from_numpy(x), torch.from_numpy(soft))
        pool = soft[len(y) :]
        label = torch.from_numpy(np.where(pool.sum(axis=1) > 0, pool.argmax(axis=1), -1))
        return StartResult(label=label, since=torch.where(label >= 0, 1, -1))

    return SelfTraining(head=head, loss=cross_entropy, pseudo_labels=NoLabels(shape), start=start,
                        closed_form_head=True)


def logistic_regression(C: float) -> Any:
    """An unfitted logistic regression."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=C, max_iter=1000)


def with_unlabelled(y: np.ndarray, number: int) -> np.ndarray:
    """Labels y (N_l,) and -1 for the unlabelled texts after them, as scikit-learn wants them, (N,)."""
    return np.concatenate([y, np.full(number - len(y), -1)])


class NeighboursHead(Head):
    """The mean label of stored points: of the nearest ones, or of all, weighted by exp(-gamma distance^2).

    Its scores are log-probabilities. It stores the vectors of all training texts.
    """

    def __init__(self, shape: Shape, kernel: str, neighbours: int, gamma: float) -> None:
        super().__init__()
        number = shape.labelled + shape.unlabelled
        self.kernel, self.neighbours, self.gamma = kernel, min(neighbours, number), gamma
        self.points = nn.Parameter(torch.zeros(number, shape.width), requires_grad=False)
        self.soft = nn.Parameter(torch.zeros(number, shape.labels), requires_grad=False)

    def features(self, h: Tensor) -> Tensor:
        """(N, H) -> (N, H) of length one."""
        return functional.normalize(h, dim=1)

    def forward(self, f: Tensor) -> Tensor:
        """log p, (N, H) -> (N, K); uniform where no neighbour has a label."""
        distance = torch.cdist(f, self.points)
        if self.kernel == "knn":
            nearest = distance.topk(self.neighbours, dim=1, largest=False).indices
            mass = self.soft[nearest].sum(dim=1)
        else:
            mass = (-self.gamma * distance.square()).softmax(dim=1) @ self.soft
        total = mass.sum(dim=1, keepdim=True)
        p = torch.where(total > 0, mass / total.clamp_min(1e-30), 1.0 / mass.shape[1])
        return p.clamp_min(1e-12).log()

    @torch.no_grad()
    def set(self, points: Tensor, soft: Tensor) -> None:
        """Sets the points (N_l + N_u, H) and their soft labels (N_l + N_u, K)."""
        self.points.copy_(points)
        self.soft.copy_(soft)


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
