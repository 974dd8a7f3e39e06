"""Makes activations even before they are rounded to int8: what a loud channel loses, its weights gain.

One scale serves a whole batch in int8, so a few loud channels leave few steps for all others. Dividing channel j of the
input by s_j and multiplying column j of the weights by s_j changes nothing in fp32 (after SmoothQuant, Xiao et al.,
2023).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from halflabel.model.encoder import Encoder

SHARE = 0.5  # power of the loudness that moves into the weights, which have a scale for each output and can bear it


class Smoothed(nn.Module):
    """x W' + b as (x / s) (W s)' + b, (..., I) -> (..., O)."""

    def __init__(self, linear: nn.Linear, loudness: Tensor) -> None:
        super().__init__()
        weight = linear.weight.detach()
        s = loudness.clamp_min(1e-5) ** SHARE
        self.register_buffer("inverse", 1.0 / s)
        self.linear = nn.Linear(linear.in_features, linear.out_features, bias=linear.bias is not None)
        self.linear.weight = nn.Parameter(weight * s, requires_grad=False)
        self.linear.bias = linear.bias

    inverse: Tensor

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x * self.inverse)
        return y


@torch.no_grad()
def smooth(encoder: Encoder, ids: Tensor, mask: Tensor) -> None:
    """Replaces the encoder's linear layers, judging loudness by these texts, (N, T)."""
    loudness: dict[nn.Module, Tensor] = {}
    real = mask.bool()

    def listen(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        loudness[module] = inputs[0][real].abs().amax(dim=0)

    linears = [(parent, name, child) for parent in encoder.modules() for name, child in parent.named_children()
               if isinstance(child, nn.Linear)]
    hooks = [child.register_forward_pre_hook(listen) for _, _, child in linears]
    encoder(ids, mask)
    for hook in hooks:
        hook.remove()
    for parent, name, child in linears:
        if child in loudness:
            setattr(parent, name, Smoothed(child, loudness[child]))
