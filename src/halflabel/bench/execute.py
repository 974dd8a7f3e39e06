"""One run: sample, fit, evaluate on the test set, with the commit, versions, processor and peak memory of the result.

N texts, K labels, D head width.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import halflabel
from halflabel.bench.corpora import PROTOCOL_SETTINGS, RunData, open_corpus, run_data
from halflabel.bench.queue import Line
from halflabel.bench.results import ARGMAX, RULES
from halflabel.bench.runs import Run, resolve
from halflabel.classifier import TextClassifier
from halflabel.data.augmentation import WordEdits
from halflabel.data.corpus import Corpus
from halflabel.data.labels import Classes
from halflabel.devices import AUTO, Compute
from halflabel.encoders.inference import encode
from halflabel.equations import angle_moments, angles, cosines, prototypes
from halflabel.errors import HalflabelError, OutputError
from halflabel.evaluation.metrics import collapsed, effective_classes, multi_class, multi_label, variance_difference
from halflabel.fitting import vector_cache
from halflabel.methods.registry import find
from halflabel.nn.network import Output, PrecomputedVectors
from halflabel.notices import EpochReport, Event, Report
from halflabel.persistence.model import CHUNK, TrainedModel, fingerprint
from halflabel.types import Shape

FORMAT = 1  # of a result; fields may be added under the same number
METRICS = ("micro_f1", "macro_f1", "accuracy", "ranking_loss", "lrap", "coverage", "empty")
BIN = 6  # degrees of a bar in a histogram of angles
HISTOGRAMS = 12  # the most frequent labels have one


def execute(run: Run, data: Path | None, folder: Path, report: Report, spent: float = 0.0, *,
            compute: Compute | None = None) -> tuple[Line, list[Line]]:
    """The result of a run and a line for each epoch; resumes from `folder` if a killed process left checkpoints there.

    `spent` is the time that earlier attempts took, in seconds.
    """
    parts = open_corpus(run.set, data)
    texts = run_data(run, parts)
    sample, dev = texts.sample, texts.dev
    classes = Classes.of([*parts.train.labels, *parts.test.labels])
    was_reset = reset_peak_memory()
    began, cpu = time.perf_counter(), time.process_time()
    clf, epochs = fit(make_classifier(run, compute), run, data, texts, classes, folder, report)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    model = clf.model_
    assert isinstance(model, TrainedModel), "not an export"
    result = {
        "format": FORMAT, "run": run.to_json(), "task": parts.test.task, "labels": len(classes),
        **evaluate(model, classes, texts.test),
        "pseudo": _last(epochs, "pseudo_accuracy", "pseudo_f1"), "dev": _last(epochs, "dev"),
        "texts": {"labelled": len(sample.labelled), "unlabelled": len(sample.pool), "dev": len(dev or ()),
                  "test": len(texts.test)},
        "split": {"train": fingerprint(sample.labelled, sample.pool),
                  "test": fingerprint(texts.test, (dev or texts.test.take([])).without_labels())},
        "notices": clf.notices_, "ended": clf.termination_condition_, "pool_abandoned": _pool_abandoned(epochs),
        "label_angles": label_angles(model), "plan": model.facts["plan"],
        "encoder": model.facts["encoder"], "compute": model.facts["compute"], "seconds": round(spent + seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2), "interrupted": spent > 0, **peak_memory(),
        "peak_is_of_this_run": was_reset, "machine": machine(), "code": code_version(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds")}
    return result, epochs


def fit(clf: TextClassifier, run: Run, data: Path | None, texts: RunData, classes: Classes, folder: Path,
        report: Report) -> tuple[TextClassifier, list[Line]]:
    """The fitted classifier and a line for each epoch; only runs that fine-tune save checkpoints."""
    epochs: list[Line] = []

    def record(event: Event) -> None:
        if isinstance(event, EpochReport):
            epochs.append(event.to_json())
        report(event)

    multilabel, labelled = texts.test.task == "multi-label", texts.sample.labelled
    y = classes.matrix(labelled.labels) if multilabel else labelled.labels
    arguments = {"unlabelled": texts.sample.pool.texts, "dev": _dev(texts, classes, multilabel),
                 "truth": _truth(texts, classes, multilabel), "views": _views(run, texts.sample.pool, data),
                 "report": record}
    settings = clf.chosen_settings(texts.test.task)
    if settings.plan.frozen or find(settings.method).bag_of_words:
        return clf.fit(labelled.texts, y, **arguments), epochs
    model = folder / "model"
    try:
        clf.fit(labelled.texts, y, **arguments, folder=model, resume=(model / "run.json").is_file())
    except HalflabelError as error:
        if isinstance(error, OutputError) or not (model / "run.json").is_file():
            raise
        shutil.rmtree(model)  # damaged, or of another version: it cannot be resumed
        clf.fit(labelled.texts, y, **arguments, folder=model)
    lines = (model / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return clf, [line for line in map(json.loads, lines) if "epoch" in line]


def make_classifier(run: Run, compute: Compute | None = None) -> TextClassifier:
    """The estimator of a run; an ablation is a registered method with changed settings."""
    method, changes = resolve(run.method)
    settings = {name: value for name, value in run.settings if name not in PROTOCOL_SETTINGS} | changes
    device, precision = (AUTO, AUTO) if compute is None else compute.names
    return TextClassifier(method, run.encoder, run.plan, settings=settings or None, random_state=run.seed,
                          device=device, precision=precision)


def _dev(texts: RunData, classes: Classes, multilabel: bool) -> tuple[Sequence[str], Any] | None:
    """The dev set, without classes that no labelled text has."""
    if texts.dev is None:
        return None
    if multilabel:
        return texts.dev.texts, classes.matrix(texts.dev.labels)
    known = set(texts.sample.labelled.labels)
    dev = texts.dev.take([i for i, label in enumerate(texts.dev.labels) if label in known])
    return dev.texts, dev.labels


def _truth(texts: RunData, classes: Classes, multilabel: bool) -> Any:
    """Labels of the pool, which evaluate pseudo-labels; None if a class of the pool has no labelled text."""
    truth = texts.sample.truth
    if multilabel:
        return classes.matrix(truth)
    return truth if set(truth) <= set(texts.sample.labelled.labels) else None


def _views(run: Run, pool: Corpus, data: Path | None) -> Sequence[Sequence[str]] | None:
    """Strong views for the methods that use them: those of the corpus, or word edits that all seeds share."""
    method = find(resolve(run.method).method)(Shape(labels=2, width=8, labelled=2, unlabelled=2))
    if not method.strong_views or not len(pool):
        return None
    return pool.views or [(view,) for view in _word_edits(run.set, data).views(pool.texts, 0)]


@lru_cache(maxsize=4)
def _word_edits(name: str, data: Path | None) -> WordEdits:
    """Word edits fitted on all training texts of a corpus."""
    return WordEdits.fit(open_corpus(name, data).train.texts, seed=0)


def evaluate(model: TrainedModel, classes: Classes, test: Corpus) -> Line:
    """Metrics under each decision rule, whether predictions collapsed, and the label angles of the test texts."""
    f, scores = _outputs(model, test)
    truth = classes.matrix(test.labels, source=test.source) > 0
    if model.task == "multi-label":
        predicted = {rule: model.rules(scores, rule) for rule in RULES}
        metrics = {rule: multi_label(truth, labels, scores, classes.names) for rule, labels in predicted.items()}
    else:
        columns = np.array([classes.index(name) for name in model.classes.names])[scores.argmax(axis=1)]
        predicted = {ARGMAX: np.eye(len(classes), dtype=bool)[columns]}
        metrics = {ARGMAX: multi_class(truth.argmax(axis=1), columns, classes.names)}
    first = next(iter(metrics))
    return {"figures": {rule: {name: values[name] for name in METRICS if name in values}
                        for rule, values in metrics.items()},
            "per_label": {name: row["f1"] for name, row in metrics[first]["per_label"].items()},
            "collapse": _collapse(predicted[first], truth), "angles": angle_report(f, truth, classes)}


def _outputs(model: TrainedModel, test: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Features (N, D) and scores (N, K) of the test texts; the vectors of a frozen encoder are cached."""
    frozen = isinstance(model.network.encoder, PrecomputedVectors)

    def chunks() -> Iterator[Output]:
        for start in range(0, len(test), CHUNK):
            texts = test.texts[start : start + CHUNK]
            yield model.classify(vector_cache(model.encoder)(texts) if frozen else encode(model.encoder, texts), texts)

    outputs = list(chunks())
    return (np.concatenate([output.f.cpu().numpy() for output in outputs]),
            np.concatenate([output.scores.cpu().numpy() for output in outputs]))


