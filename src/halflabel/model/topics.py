"""VAMPIRE's network: a variational autoencoder of bags of words, whose states a small classifier mixes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel.model.head import Head
from halflabel.types import Shape

SPREAD = 10.0  # largest standard deviation of a latent


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
