"""Dynamic batching: order, limits, errors, the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from halflabel.serve.batching import BATCH, Batcher, Prediction, QueueFull, ServedModel
from served import NumberModel, probability


@contextmanager
def running(model: NumberModel, **settings: Any) -> Iterator[Batcher]:
    batcher = Batcher(ServedModel("numbers", model), **{"queue_texts": 1000, "report": lambda _: None} | settings)
    batcher.start()
    yield batcher
    batcher.close()


def test_requests_are_predicted_together_and_get_their_own_rows() -> None:
    model, reported = NumberModel(seconds=0.02), list[Prediction]()
    with running(model, report=reported.append) as batcher:
        answers = [batcher.submit([f"text {n}", f"text {n + 1}"]) for n in range(0, 60, 2)]
        for n, answer in zip(range(0, 60, 2), answers, strict=True):
            p = answer.result(10).values
            assert p.shape == (2, 3)
            np.testing.assert_allclose(p[:, 0], [probability(n), probability(n + 1)])
    assert len(model.batches) < 10 and sum(model.batches) == 60
    assert [len(prediction.values) for prediction in reported] == model.batches


def test_a_batch_has_a_limit() -> None:
    model = NumberModel(seconds=0.01)
    with running(model) as batcher:
        answers = [batcher.submit([f"text {n}"] * 100) for n in range(8)]
        assert [len(answer.result(10).values) for answer in answers] == [100] * 8
    assert max(model.batches) <= BATCH


def test_raw_scores_and_probabilities_share_the_queue() -> None:
    with running(NumberModel()) as batcher:
        raw, p = batcher.submit(["text 7"], raw=True), batcher.submit(["text 7"])
        assert raw.result(10).values.tolist() == [[7.0, 0.0, -7.0]]
        assert p.result(10).values[0, 0] == pytest.approx(probability(7))


def test_a_full_queue_refuses() -> None:
    with running(NumberModel(seconds=0.2), queue_texts=4) as batcher:
        first = batcher.submit(["text 1"] * 4)
        with pytest.raises(QueueFull):
            batcher.submit(["text 2"])
        first.result(10)
        assert batcher.submit(["text 3"]).result(10).values.shape == (1, 3)


def test_an_error_reaches_only_the_request_that_caused_it() -> None:
    with running(NumberModel(seconds=0.01)) as batcher:
        answers = [batcher.submit([text]) for text in ("text 1", "broken", "text 3")]
        assert answers[0].result(10).values[0, 0] == pytest.approx(probability(1))
        assert answers[2].result(10).values[0, 0] == pytest.approx(probability(3))
        with pytest.raises(ValueError, match="the weights are damaged"):
            answers[1].result(10)


def test_a_cancelled_request_is_not_predicted() -> None:
    model = NumberModel(seconds=0.1)
    with running(model) as batcher:
        first = batcher.submit(["text 1"] * BATCH)
        second = batcher.submit(["text 2"])
        assert second.cancel()
        first.result(10)
    assert model.batches == [BATCH]


def test_closing_answers_what_is_waiting_and_refuses_the_rest() -> None:
    with running(NumberModel(seconds=0.05)) as batcher:
        answers = [batcher.submit([f"text {n}"] * 200) for n in range(5)]
    assert all(answer.done() and len(answer.result().values) == 200 for answer in answers)
    with pytest.raises(QueueFull):
        batcher.submit(["text"])


def test_a_new_model_answers_from_the_next_batch() -> None:
    with running(NumberModel()) as batcher:
        assert batcher.submit(["text 1"]).result(10).model.name == "numbers"
        batcher.model = ServedModel("newer", NumberModel("multi-label"))
        answer = batcher.submit(["text 1"]).result(10)
        assert answer.model.name == "newer" and answer.chosen.tolist() == [[True, True, False]]
