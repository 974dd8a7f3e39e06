"""CAP: exact counts despite ties, labels without labelled texts go to none, and it is fast."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from halflabel.equations import probabilities
from halflabel.methods.bdd import BalancedAngles
from halflabel.nn.pseudo_labels import ClassAware
from halflabel.types import Shape


def cap(y: torch.Tensor, pool: int) -> ClassAware:
    labeller = ClassAware(Shape(labels=y.shape[1], width=8, labelled=len(y), unlabelled=pool))
    labeller.set_labelled(y)
    return labeller


def by_hand(p: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """The same for each label in turn, with Python's own sort."""
    y = np.zeros(p.shape)
    for k in range(p.shape[1]):
        order = sorted(range(len(p)), key=lambda i: (-p[i, k], i))
        y[order[: int(np.floor(prior[k] * len(p) + 0.5))], k] = 1
    return y


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 40), labels=st.integers(1, 20), levels=st.integers(1, 6))
def test_counts_are_exact_despite_ties(seed: int, n: int, labels: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    y = torch.from_numpy((rng.random((12, labels)) < rng.random(labels)).astype(np.float32))
    p = torch.from_numpy(rng.integers(0, levels, (n, labels)).astype(np.float32))
    target = cap(y, n).label(p)
    assert np.array_equal(target.y.numpy(), by_hand(p.numpy(), y.mean(dim=0).numpy()))
    assert target.weight.tolist() == [1.0] * n


def test_a_label_that_no_text_has_goes_to_none_and_one_that_all_have_to_all() -> None:
    y = torch.tensor([[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
    assert cap(y, 6).label(torch.rand(6, 3)).y.sum(dim=0).tolist() == [0.0, 6.0, 3.0]


def test_unknown_entries_do_not_count_in_the_frequencies() -> None:
    nan = float("nan")
    labeller = cap(torch.tensor([[1.0, nan], [nan, nan], [0.0, 1.0], [1.0, 0.0]]), 4)
    assert labeller.prior.tolist() == pytest.approx([2 / 3, 1 / 2])


def test_labels_are_kept_until_the_next_update() -> None:
    labeller = cap(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), 4)
    p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8]])
    labeller.update_epoch(torch.arange(4), p, torch.empty(0), torch.empty(0))
    expected = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    assert labeller(torch.arange(4), lambda: p.flip(1)).y.tolist() == expected
    labeller.update_epoch(torch.tensor([0, 2]), p[[2, 0]], torch.empty(0), torch.empty(0))
    assert labeller(torch.arange(4), lambda: p).y.tolist() == [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]


def test_the_update_for_a_large_pool_is_fast_and_small() -> None:
    torch.manual_seed(0)
    n, labels = 20_000, 103
    y = (torch.rand(200, labels) < 0.03).float()
    labeller, angles = cap(y, n), BalancedAngles(Shape(labels, 8, 200, n), 0.001)
    f, scores = torch.randn(n + 200, 128), torch.rand(n, labels)

    def update() -> float:
        began = time.process_time()
        p = probabilities(scores)
        target = labeller.label(p)
        labeller.update_epoch(torch.arange(n), p, f, y)
        angles.update(f, torch.cat([y, target.y]))
        return time.process_time() - began

    assert min(update() for _ in range(3)) < 1.0
    assert labeller.table.element_size() * labeller.table.nelement() <= 4 * n * labels
    tracemalloc.start()
    labeller.label(scores)
    assert tracemalloc.get_traced_memory()[1] < 1e6  # nothing grows in Python's own memory
    tracemalloc.stop()