def _collapse(predicted: np.ndarray, truth: np.ndarray) -> Line:
    """Whether predictions (N, K) use less than half as many labels as the truth (N, K)."""
    counts, true_counts = (matrix.sum(axis=0).astype(np.float64) for matrix in (predicted, truth))
    return {"collapsed": bool(collapsed(counts, true_counts)), "labels_used": round(effective_classes(counts), 2),
            "labels_there": round(effective_classes(true_counts), 2)}


def angle_report(f: np.ndarray, truth: np.ndarray, classes: Classes) -> Line:
    """Eqs. 6-8 over test texts with their true labels: DLAV, and a histogram of angles for the frequent labels."""
    y = torch.from_numpy(truth.astype(np.float32))
    theta = angles(cosines(torch.from_numpy(f), prototypes(torch.from_numpy(f), y)))
    mean, variance = (moment.double().numpy() for moment in angle_moments(theta, y))
    degrees, present = np.degrees(theta.numpy()), np.flatnonzero(truth.sum(axis=0) > 1)
    frequent = sorted(present, key=lambda k: -truth[:, k].sum())[:HISTOGRAMS]
    edges = np.arange(0, 180 + BIN, BIN)
    return {"dlav": variance_difference(variance[present]), "bin": BIN, "labels": {
        str(classes.names[k]): {"mean": float(np.degrees(mean[k])), "deviation": float(np.degrees(variance[k] ** 0.5)),
                                "counts": np.trim_zeros(np.histogram(degrees[truth[:, k], k], edges)[0], "b").tolist()}
        for k in frequent}}


def label_angles(model: TrainedModel) -> dict[str, dict[str, float]]:
    """a, mu and sigma (Eqs. 2, 7 and 8) of each label at the end of training; empty without balanced angles."""
    statistics = model.network.angles.report()
    return {str(name): {symbol: round(values[k], 6) for symbol, values in statistics.items()}
            for k, name in enumerate(model.classes.names) if statistics}


def _pool_abandoned(epochs: Sequence[Line]) -> bool:
    """Whether the collapse guard abandoned the pool: an epoch carries a notice in this case alone."""
    return any("notice" in epoch for epoch in epochs)


def _last(epochs: Sequence[Line], *names: str) -> float | None:
    """The latest value under one of the names."""
    values = [epoch[name] for epoch in epochs for name in names if epoch.get(name) is not None]
    return values[-1] if values else None


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
