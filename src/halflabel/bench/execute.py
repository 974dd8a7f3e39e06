"""One run from its draw to its figures."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from halflabel.bench.ablation import resolve
from halflabel.bench.machine import forget_peak, machine, peak
from halflabel.bench.measure import measured
from halflabel.bench.runs import Run
from halflabel.bench.sets import OURS, Drawn, Parts, drawn, parts_of
from halflabel.classifier import TextClassifier
from halflabel.data.augmentation import WordEdits
from halflabel.data.corpus import Corpus
from halflabel.data.labels import Classes
from halflabel.errors import BadInput
from halflabel.events import EpochReport, Event, Report
from halflabel.methods.registry import find
from halflabel.persistence.run_folder import fingerprint
from halflabel.types import Shape

FORMAT = 1
Line = dict[str, Any]


def execute(run: Run, data: Path | None, folder: Path, report: Report, spent: float = 0.0) -> tuple[Line, list[Line]]:
    """The result of a run and its lines for each epoch; what a killed run left in `folder` is gone on with.

    `spent` are the seconds that earlier attempts took.
    """
    parts = parts_of(run.set, data)
    found = drawn(run, parts)
    classes = Classes.of([*parts.train.labels, *parts.test.labels])
    alone = forget_peak()
    began, cpu = time.perf_counter(), time.process_time()
    clf, log = fitted(run, found, classes, parts, folder, report)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    result = {
        "format": FORMAT, "run": run.to_json(), "task": parts.test.task, "labels": len(classes),
        **measured(clf.model_, classes, found.test),
        "pseudo": last(log, "pseudo_accuracy", "pseudo_f1"), "dev": last(log, "dev"),
        "texts": {"labelled": len(found.draw.labelled), "unlabelled": len(found.draw.pool),
                  "dev": len(found.dev or ()), "test": len(found.test)},
        "split": {"train": fingerprint(found.draw.labelled, found.draw.pool),
                  "test": fingerprint(found.test, (found.dev or found.test.take([])).without_labels())},
        "notices": clf.notices_, "ended": clf.termination_condition_, "plan": clf.model_.facts["plan"],
        "encoder": clf.model_.facts["encoder"], "seconds": round(spent + seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2), "interrupted": spent > 0, **peak(), "peak_is_of_this_run": alone,
        "machine": machine(), "finished": datetime.now(UTC).isoformat(timespec="seconds")}
    return result, log


def fitted(run: Run, found: Drawn, classes: Classes, parts: Parts, folder: Path,
           report: Report) -> tuple[TextClassifier, list[Line]]:
    """The trained classifier and a line for each epoch; only runs that fine-tune are kept while they go on."""
    log: list[Line] = []

    def heard(event: Event) -> None:
        if isinstance(event, EpochReport):
            log.append(event.to_json())
        report(event)

    clf, several = make_classifier(run), parts.test.task == "multi-label"
    labelled = found.draw.labelled
    y = classes.matrix(labelled.labels) if several else labelled.labels
    given = {"unlabelled": found.draw.pool.texts, "dev": dev_of(found, classes, several),
             "truth": truth_of(found, classes, several), "views": views_of(run, found.draw.pool, parts.train),
             "report": heard}
    model = folder / "model"
    settings = clf.chosen_settings(parts.test.task)
    if settings.plan.frozen or find(settings.method).bag_of_words:
        return clf.fit(labelled.texts, y, **given), log
    try:
        clf.fit(labelled.texts, y, **given, folder=model, resume=(model / "run.json").is_file())
    except BadInput:
        if not (model / "run.json").is_file():
            raise
        shutil.rmtree(model)  # another version's, or torn: nothing that could be gone on with
        clf.fit(labelled.texts, y, **given, folder=model)
    lines = (model / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return clf, [line for line in map(json.loads, lines) if "epoch" in line]


def make_classifier(run: Run) -> TextClassifier:
    """The estimator as anybody would call it; an ablation is a method of the registry with some settings changed."""
    method, changes = resolve(run.method)
    settings = {name: value for name, value in run.settings if name not in OURS} | changes
    return TextClassifier(method, run.encoder, run.plan, settings=settings or None, random_state=run.seed)


def dev_of(found: Drawn, classes: Classes, several: bool) -> tuple[Sequence[str], Any] | None:
    """Dev texts whose labels training can know."""
    if found.dev is None:
        return None
    if several:
        return found.dev.texts, classes.matrix(found.dev.labels)
    known = set(found.draw.labelled.labels)
    dev = found.dev.take([i for i, label in enumerate(found.dev.labels) if label in known])
    return dev.texts, dev.labels


def truth_of(found: Drawn, classes: Classes, several: bool) -> Any:
    """Labels of the pool, which measure pseudo-labels; none if a class of the pool has no labelled text."""
    if several:
        return classes.matrix(found.draw.truth)
    return found.draw.truth if set(found.draw.truth) <= set(found.draw.labelled.labels) else None


def views_of(run: Run, pool: Corpus, train: Corpus) -> Sequence[Sequence[str]] | None:
    """Strong views, if the method learns on them: those of the corpus, or word edits that all seeds share."""
    recipe = find(resolve(run.method).method)(Shape(labels=2, width=8, labelled=2, unlabelled=2))
    if not recipe.strong_views or not len(pool):
        return None
    return pool.views or [(view,) for view in edits(run.set, len(train), train).views(pool.texts, 0)]


_edits: dict[tuple[str, int], WordEdits] = {}


def edits(name: str, size: int, train: Corpus) -> WordEdits:
    """Word edits fitted on all training texts of a corpus, once in a process."""
    if (name, size) not in _edits:
        _edits[name, size] = WordEdits.fit(train.texts, seed=0)
    return _edits[name, size]


def last(log: Sequence[Line], *names: str) -> float | None:
    """The latest value under one of the names."""
    found = [line[name] for line in log for name in names if line.get(name) is not None]
    return found[-1] if found else None
