"""Linear layers with weights packed once for oneDNN, so that no call has to reorder them.

The only file that calls private operators of torch (`torch.ops.mkldnn`): those that torch.compile generates code from.
tests/encoders/test_mkldnn_linear.py fails when a version of torch removes or changes them; without them encoding still
works, only slower.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class MkldnnLinear(nn.Module):
    """x W' + b, (..., I) -> (..., O), with a fused activation if one is named."""

    def __init__(self, linear: nn.Linear, activation: str = "none") -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)
        self.bias = None if linear.bias is None else linear.bias.detach()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, self.activation, [], "none")
        return y


def mkldnn_available() -> bool:
    """Whether this build of torch has the private operators."""
    ops: Any = torch.ops.mkldnn
    return torch.backends.mkldnn.is_available() and all(
        hasattr(ops, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))


def use_mkldnn(body: nn.Module) -> None:
    """Replaces the linear layers of a transformer that is used for inference only."""
    for module in list(body.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, MkldnnLinear(child, _activation(module, name)))


def _activation(module: Any, name: str) -> str:
    """The activation to fuse into a layer: the GELU after BERT's wide layer, which is then removed."""
    if name != "dense" or type(getattr(module, "intermediate_act_fn", None)).__name__ not in ("GELUActivation", "GELU"):
        return "none"
    module.intermediate_act_fn = nn.Identity()
    return "gelu"
