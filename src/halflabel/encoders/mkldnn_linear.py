"""Linear layers whose weights lie as the processor's products want them, so that no call has to move them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class MkldnnLinear(nn.Module):
    """x W' + b, (..., I) -> (..., O), with an activation in the same sweep if one is named."""

    def __init__(self, linear: nn.Linear, activation: str = "none") -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)
        self.bias = None if linear.bias is None else linear.bias.detach()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, self.activation, [], "none")
        return y


def mkldnn_available() -> bool:
    """Whether this torch has the products that torch.compile makes its own code from."""
    ops: Any = torch.ops.mkldnn
    return torch.backends.mkldnn.is_available() and all(
        hasattr(ops, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))


def use_mkldnn(body: nn.Module) -> None:
    """Replaces the linear layers of a body that only answers and never learns."""
    for module in list(body.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, MkldnnLinear(child, _activation(module, name)))


def _activation(module: Any, name: str) -> str:
    """BERT's wide layer is followed by a GELU of its own, which then has nothing left to do."""
    if name != "dense" or type(getattr(module, "intermediate_act_fn", None)).__name__ not in ("GELUActivation", "GELU"):
        return "none"
    module.intermediate_act_fn = nn.Identity()
    return "gelu"
