"""SmoothQuant: evens out activations before they are quantised to int8 with one scale per batch.

A few channels with large values would leave few int8 steps to all others. So each input channel is divided by a factor
with which its weights are multiplied, which changes nothing in fp32 (after SmoothQuant, Xiao et al., 2023). Channels
that are not centred are shifted, and the bias compensates. In layers that narrow, the channels with the largest values
stay in fp32 (after LLM.int8(), Dettmers et al., 2022): there they cost little.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from halflabel.encoders.encoder import Encoder

STRENGTH = 0.8  # SmoothQuant's alpha; high, since weights have a scale per output
OUTLIERS = 8  # channels that stay in fp32
ONE_SIDED = 0.25  # |minimum| to maximum: below it the input comes from an activation function, whose zero is kept


class Smoothed(nn.Module):
    """x W' + b as ((x - c) / s) (W s)' + (b + W c) + outliers of x times their W', (..., I) -> (..., O)."""

    def __init__(self, linear: nn.Linear, low: Tensor, high: Tensor) -> None:
        super().__init__()
        weight, bias = linear.weight.detach(), linear.bias.detach()
        inputs, outputs = linear.in_features, linear.out_features
        one_sided = -low.min() < ONE_SIDED * high.max()
        centre = torch.zeros_like(low) if one_sided else (low + high) / 2
        magnitude = torch.maximum(high - centre, centre - low)
        s = magnitude.clamp_min(max(float(magnitude.median()), 1e-5)) ** STRENGTH
        outliers = magnitude.topk(OUTLIERS if inputs > outputs else 0).indices
        others = torch.ones_like(s).index_fill(0, outliers, 0.0)
        self.register_buffer("inverse", others / s)
        self.register_buffer("shift", None if one_sided else -centre * others / s)
        self.register_buffer("outliers", outliers)
        self.register_buffer("outlier_weight", weight[:, outliers].T.contiguous())
        self.linear = nn.Linear(inputs, outputs)
        self.linear.weight = nn.Parameter(weight * s * others, requires_grad=False)
        self.linear.bias = nn.Parameter(bias + weight @ (centre * others), requires_grad=False)

    inverse: Tensor
    shift: Tensor | None
    outliers: Tensor
    outlier_weight: Tensor

    def forward(self, x: Tensor) -> Tensor:
        z = x * self.inverse
        y: Tensor = self.linear(z if self.shift is None else z + self.shift)
        return y + x.index_select(-1, self.outliers) @ self.outlier_weight if len(self.outliers) else y


@torch.no_grad()
def smooth(encoder: Encoder, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Replaces the encoder's linear layers, calibrated on batches of token ids and masks, (N, T) each."""
    linears = [(parent, name, child) for parent in encoder.modules() for name, child in parent.named_children()
               if isinstance(child, nn.Linear) and child.bias is not None]
    extremes: dict[nn.Module, tuple[Tensor, Tensor]] = {}  # minimum and maximum of each channel, (I,)

    def record(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0][mask.bool()]
        low, high = extremes.get(module, (x[0], x[0]))
        extremes[module] = torch.minimum(low, x.amin(dim=0)), torch.maximum(high, x.amax(dim=0))

    hooks = [child.register_forward_pre_hook(record) for _, _, child in linears]
    for ids, mask in batches:
        encoder(ids, mask)
    for hook in hooks:
        hook.remove()
    for parent, name, linear in linears:
        if linear in extremes:
            setattr(parent, name, Smoothed(linear, *extremes[linear]))
