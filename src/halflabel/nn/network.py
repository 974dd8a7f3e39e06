"""The network: encoder, head and label angles, from inputs to scores."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel.devices import half_precision
from halflabel.encoders.text_encoder import TextEncoder
from halflabel.types import Shape

WIDTH = 128  # Sec. IV-A: hidden size of the classifier
NAME_GAIN = 2.0  # of the features that compare texts with class names: their cosine becomes tanh(2 cos)
NAME_LOGITS = 4.0  # logit of a text whose features are those of a class name


class Output(NamedTuple):
    """The network's output for N texts."""

    h: Tensor  # (N, H) pooled encoder states
    f: Tensor  # (N, D) features that enter the last layer
    scores: Tensor  # (N, K) cos(psi), or logits


class Network(nn.Module):
    """Scores for a batch of inputs; everything after the encoder stays in fp32."""

    def __init__(self, encoder: TextEncoder | PrecomputedVectors, head: Head, angles: Angles) -> None:
        super().__init__()
        self.encoder, self.head, self.angles = encoder, head, angles

    def forward(self, *inputs: Tensor) -> Output:
        return self.classify(self.encode(*inputs))

    def encode(self, *inputs: Tensor) -> Tensor:
        """Vectors of inputs, (N, H)."""
        with half_precision(inputs[0].device, self.encoder.precision):
            h: Tensor = self.encoder(*inputs)
        return h.float()

    def classify(self, h: Tensor) -> Output:
        """The part after the encoder, (N, H)."""
        f = self.head.features(h)
        return Output(h, f, self.angles(self.head(f)))


class PrecomputedVectors(nn.Module):
    """Takes the encoder's place where its vectors were computed beforehand."""

    precision: torch.dtype | None = None

    def forward(self, vectors: Tensor) -> Tensor:
        return vectors


class Head(nn.Module):
    """From pooled vectors (N, H) to features (N, D), and by `forward` from those to scores (N, K)."""

    def features(self, h: Tensor) -> Tensor:
        raise AssertionError("every head defines its features")


class HiddenHead(Head):
    """f = tanh(A h), then a weight vector for each label; it can start from class names."""

    def __init__(self, width: int, features: int = WIDTH) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, features)

    def features(self, h: Tensor) -> Tensor:
        """(N, H) -> (N, D)."""
        return torch.tanh(self.hidden(h))

    def set_label_weights(self, weight: Tensor) -> None:
        """Sets the weight vectors of the labels to unit vectors (K, D), and biases to 0."""
        raise AssertionError("every head sets its label weights")

    @torch.no_grad()
    def start_from_names(self, names: Tensor, texts: Tensor) -> None:
        """Scores by the cosine of a text with the names of the classes (K, H), each about the centre of its own kind.

        The first features become the directions in which the names differ, the others stay random. `texts` (N, H) are
        a sample.
        """
        centre = texts.mean(dim=0)
        radius = (texts - centre).norm(dim=1).mean().clamp_min(1e-6)
        directions = functional.normalize(names - names.mean(dim=0), dim=1)
        basis = torch.linalg.svd(directions, full_matrices=False)[2][: self.hidden.out_features]
        self.hidden.weight[: len(basis)] = NAME_GAIN * basis / radius
        self.hidden.bias.copy_(-self.hidden.weight @ centre)
        weight = self.hidden.weight.new_zeros(len(names), self.hidden.out_features)
        weight[:, : len(basis)] = directions @ basis.T
        self.set_label_weights(functional.normalize(weight, dim=1))


class Linear(HiddenHead):
    """f = tanh(A h), then logits."""

    def __init__(self, shape: Shape, *, width: int = WIDTH) -> None:
        super().__init__(shape.width, width)
        self.output = nn.Linear(width, shape.labels)

    @torch.no_grad()
    def set_label_weights(self, weight: Tensor) -> None:
        start_logits(self.output, weight)

    def forward(self, f: Tensor) -> Tensor:
        """Logits, (N, D) -> (N, K)."""
        logits: Tensor = self.output(f)
        return logits


def start_logits(output: nn.Linear, weight: Tensor) -> None:
    """Sets a layer to the unit weight vectors of the labels (K, D), scaled to logits."""
    output.weight.copy_(NAME_LOGITS * weight)
    output.bias.zero_()


class NormalizedLinear(Head):
    """Logits of the vector scaled to unit length: the form in which linear models are fitted in closed form."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.output = nn.Linear(shape.width, shape.labels)

    def features(self, h: Tensor) -> Tensor:
        """(N, H) -> (N, H) of length one."""
        return functional.normalize(h, dim=1)

    def forward(self, f: Tensor) -> Tensor:
        """Logits, (N, H) -> (N, K)."""
        logits: Tensor = self.output(f)
        return logits

    @torch.no_grad()
    def set(self, weight: Tensor, bias: Tensor) -> None:
        """Sets the weights to those of a fitted linear model, logits = f W + b, W (H, K), b (K,)."""
        self.output.weight.copy_(weight.T)
        self.output.bias.copy_(bias)


class Angles(nn.Module):
    """Label angles as they are, as in the AM loss; `methods.bdd.BalancedAngles` balances them."""

    def forward(self, cos: Tensor) -> Tensor:
        """(N, K) -> (N, K)."""
        return cos

    def update(self, f: Tensor, y: Tensor) -> None:
        """At the start of an epoch: features (N, D) and labels (N, K) of labelled and pseudo-labelled texts."""

    def report(self) -> dict[str, list[float]]:
        """Statistics for the log."""
        return {}
