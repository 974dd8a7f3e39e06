"""What figures were measured on, and how much memory a run took."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Processor, cores, threads, and the versions of what computes."""
    import sklearn
    import torch
    import transformers

    import halflabel

    names = [line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {"cpu": (names or [platform.processor()])[0], "cores": os.cpu_count(), "threads": torch.get_num_threads(),
            **gpu, "python": platform.python_version(), "torch": torch.__version__,
            "transformers": transformers.__version__, "scikit-learn": sklearn.__version__,
            "halflabel": halflabel.__version__}


def forget_peak() -> bool:
    """Starts counting the largest memory of this process anew, where the system can; says whether it could."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak() -> dict[str, float]:
    """Largest memory of this process since `forget_peak`, in megabytes, and that of its GPU."""
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
