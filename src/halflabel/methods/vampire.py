"""VAMPIRE: variational pre-training on bags of words, then a classifier on the states of the autoencoder.

There is no encoder to freeze or fine-tune. Without a pool, pre-training uses the labelled texts alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from halflabel.encoders.text_encoder import BagOfWords
from halflabel.methods.registry import Range, method
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

KL_WARMUP = 1000.0  # passes over the texts until the KL divergence counts in full
MAX_DEVIATION = 10.0  # largest standard deviation of a latent
TOP_WORDS = 10  # of a topic, by which its coherence is measured


@method("vampire", task="multi-class", paper="VAMPIRE: Gururangan et al., ACL 2019", bag_of_words="counts", plans={
    "frozen": {"epochs": 20, "warmup": 0, "labelled_batch": 32},
    "laptop": {"epochs": 20, "epoch_steps": 100, "warmup": 0, "labelled_batch": 32, "unlabelled_batch": 64,
               "token_drop": 0.0, "schedule": "constant"},
    "paper": {"labelled_batch": 32, "unlabelled_batch": 64},
}, limits={"states": Range(2, 1e5), "embedding": Range(1, 1e5), "reading": Range(0.0, 1.0), "patience": Range(1, 1e6)})
def vampire(shape: Shape, *, states: int = 81, embedding: int = 50, reading: float = 0.7, patience: int = 5,
            vocabulary: int = 30_000, follow: str = "paper") -> SelfTraining:
    """Variational pre-training on bags of words until topic coherence stops rising, then a small classifier."""
    head = VampireHead(shape, int(states), int(embedding), follow_code=follow == "code")
    step = PretrainingStep(head.autoencoder, reading, int(patience))

    def start(inputs: StartInputs) -> StartResult:
        assert isinstance(inputs.encoder, BagOfWords)
        step.counts = inputs.encoder.matrix(inputs.texts)
        totals = np.asarray(step.counts.sum(axis=0)).ravel() + 1.0
        head.autoencoder.background.copy_(torch.from_numpy(np.log(totals / totals.sum())))
        return StartResult()

    return SelfTraining(head=head, loss=cross_entropy, pseudo_labels=NoLabels(shape), start=start, custom_step=step)


class Autoencoder(nn.Module):
    """A variational autoencoder of counts (N, V), whose latents are mixtures of topics.

    The log frequency of each word is a fixed term of the decoder, so that topics only model deviations from it. Batch
    normalisation prevents topics from collapsing. The public code normalises after the frequencies are added, which
    removes them again, and its encoder has no ReLU: `follow_code` does the same.
    """

    def __init__(self, words: int, states: int, *, follow_code: bool) -> None:
        super().__init__()
        self.follow_code = follow_code
        self.first, self.second = nn.Linear(words, states), nn.Linear(states, states)
        self.mean, self.log_variance = nn.Linear(states, states), nn.Linear(states, states)
        self.drop = nn.Dropout(0.49)
        self.topics = nn.Linear(states, words, bias=False)
        self.norm = nn.BatchNorm1d(words, eps=1e-3, momentum=0.01)
        self.norm.weight.requires_grad_(False)
        self.register_buffer("background", torch.zeros(words))

    background: Tensor

    def negative_elbo(self, x: Tensor, kl_weight: float) -> Tensor:
        """Reconstruction error + kl_weight * KL divergence of the latents from N(0, I), for each text, (N,)."""
        mean, log_variance = self.latents(x)
        deviation = (0.5 * log_variance).exp().clamp_max(MAX_DEVIATION)
        z = mean + deviation * torch.randn_like(mean) if self.training else mean
        kl = 0.5 * (mean.square() + deviation.square() - 1.0 - 2.0 * deviation.clamp_min(1e-12).log()).sum(dim=1)
        return -(x * self.log_words(self.mixture(z))).sum(dim=1) + kl_weight * kl

    def latents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of the latents, (N, S) each."""
        _, second = self.states(x)
        return self.mean(second), self.log_variance(second)

    def states(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both hidden layers, (N, S) each."""
        activation = (lambda z: z) if self.follow_code else functional.relu
        first = activation(self.first(x))
        return first, activation(self.second(first))

    def mixture(self, z: Tensor) -> Tensor:
        """Shares of the topics, (N, S)."""
        return functional.softmax(self.drop(z), dim=1)

    def log_words(self, mixture: Tensor) -> Tensor:
        """log P(w | text), (N, S) -> (N, V)."""
        logits = self.topics(mixture)
        if self.follow_code:
            return functional.log_softmax(self.normalised(logits + self.background), dim=1)
        return functional.log_softmax(self.normalised(logits) + self.background, dim=1)

    def normalised(self, logits: Tensor) -> Tensor:
        """Batch normalisation; a batch of one text is normalised by the running statistics."""
        norm = self.norm
        return functional.batch_norm(logits, norm.running_mean, norm.running_var, norm.weight, norm.bias,
                                     norm.training and len(logits) > 1, norm.momentum or 0.0, norm.eps)


class VampireHead(Head):
    """A learnt mixture of the autoencoder's states beside the mean of learnt word vectors, then logits."""

    def __init__(self, shape: Shape, states: int, embedding: int, *, follow_code: bool) -> None:
        super().__init__()
        self.autoencoder = Autoencoder(shape.width, states, follow_code=follow_code)
        self.mix = nn.Parameter(torch.tensor([1.0, -20.0, 1.0]))
        self.scale = nn.Parameter(torch.ones(()))
        self.embedding = nn.Parameter(torch.randn(shape.width, embedding))
        self.drop_states, self.drop = nn.Dropout(0.5), nn.Dropout(0.3)
        self.output = nn.Linear(states + embedding, shape.labels)

    def features(self, h: Tensor) -> Tensor:
        """Counts (N, V) -> (N, S + E); without gradient for the autoencoder."""
        mean_vector = h @ self.embedding / h.sum(dim=1, keepdim=True).clamp_min(1.0)
        return torch.cat([self.drop_states(self.mixed_states(h)), mean_vector], dim=1)

    def mixed_states(self, h: Tensor) -> Tensor:
        """The weighted sum of hidden layers and topic shares, (N, V) -> (N, S)."""
        with torch.no_grad():
            first, second = self.autoencoder.states(h)
            states = torch.stack([first, second, functional.softmax(self.autoencoder.mean(second), dim=1)])
        return self.scale * (self.mix.softmax(dim=0)[:, None, None] * states).sum(dim=0)

    def forward(self, f: Tensor) -> Tensor:
        """Logits, (N, S + E) -> (N, K)."""
        logits: Tensor = self.output(self.drop(f))
        return logits


class PretrainingStep(CustomStep):
    """Pre-trains the autoencoder until its coherence has not risen for some passes, then trains the classifier.

    At most a share `reading` of the run is pre-training. The autoencoder with the highest NPMI is kept.
    """

    counts: Any  # sparse (N_l + N_u, V), on which coherence is measured

    def __init__(self, autoencoder: Autoencoder, reading: float, patience: int) -> None:
        super().__init__()
        self.reading, self.patience = reading, patience
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("best", parameters_to_vector(autoencoder.parameters()).detach().clone())
        self.register_buffer("score", torch.tensor(-torch.inf))
        self.register_buffer("stale", torch.zeros((), dtype=torch.long))  # passes since the score last rose
        self.register_buffer("over", torch.zeros((), dtype=torch.bool))

    steps: Tensor
    best: Tensor
    score: Tensor
    stale: Tensor
    over: Tensor

    def forward(self, objective: Objective, problem: Problem, batch: StepBatch, weight: float) -> StepResult:
        head = objective.network.head
        assert isinstance(head, VampireHead)
        if not bool(self.over) and batch.progress >= self.reading:
            self.finish(head.autoencoder)
        if bool(self.over):
            labelled_only = batch._replace(unlabelled=batch.unlabelled[:0])
            return objective.self_training_step(problem, labelled_only, weight)
        rows = np.concatenate([batch.labelled, problem.labelled + batch.unlabelled])
        counts = objective.network.encoder(*objective.inputs(problem, rows))
        steps_per_pass = -(-(problem.labelled + problem.unlabelled) // len(rows))
        kl_weight = min(1.0, int(self.steps) / steps_per_pass / KL_WARMUP)
        loss = head.autoencoder.negative_elbo(counts, kl_weight).mean()
        self.steps += 1
        if int(self.steps) % steps_per_pass == 0:
            self.end_pass(head.autoencoder)
        return StepResult(loss, 0.0, float(loss.detach()), None)

    def end_pass(self, autoencoder: Autoencoder) -> None:
        """Keeps the autoencoder if its topics are more coherent than before; stops when patience runs out."""
        score = npmi(autoencoder.topics.weight.detach().cpu().T.double().numpy(), self.counts)
        if score > float(self.score):
            self.score.fill_(score)
            self.stale.zero_()
            self.best.copy_(parameters_to_vector(autoencoder.parameters()).detach())
        else:
            self.stale += 1
            if int(self.stale) >= self.patience:
                self.finish(autoencoder)

    def finish(self, autoencoder: Autoencoder) -> None:
        """Ends pre-training with the best autoencoder, if any has been scored."""
        if float(self.score) > -torch.inf:
            parameters = list(autoencoder.parameters())
            # not vector_to_parameters, after which all would share the memory of one vector
            for parameter, part in zip(parameters, self.best.split([p.numel() for p in parameters]), strict=True):
                parameter.data.copy_(part.view_as(parameter))
        self.over.fill_(True)

    def report(self) -> dict[str, Any]:
        """The best coherence, the number of steps of pre-training, and whether it goes on."""
        scored = float(self.score) > -torch.inf
        return {"npmi": float(self.score) if scored else None, "read": int(self.steps), "reading": not bool(self.over)}


def npmi(topics: NDArray[np.floating], counts: Any) -> float:
    """Mean NPMI over pairs of the top words of topics (S, V), by their co-occurrence in texts, sparse (N, V).

    A pair that never occurs together counts -1, one that always does 1.
    """
    top = np.argsort(-topics, axis=1, kind="stable")[:, :TOP_WORDS]
    words, index = np.unique(top, return_inverse=True)
    present = (counts[:, words] > 0).astype(np.float64)
    joint_frequency = np.asarray((present.T @ present).todense()) / present.shape[0]
    frequency = joint_frequency.diagonal()
    index = index.reshape(top.shape)
    i, j = np.triu_indices(top.shape[1], k=1)
    a, b = index[:, i], index[:, j]
    joint, independent = joint_frequency[a, b], frequency[a] * frequency[b]
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(joint / independent) / -np.log(joint)
    value = np.where(joint >= 1.0, 1.0, np.where(joint > 0, value, -1.0))
    return float(value.mean()) if value.size else 0.0
