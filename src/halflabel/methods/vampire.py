"""VAMPIRE: read all texts as bags of words first, then classify with what the reading left behind.

There is no encoder to freeze or fine-tune. Without a pool the labelled texts alone are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from halflabel.encoders.bag_of_words import BagOfWords
from halflabel.methods.registry import method
from halflabel.nn.losses import cross_entropy
from halflabel.nn.network import Head
from halflabel.nn.pseudo_labels import NoLabels
from halflabel.training.objective import (
    CustomStep,
    Objective,
    Problem,
    SelfTraining,
    StartInputs,
    StartResult,
    StepBatch,
    StepResult,
)
from halflabel.types import Shape

WARM = 1000.0  # passes over the texts after which the latents' distance counts in full
SPREAD = 10.0  # largest standard deviation of a latent
TOP = 10  # words that stand for a topic


@method("vampire", task="multi-class", paper="VAMPIRE: Gururangan et al., ACL 2019", bag_of_words="counts", plans={
    "frozen": {"epochs": 20, "warmup": 0, "labelled_batch": 32},
    "laptop": {"epochs": 20, "epoch_steps": 100, "warmup": 0, "labelled_batch": 32, "unlabelled_batch": 64,
               "token_drop": 0.0, "schedule": "constant"},
    "paper": {"labelled_batch": 32, "unlabelled_batch": 64},
})
def vampire(shape: Shape, *, states: int = 81, embedding: int = 50, reading: float = 0.7, patience: int = 5,
            vocabulary: int = 30_000, follow: str = "paper") -> SelfTraining:
    """Variational pre-training on bags of words until topics cohere no better, then a small classifier."""
    head = Mixed(shape, int(states), int(embedding), literal=follow == "code")
    rule = Reading(head.autoencoder, reading, int(patience))

    def start(given: StartInputs) -> StartResult:
        assert isinstance(given.encoder, BagOfWords)
        counts = given.encoder.matrix(given.texts)
        total = np.asarray(counts.sum(axis=0)).ravel() + 1.0
        head.autoencoder.background.copy_(torch.from_numpy(np.log(total / total.sum())))
        rule.texts = counts
        return StartResult()

    return SelfTraining(head=head, loss=cross_entropy, pseudo_labels=NoLabels(shape), start=start, custom_step=rule)


class Reading(CustomStep):
    """Steps read (the autoencoder alone learns) until coherence has not risen for some passes; then they classify.

    At most a share `reading` of the run goes into reading. The best autoencoder by NPMI is kept.
    """

    texts: Any  # sparse counts (N_l + N_u, V) that coherence is measured in

    def __init__(self, autoencoder: Autoencoder, reading: float, patience: int) -> None:
        super().__init__()
        self.reading, self.patience = reading, patience
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("best", parameters_to_vector(autoencoder.parameters()).detach().clone())
        self.register_buffer("score", torch.tensor(-torch.inf))
        self.register_buffer("stale", torch.zeros((), dtype=torch.long))
        self.register_buffer("over", torch.zeros((), dtype=torch.bool))

    steps: Tensor
    best: Tensor
    score: Tensor
    stale: Tensor
    over: Tensor

    def forward(self, objective: Objective, problem: Problem, batch: StepBatch, weight: float) -> StepResult:
        head = objective.network.head
        assert isinstance(head, Mixed)
        if not bool(self.over) and batch.progress >= self.reading:
            self.finish(head.autoencoder)
        if bool(self.over):
            alone = batch._replace(unlabelled=batch.unlabelled[:0])
            return objective.self_training_step(problem, alone, weight)
        rows = np.concatenate([batch.labelled, problem.labelled + batch.unlabelled])
        counts = objective.network.encoder(*objective.inputs(problem, rows))
        a_pass = -(-(problem.labelled + problem.unlabelled) // len(rows))
        loss = head.autoencoder.bound(counts, min(1.0, int(self.steps) / a_pass / WARM)).mean()
        self.steps += 1
        if int(self.steps) % a_pass == 0:
            self.judge(head.autoencoder)
        return StepResult(loss, 0.0, float(loss.detach()), None)

    def report(self) -> dict[str, Any]:
        """How coherent the best topics are so far, and how long was read."""
        known = float(self.score) > -torch.inf
        return {"npmi": float(self.score) if known else None, "read": int(self.steps), "reading": not bool(self.over)}

    def judge(self, autoencoder: Autoencoder) -> None:
        """After a pass: keeps the autoencoder if its topics cohere better, stops when that has long not happened."""
        score = npmi(autoencoder.topics.weight.detach().T.double().numpy(), self.texts)
        if score > float(self.score):
            self.score.fill_(score)
            self.stale.zero_()
            self.best.copy_(parameters_to_vector(autoencoder.parameters()).detach())
        else:
            self.stale += 1
            if int(self.stale) >= self.patience:
                self.finish(autoencoder)

    def finish(self, autoencoder: Autoencoder) -> None:
        """Goes back to the best autoencoder, if there was one, and reads no more."""
        if float(self.score) > -torch.inf:
            parameters = list(autoencoder.parameters())
            for parameter, part in zip(parameters, self.best.split([p.numel() for p in parameters]), strict=True):
                parameter.data.copy_(part.view_as(parameter))
        self.over.fill_(True)


class Autoencoder(nn.Module):
    """Counts (N, V) to mixtures of topics and back.

    The log frequency of each word stands fixed in the decoder, so that topics only say what differs. Batch
    normalisation keeps topics from dying. The public code normalises after that frequency is added, which takes it
    out again, and its encoder has no ReLU: `literal` does as it does.
    """

    def __init__(self, words: int, states: int, *, literal: bool) -> None:
        super().__init__()
        self.literal = literal
        self.first, self.second = nn.Linear(words, states), nn.Linear(states, states)
        self.mean, self.log_variance = nn.Linear(states, states), nn.Linear(states, states)
        self.drop = nn.Dropout(0.49)
        self.topics = nn.Linear(states, words, bias=False)
        self.norm = nn.BatchNorm1d(words, eps=1e-3, momentum=0.01)
        self.norm.weight.requires_grad_(False)
        self.register_buffer("background", torch.zeros(words))

    background: Tensor

    def states(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both hidden layers, (N, S) each."""
        act = (lambda z: z) if self.literal else functional.relu
        first = act(self.first(x))
        return first, act(self.second(first))

    def mixture(self, z: Tensor) -> Tensor:
        """Shares of the topics, (N, S)."""
        return functional.softmax(self.drop(z), dim=1)

    def log_words(self, mixture: Tensor) -> Tensor:
        """log P(w | text), (N, S) -> (N, V)."""
        logits = self.topics(mixture)
        if self.literal:
            return functional.log_softmax(self.normed(logits + self.background), dim=1)
        return functional.log_softmax(self.normed(logits) + self.background, dim=1)

    def normed(self, logits: Tensor) -> Tensor:
        """Batch normalisation; a batch of one is normalised by what was seen before."""
        norm = self.norm
        return functional.batch_norm(logits, norm.running_mean, norm.running_var, norm.weight, norm.bias,
                                     norm.training and len(logits) > 1, norm.momentum or 0.0, norm.eps)

    def bound(self, x: Tensor, warm: float) -> Tensor:
        """What is minimised for each text, (N,): words not foreseen + warm * distance of the latents from N(0, I)."""
        mean, log_variance = self.latents(x)
        spread = (0.5 * log_variance).exp().clamp_max(SPREAD)
        z = mean + spread * torch.randn_like(mean) if self.training else mean
        distance = 0.5 * (mean.square() + spread.square() - 1.0 - 2.0 * spread.clamp_min(1e-12).log()).sum(dim=1)
        return -(x * self.log_words(self.mixture(z))).sum(dim=1) + warm * distance

    def latents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance, (N, S) each."""
        _, deep = self.states(x)
        return self.mean(deep), self.log_variance(deep)


class Mixed(Head):
    """The autoencoder's states, mixed by learnt weights, beside the mean of learnt word vectors; then plain logits."""

    def __init__(self, shape: Shape, states: int, embedding: int, *, literal: bool) -> None:
        super().__init__()
        self.autoencoder = Autoencoder(shape.width, states, literal=literal)
        self.mix = nn.Parameter(torch.tensor([1.0, -20.0, 1.0]))
        self.scale = nn.Parameter(torch.ones(()))
        self.embedding = nn.Parameter(torch.randn(shape.width, embedding))
        self.drop_states, self.drop = nn.Dropout(0.5), nn.Dropout(0.3)
        self.output = nn.Linear(states + embedding, shape.labels)

    def features(self, h: Tensor) -> Tensor:
        """Counts (N, V) -> (N, S + E); the autoencoder is not trained by this."""
        mean_word = h @ self.embedding / h.sum(dim=1, keepdim=True).clamp_min(1.0)
        return torch.cat([self.drop_states(self.mixed(h)), mean_word], dim=1)

    def mixed(self, h: Tensor) -> Tensor:
        """Hidden layers and topic shares, weighted, (N, V) -> (N, S)."""
        with torch.no_grad():
            first, second = self.autoencoder.states(h)
            states = torch.stack([first, second, functional.softmax(self.autoencoder.mean(second), dim=1)])
        return self.scale * (self.mix.softmax(dim=0)[:, None, None] * states).sum(dim=0)

    def forward(self, f: Tensor) -> Tensor:
        """Logits, (N, S + E) -> (N, K)."""
        logits: Tensor = self.output(self.drop(f))
        return logits


def npmi(topics: NDArray[np.floating], holds: Any) -> float:
    """Mean NPMI over pairs of the first words of topics (S, V), by the texts (N, V), sparse, that hold them.

    A pair that never occurs together counts -1, one that always does 1.
    """
    top = np.argsort(-topics, axis=1, kind="stable")[:, :TOP]
    words, place = np.unique(top, return_inverse=True)
    here = (holds[:, words] > 0).astype(np.float64)
    both = np.asarray((here.T @ here).todense()) / here.shape[0]
    single = both.diagonal()
    place = place.reshape(top.shape)
    i, j = np.triu_indices(top.shape[1], k=1)
    a, b = place[:, i], place[:, j]
    joint, alone = both[a, b], single[a] * single[b]
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(joint / alone) / -np.log(joint)
    value = np.where(joint >= 1.0, 1.0, np.where(joint > 0, value, -1.0))
    return float(value.mean()) if value.size else 0.0
