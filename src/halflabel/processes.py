"""Processes: which of several this is (torchrun and `accelerate launch` say so), and being asked to stop. No torch."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Process(NamedTuple):
    """One of the processes that a launcher started together, on one machine or several."""

    rank: int = 0
    number: int = 1  # of all processes
    local_rank: int = 0  # among those of its machine
    local_number: int = 1

    @property
    def first(self) -> bool:
        """Whether it is the one that writes files and prints."""
        return self.rank == 0


def this_process() -> Process:
    """The process as its launcher named it; alone without a launcher."""
    if not os.environ.get("WORLD_SIZE", "").isdigit() or "RANK" not in os.environ:
        return Process()
    number, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    return Process(rank, number, int(os.environ.get("LOCAL_RANK", rank)),
                   int(os.environ.get("LOCAL_WORLD_SIZE", number)))


class Interrupted(Exception):
    """The run was asked to stop and has been saved; it can go on from there."""


def request_stop() -> None:
    """What Ctrl-C does, also in a process that a shell has started in the background and made deaf to Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


@contextmanager
def stop_requested() -> Iterator[threading.Event]:
    """Turns Ctrl-C and a polite kill into a request that is heard between two steps."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    old = {sign: signal.signal(sign, lambda *_: stop.set()) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for sign, handler in old.items():
            signal.signal(sign, handler)
