"""Makes activations even before they are rounded to int8, where one scale serves a whole batch.

A few loud channels would leave few steps for all others. What a channel of the input is divided by, its weights are
multiplied with, which changes nothing in fp32 (after SmoothQuant, Xiao et al., 2023). Channels that lie to one side are
moved to the middle, which the bias makes good. In products that narrow, the loudest stay in fp32 beside the others
(after LLM.int8(), Dettmers et al., 2022): there they cost little.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from halflabel.encoders.encoder import Encoder

SHARE = 0.8  # power of the loudness that moves into the weights, which have a scale for each output and can bear it
LOUD = 8  # channels that stay in fp32
ONE_SIDED = 0.25  # least to most: less is what an activation function leaves, whose zero is better kept


class Smoothed(nn.Module):
    """x W' + b as ((x - c) / s) (W s)' + (b + W c) + loud x times their W', (..., I) -> (..., O)."""

    def __init__(self, linear: nn.Linear, low: Tensor, high: Tensor) -> None:
        super().__init__()
        weight, bias = linear.weight.detach(), linear.bias.detach()
        inputs, outputs = linear.in_features, linear.out_features
        one_sided = -low.min() < ONE_SIDED * high.max()
        centre = torch.zeros_like(low) if one_sided else (low + high) / 2
        loudness = torch.maximum(high - centre, centre - low)
        s = loudness.clamp_min(max(float(loudness.median()), 1e-5)) ** SHARE
        loud = loudness.topk(LOUD if inputs > outputs else 0).indices
        quiet = torch.ones_like(s).index_fill(0, loud, 0.0)
        self.register_buffer("inverse", quiet / s)
        self.register_buffer("shift", None if one_sided else -centre * quiet / s)
        self.register_buffer("loud", loud)
        self.register_buffer("beside", weight[:, loud].T.contiguous())
        self.even = nn.Linear(inputs, outputs)
        self.even.weight = nn.Parameter(weight * s * quiet, requires_grad=False)
        self.even.bias = nn.Parameter(bias + weight @ (centre * quiet), requires_grad=False)

    inverse: Tensor
    shift: Tensor | None
    loud: Tensor
    beside: Tensor

    def forward(self, x: Tensor) -> Tensor:
        z = x * self.inverse
        y: Tensor = self.even(z if self.shift is None else z + self.shift)
        return y + x.index_select(-1, self.loud) @ self.beside if len(self.loud) else y


@torch.no_grad()
def smooth(encoder: Encoder, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Replaces the encoder's linear layers, judging their inputs by these texts: ids and masks, (N, T) each."""
    linears = [(parent, name, child) for parent in encoder.modules() for name, child in parent.named_children()
               if isinstance(child, nn.Linear) and child.bias is not None]
    heard: dict[nn.Module, tuple[Tensor, Tensor]] = {}  # least and most of each channel, (I,)

    def listen(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0][mask.bool()]
        low, high = heard.get(module, (x[0], x[0]))
        heard[module] = torch.minimum(low, x.amin(dim=0)), torch.maximum(high, x.amax(dim=0))

    hooks = [child.register_forward_pre_hook(listen) for _, _, child in linears]
    for ids, mask in batches:
        encoder(ids, mask)
    for hook in hooks:
        hook.remove()
    for parent, name, linear in linears:
        if linear in heard:
            setattr(parent, name, Smoothed(linear, *heard[linear]))
