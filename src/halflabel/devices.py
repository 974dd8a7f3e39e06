"""Where a model runs, and in which precision: on the CPU, on an accelerator that torch reports (cuda, mps, xpu), or on
the meta device, where modules have shapes but no memory until weights, which are checked, are assigned to them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from halflabel.errors import HalflabelError, ModelError, SettingError

# Products in bf16 on a CPU are compiled for each shape of a batch, and oneDNN and torch (in each thread) keep the last
# 1,024 of these kernels: 800 MB after 376 shapes. To compile one again takes a quarter of a millisecond. Both read
# their limits at the first product.
for _name, _kernels in {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": 256, "LRU_CACHE_CAPACITY": 32}.items():
    os.environ.setdefault(_name, str(_kernels))

AUTO = "auto"
CPU = torch.device("cpu")
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
NAMES = {dtype: name for name, dtype in PRECISIONS.items()}


@dataclass(frozen=True)
class Compute:
    """A device and the precision of the encoder's products; by default bf16 if the hardware has it, else fp32."""

    device: torch.device = CPU
    precision: torch.dtype | None = None

    @property
    def names(self) -> tuple[str, str]:
        """Device and precision as `choose_compute` takes them."""
        return str(self.device), AUTO if self.precision is None else NAMES[self.precision]

    def to_json(self) -> dict[str, str]:
        """Names for people, such as "cuda:0 (NVIDIA A100)" and "bf16"."""
        module = torch.get_device_module(self.device)
        name = f" ({module.get_device_name(self.device)})" if hasattr(module, "get_device_name") else ""
        return {"device": f"{self.device}{name}", "precision": NAMES[product_dtype(self.device, self.precision)]}


def choose_compute(device: str = AUTO, precision: str = AUTO, *, local_rank: int = 0) -> Compute:
    """The device and precision of these names; each of several processes of a machine gets a GPU of its own."""
    chosen = choose_device(device, local_rank)
    if precision == AUTO:
        return Compute(chosen)
    if precision not in PRECISIONS:
        raise SettingError(f"there is no precision '{precision}'; choose one of {AUTO}, {', '.join(PRECISIONS)}.")
    if precision == "fp16" and chosen.type == "cpu":
        raise SettingError("the CPU trains and predicts in bf16 or fp32, not in fp16; choose another precision, or a "
                           "GPU as the device.")
    if precision == "bf16" and not bf16_products(chosen):
        raise SettingError(f"the device {chosen} has no products in bf16; choose the precision "
                           f"{'fp32' if chosen.type == 'cpu' else 'fp16 or fp32'}.")
    return Compute(chosen, PRECISIONS[precision])


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """The device of a name such as cuda or cuda:1; `auto` takes the accelerator that torch reports, else the CPU."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    number = 0 if accelerator is None else torch.accelerator.device_count()
    try:
        device = (accelerator or CPU) if name == AUTO else torch.device(name)
    except RuntimeError:
        raise SettingError(f"there is no device '{name}'; choose auto, cpu, cuda, cuda:1, mps or xpu.") from None
    if device.type == "cpu":
        return CPU
    index = local_rank if device.index is None else device.index
    if accelerator is None or device.type != accelerator.type or index >= number:
        found = "only the CPU" if accelerator is None else f"the CPU and {number} of type {accelerator.type}"
        raise SettingError(f"the device {torch.device(device.type, index)} is not there: torch reports {found}; choose "
                           "another device, or auto.")
    return torch.device(device.type, index)


def bf16_products(device: torch.device) -> bool:
    """Whether the hardware multiplies faster in bf16 than in fp32."""
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities()
        return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "xpu" and torch.xpu.is_bf16_supported(including_emulation=False)


def product_dtype(device: torch.device, precision: torch.dtype | None) -> torch.dtype:
    """The type that products are computed in, unless they turn out to suffer from it."""
    return precision or (torch.bfloat16 if bf16_products(device) else torch.float32)


def half_precision(device: torch.device, precision: torch.dtype | None) -> AbstractContextManager[object]:
    """Autocast to the type of products; no change if that is fp32."""
    dtype = product_dtype(device, precision)
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype=dtype)


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """A batch on a device; the copy to a CUDA GPU is asynchronous, from pinned memory."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


@contextmanager
def few_blas_threads() -> Iterator[None]:
    """Half of torch's threads for numpy's linear algebra, also as a decorator.

    Its threads wait actively: with as many as cores, small products take five times as long on a busy machine.
    """
    import scipy.linalg  # noqa: F401, its library has threads of its own, which are limited once it is loaded
    from threadpoolctl import threadpool_info, threadpool_limits

    limit = max(1, torch.get_num_threads() // 2)
    fewer = {pool["prefix"]: limit for pool in threadpool_info()
             if pool["user_api"] == "blas" and pool["num_threads"] > limit}
    with threadpool_limits(fewer):
        yield


def reseed(device: torch.device, seed: int) -> None:
    """What torch.manual_seed does, without the stack trace that it takes at each call where there is no GPU."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


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
