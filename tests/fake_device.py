"""A device without hardware: tensors on it keep their numbers in memory, and refuse to meet tensors of the CPU.

As on a GPU, numbers leave it only by a copy (`.cpu()`, `.to`, `copy_`); zero-dimensional tensors of the CPU may take
part in its operations, and so may indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _DummyPrivateUse1Hook,
    _setup_privateuseone_for_python_backend,
)

NAME = "fake"
COPIES = ("aten::_to_copy", "aten::copy_", "aten::_copy_from")
INDEXING = ("aten::index.Tensor", "aten::index_put", "aten::_unsafe_index", "aten::_index_put_impl_")


class FakeTensor(Tensor):
    """A tensor on the device, around a tensor in memory."""

    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor) -> FakeTensor:
        self: FakeTensor = Tensor._make_wrapper_subclass(
            cls, raw.size(), strides=raw.stride(), storage_offset=raw.storage_offset(), dtype=raw.dtype,
            device=torch.device(NAME, 0))
        self.raw = raw
        return self

    def tolist(self) -> Any:
        return self.raw.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        check_one_device(func, args, kwargs)
        target = kwargs.pop("device", None) if "device" in kwargs else torch.device(NAME)
        if func.name() == "aten::copy_":
            destination, source = (raw_of(x) for x in args[:2])
            destination.copy_(source)
            return args[0]
        result = func(*tree_map(raw_of, args), **tree_map(raw_of, kwargs))
        if func._schema.is_mutable and not func._schema.name.endswith("_to_copy"):
            inputs = {id(raw_of(x)): x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)}
            return tree_map(lambda x: inputs.get(id(x), x), result)
        if target is not None and target.type == "cpu":
            return result
        return tree_map(lambda x: FakeTensor(x) if isinstance(x, Tensor) else x, result)


def raw_of(x: Any) -> Any:
    return x.raw if isinstance(x, FakeTensor) else x


def check_one_device(func: Any, args: Any, kwargs: Any) -> None:
    """Fails where a GPU would: tensors of both devices meet, other than in a copy, as a number or as indices."""
    if func.name().startswith(COPIES):
        return
    if func.name().startswith(INDEXING):
        args = (args[0], *args[2:])
    tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
    strangers = [x for x in tensors if not isinstance(x, FakeTensor) and x.dim() > 0]
    if strangers:
        raise RuntimeError(f"{func} on the device {NAME} met a tensor of the CPU, {tuple(strangers[0].shape)}")


class Hook(_DummyPrivateUse1Hook):
    """Whether torch reports the device."""

    available = False

    def is_available(self) -> bool:
        return Hook.available


class Module(_DummyBackendModule):
    """torch.fake, as torch.cuda is for CUDA."""

    def is_available(self) -> bool:
        return Hook.available

    def device_count(self) -> int:
        return 1

    def manual_seed(self, seed: int) -> None:
        """Its random numbers are those of the CPU."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


_libraries: list[Any] = []


def register() -> None:
    """Tells torch about the device; autograd counts devices once, at the first backward pass of a process."""
    _setup_privateuseone_for_python_backend(NAME, Module(), Hook())
    library = torch.library.Library("aten", "IMPL")

    def empty(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
              memory_format: Any = None) -> Tensor:
        return FakeTensor(torch.empty(size, dtype=dtype))

    def empty_strided(size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                      pin_memory: Any = None) -> Tensor:
        return FakeTensor(torch.empty_strided(size, stride, dtype=dtype))

    library.impl("empty.memory_format", empty, "PrivateUse1")
    library.impl("empty_strided", empty_strided, "PrivateUse1")
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")  # it casts nothing
    _libraries.extend([library, everything])


register()


@contextmanager
def fake_device() -> Iterator[torch.device]:
    """The device, for as long as the context lasts."""
    Hook.available = True
    try:
        yield torch.device(NAME, 0)
    finally:
        Hook.available = False
