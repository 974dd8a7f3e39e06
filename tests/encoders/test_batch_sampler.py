"""Batch sampling: a pure function of seed and step, with similar lengths in a batch and every row once in a pass."""

from __future__ import annotations

import numpy as np
import pytest

from halflabel.encoders.inputs import BatchSampler, shuffled

LENGTHS = np.random.default_rng(0).integers(5, 200, 997)


def test_a_step_does_not_depend_on_earlier_calls() -> None:
    steps = [0, 7, 300, 62, 61, 1000]
    whole = BatchSampler(LENGTHS, 16, seed=1, stream=2)
    history = {step: whole.rows(step).tolist() for step in range(1001)}
    assert all(BatchSampler(LENGTHS, 16, seed=1, stream=2).rows(step).tolist() == history[step] for step in steps)


def test_only_a_stretch_of_a_long_pass_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = BatchSampler(LENGTHS, 16, seed=1, stream=2)
    expected = [whole.rows(step).tolist() for step in range(200)]
    monkeypatch.setattr("halflabel.encoders.inputs.STRETCH", 7)
    parts = BatchSampler(LENGTHS, 16, seed=1, stream=2)
    assert [parts.rows(step).tolist() for step in range(200)] == expected
    assert parts._rows.shape == (7, 16)


def test_shuffling_in_place_equals_a_permutation() -> None:
    expected = np.random.default_rng(3).permutation(1000)
    assert shuffled(np.random.default_rng(3), 1000).tolist() == expected.tolist()


def test_a_pass_sees_each_row_at_most_once_and_nearly_all() -> None:
    batches = BatchSampler(LENGTHS, 16, seed=1, stream=2)
    seen = np.concatenate([batches.rows(step) for step in range(batches.per_pass)])
    assert len(set(seen.tolist())) == len(seen) == 992


def test_lengths_within_a_batch_are_similar() -> None:
    batches = BatchSampler(LENGTHS, 16, seed=1, stream=2)
    gaps = [np.ptp(LENGTHS[batches.rows(step)]) for step in range(batches.per_pass)]
    assert np.mean(gaps) < 20


@pytest.mark.parametrize(("seed", "stream"), [(2, 2), (1, 3)])
def test_seeds_and_streams_differ(seed: int, stream: int) -> None:
    rows = BatchSampler(LENGTHS, 16, seed=1, stream=2).rows(0).tolist()
    assert BatchSampler(LENGTHS, 16, seed=seed, stream=stream).rows(0).tolist() != rows


def test_fewer_rows_than_a_batch_or_none() -> None:
    assert sorted(BatchSampler(np.ones(3), 8, seed=0, stream=0).rows(5).tolist()) == [0, 1, 2]
    assert BatchSampler(np.ones(0), 8, seed=0, stream=0).rows(5).tolist() == []
