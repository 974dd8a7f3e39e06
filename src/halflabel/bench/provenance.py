"""Where a result comes from: the commit of the code, versions, processor, threads and peak memory."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import halflabel


@cache
def code_version() -> dict[str, Any] | None:
    """The git commit of the code and whether the tree was clean; None if it does not run from a checkout."""
    package = Path(halflabel.__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(package), *arguments], check=True, capture_output=True,
                              text=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # a virtual environment may lie in someone else's checkout
        return {"commit": git("rev-parse", "HEAD"), "clean": not git("status", "--porcelain", "--", str(package))}
    except (OSError, subprocess.CalledProcessError):
        return None


def machine() -> dict[str, Any]:
    """Processor, cores, threads, and the versions of the libraries."""
    import sklearn
    import torch
    import transformers

    names = [line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {"cpu": (names or [platform.processor()])[0], "cores": os.cpu_count(), "threads": torch.get_num_threads(),
            **gpu, "python": platform.python_version(), "torch": torch.__version__,
            "transformers": transformers.__version__, "scikit-learn": sklearn.__version__,
            "halflabel": halflabel.__version__}


def reset_peak_memory() -> bool:
    """Resets the peak memory of this process where the system can; returns whether it could."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_memory() -> dict[str, float]:
    """Peak memory of this process since `reset_peak_memory`, in megabytes, and that of its GPU."""
    import torch

    gpu = {"gpu_megabytes": round(torch.cuda.max_memory_allocated() / 1e6, 1)} if torch.cuda.is_available() else {}
    for line in _lines("/proc/self/status"):
        if line.startswith("VmHWM"):
            return {"megabytes": round(int(line.split()[1]) / 1024, 1), **gpu}
    from resource import RUSAGE_SELF, getrusage

    unit = 2**20 if sys.platform == "darwin" else 1024
    return {"megabytes": round(getrusage(RUSAGE_SELF).ru_maxrss / unit, 1), **gpu}


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
