"""halflabel: text classification from a handful of labels and a heap of unlabelled texts."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Threads of GNU OpenMP, which torch has, wait actively for each other. On a busy machine they wait for one that has no
# core, and training takes much longer than its share of the cores explains; so they are to sleep soon. OpenMP reads it
# when torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# Everything heavy is imported on first use, so that `import halflabel` costs nothing.
_HOMES = {
    "BadInput": "halflabel.errors",
    "Corpus": "halflabel.data.corpus",
    "LabelledFolds": "halflabel.data.splitting",
    "Plan": "halflabel.types",
    "TextClassifier": "halflabel.classifier",
    "load": "halflabel.persistence.model",
    "methods": "halflabel.methods",
    "open_pool": "halflabel.data.pool",
    "read": "halflabel.data.readers.read",
    "sample": "halflabel.data.corpus",
    "write": "halflabel.data.readers.formats",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'halflabel' has no attribute '{name}'")
    home = import_module(_HOMES[name])
    return home if name in ("methods",) else getattr(home, name)


def __dir__() -> list[str]:
    return __all__
