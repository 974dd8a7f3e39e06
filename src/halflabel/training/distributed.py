"""Several processes that train one model.

Each process encodes its share of a step's texts, and the vectors are gathered. So every process computes the loss of
the whole batch, and with it the same thresholds, statistics and penalties as a single process would; only gradients
have to be averaged. They are averaged after the backward pass rather than by the DistributedDataParallel module, whose
hooks expect one forward pass per step that reaches all parameters: steps have several, and phases train some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from halflabel.devices import reseed
from halflabel.errors import HalflabelError, SettingError
from halflabel.processes import Interrupted, Process

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl", "xpu": "cpu:gloo,xpu:xccl"}
PATIENCE = timedelta(days=1)  # one process may encode a large pool while the others wait
T = TypeVar("T")


class RankLost(Interrupted):
    """Another process of the run has ended, so that this one cannot go on."""

    undone = False  # whether training is in the state after its last step


class Ranks:
    """The processes of a run and what they exchange; a single one exchanges nothing."""

    def __init__(self, process: Process) -> None:
        self.process, self.rank, self.number = process, process.rank, process.number
        self.several, self.first = process.number > 1, process.first

    def share(self, number: int) -> np.ndarray:
        """Which of so many rows this process encodes: as many as every other, so that the last may be repeated."""
        each = -(-number // self.number)
        return np.minimum(np.arange(self.rank * each, (self.rank + 1) * each), number - 1)

    def gather(self, x: Tensor, number: int) -> Tensor:
        """The rows of all processes, (number, ...), from those of each `share`; with gradient for its own."""
        gathered: Tensor = Gather.apply(x, self)[:number] if self.several else x
        return gathered

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Replaces gradients by their mean over all processes."""
        if not self.several or not gradients:
            return
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        with lost_if_it_fails():
            dist.all_reduce(flat)
        for gradient, mean in zip(gradients, (flat / self.number).split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process, or one has ended."""
        if not self.several:
            return flag
        flags = torch.tensor(int(flag))
        try:
            dist.all_reduce(flags, dist.ReduceOp.MAX)
        except RuntimeError:
            return True
        return bool(flags)

    def from_first(self, compute: Callable[[], T]) -> T:
        """What the function returns in the first process, or the error that it raises there, in all of them."""
        if not self.several:
            return compute()
        answer: list[Any] = [None, None]
        if self.first:
            try:
                answer[0] = compute()
            except HalflabelError as error:
                answer[1] = error
        with lost_if_it_fails():
            dist.broadcast_object_list(answer, src=0, device=torch.device("cpu"))
        if answer[1] is not None:
            raise answer[1]
        value: T = answer[0]
        return value

    def copy_first(self, tensors: Iterable[Tensor]) -> None:
        """Makes tensors equal to those of the first process."""
        for tensor in tensors if self.several else ():
            with lost_if_it_fails():
                dist.broadcast(tensor.detach(), src=0)

    @contextmanager
    def one_first(self) -> Iterator[None]:
        """Lets one process of each machine go first, so that the others find in the cache what it computed."""
        waits = self.process.local_rank > 0
        if self.several and waits:
            self.meet()
        yield
        if self.several and not waits:
            self.meet()

    def meet(self) -> None:
        """Waits until all processes are here."""
        with lost_if_it_fails():
            dist.all_reduce(torch.zeros(()))

    @contextmanager
    def own_noise(self, device: torch.device) -> Iterator[None]:
        """Dropout of its own for each process; afterwards all draw the same random numbers again."""
        seed = int(torch.randint(2**62, ()))
        reseed(device, seed + self.rank)
        yield
        reseed(device, seed)


ALONE = Ranks(Process())


class Gather(torch.autograd.Function):
    """The rows of all processes; the gradient of this process's rows, times their number, since it is averaged."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        parts = [torch.empty_like(x) for _ in range(ranks.number)]
        with lost_if_it_fails():
            dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.chunk(ctx.ranks.number)[ctx.ranks.rank] * ctx.ranks.number, None


@contextmanager
def lost_if_it_fails() -> Iterator[None]:
    """Turns a failed exchange into `RankLost`."""
    try:
        yield
    except RuntimeError as error:
        raise RankLost("another process of the run has ended") from error


@contextmanager
def connected(process: Process, device: torch.device) -> Iterator[Ranks]:
    """The processes of a run, connected for as long as the context lasts."""
    if process.number == 1:
        yield ALONE
        return
    if device.type not in BACKENDS:
        raise SettingError(f"several processes cannot train on {device.type}; start one, or choose cpu as the device.")
    if device.type != "cpu":
        torch.accelerator.set_device_index(device)
    dist.init_process_group(BACKENDS[device.type], timeout=PATIENCE)
    try:
        yield Ranks(process)
    finally:
        dist.destroy_process_group()
