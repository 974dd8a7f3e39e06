"""Modules on the meta device: shapes without memory, until weights are assigned; and checks of such weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from halflabel.errors import HalflabelError, ModelError


class SkipInit(TorchFunctionMode):
    """Skips random initialisation, for which torch would import a second's worth of modules on the meta device."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, Tensor.uniform_) or getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Builds modules without memory and without initial values, however large their configuration says they are."""
    with SkipInit(), torch.device("meta"):
        yield


def fits(module: nn.Module, weights: Mapping[str, Tensor]) -> bool:
    """Whether weights have the names, shapes and types of those of a module."""
    def kinds(state: Mapping[str, Tensor]) -> dict[str, tuple[Any, ...]]:
        return {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}

    return kinds(module.state_dict()) == kinds(weights)


def check_finite(weights: Mapping[str, Tensor], source: object, error: type[HalflabelError] = ModelError) -> None:
    """Refuses weights that contain NaN or infinity."""
    for name, tensor in weights.items():
        # the extremes take one pass and no memory; they are NaN if any entry is
        if tensor.is_floating_point() and tensor.numel() and not torch.stack(tensor.aminmax()).isfinite().all():
            raise error(f"{source} has weights that are not finite numbers ({name}); copy or train the model again.")
