"""Dynamic batching: one thread holds the model and predicts the texts of several requests at once."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from halflabel.evaluation.decisions import finite
from halflabel.persistence.model_folder import Model

if TYPE_CHECKING:
    from halflabel.persistence.model import TrainedModel

WINDOW = 0.005  # seconds that a request waits for others, counted from its arrival
BATCH = 512  # texts that are predicted together; the model divides them into batches by tokens


class QueueFull(Exception):
    """Too many texts are waiting."""


class ServedModel:
    """A model with the name that requests call it by; the version changes with its weights.

    A text farther from all classes than `farthest` gets no label.
    """

    def __init__(self, name: str, model: Model, farthest: float | None = None, version: str = "") -> None:
        self.name = name
        self.version = version or name
        self.model = model
        self.farthest = farthest

    @cached_property
    def labels(self) -> list[str]:
        return [str(name) for name in self.model.classes.names]

    @cached_property
    def score_openings(self) -> list[str]:
        """The JSON of each label with its score, up to the number."""
        return [f'{{"label":{json.dumps(label, ensure_ascii=False)},"score":' for label in self.labels]

    @property
    def multilabel(self) -> bool:
        return self.model.task == "multi-label"

    def predict(self, texts: list[str], *, raw: bool) -> Prediction:
        """Probabilities, or raw scores, and the labels that the model assigns."""
        distances = None
        if self.farthest is not None:
            model = cast("TrainedModel", self.model)
            scores, distances = model.scores_with_distances(texts)
            values = scores if raw else model.probabilities_of(scores)
        else:
            values = finite(np.asarray(self.model.scores(texts) if raw else self.model.probabilities(texts)))
        if not self.multilabel:
            chosen = np.arange(len(self.labels)) == values.argmax(axis=1)[:, None]
        else:
            chosen = self.model.rules(values) if raw else self.model.rules.rule()(values)
        if distances is not None:
            chosen &= (distances <= self.farthest)[:, None]
        return Prediction(self, values, chosen, distances)


class Prediction(NamedTuple):
    """What a model predicts for N texts."""

    model: ServedModel
    values: np.ndarray  # (N, K) probabilities or raw scores
    chosen: np.ndarray  # (N, K) whether a text has a label
    distances: np.ndarray | None = None  # (N,) from the nearest class, where unknown texts get no label

    def take(self, rows: slice) -> Prediction:
        """The prediction for some of the texts."""
        return Prediction(self.model, self.values[rows], self.chosen[rows],
                          None if self.distances is None else self.distances[rows])


class Job(NamedTuple):
    """The texts of one request."""

    texts: list[str]
    raw: bool
    answer: Future[Prediction]
    arrived: float


class Batcher:
    """Collects requests in a bounded queue and answers them in the order of their arrival."""

    def __init__(self, model: ServedModel, *, queue_texts: int, report: Callable[[Prediction], None]) -> None:
        self.model = model  # may be replaced at any time: a batch is predicted by one model
        self.queue_texts = queue_texts
        self.report = report  # is called after each batch
        self.waiting = 0  # texts
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._worker = threading.Thread(target=self._work, name="predict", daemon=True)

    def start(self) -> None:
        self._worker.start()

    def submit(self, texts: list[str], *, raw: bool = False) -> Future[Prediction]:
        """Queues the texts of a request; raises QueueFull if too many are waiting."""
        job = Job(texts, raw, Future(), time.monotonic())
        with self._changed:
            if self._closed or self.waiting + len(texts) > self.queue_texts:
                raise QueueFull
            self._jobs.append(job)
            self.waiting += len(texts)
            self._changed.notify()
        return job.answer

    def close(self) -> None:
        """Answers everything that is waiting, then ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._worker.join()

    def _work(self) -> None:
        while jobs := self._collect():
            model = self.model
            for raw in (False, True):
                if group := [job for job in jobs if job.raw is raw and job.answer.set_running_or_notify_cancel()]:
                    self._answer(model, group, raw=raw)

    def _collect(self) -> list[Job]:
        """The next batch: waits for a request, then until its window ends or the batch is full; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            if not self._jobs:
                return []
            window = self._jobs[0].arrived + WINDOW - time.monotonic()
            self._changed.wait_for(lambda: self.waiting >= BATCH or self._closed, window)
            batch = [self._jobs.popleft()]
            texts = len(batch[0].texts)
            while self._jobs and texts + len(self._jobs[0].texts) <= BATCH:
                batch.append(self._jobs.popleft())
                texts += len(batch[-1].texts)
            self.waiting -= texts
        return batch

    def _answer(self, model: ServedModel, jobs: list[Job], *, raw: bool) -> None:
        try:
            prediction = model.predict([text for job in jobs for text in job.texts], raw=raw)
            self.report(prediction)
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].answer.set_exception(error)
                return
            for job in jobs:  # only the request that causes the error gets it
                self._answer(model, [job], raw=raw)
            return
        start = 0
        for job in jobs:
            rows = slice(start, start + len(job.texts))
            job.answer.set_result(prediction.take(rows))
            start = rows.stop
