"""Encoder, head and angles in one module: from tokens or frozen vectors to scores."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn

from halflabel.model.angles import Angles
from halflabel.model.bag import Bag
from halflabel.model.encoder import Encoder
from halflabel.model.head import Head


class Output(NamedTuple):
    """What the network says of N texts."""

    h: Tensor  # (N, H) pooled encoder states
    f: Tensor  # (N, D) features that enter the last layer
    scores: Tensor  # (N, K) cos(psi), or logits


class Frozen(nn.Module):
    """Stands where an encoder would, when the vectors are already there."""

    def forward(self, vectors: Tensor) -> Tensor:
        return vectors


class Network(nn.Module):
    """Scores for a batch of inputs; angles and everything after them stay in fp32."""

    def __init__(self, encoder: Encoder | Bag | Frozen, head: Head, angles: Angles) -> None:
        super().__init__()
        self.encoder, self.head, self.angles = encoder, head, angles

    def forward(self, *inputs: Tensor) -> Output:
        with half_precision(inputs[0].device):
            h = self.encoder(*inputs)
        return self.classify(h.float())

    def classify(self, h: Tensor) -> Output:
        """The part after the encoder, (N, H)."""
        f = self.head.features(h)
        return Output(h, f, self.angles(self.head(f)))


def half_precision(device: torch.device) -> AbstractContextManager[object]:
    """bf16 products where the processor has them; the plain context elsewhere."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if bf16_products(device) else nullcontext()


def bf16_products(device: torch.device) -> bool:
    """Whether the processor multiplies in bf16 faster than in fp32."""
    if device.type == "cpu":
        able = torch.cpu.get_capabilities()
        return bool(able.get("avx512_bf16") or able.get("amx_bf16"))
    return device.type == "cuda" and torch.cuda.is_bf16_supported()
