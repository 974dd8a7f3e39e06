"""Distillation: fits a student to a trained model's answers on unlabelled texts, and measures how far they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halflabel.data.columns import text_hashes
from halflabel.data.corpus import Corpus
from halflabel.devices import few_blas_threads
from halflabel.encoders.ngrams import KINDS, Kind
from halflabel.encoders.text_encoder import BagOfWords
from halflabel.errors import DataError, SettingError
from halflabel.persistence.model import TrainedModel
from halflabel.randomness import Stream, generator, shuffled
from halflabel.students.cross_fitting import Refit, correct, cross_fitted, intervals
from halflabel.students.learning import Examples, WordVectors
from halflabel.students.student import Student
from halflabel.students.trial import Goal, agreement, best_trial, timed
from halflabel.types import Progress

DEFAULT: Kind = "static"
POOL_LIMIT = 50_000  # pool texts that a student is fitted to, at most
MIN_TEXTS = 20  # of the pool: fewer leave too few to measure agreement on


@few_blas_threads()
def distill(teacher: TrainedModel, pool: Corpus, *, student: str = DEFAULT, cascade: Goal | None = None,
            examples: Sequence[str] = (), labelled: Corpus | None = None,
            trained_on: NDArray[np.uint64] | None = None, refit: Refit | None = None,
            seed: int = 0, progress: Progress | None = None) -> Student:
    """A student of the teacher, and in its report how it compares on held-out texts of the pool.

    It also learns the teacher's answers on `examples`, the labelled texts that the teacher was trained on. With a goal
    for a cascade the student gets a threshold. On `labelled` texts, which must not be in the pool, accuracy is
    measured: by cross-fitting with `refit` if the teacher was trained on most of them, as hashes of the texts that it
    was `trained_on` tell, else on the others. The teacher answers texts of its own pool as it would new ones, for which
    the student is to agree with it.
    """
    kind, teacher = check_kind(student), teacher.as_if_new()
    if len(pool) < MIN_TEXTS:
        raise DataError(f"{pool.source} has {len(pool)} texts to learn from, which is too few; give at least "
                        f"{MIN_TEXTS}, better thousands.")
    rows = shuffled(generator(seed, Stream.DISTILLATION), len(pool))[:POOL_LIMIT]
    texts = [pool.texts[int(i)] for i in rows]
    words = None
    if kind == "static" and not isinstance(teacher.encoder, BagOfWords):
        (p, h), teacher_seconds = timed(lambda: teacher.with_vectors(texts, progress))
        words = WordVectors.of(teacher, texts, h, progress)
    else:
        p, teacher_seconds = timed(lambda: teacher.probabilities(texts, progress))
    known = Examples.of(teacher, examples, texts)
    trial = best_trial(kind, teacher, texts, p, words, known)
    # a threshold holds for the student that it was chosen for, with more texts it would be sure of more
    fitted = trial.student if cascade is not None else trial.refitted(texts, p, known)
    _, student_seconds = timed(lambda: fitted.probabilities(texts))
    report: dict[str, Any] = {
        "student": kind, "texts": len(texts), "labelled": len(known.texts), "held_out": len(trial.texts),
        **agreement(trial, pool.source),
        "teacher_texts_per_second": len(texts) / teacher_seconds,
        "student_texts_per_second": len(texts) / student_seconds, "speed_up": teacher_seconds / student_seconds}
    if cascade is not None:
        threshold, figures = trial.threshold(cascade, teacher_seconds / len(texts), student_seconds / len(texts))
        fitted, report = replace(fitted, threshold=threshold), report | {"cascade": figures}
    if labelled is not None:
        seen = np.isin(text_hashes(labelled.texts), [] if trained_on is None else trained_on)
        seen_texts, new = (labelled.take(np.flatnonzero(rows).tolist()) for rows in (seen, ~seen))
        if refit is not None and len(seen_texts) > len(new):
            right = cross_fitted(trial, texts, seen_texts, refit, report, seed)
            report["accuracy"] = intervals(right) | {"measured_by": "cross-fitting"}
        else:
            right = correct(fitted, teacher, new if len(new) else seen_texts)
            by = "labelled texts" if trained_on is None else "new texts" if len(new) else "training texts"
            report["accuracy"] = intervals(right) | {"measured_by": by}
    return replace(fitted, report=report)


def check_kind(student: str) -> Kind:
    """Refuses an unknown kind of student."""
    for kind in KINDS:
        if kind == student:
            return kind
    raise SettingError(f"there is no student '{student}'; choose one of {', '.join(KINDS)}.")
