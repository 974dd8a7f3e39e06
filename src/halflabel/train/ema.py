"""Averaged weights: what is evaluated, saved and used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from halflabel.train.checkpoint import snapshot


class Average:
    """Exponential moving average of a module's parameters; buffers are copied, not averaged."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.reset(module)

    def reset(self, module: nn.Module) -> None:
        """Starts again from the module as it stands."""
        self.tensors = snapshot(module)

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        parameters = dict(module.named_parameters())
        mine = [self.tensors[name] for name in parameters]
        torch._foreach_lerp_(mine, [p.detach() for p in parameters.values()], 1.0 - self.decay)
        for name, buffer in module.named_buffers():
            if name in self.tensors:
                self.tensors[name].copy_(buffer)

    @contextmanager
    def applied(self, module: nn.Module) -> Iterator[None]:
        """The module with averaged weights, for as long as the context lasts."""
        current = snapshot(module)
        module.load_state_dict(self.tensors)
        try:
            yield
        finally:
            module.load_state_dict(current)
