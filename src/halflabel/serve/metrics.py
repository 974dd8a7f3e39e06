"""Metrics in Prometheus' format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from halflabel.serve.batching import Prediction

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counts requests, batches and predicted labels of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("halflabel_requests", "Requests by route and status.", ["route", "status"],
                                registry=self.registry)
        self.failures = Counter("halflabel_failures", "Requests that were refused or failed (status 400 and above).",
                                ["route"], registry=self.registry)
        self.seconds = Histogram("halflabel_request_seconds", "Time from a request to its response.", ["route"],
                                 buckets=SECONDS, registry=self.registry)
        self.queue = Gauge("halflabel_queue_texts", "Texts that wait for a batch.", registry=self.registry)
        self.batches = Histogram("halflabel_batch_texts", "Texts that were predicted together.", buckets=TEXTS,
                                 registry=self.registry)
        self.texts = Counter("halflabel_texts", "Texts that were answered.", registry=self.registry)
        self.abstentions = Counter("halflabel_abstentions", "Texts that got no label.", registry=self.registry)
        self.labels = Counter("halflabel_labels", "How often each label was assigned.", ["label"],
                              registry=self.registry)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)
        if status >= 400:
            self.failures.labels(route).inc()

    def count_batch(self, prediction: Prediction) -> None:
        self.batches.observe(len(prediction.values))

    def count_answer(self, prediction: Prediction) -> None:
        self.texts.inc(len(prediction.values))
        self.abstentions.inc(len(prediction.values) - int(prediction.chosen.any(axis=1).sum()))
        for label, number in zip(prediction.model.labels, prediction.chosen.sum(axis=0).tolist(), strict=True):
            if number:
                self.labels.labels(label).inc(number)

    def text(self) -> bytes:
        return generate_latest(self.registry)
