"""Modules that have shapes but neither memory nor numbers, until they are given their weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from halflabel.errors import BadInput


class SkipInit(TorchFunctionMode):
    """Draws no random numbers: to do so without memory takes torch a second of imports."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, Tensor.uniform_) or getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Within it modules take no memory, however large a configuration says they are."""
    with SkipInit(), torch.device("meta"):
        yield


def fits(module: nn.Module, weights: Mapping[str, Tensor]) -> bool:
    """Whether weights have the names, shapes and types of a module's."""
    def kinds(state: Mapping[str, Tensor]) -> dict[str, tuple[Any, ...]]:
        return {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}

    return kinds(module.state_dict()) == kinds(weights)


def check_finite(weights: Mapping[str, Tensor], file: object) -> None:
    """Refuses weights of which some are not numbers."""
    for name, tensor in weights.items():
        # the extremes take one pass and no memory; they are NaN if any entry is
        if tensor.is_floating_point() and tensor.numel() and not torch.stack(tensor.aminmax()).isfinite().all():
            raise BadInput(f"{file} has weights that are not finite numbers ({name}); copy or train the model again.")
