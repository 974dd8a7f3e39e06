"""Results without computation."""

from __future__ import annotations

from typing import Any

from halflabel.bench.runs import Run

RUN = Run("sample", "bdd-f", "frozen", 10, True, 800, 0, "none")


def result(run: Run, score: float, *, dlav: float = 0.02, pseudo: float | None = None, collapsed: bool = False,
           labelled: int = 80, commit: str | None = None, clean: bool = True) -> dict[str, Any]:
    """The result of a run with that micro F1; without a commit, as older code wrote it."""
    several = run.set == "sample:tags"
    figures = {"micro_f1": score, "macro_f1": score - 0.1}
    ranking = {"ranking_loss": 1 - score, "lrap": score}
    line = {
        "format": 1, "run": run.to_json(), "task": "multi-label" if several else "multi-class", "labels": 3,
        "figures": dict.fromkeys(("prior-quantile", "fixed"), figures | ranking) if several else {"argmax": figures},
        "collapse": {"collapsed": collapsed, "labels_used": 1.2 if collapsed else 2.9, "labels_there": 3.0},
        "angles": {"dlav": dlav, "bin": 3, "labels": {"a<b": {"mean": 20.0, "deviation": 5.0, "counts": [0, 3, 9, 2]},
                                                      "c": {"mean": 22.0, "deviation": 6.0, "counts": [1, 4, 4]}}},
        "pseudo": pseudo, "dev": None, "notices": [], "plan": {"encoder": "minilm"}, "seconds": 2.0, "cpu_seconds": 1.5,
        "wall_seconds": 2.5, "megabytes": 512.0, "split": {"train": f"{run.seed:032x}", "test": "0" * 32},
        "texts": {"labelled": labelled, "unlabelled": run.unlabelled, "dev": 0, "test": 100},
        "machine": {"cpu": "a processor", "cores": 2, "halflabel": "0.1.0"}, "finished": "2026-01-02T03:04:05+00:00"}
    return line if commit is None else line | {"code": {"commit": commit, "clean": clean}, "pool_abandoned": False}
