"""Which of several processes this is, by the environment that torchrun and `accelerate launch` set. No torch."""

from __future__ import annotations

import os
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
