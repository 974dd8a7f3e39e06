"""Several processes on one queue: this one and others that it starts, each with its share of the cores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARENT = "HALFLABEL_BENCH_PARENT"  # set for the processes that were started here


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def company(number: int, arguments: list[str], log: Path) -> Iterator[None]:
    """Has `number` - 1 other processes run the same command beside this one; they end with it.

    Each gets its share of the cores: small steps gain nothing from more threads.
    """
    if number <= 1:
        yield
        return
    import torch

    threads = max(1, cores() // number)
    torch.set_num_threads(threads)
    env = os.environ | {PARENT: str(os.getpid()), "OMP_NUM_THREADS": str(threads)}
    with open(log, "ab") as said:
        others = [subprocess.Popen([sys.executable, "-m", "halflabel", *arguments], env=env, stdin=subprocess.DEVNULL,
                                   stdout=said, stderr=said) for _ in range(number - 1)]
        try:
            yield
        except BaseException:
            for other in others:
                other.send_signal(signal.SIGINT)
            raise
        finally:
            for other in others:
                other.wait()


def for_company() -> bool:
    """Whether another process started this one to work beside it."""
    return PARENT in os.environ


def orphaned() -> bool:
    """Whether the process that started this one is gone."""
    return for_company() and os.getppid() != int(os.environ[PARENT])
